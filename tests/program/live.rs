//! The last ten minutes of the whole program, over admin HTTP and the control socket.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::admin_http::{address, text};
use crate::support::{Gateway, Place, TIMEOUT};

const ADMIN: &str = "--admin-listen=127.0.0.1:0";

fn live(gateway: &Gateway, query: &str) -> Value {
    let path = format!("/api/v1/live{query}");
    serde_json::from_str(&text(&address(gateway), &path)).unwrap()
}

/// Makes `load` until the answer shows what is wanted.
fn until(gateway: &Gateway, mut load: impl FnMut(), is_there: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        load();
        let live = live(gateway, "");
        if is_there(&live) {
            return live;
        }
        assert!(begun.elapsed() < TIMEOUT, "{live}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a row of a table has this value in a column.
fn has(table: &Value, column: &str, value: &str) -> bool {
    let rows = table.as_array().unwrap();
    rows.iter().any(|row| row[column] == value)
}

fn is_positive(value: &Value) -> bool {
    value.as_f64().unwrap() > 0.0
}

#[test]
fn load_is_seen_as_points_and_in_all_tables() {
    let place = Place::new();
    let gateway = place.serve_with("data", &[ADMIN]);
    let mut client = gateway.client();
    let name = "file <b>\n\u{1b}[31mred";
    client.put(name, &[7; 100_000]);
    gateway.flush();
    let load = || {
        client.put(name, &[8; 100_000]);
        client.get(name).unwrap();
    };
    let seen = until(&gateway, load, |live| {
        let points = live["series"].as_array().unwrap();
        points.iter().any(|point| {
            let flows = ["reads", "writes"].map(|flow| &point[flow]);
            flows
                .iter()
                .all(|flow| is_positive(&flow["bytes_per_second"]))
                && is_positive(&point["names"]["calls_per_second"])
                && live["files"] != Value::Array(Vec::new())
        })
    });
    assert_eq!(seen["interval_seconds"], 2.0);
    assert!(is_positive(&seen["limits"]["log_bytes"]));
    assert!(is_positive(&seen["limits"]["memory_bytes"]));
    assert!(seen["limits"].get("disk_cache_bytes").is_none());
    let points = seen["series"].as_array().unwrap();
    let last = points.last().unwrap();
    assert_eq!(last["health"], "healthy");
    assert!(is_positive(&last["memory_bytes"]));
    assert!(has(&seen["clients"], "address", "127.0.0.1"));
    for procedure in ["READ", "WRITE", "LOOKUP"] {
        let procedures = &seen["procedures"];
        assert!(has(procedures, "procedure", procedure), "{procedures}");
    }
    // Each CREATE and COMMIT waits for a flush.
    assert!(has(&seen["waits"], "for", "flush"), "{}", seen["waits"]);
    // As in messages: what a terminal would take as an order is escaped.
    let path = r"/file <b>\n\x1b[31mred";
    assert!(has(&seen["files"], "path", path), "{}", seen["files"]);
    // The clean data of the flush is in some request of the last 10 s, or of the next ones.
    gateway.flush();
    let load = || {
        client.put("file", &[9; 1000]);
        gateway.flush();
    };
    until(&gateway, load, |live| {
        has(&live["requests"], "cause", "publish")
    });

    let sequence = last["sequence"].as_u64().unwrap();
    let after = live(&gateway, &format!("?after={sequence}"));
    let later = after["series"].as_array().unwrap();
    let sequences = later.iter().map(|point| point["sequence"].as_u64());
    assert!(sequences.into_iter().all(|one| one.unwrap() > sequence));
    gateway.stop_cleanly();
}
