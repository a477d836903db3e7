//! Two gateways and one volume: the later one has it.

use std::fs;

use crate::support::Place;

#[test]
fn a_gateway_that_was_taken_over_stops_and_says_so() {
    let place = Place::new();
    let first = place.serve_with("data", &["--checkpoint-interval=1h"]);
    first.client().put("file", b"published");
    first.flush();
    let second = place.serve_with("second", &["--checkpoint-interval=1h"]);

    // It finds out when it next publishes.
    first.client().put("file", b"too late");
    let flushed = first.ask(&["flush", "--timeout=50s"]);
    assert!(!flushed.status.success(), "{}", flushed.stdout);
    let (code, messages) = first.ends();
    assert_eq!(code, Some(1), "{messages}");
    assert!(
        messages.contains("another gateway has taken over"),
        "{messages}"
    );

    assert_eq!(second.client().get("file").unwrap(), b"published");
    second.client().put("file", b"of the second");
    second.flush();
    second.stop_cleanly();
}

#[test]
fn the_log_of_a_gateway_that_was_taken_over_is_put_aside_and_named() {
    let place = Place::new();
    let first = place.serve_with("data", &["--checkpoint-interval=1h"]);
    first.client().put("file", b"published");
    first.flush();
    first.client().put("file", b"in the log alone");
    first.kill();
    let second = place.serve_with("second", &[]);
    second.client().put("file", b"of the second");
    second.stop_cleanly();

    let first = place.serve();
    assert_eq!(first.client().get("file").unwrap(), b"of the second");
    first.says("put aside");
    first.says(&place.data_dir().display().to_string());
    let kept = fs::read_dir(place.data_dir().join("log")).unwrap();
    let kept: Vec<_> = kept.map(|entry| entry.unwrap().path()).collect();
    let holds = |path: &std::path::PathBuf| {
        let bytes = fs::read(path).unwrap_or_default();
        bytes
            .windows(16)
            .any(|window| window == b"in the log alone")
    };
    assert!(kept.iter().any(holds), "the log is gone: {kept:?}");
    first.stop_cleanly();
}
