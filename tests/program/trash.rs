//! `forebay undelete`.

use std::thread;
use std::time::{Duration, Instant};

use forebay_client::Status;
use serde_json::Value;

use crate::admin_http::{address, text};
use crate::support::{Gateway, Place, run};

const ADMIN: &str = "--admin-listen=127.0.0.1:0";
/// Nothing is published unless the test says so.
const QUIET: &str = "--checkpoint-interval=1h";

/// `forebay undelete ... --json`, which must succeed.
#[track_caller]
fn undelete(gateway: &Gateway, arguments: &[&str]) -> Vec<Value> {
    let asked = gateway.ask(&[&["undelete"], arguments, &["--json"]].concat());
    assert!(asked.status.success(), "{}", asked.stderr);
    serde_json::from_str(&asked.stdout).unwrap()
}

#[track_caller]
fn refused(gateway: &Gateway, arguments: &[&str]) -> String {
    let asked = gateway.ask(&[&["undelete"], arguments].concat());
    assert_eq!(asked.status.code(), Some(1), "{}", asked.stdout);
    asked.stderr
}

#[test]
fn removed_files_are_listed_and_come_back_after_a_kill() {
    let place = Place::new();
    let config = place.path("forebay.toml");
    let rules = "[[export]]\npath = \"/\"\ntrash = \"24h\"\n\n[[export]]\npath = \"/scratch\"\n";
    std::fs::write(&config, rules).unwrap();
    let with_file = format!("--config={}", config.display());
    let flags = [QUIET, ADMIN, &with_file];
    let gateway = place.serve_with("data", &flags);
    let exports = gateway.ask(&["exports"]).stdout;
    assert!(exports.contains(",trash=1day)"), "{exports}");
    assert_eq!(gateway.ask(&["undelete"]).stdout, "the trash is empty\n");
    let mut client = gateway.client();
    let root = client.mount();
    client.mkdir("scratch");
    client.put("kept", &[7; 300_000]);
    client.put("replaced", b"old");
    client.put("new", b"new");
    let handle = client.lookup(&root, b"kept").unwrap();
    client.remove(&root, b"kept");
    client.rename((&root, b"new"), (&root, b"replaced"));
    assert_eq!(client.read(&handle, 0, 1), Err(Status::STALE));
    // An export without a trash.
    let scratch = client.mount_at("/scratch").unwrap();
    client.create(&scratch, b"short");
    client.remove(&scratch, b"short");
    gateway.kill();

    let gateway = place.serve_with("data", &flags);
    let mut client = gateway.client();
    let all = undelete(&gateway, &[]);
    let shown = |at: usize, key: &str| all[at][key].clone();
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!(
        (shown(0, "path"), shown(1, "path")),
        ("/kept".into(), "/replaced".into())
    );
    assert_eq!(
        (shown(0, "size_bytes"), shown(0, "kind")),
        (300_000.into(), "file".into())
    );
    let (removed, until) = (shown(0, "removed").as_i64(), shown(0, "until").as_i64());
    assert_eq!(until.unwrap() - removed.unwrap(), 24 * 3600);
    let listed = gateway.ask(&["undelete"]).stdout;
    assert!(
        listed.starts_with("removed (UTC)") && listed.contains("  /kept\n"),
        "{listed}"
    );
    let status = gateway.status();
    assert_eq!(
        (&status["trash_objects"], &status["trash_bytes"]),
        (&2.into(), &300_544.into())
    );
    let said = gateway.ask(&["status"]).stdout;
    assert!(said.contains("trash         2 objects"), "{said}");
    let metrics = text(&address(&gateway), "/metrics");
    assert!(metrics.contains("\nforebay_trash_objects 2"), "{metrics}");

    assert_eq!(
        gateway.ask(&["undelete", "/kept"]).stdout,
        "/kept is back\n"
    );
    gateway.says("/kept is back from the trash: 1 files and directories\n");
    assert_eq!(client.get("kept").unwrap(), [7; 300_000]);
    // The handle of before is valid again.
    assert_eq!(client.read(&handle, 0, 2).unwrap(), [7; 2]);
    assert!(refused(&gateway, &["/kept"]).contains("nothing in the trash was at /kept"));
    assert!(refused(&gateway, &["/replaced"]).contains("/replaced exists"));
    let id = all[1]["id"].to_string();
    let back = undelete(&gateway, &["--id", &id, "--to", "/scratch/old"]);
    assert_eq!(back[0]["path"], "/scratch/old");
    gateway.says(&format!(
        "fileid {id} is back from the trash as /scratch/old"
    ));
    assert_eq!(client.get("replaced").unwrap(), b"new");
    let scratch = client.mount_at("/scratch").unwrap();
    let old = client.lookup(&scratch, b"old").unwrap();
    assert_eq!(client.read(&old, 0, 9).unwrap(), b"old");
    assert!(refused(&gateway, &["--id", &id]).contains("is not in the trash"));
    client.remove(&root, b"kept");
    gateway.stop_cleanly();

    // The volume is sound, with something in the trash.
    let mut line = vec!["fsck".to_owned(), "--read-data".to_owned()];
    line.extend(place.flags("data"));
    let checked = run(&line);
    let (out, err) = (&checked.stdout, &checked.stderr);
    assert_eq!(checked.status.code(), Some(0), "{out}{err}");
}

#[track_caller]
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !so() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until new rules are in force.
#[track_caller]
fn shows(gateway: &Gateway, rule: &str) {
    until(rule, || gateway.ask(&["exports"]).stdout.contains(rule));
}

#[test]
fn another_setting_is_in_force_at_once_and_short_times_end() {
    let place = Place::new();
    let config = place.path("forebay.toml");
    std::fs::write(&config, "").unwrap();
    let with_file = format!("--config={}", config.display());
    let gateway = place.serve_with("data", &[QUIET, &with_file]);
    let mut client = gateway.client();
    let root = client.mount();
    for name in ["one", "two", "three"] {
        client.put(name, b"x");
    }
    client.remove(&root, b"one");
    std::fs::write(&config, "trash = \"1h\"\n").unwrap();
    gateway.hang_up();
    shows(&gateway, "trash=1h");
    client.remove(&root, b"two");
    assert_eq!(undelete(&gateway, &[])[0]["path"], "/two");
    std::fs::write(&config, "trash = \"1s\"\n").unwrap();
    gateway.hang_up();
    shows(&gateway, "trash=1s");
    client.remove(&root, b"three");
    until("the last one is deleted", || {
        gateway.status()["trash_objects"] == 1
    });
    // What was promised longer is there.
    assert_eq!(undelete(&gateway, &[])[0]["path"], "/two");
    gateway.stop_cleanly();
}

#[test]
fn clients_bring_back_their_files_and_delete_them_for_good() {
    let place = Place::new();
    let gateway = place.serve_with("data", &[QUIET, "--trash=1h", "--trash-directory=visible"]);
    let exports = gateway.ask(&["exports"]).stdout;
    assert!(
        exports.contains(",trash=1h,trash_directory=visible)"),
        "{exports}"
    );
    let mut client = gateway.client();
    let root = client.mount();
    client.put("kept", &[7; 100_000]);
    client.put("gone", b"gone");
    let handle = client.lookup(&root, b"kept").unwrap();
    client.remove(&root, b"kept");
    client.remove(&root, b"gone");
    gateway.kill();

    let gateway = place.serve_with("data", &[QUIET, "--trash=1h", "--trash-directory=visible"]);
    let mut client = gateway.client();
    let all = undelete(&gateway, &[]);
    let name = |at: usize| format!("{}.{}", all[at]["name"].as_str().unwrap(), all[at]["id"]);
    let trash = client.lookup(&root, b".trash").unwrap();
    let there = client.lookup(&trash, name(0).as_bytes()).unwrap();
    assert_eq!(client.read(&there, 99_999, 9).unwrap(), [7]);
    client.rename((&trash, name(0).as_bytes()), (&root, b"back"));
    assert_eq!(client.read(&there, 0, 1), Err(Status::STALE));
    assert_eq!(client.read(&handle, 0, 2).unwrap(), [7; 2]);
    assert_eq!(client.get("back").unwrap(), [7; 100_000]);
    client.remove(&trash, name(1).as_bytes());
    assert_eq!(gateway.ask(&["undelete"]).stdout, "the trash is empty\n");
    assert_eq!(gateway.status()["trash_objects"], 0);
    gateway.stop_cleanly();
    let mut line = vec!["fsck".to_owned(), "--read-data".to_owned()];
    line.extend(place.flags("data"));
    let checked = run(&line);
    let (out, err) = (&checked.stdout, &checked.stderr);
    assert_eq!(checked.status.code(), Some(0), "{out}{err}");
}

#[test]
fn what_is_in_the_trash_is_removed_for_changes_and_its_bytes_are_salvaged() {
    let place = Place::new();
    let flags = [QUIET, "--trash=24h"];
    let gateway = place.serve_with("data", &flags);
    let mut client = gateway.client();
    let root = client.mount();
    for (name, byte) in [("kept", 1), ("gone", 2), ("back", 3)] {
        client.put(name, &[byte; 5000]);
    }
    let make = |name: &str| {
        let made = gateway.ask(&["snapshot", "create", name]);
        assert!(made.status.success(), "{}", made.stderr);
        gateway.flush();
    };
    make("first");
    client.remove(&root, b"gone");
    client.remove(&root, b"back");
    make("second");
    assert_eq!(undelete(&gateway, &["/back"]).len(), 1);
    make("third");
    let changes = |from: &str, to: &str| {
        let mut line = vec!["changes".to_owned()];
        line.extend([format!("--since={from}"), format!("--until={to}")]);
        line.extend(place.flags("data"));
        let said = run(&line);
        assert!(said.status.success(), "{}", said.stderr);
        let mut lines: Vec<String> = said.stdout.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(
        changes("first", "second"),
        ["removed       /back", "removed       /gone"]
    );
    assert_eq!(changes("second", "third"), ["made          /back"]);
    // It has changed its times, if anything.
    let all = changes("first", "third");
    assert!(all.contains(&"removed       /gone".to_owned()), "{all:?}");
    assert!(
        all.iter()
            .all(|line| line.ends_with("/gone") || line.starts_with("attributes")),
        "{all:?}"
    );
    client.put("in the log", &[4; 5000]);
    client.remove(&root, b"in the log");
    gateway.kill();

    // From the log: a file that went to the trash is not lost with it.
    let to = place.path("from the log");
    let mut line: Vec<String> = ["log", "salvage", "current", "--to"]
        .map(str::to_owned)
        .into();
    line.push(to.display().to_string());
    line.extend(place.flags("data"));
    let salvaged = run(&line);
    assert_eq!(salvaged.status.code(), Some(0), "{}", salvaged.stderr);
    assert!(has(&to, &[4; 5000]), "{}", salvaged.stdout);
    // From the packs alone.
    std::fs::remove_dir_all(place.bucket().join("meta")).unwrap();
    let to = place.path("from the packs");
    let mut line = vec!["salvage".to_owned(), "--to".to_owned()];
    line.push(to.display().to_string());
    line.extend(place.flags("data"));
    let salvaged = run(&line);
    assert_eq!(salvaged.status.code(), Some(0), "{}", salvaged.stderr);
    for byte in [1, 2, 3] {
        assert!(has(&to, &[byte; 5000]), "{byte}: {}", salvaged.stdout);
    }
}

/// Whether a file below a folder has this content.
fn has(folder: &std::path::Path, content: &[u8]) -> bool {
    std::fs::read_dir(folder).unwrap().flatten().any(|entry| {
        let path = entry.path();
        match path.is_dir() {
            true => has(&path, content),
            false => std::fs::read(&path).unwrap() == content,
        }
    })
}
