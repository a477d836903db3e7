//! `forebay snapshot`.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use forebay_client::Status;
use serde_json::Value;

use crate::admin_http::{address, text};
use crate::metrics::Scrape;
use crate::support::{Gateway, Place, run};

const ADMIN: &str = "--admin-listen=127.0.0.1:0";
/// Nothing is published unless the test says so.
const QUIET: &str = "--checkpoint-interval=1h";

/// `forebay snapshot ... --json`, which must succeed.
#[track_caller]
fn snapshot(gateway: &Gateway, arguments: &[&str]) -> Vec<Value> {
    let line = [&["snapshot"], arguments, &["--json"]].concat();
    let asked = gateway.ask(&line);
    assert!(asked.status.success(), "{}", asked.stderr);
    serde_json::from_str(&asked.stdout).unwrap()
}

#[track_caller]
fn refused(gateway: &Gateway, arguments: &[&str]) -> String {
    let asked = gateway.ask(&[&["snapshot"], arguments].concat());
    assert_eq!(asked.status.code(), Some(1), "{}", asked.stdout);
    asked.stderr
}

#[test]
fn clients_read_snapshots_as_each_export_shows_them() {
    let place = Place::new();
    let config = place.path("forebay.toml");
    let rules =
        "[[export]]\npath = \"/\"\n\n[[export]]\npath = \"/off\"\nsnapshot_directory = \"off\"\n";
    std::fs::write(&config, rules).unwrap();
    let with_file = format!("--config={}", config.display());
    let gateway = place.serve_with("data", &[QUIET, &with_file]);
    let mut client = gateway.client();
    let root = client.mount();
    client.mkdir("off");
    client.put("file", b"before");
    snapshot(&gateway, &["create", "s"]);
    client.put("file", b"after!");
    // The gateway is killed before the bucket has the snapshot.
    gateway.kill();
    let gateway = place.serve_with("data", &[QUIET, &with_file]);
    let mut client = gateway.client();
    let list = client.lookup(&root, b".snapshot").unwrap();
    let then = client.lookup(&list, b"s").unwrap();
    let file = client.lookup(&then, b"file").unwrap();
    assert_eq!(client.read(&file, 0, 100).unwrap(), b"before");
    assert_eq!(client.get("file").unwrap(), b"after!");
    // Handles of a snapshot outlive the gateway, and end with the snapshot.
    gateway.kill();
    let gateway = place.serve_with("data", &[QUIET, &with_file]);
    let mut client = gateway.client();
    assert_eq!(client.read(&file, 0, 100).unwrap(), b"before");
    snapshot(&gateway, &["delete", "s"]);
    assert_eq!(client.read(&file, 0, 100), Err(Status::STALE));
    let off = client.mount_at("/off").unwrap();
    assert_eq!(client.lookup(&off, b".snapshot"), Err(Status::NOENT));
    gateway.stop_cleanly();
}

#[test]
fn snapshots_are_made_listed_and_deleted_and_outlive_a_kill() {
    let place = Place::new();
    let gateway = place.serve_with("data", &[QUIET, ADMIN]);
    let mut client = gateway.client();
    client.put("file", &[7; 300_000]);
    let made = snapshot(&gateway, &["create", "before upgrade"]);
    assert_eq!(made[0]["name"], "before upgrade");
    assert_eq!(made[0]["published"], false);
    let by = format!("uid {}", rustix::process::getuid().as_raw());
    assert_eq!(made[0]["made_by"], by);
    // Named after the time.
    let made = snapshot(&gateway, &["create"]);
    let name = made[0]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("20") && name.ends_with('Z'), "{name}");
    let listed = gateway.ask(&["snapshot", "list"]).stdout;
    assert!(listed.contains("  before upgrade, by uid "), "{listed}");
    gateway.kill();

    let gateway = place.serve_with("data", &[QUIET, ADMIN]);
    let mut client = gateway.client();
    client.put("file", &[8; 300_000]);
    assert!(gateway.ask(&["flush"]).status.success());
    let all = snapshot(&gateway, &["list"]);
    assert_eq!(all.len(), 2);
    assert_eq!((&all[0]["id"], &all[1]["id"]), (&1.into(), &2.into()));
    assert_eq!(all[0]["used_bytes"], 300_000);
    assert_eq!(all[0]["used_files"], 2);
    // Both refer to the bytes of before.
    assert_eq!(all[0]["unique_bytes"], 0);
    assert!(all[0]["held_bytes"].as_u64() > Some(0), "{all:?}");
    let status = gateway.status();
    assert_eq!(status["snapshots"], 2);
    assert_eq!(status["snapshot_held_bytes"], all[0]["held_bytes"]);
    assert_eq!(Scrape::of(&gateway).value("snapshots_unpublished"), 0.0);
    let metrics = text(&address(&gateway), "/metrics");
    let held = format!("\nforebay_snapshot_held_bytes {}", all[0]["held_bytes"]);
    assert!(metrics.contains(&held), "{metrics}");

    let said = gateway.ask(&["snapshot", "delete", &name]);
    assert!(
        said.stdout.contains("the snapshot is deleted"),
        "{}",
        said.stderr
    );
    // The other one holds the same packs.
    gateway.says(&format!(
        "snapshot {name:?} of {by} is deleted: 0 packs with 0 bytes that only it held are free"
    ));
    let left = snapshot(&gateway, &["show", "before upgrade"]);
    assert_eq!(left[0]["unique_bytes"], left[0]["held_bytes"]);
    assert!(refused(&gateway, &["show", &name]).contains("there is no snapshot"));
    assert!(refused(&gateway, &["delete", &name]).contains("there is no snapshot"));
    assert!(refused(&gateway, &["create", "before upgrade"]).contains("already"));
    assert!(refused(&gateway, &["create", "a/b"]).contains("slash"));
    gateway.stop_cleanly();

    // The volume is sound, and the bytes that only the snapshot holds are known.
    let mut line = vec!["fsck".to_owned()];
    line.extend(place.flags("data"));
    let checked = run(&line);
    assert_eq!(
        checked.status.code(),
        Some(0),
        "{}{}",
        checked.stdout,
        checked.stderr
    );
}

/// Waits until there are this many snapshots.
#[track_caller]
fn wait_for(gateway: &Gateway, count: usize) -> Vec<Value> {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let all = snapshot(gateway, &["list"]);
        if all.len() == count {
            return all;
        }
        assert!(Instant::now() < deadline, "{all:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_schedule_makes_its_snapshots_beside_those_of_people_and_sighup_changes_it() {
    let place = Place::new();
    let file = place.path("forebay.toml");
    fs::write(&file, "").unwrap();
    let config = format!("--config={}", file.display());
    let gateway = place.serve_with("data", &[QUIET, ADMIN, &config]);
    snapshot(&gateway, &["create", "by hand"]);
    assert_eq!(gateway.status()["next_snapshot"], Value::Null);
    assert_eq!(Scrape::of(&gateway).sum("next_snapshot_seconds"), 0.0);
    // The interval has no snapshot yet: it is made at once. The next interval begins in February 2027, and then in 2028.
    fs::write(&file, "snapshot_schedule = [\"366d x 1\"]\n").unwrap();
    gateway.hang_up();
    let all = wait_for(&gateway, 2);
    assert_eq!(all[1]["made_by"], "schedule");
    let name = all[1]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("auto-20") && name.ends_with('Z'), "{name}");
    let next = gateway.status()["next_snapshot"].as_i64().unwrap();
    assert!(next > all[1]["made"].as_i64().unwrap());
    let left = Scrape::of(&gateway).value("next_snapshot_seconds");
    assert!(left > 0.0 && left <= 366.0 * 86_400.0, "{left}");
    let said = gateway.ask(&["status"]).stdout;
    assert!(said.contains("\nnext snapshot 20"), "{said}");
    let metrics = text(&address(&gateway), "/metrics");
    let failures = "\nforebay_snapshot_failures_total 0.0\n";
    assert!(metrics.contains(failures), "{metrics}");
    gateway.kill();

    // It is known after a restart as what it is. When it is deleted, its interval gets another one.
    fs::write(&file, "").unwrap();
    let gateway = place.serve_with("data", &[QUIET, ADMIN, &config]);
    assert!(gateway.ask(&["flush"]).status.success());
    let all = snapshot(&gateway, &["list"]);
    assert_eq!((all.len(), &all[1]["made_by"]), (2, &"schedule".into()));
    snapshot(&gateway, &["delete", &name]);
    fs::write(&file, "snapshot_schedule = \"366d x 1\"\n").unwrap();
    gateway.hang_up();
    let all = wait_for(&gateway, 2);
    assert_eq!(all[0]["name"], "by hand");
    assert_eq!(all[1]["made_by"], "schedule");
    gateway.stop_cleanly();
}
