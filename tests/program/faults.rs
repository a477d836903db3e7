//! Faults, and where an operator sees each of them. docs/operations.md has the table. Other faults are in the tests of
//! their kind: see the uses of [`Signs`].

use std::thread;
use std::time::{Duration, Instant};

use crate::metrics::{ADMIN, Scrape, requests};
use crate::support::nfs::{Client, Stable};
use crate::support::preload::{HeldPacks, slow_flushes};
use crate::support::proxied::Proxied;
use crate::support::s3_proxy::Fault;
use crate::support::signs::Signs;
use crate::support::{Gateway, Place, TIMEOUT};
use crate::waits::Away;

#[test]
fn a_bucket_that_is_away_is_seen_until_it_is_back() {
    let place = Place::new();
    let gateway = place.serve_with("data", &[ADMIN]);
    gateway.client().put("before", &[7; 1000]);
    gateway.flush();
    let away = Away::take(&place);
    gateway.client().put("file", &[7; 1000]);
    let signs = Signs {
        trouble: "the bucket is away",
        metric: "store_trouble_seconds",
        problem: "bucket_away",
        message: "the bucket does not answer",
    };
    signs.are_seen(&gateway);
    let scrape = Scrape::of(&gateway);
    assert!(scrape.value("unpublished_bytes") > 0.0);
    assert!(scrape.sum("store_retries_total") > 0.0);
    away.bring_back();
    gateway.flush();
    let scrape = Scrape::of(&gateway);
    assert_eq!(scrape.value("health"), 0.0);
    assert_eq!(scrape.value("problem{name=\"bucket_away\"}"), 0.0);
    assert_eq!(scrape.value("store_trouble_seconds"), 0.0);
    gateway.stop_cleanly();
}

#[test]
fn a_gateway_that_nobody_asks_sees_that_its_bucket_is_back() {
    let place = Place::new();
    let gateway = place.serve_with("data", &[ADMIN]);
    gateway.client().put("file", &[7; 1000]);
    gateway.stop_cleanly();
    let gateway = place.serve_with("data", &[ADMIN]);
    let mut client = gateway.client();
    let root = client.mount();
    let file = client.lookup(&root, b"file").unwrap();
    let away = Away::take(&place);
    Client::is_put_off(gateway.port(), &file);
    let trouble = || Scrape::of(&gateway).value("store_trouble_seconds");
    assert!(trouble() > 0.0);
    away.bring_back();
    let deadline = Instant::now() + TIMEOUT;
    while trouble() > 0.0 {
        assert!(Instant::now() < deadline, "{}", gateway.messages());
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(gateway.client().get("file"), Ok(vec![7; 1000]));
    gateway.stop_cleanly();
}

#[test]
#[ignore = "needs the S3 server that FOREBAY_TEST_S3_SERVER names"]
fn a_store_that_throttles_is_seen() {
    let behind = Proxied::start(&[ADMIN]);
    let (gateway, proxy) = (&behind.gateway, &behind.proxy);
    proxy.next("PUT", "packs/", Fault::SlowDown);
    gateway.client().put("file", &[7; 100_000]);
    gateway.flush();
    assert_eq!(proxy.injected(Fault::SlowDown), 1);
    let signs = Signs {
        trouble: "the store throttles",
        metric: "store_request_duration_seconds_count{method=\"put\",cause=\"publish\",outcome=\"throttled\"}",
        problem: "bucket_throttles",
        message: "the store asks for fewer requests",
    };
    signs.are_seen(gateway);
    behind.gateway.stop_cleanly();
}

#[test]
fn a_client_that_hogs_is_named_by_its_address() {
    let place = Place::new();
    // One client may have seven of them.
    let gateway = place.serve_with("data", &[ADMIN, "--max-connections=8"]);
    let mut clients: Vec<_> = (0..7).map(|_| gateway.client()).collect();
    clients.iter_mut().for_each(|client| {
        client.mount();
    });
    // By one of the seven: a connection that was closed before them might still count.
    clients[0].put("file", &[7; 1 << 20]);
    let refused = std::net::TcpStream::connect(("127.0.0.1", gateway.port()));
    let signs = Signs {
        trouble: "a client hogs",
        metric: "nfs_connections_refused_total",
        problem: "connections_refused",
        message: "connections are refused",
    };
    signs.are_seen(&gateway);
    gateway.says("the last from 127.0.0.1");
    let of_client = Scrape::of(&gateway).value("client_received_bytes_total{client=\"127.0.0.1\"}");
    assert!(of_client > 1_000_000.0, "{of_client}");
    drop((refused, clients));
    gateway.stop_cleanly();
}

#[test]
fn a_fence_is_seen_in_the_last_message_and_by_the_silence() {
    let place = Place::new();
    let first = place.serve_with("data", &[ADMIN, "--checkpoint-interval=1h"]);
    first.client().put("file", b"published");
    first.flush();
    let second = place.serve_with("second", &["--checkpoint-interval=1h", "--take-over"]);
    first.client().put("file", b"too late");
    let signs = Signs {
        trouble: "another gateway takes the volume over",
        metric: "problem",
        problem: "fenced",
        message: "another gateway has taken over",
    };
    signs.are_documented();
    assert!(!first.ask(&["flush", "--timeout=50s"]).status.success());
    let (code, messages) = first.ends();
    assert_eq!(code, Some(3));
    assert!(messages.contains(signs.message), "{messages}");
    second.stop_cleanly();
}

#[test]
fn a_slow_disk_is_what_slow_calls_waited_for() {
    let place = Place::new();
    let library = slow_flushes(&place, 300);
    let mut flags = place.flags("data");
    flags.extend([ADMIN, "--slow-call=200ms"].map(str::to_owned));
    let gateway = Gateway::start(&flags, &[("LD_PRELOAD", &library)]);
    let mut client = gateway.client();
    let root = client.mount();
    let file = client.create(&root, b"file");
    client
        .write(&file, 0, b"to the disk", Stable::FileSync)
        .unwrap();
    let signs = Signs {
        trouble: "the disk of the log is slow",
        metric: "log_flush_duration_seconds_sum{outcome=\"ok\"}",
        problem: "",
        message: "slow call: WRITE",
    };
    signs.are_seen(&gateway);
    gateway.says("for flush");
    let waited = Scrape::of(&gateway).value("nfs_slow_calls_total");
    assert!(waited >= 1.0, "{waited}");
    gateway.stop_cleanly();
}

#[test]
fn a_slow_bucket_is_what_slow_calls_waited_for() {
    let place = Place::new();
    let gateway = place.serve();
    gateway.client().put("file", &[7; 100_000]);
    gateway.flush();
    gateway.stop_cleanly();
    // Nothing is in memory any more.
    let held = HeldPacks::hold(&place);
    let limit = Duration::from_millis(200);
    let mut flags = place.flags("data");
    flags.extend([ADMIN, "--slow-call=200ms"].map(str::to_owned));
    let gateway = Gateway::start(&flags, &[("LD_PRELOAD", &held.library)]);
    thread::scope(|scope| {
        let reader = scope.spawn(|| gateway.client().get("file").unwrap());
        held.wait();
        // The call has begun before, so that it takes longer than that.
        thread::sleep(limit);
        assert!(!reader.is_finished(), "the bucket was not held");
        held.release();
        assert!(reader.join().unwrap() == [7; 100_000]);
    });
    let signs = Signs {
        trouble: "the bucket is slow",
        metric: "store_request_duration_seconds_sum{method=\"get\",cause=\"fetch\",outcome=\"ok\"}",
        problem: "",
        message: "slow call: READ",
    };
    signs.are_seen(&gateway);
    gateway.says("for bucket");
    let scrape = Scrape::of(&gateway);
    assert!(scrape.value(signs.metric) >= limit.as_secs_f64());
    assert!(scrape.value(&requests("get", "fetch", "ok")) >= 1.0);
    assert!(scrape.value("nfs_slow_calls_total") >= 1.0);
    gateway.stop_cleanly();
}
