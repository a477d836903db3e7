//! What has happened to a gateway is listed on its page.

use std::thread;

use serde_json::json;

use crate::admin_http::address;
use crate::damage::damage_pack_with;
use crate::support::browser::Browser;
use crate::support::nfs::{Client, IO};
use crate::support::preload::HeldPacks;
use crate::support::{Gateway, Place};
use crate::takeover::TAKEN_OVER;

/// A script that tells whether the list of messages has `part`.
fn happened(part: &str) -> String {
    let part = json!(part);
    format!("document.getElementById('events').innerText.includes({part})")
}

#[test]
#[ignore = "needs chromium; .ci/run runs it"]
fn snapshots_slow_calls_and_damage_are_what_has_happened() {
    let place = Place::new();
    let gateway = place.serve();
    for (name, data) in [
        ("slow", b"slow bytes"),
        ("last", b"last bytes"),
        ("bad", b"some bytes"),
    ] {
        // A pack for each.
        gateway.client().put(name, data);
        gateway.flush();
    }
    gateway.stop_cleanly();
    damage_pack_with(&place, b"some bytes");
    let held = HeldPacks::reads(&place);
    let mut flags = place.flags("elsewhere");
    let own = [
        "--admin-listen=127.0.0.1:0",
        "--checkpoint-interval=1h",
        "--slow-call=1ms",
    ];
    flags.extend(own.map(str::to_owned));
    let gateway = Gateway::start(&flags, &[("LD_PRELOAD", &held.library)]);
    let port = gateway.port();
    let mut browser = Browser::open(&format!("http://{}/", address(&gateway)));
    thread::scope(|scope| {
        scope.spawn(|| Client::connect(port).get("slow").unwrap());
        held.wait();
        held.release();
    });
    browser.until(&happened("slow call: READ took "));
    assert_eq!(gateway.client().get("bad"), Err(IO));
    browser.until(&happened("damaged"));
    let succeeds = |line: &[&str]| assert!(gateway.ask(line).status.success(), "{line:?}");
    succeeds(&["snapshot", "create", "before upgrade"]);
    gateway.client().put("slow", b"other bytes");
    gateway.flush();
    browser.until(&happened("snapshot \"before upgrade\" is in the bucket"));
    let facts = "document.getElementById('facts').innerText";
    browser.until(&format!("{facts}.includes('Snapshots')"));
    browser.until(&format!("/1, which hold [1-9]/.test({facts})"));
    succeeds(&["snapshot", "delete", "before upgrade"]);
    browser.until(&happened("snapshot \"before upgrade\" of uid "));
    browser.photograph("happened");
    gateway.stop_cleanly();
}

#[test]
#[ignore = "needs chromium; .ci/run runs it"]
fn a_takeover_is_seen_on_the_pages_of_both_gateways() {
    let place = Place::new();
    let page = |gateway: &Gateway| Browser::open(&format!("http://{}/", address(gateway)));
    let (admin, interval) = ("--admin-listen=127.0.0.1:0", "--checkpoint-interval=1h");
    let first = place.serve_with("data", &[admin, interval]);
    first.client().put("file", b"published");
    first.flush();
    let mut browser = page(&first);
    browser.until("document.getElementById('word').textContent === 'Healthy'");
    let second = place.serve_with("second", &[admin, interval, "--take-over"]);
    // The first one notices when it publishes.
    first.client().put("file", b"too late");
    assert!(!first.ask(&["flush", "--timeout=50s"]).status.success());
    assert_eq!(first.ends().0, Some(TAKEN_OVER));
    browser.until("document.getElementById('word').textContent === 'No answer'");
    browser.until(
        "/No answer since \\d\\d:\\d\\d/.test(document.getElementById('problems').innerText)",
    );

    let mut browser = page(&second);
    browser.until("document.getElementById('word').textContent === 'Healthy'");
    browser.until(&happened("taking the volume over (takeover = allow)"));
    browser.until(&happened(&place.data_dir().display().to_string()));
    browser.photograph("takeover");
    second.stop_cleanly();
}
