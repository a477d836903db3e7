//! The causes of requests to the bucket: work in the background is counted as what it is.

use std::thread;
use std::time::{Duration, Instant};

use crate::metrics::{ADMIN, Scrape};
use crate::support::nfs::Stable;
use crate::support::{Gateway, Place, TIMEOUT};

const MIB: usize = 1 << 20;

/// Requests with this cause so far.
fn requests(gateway: &Gateway, cause: &str) -> f64 {
    let label = format!("cause=\"{cause}\"");
    Scrape::of(gateway).sum_with("store_request_duration_seconds_count", &label)
}

/// Does `work` until there are requests with this cause.
#[track_caller]
fn until(gateway: &Gateway, cause: &str, mut work: impl FnMut()) {
    let deadline = Instant::now() + TIMEOUT;
    while requests(gateway, cause) == 0.0 {
        assert!(
            Instant::now() < deadline,
            "no {cause}: {}",
            gateway.messages()
        );
        work();
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn packs_that_are_rewritten_are_requests_of_the_collector() {
    let place = Place::new();
    let flags = [ADMIN, "--pack-bytes=1MiB", "--compression=off"];
    let gateway = place.serve_with("data", &flags);
    let mut client = gateway.client();
    let root = client.mount();
    let file = client.create(&root, b"file");
    // Most of the file a second time: packs of the first time are mostly dead.
    for round in 0..2 {
        for at in round..4 {
            let bytes = vec![(10 * round + at) as u8; MIB];
            let offset = (at * MIB) as u64;
            client
                .write(&file, offset, &bytes, Stable::Unstable)
                .unwrap();
        }
        client.commit(&file);
        gateway.flush();
    }
    until(&gateway, "collector", || ());
    gateway.stop_cleanly();
}

#[test]
fn a_round_of_the_scrub_is_requests_of_the_scrub() {
    let place = Place::new();
    let gateway = place.serve_with("data", &[ADMIN]);
    gateway.client().put("file", &[7; 100_000]);
    gateway.flush();
    assert_eq!(requests(&gateway, "scrub"), 0.0);
    assert!(gateway.ask(&["scrub"]).status.success());
    until(&gateway, "scrub", || ());
    gateway.stop_cleanly();
}

#[test]
fn tables_of_metadata_that_are_merged_are_requests_of_merges() {
    let place = Place::new();
    let gateway = place.serve_with("data", &[ADMIN, "--checkpoint-interval=1h"]);
    let mut client = gateway.client();
    let mut files = 0..;
    // Each publication makes a table.
    until(&gateway, "merge", || {
        client.put(&format!("file {}", files.next().unwrap_or(0)), b"data");
        gateway.flush();
    });
    gateway.stop_cleanly();
}
