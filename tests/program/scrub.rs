//! `forebay scrub`: damage in the bucket is found, healed from memory, and listed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::support::{Gateway, Place};

const TEXT: &[u8] = b"these bytes will be damaged";

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}

/// Flips a bit of the text in the pack that holds it.
fn damage(place: &Place) {
    for path in files(&place.bucket()) {
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.windows(TEXT.len()).position(|window| window == TEXT);
        if let Some(at) = at {
            bytes[at] ^= 1;
            return std::fs::write(path, bytes).unwrap();
        }
    }
    panic!("no pack holds the text");
}

#[track_caller]
fn status(gateway: &Gateway) -> Value {
    let said = gateway.ask(&["scrub", "--status", "--json"]);
    assert!(said.status.success(), "{}", said.stderr);
    serde_json::from_str(&said.stdout).unwrap()
}

/// Runs a round to its end, and waits until the state of all damaged frames is known.
fn scrub(gateway: &Gateway) -> Value {
    let begun = gateway.ask(&["scrub"]);
    assert!(begun.status.success(), "{}", begun.stderr);
    loop {
        let status = status(gateway);
        let frames = status["damaged_frames"].as_array().unwrap();
        if status["running"].is_null() && frames.iter().all(|frame| frame["state"] != "found") {
            return status;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn what_goes_bad_in_the_bucket_is_healed_by_the_gateway_that_has_it_in_memory() {
    let place = Place::new();
    let gateway = place.serve();
    gateway.client().put("file", TEXT);
    gateway.flush();
    let sound = scrub(&gateway);
    assert_eq!(sound["never_verified"], 0, "{sound}");
    assert_eq!(sound["damaged_packs"], Value::Array(Vec::new()), "{sound}");

    damage(&place);
    let found = scrub(&gateway);
    assert_eq!(found["last"]["damaged"], 1, "{found}");
    assert_eq!(found["damaged_packs"][0]["damaged_frames"], 1, "{found}");
    assert_eq!(found["damaged_frames"][0]["state"], "healed", "{found}");
    let shown = gateway.ask(&["scrub", "--status"]).stdout;
    assert!(shown.contains("healed"), "{shown}");
    gateway.stop_cleanly();

    // Another gateway has only the bucket.
    let elsewhere = place.serve_with("elsewhere", &[]);
    assert_eq!(elsewhere.client().get("file").unwrap(), TEXT);
    let stop = elsewhere.ask(&["scrub", "--stop"]);
    assert!(!stop.status.success(), "there is nothing to stop");
    elsewhere.stop_cleanly();
}
