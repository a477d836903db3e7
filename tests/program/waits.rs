//! Clients that wait, or are refused: the log names the cause and their number when it begins and when it ends,
//! `status --check` reports it by its exit code, and a stop meanwhile ends in order.

use std::fs;
use std::thread;

use serde_json::Value;

use crate::metrics::{ADMIN, Scrape};
use crate::support::nfs::{Client, Stable, Status};
use crate::support::signs::Signs;
use crate::support::{Gateway, Outcome, Place};

const MIB: f64 = 1_048_576.0;

/// More bytes than a gateway of these tests takes while its bucket is unreachable.
const FILE: usize = 96 << 20;

/// Makes every request to the bucket fail until `bring_back`: a file replaces its folder.
pub(crate) struct Away<'a>(&'a Place);

impl Away<'_> {
    pub(crate) fn take(place: &Place) -> Away<'_> {
        fs::rename(place.bucket(), place.path("bucket elsewhere")).unwrap();
        fs::write(place.bucket(), b"no folder").unwrap();
        Away(place)
    }

    pub(crate) fn bring_back(self) {
        fs::remove_file(self.0.bucket()).unwrap();
        fs::rename(self.0.path("bucket elsewhere"), self.0.bucket()).unwrap();
    }
}

/// `forebay status --check`, which must exit with this code.
#[track_caller]
fn check(gateway: &Gateway, code: i32) -> String {
    let Outcome { status, stdout, .. } = gateway.ask(&["status", "--check"]);
    assert_eq!(status.code(), Some(code), "{stdout}{}", gateway.messages());
    stdout
}

/// The wait with this name in `forebay status`.
#[track_caller]
fn wait_for(status: &Value, name: &str) -> Value {
    let waits = status["waits"].as_array().expect("waits");
    let found = waits.iter().find(|wait| wait["name"] == name);
    found.unwrap_or_else(|| panic!("{name}: {status}")).clone()
}

/// A gateway with these limits reaches the one that this metric shows, because its bucket is unreachable and a client writes.
fn a_limit_is_reached(flags: &[&str], limit: &str, signs: Signs) {
    let (name, says) = (signs.problem, signs.message);
    let place = Place::new();
    let gateway = place.serve_with("data", &[flags, &[ADMIN]].concat());
    check(&gateway, 0);
    let data = vec![7; FILE];
    gateway.client().put("before", &data[..1 << 20]);
    gateway.flush();
    let away = Away::take(&place);
    thread::scope(|scope| {
        let writer = scope.spawn(|| gateway.client().put("file", &data));
        gateway.says("the bucket does not answer");
        gateway.says(says);
        let line = check(&gateway, 1);
        assert!(line.contains(says), "{line}");
        let status = gateway.status();
        assert_eq!(status["health"]["state"], "degraded", "{status}");
        let wait = wait_for(&status, name);
        assert!(wait["total"].as_u64() > Some(0), "{wait}");
        signs.are_seen(&gateway);
        let scrape = Scrape::of(&gateway);
        let (full, limit) = (scrape.value(signs.metric), scrape.value(limit));
        assert!(full <= limit, "{full} of {limit}");
        // A call that has waited for a second is put off, and comes again.
        let waits_for = name.trim_end_matches("_full");
        let waits = format!("wait_duration_seconds_count{{for=\"{waits_for}\"}}");
        assert!(scrape.value(&waits) > 0.0);
        assert!(scrape.value("nfs_errors_total{status=\"NFS3ERR_JUKEBOX\"}") > 0.0);
        assert!(!writer.is_finished(), "the writer never waited");
        away.bring_back();
        writer.join().unwrap();
    });
    gateway.says(&format!("s: {says}"));
    let messages = gateway.messages();
    let over = messages
        .lines()
        .find(|line| line.contains("ended after") && line.contains(says));
    let over = over.unwrap_or_else(|| panic!("{messages}"));
    assert!(over.contains("calls had to wait"), "{over}");
    assert_eq!(Scrape::of(&gateway).sum("waiting_calls"), 0.0);
    assert!(gateway.client().get("file").unwrap() == data[..1 << 20]);
    gateway.stop_cleanly();
}

#[test]
fn calls_that_wait_for_the_log_are_reported() {
    let flags = [
        "--log-limit=32MiB",
        "--log-segment=4MiB",
        "--checkpoint-bytes=8MiB",
        "--memory-limit=256MiB",
    ];
    let signs = Signs {
        trouble: "the log is full",
        metric: "log_bytes",
        // Of eight segments the last one has no room for a WRITE of 1 MiB.
        at_least: 28.0 * MIB,
        problem: "log_full",
        message: "calls wait for room in the log",
    };
    a_limit_is_reached(&flags, "log_limit_bytes", signs);
}

#[test]
fn calls_that_wait_for_memory_are_reported() {
    let flags = [
        "--memory-limit=64MiB",
        "--pack-bytes=2MiB",
        // Less than eight times `checkpoint_bytes`: all dirty bytes stay in memory.
        "--checkpoint-bytes=16MiB",
        "--log-limit=96MiB",
        "--log-segment=16MiB",
    ];
    let signs = Signs {
        trouble: "memory is full",
        metric: "dirty_bytes",
        // The rest of memory_limit is for packs in flight, and for reads.
        at_least: 16.0 * MIB,
        problem: "memory_full",
        message: "writes wait for memory",
    };
    let limit = "memory_limit_bytes{owner=\"blocks\"}";
    a_limit_is_reached(&flags, limit, signs);
}

#[test]
fn a_client_in_no_export_is_refused_and_reported() {
    let place = Place::new();
    let file = place.path("forebay.toml");
    let text = "[[export]]\npath = \"/\"\nclients = [\"127.0.0.9\"]\n";
    fs::write(&file, text).unwrap();
    let config = format!("--config={}", file.display());
    let gateway = place.serve_with("data", &[&config, ADMIN]);
    let refused = gateway.client().mount_at("/");
    assert_eq!(refused.err(), Some(Status(13)), "ACCES");
    gateway.says(
        "mounts are refused, since no export includes the client's address; 1 since it began",
    );
    gateway.says("127.0.0.1");
    assert_eq!(Scrape::of(&gateway).value("nfs_mounts_refused_total"), 1.0);
    // Only this client is affected.
    check(&gateway, 0);
    let wait = wait_for(&gateway.status(), "mounts_refused");
    assert_eq!(wait["total"], 1, "{wait}");
    gateway.stop_cleanly();
}

#[test]
fn a_stop_without_the_bucket_is_in_order_and_says_what_is_left() {
    let place = Place::new();
    let gateway = place.serve();
    gateway.client().put("published", b"published");
    gateway.flush();
    let away = Away::take(&place);
    let mut client = gateway.client();
    let root = client.mount();
    let file = client.create(&root, b"kept");
    client
        .write(&file, 0, b"kept in the log", Stable::FileSync)
        .unwrap();
    gateway.says("the bucket does not answer");
    let (code, messages) = gateway.stop();
    assert_eq!(code, Some(0), "{messages}");
    assert!(messages.contains("bytes of the log"), "{messages}");
    assert!(
        messages.contains("start again to publish them"),
        "{messages}"
    );
    away.bring_back();
    let gateway = place.serve();
    let get = |name: &str| Client::connect(gateway.port()).get(name).unwrap();
    assert_eq!(get("kept"), b"kept in the log");
    assert_eq!(get("published"), b"published");
    gateway.flush();
    gateway.stop_cleanly();
}
