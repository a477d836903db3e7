//! `forebay where` and `forebay flush PATH`.

use std::fs;
use std::thread;

use serde_json::Value;

use crate::admin_http::{address, ask, get};
use crate::support::nfs::Stable;
use crate::support::{Gateway, Place};
use crate::waits::Away;

const ADMIN: &str = "--admin-listen=127.0.0.1:0";
/// Nothing is published unless the test says so.
const QUIET: &str = "--checkpoint-interval=1h";

/// `forebay where PATH --json`, which must succeed.
#[track_caller]
fn where_is(gateway: &Gateway, path: &str) -> Value {
    let asked = gateway.ask(&["where", path, "--json"]);
    assert!(asked.status.success(), "{}", asked.stderr);
    serde_json::from_str(&asked.stdout).unwrap()
}

#[track_caller]
fn flush_path(gateway: &Gateway, path: &str) -> String {
    let flushed = gateway.ask(&["flush", path, "--timeout=50s"]);
    assert!(flushed.status.success(), "{}", flushed.stderr);
    flushed.stdout
}

#[test]
fn a_file_is_in_the_bucket_once_it_is_flushed_and_a_new_machine_reads_it() {
    let place = Place::new();
    let gateway = place.serve_with("data", &[QUIET]);
    let mut client = gateway.client();
    client.put("file", &[7; 300_000]);
    client.put("other", &[8; 1000]);
    let found = where_is(&gateway, "/file");
    assert_eq!(
        (&found["in_bucket"], &found["kind"]),
        (&false.into(), &"file".into())
    );
    assert_eq!(found["unpublished_bytes"], 300_000);
    assert_eq!(
        (&found["log_bytes"], &found["unflushed_bytes"]),
        (&300_000.into(), &0.into())
    );
    let text = gateway.ask(&["where", "/file"]).stdout;
    assert!(
        text.starts_with("in the bucket: no, 300000 bytes are not yet\n"),
        "{text}"
    );
    let requests = |gateway: &Gateway| gateway.status()["requests"]["store_put"].as_u64().unwrap();

    let said = flush_path(&gateway, "/file");
    assert!(said.contains("the bucket holds /file"), "{said}");
    let found = where_is(&gateway, "/file");
    assert_eq!(
        (&found["in_bucket"], &found["since_is_exact"]),
        (&true.into(), &true.into())
    );
    assert_eq!(found["published_bytes"], 300_000);
    assert!(found["packs"].as_u64() >= Some(1), "{found}");
    let text = gateway.ask(&["where", "/file"]).stdout;
    assert!(text.starts_with("in the bucket: yes, since 2"), "{text}");
    // It is there: another flush of it asks the bucket nothing, although another file waits.
    client.put("new", &[9; 500]);
    let before = requests(&gateway);
    flush_path(&gateway, "/file");
    assert_eq!(requests(&gateway), before);
    assert_eq!(where_is(&gateway, "/new")["in_bucket"], false);
    drop(gateway);

    // The machine is gone, and with it the log.
    fs::remove_dir_all(place.data_dir()).unwrap();
    let gateway = place.serve_with("elsewhere", &["--take-over"]);
    assert_eq!(gateway.client().get("file").unwrap(), [7; 300_000]);
    assert_eq!(where_is(&gateway, "/file")["in_bucket"], true);
    let lost = gateway.ask(&["where", "/new"]);
    assert_eq!(lost.status.code(), Some(1));
    assert!(lost.stderr.contains("there is no /new"), "{}", lost.stderr);
    gateway.stop_cleanly();
}

#[test]
fn a_tree_is_summed_before_and_after_a_restart_and_over_http() {
    let place = Place::new();
    let token = place.path("token");
    crate::admin_http::put_token(&token, "the-token-of-this-test");
    let token_flag = format!("--admin-token={}", token.display());
    let flags = [ADMIN, QUIET, "--dedup=full", &token_flag];
    let gateway = place.serve_with("data", &flags);
    let mut client = gateway.client();
    client.mkdir("tree");
    let tree = client.mount_at("/tree").unwrap();
    let content: Vec<u8> = (0..500_000_u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    let content = &content[..1 << 20];
    for name in ["one", "copy"] {
        let file = client.create(&tree, name.as_bytes());
        client.write(&file, 0, content, Stable::FileSync).unwrap();
        gateway.flush();
    }
    let odd = client.create(&tree, b"a\n\x1b[31m&=%");
    client.write(&odd, 0, &[1; 100], Stable::FileSync).unwrap();
    let found = where_is(&gateway, "/tree");
    assert_eq!(
        (&found["in_bucket"], &found["kind"]),
        (&false.into(), &"directory".into())
    );
    assert_eq!(
        (&found["files"], &found["directories"]),
        (&3.into(), &1.into())
    );
    assert_eq!(
        (&found["published_bytes"], &found["log_bytes"]),
        (&(2 << 20).into(), &100.into())
    );
    assert_eq!(found["shared_bytes"], 1 << 20);
    assert_eq!(where_is(&gateway, "/tree/copy")["in_bucket"], true);
    let shown = gateway.ask(&["where", "/tree/a\n\x1b[31m&=%"]).stdout;
    assert!(shown.starts_with("in the bucket: no, 100 bytes"), "{shown}");
    assert!(!shown.contains('\x1b'), "{shown}");

    let http = address(&gateway);
    let (code, found) = get(&http, "/api/v1/where?path=/tree/a%0a%1b%5b31m%26%3d%25");
    assert_eq!(
        (code, &found["unpublished_bytes"]),
        (200, &100.into()),
        "{found}"
    );
    assert_eq!(get(&http, "/api/v1/where?path=/none").0, 404);
    assert_eq!(get(&http, "/api/v1/where?path=/tree/one/x").0, 404);
    assert_eq!(get(&http, "/api/v1/where").0, 400);
    assert_eq!(get(&http, "/api/v1/where?path=/a/../b").0, 400);
    let flush = |query: &str, headers: &[&str]| {
        ask(&http, &format!("POST /api/v1/flush{query}"), headers).0
    };
    let bearer = "Authorization: Bearer the-token-of-this-test";
    assert_eq!(flush("?path=/tree", &[]), 401);
    assert_eq!(flush("?path=/none", &[bearer]), 404);
    assert_eq!(flush("?what=/tree", &[bearer]), 400);
    assert_eq!(flush("?path=/tree", &[bearer]), 200);
    assert_eq!(where_is(&gateway, "/tree")["in_bucket"], true);
    gateway.stop_cleanly();

    let gateway = place.serve_with("data", &[QUIET]);
    let found = where_is(&gateway, "tree/");
    assert_eq!(
        (&found["in_bucket"], &found["since_is_exact"]),
        (&true.into(), &false.into())
    );
    assert_eq!(found["published_bytes"], (2 << 20) + 100);
    assert_eq!(
        (&found["files"], &found["memory_bytes"]),
        (&3.into(), &0.into())
    );
    gateway.stop_cleanly();
}

#[test]
fn while_the_bucket_is_away_what_is_here_is_told_and_a_flush_of_a_path_waits() {
    let place = Place::new();
    let gateway = place.serve_with("data", &[QUIET]);
    gateway.client().put("before", &[7; 1000]);
    gateway.flush();
    gateway.client().put("file", &[7; 1000]);
    let away = Away::take(&place);
    let gives_up = gateway.ask(&["flush", "/file", "--timeout=1s"]);
    assert_eq!(gives_up.status.code(), Some(1));
    assert!(
        gives_up.stderr.contains("did not answer within 1s"),
        "{}",
        gives_up.stderr
    );
    gateway.says("the bucket does not answer");
    let found = where_is(&gateway, "/file");
    assert_eq!(
        (&found["in_bucket"], &found["log_bytes"]),
        (&false.into(), &1000.into())
    );
    let found = where_is(&gateway, "/before");
    assert_eq!(
        (&found["in_bucket"], &found["size_bytes"]),
        (&true.into(), &1000.into())
    );
    let found = where_is(&gateway, "/");
    assert_eq!(
        (&found["in_bucket"], &found["log_bytes"]),
        (&false.into(), &1000.into())
    );
    thread::scope(|scope| {
        let flushing = scope.spawn(|| flush_path(&gateway, "/file"));
        away.bring_back();
        flushing.join().unwrap();
    });
    assert_eq!(where_is(&gateway, "/")["in_bucket"], true);
    gateway.stop_cleanly();
}
