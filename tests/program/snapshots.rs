//! `forebay snapshot`.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use forebay_client::{Stable, Status};
use serde_json::Value;

use crate::admin_http::{address, text};
use crate::metrics::Scrape;
use crate::support::nfs::Client;
use crate::support::{Gateway, Place, run};

const ADMIN: &str = "--admin-listen=127.0.0.1:0";
/// NFS3ERR_NOSPC and NFS3ERR_DQUOT (RFC 1813, section 2.6).
const NOSPC: Status = Status(28);
const DQUOT: Status = Status(69);
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

#[test]
fn handles_of_a_snapshot_are_valid_on_the_gateway_that_takes_over_and_stale_when_it_is_deleted() {
    let place = Place::new();
    let first = place.serve_with("data", &[QUIET]);
    let mut client = first.client();
    let root = client.mount();
    client.put("file", b"before");
    snapshot(&first, &["create", "s"]);
    first.flush();
    client.put("file", b"after!");
    let list = client.lookup(&root, b".snapshot").unwrap();
    let then = client.lookup(&list, b"s").unwrap();
    let file = client.lookup(&then, b"file").unwrap();
    first.kill();

    let second = place.serve_with("second", &[QUIET, "--take-over"]);
    let mut client = second.client();
    assert_eq!(client.read(&file, 0, 100).unwrap(), b"before");
    assert_eq!(client.lookup(&then, b"file").unwrap(), file);
    assert_eq!(client.lookup(&list, b"s").unwrap(), then);
    // What the first one had not published is not there; in the snapshot nothing has changed.
    assert_eq!(client.get("file").unwrap(), b"before");
    client.put("file", b"second");
    assert_eq!(client.read(&file, 0, 100).unwrap(), b"before");
    // By its number.
    snapshot(&second, &["delete", "1"]);
    assert_eq!(client.read(&file, 0, 100), Err(Status::STALE));
    assert_eq!(client.lookup(&then, b"file"), Err(Status::STALE));
    assert_eq!(client.lookup(&list, b"s"), Err(Status::NOENT));
    second.stop_cleanly();

    // Nor are they valid for a later snapshot of the same name.
    let first = place.serve_with("data", &[QUIET]);
    snapshot(&first, &["create", "s"]);
    first.flush();
    let mut client = first.client();
    assert_eq!(client.read(&file, 0, 100), Err(Status::STALE));
    let again = client.lookup(&list, b"s").unwrap();
    let file = client.lookup(&again, b"file").unwrap();
    assert_eq!(client.read(&file, 0, 100).unwrap(), b"second");
    first.stop_cleanly();
}

/// The only quota of the volume.
#[track_caller]
fn quota(gateway: &Gateway) -> Value {
    let list = gateway.ask(&["quota", "list", "--json"]);
    assert!(list.status.success(), "{}", list.stderr);
    let list: Value = serde_json::from_str(&list.stdout).unwrap();
    list[0].clone()
}

#[test]
fn what_snapshots_hold_counts_against_the_limit_by_its_setting_and_never_in_quotas() {
    const MIB: u64 = 1 << 20;
    // In parts of 7 MiB.
    const PART: u64 = 7 * MIB;
    const LIMIT: u64 = 64 * MIB;
    let limits = ["--volume-limit=64MiB", "--compression=off", QUIET];
    let place = Place::new();
    let counting = [&limits[..], &["--snapshots-count=on"]].concat();
    let gateway = place.serve_with("data", &counting);
    let mut client = gateway.client();
    client.mkdir("home");
    let root = client.mount();
    let home = client.lookup(&root, b"home").unwrap();
    let file = client.create(&home, b"file");
    let fill = |client: &mut Client, from: u64, to: u64, byte: u8| {
        let bytes = vec![byte; MIB as usize];
        let mut pieces = 7 * from..7 * to;
        pieces.try_for_each(|piece| {
            let written = client.write(&file, piece * MIB, &bytes, Stable::FileSync);
            written.map(drop)
        })
    };
    let set = gateway.ask(&["quota", "set", "/home", "--bytes", "49MiB"]);
    assert!(set.status.success(), "{}", set.stderr);
    while quota(&gateway)["counting"] != false {}
    fill(&mut client, 0, 4, 1).unwrap();
    snapshot(&gateway, &["create", "s"]);
    gateway.flush();
    assert_eq!(client.space().0, LIMIT);
    fill(&mut client, 0, 4, 2).unwrap();
    gateway.flush();

    let held = gateway.status()["snapshot_held_bytes"].as_u64().unwrap();
    assert!((4 * PART..4 * PART + MIB).contains(&held), "{held}");
    assert_eq!(client.space(), (LIMIT - held, LIMIT - 4 * PART - held));
    let said = gateway.ask(&["status"]).stdout;
    assert!(said.contains("which hold 28.0 MiB"), "{said}");
    // Two more do not fit, for what the snapshot holds; the quota has room for them.
    assert_eq!(fill(&mut client, 4, 6, 3), Err(NOSPC));
    let used = quota(&gateway)["used_bytes"].as_u64().unwrap();
    assert!((4 * PART..6 * PART).contains(&used), "{used}");

    // Deleting it makes room, until the quota is full.
    snapshot(&gateway, &["delete", "s"]);
    let deadline = Instant::now() + Duration::from_secs(120);
    while fill(&mut client, 4, 6, 3).is_err() {
        assert!(Instant::now() < deadline);
        gateway.flush();
    }
    assert_eq!(client.space().0, LIMIT);
    // What follows shares a block with these parts. Now it shares no pack with them, which would keep that pack alive below.
    gateway.flush();
    assert_eq!(fill(&mut client, 6, 8, 4), Err(DQUOT));
    gateway.stop_cleanly();

    // Without the setting a snapshot takes nothing of the limit.
    let gateway = place.serve_with("data", &limits);
    let mut client = gateway.client();
    snapshot(&gateway, &["create", "t"]);
    gateway.flush();
    fill(&mut client, 0, 6, 5).unwrap();
    gateway.flush();
    let held = gateway.status()["snapshot_held_bytes"].as_u64().unwrap();
    assert!(held >= 6 * PART, "{held}");
    assert_eq!(client.space().0, LIMIT);
    gateway.stop_cleanly();
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
