//! `forebay restore`.

use forebay_client::{Handle, Stable};
use serde_json::Value;

use crate::support::nfs::Client;
use crate::support::{Gateway, Place, run};

/// Nothing is published unless the test says so.
const QUIET: &str = "--checkpoint-interval=1h";

#[track_caller]
fn asked(gateway: &Gateway, line: &[&str]) -> String {
    let asked = gateway.ask(line);
    assert!(asked.status.success(), "{}", asked.stderr);
    asked.stdout
}

#[track_caller]
fn is_sound(place: &Place) {
    let mut line = vec!["fsck".to_owned(), "--read-data".to_owned()];
    line.extend(place.flags("data"));
    let checked = run(&line);
    let all = format!("{}{}", checked.stdout, checked.stderr);
    assert_eq!(checked.status.code(), Some(0), "{all}");
}

const LARGE: usize = 3 << 20;

/// Makes files of these sizes in a directory.
fn fill(client: &mut Client, directory: &Handle, files: &[(&str, usize)]) {
    for (name, size) in files {
        let file = client.create(directory, name.as_bytes());
        let bytes = vec![7; *size];
        for (index, piece) in bytes.chunks(1 << 20).enumerate() {
            let offset = (index as u64) << 20;
            let written = client.write(&file, offset, piece, Stable::Unstable);
            written.unwrap();
        }
        client.commit(&file);
    }
}

/// Whether a directory in the root has the files that [`fill`] has made.
fn has(client: &mut Client, directory: &str, files: &[(&str, usize)]) -> bool {
    let root = client.mount();
    let directory = client.lookup(&root, directory.as_bytes()).unwrap();
    files.iter().all(|(name, size)| {
        let file = client.lookup(&directory, name.as_bytes()).unwrap();
        let end = *size as u64;
        let last = client.read(&file, end.saturating_sub(1 << 20), 1 << 20);
        let first = client.read(&file, 0, 1 << 20).unwrap();
        last.unwrap().len() == first.len() && first == vec![7; (*size).min(1 << 20)]
    })
}

/// Removes a directory in the root with these files.
fn clear(client: &mut Client, name: &str, files: &[(&str, usize)]) {
    let root = client.mount();
    let directory = client.lookup(&root, name.as_bytes()).unwrap();
    for (file, _) in files {
        client.remove(&directory, file.as_bytes());
    }
    client.rmdir(&root, name.as_bytes());
}

#[test]
fn files_and_directories_come_back_and_outlive_a_kill_and_the_snapshot() {
    let place = Place::new();
    let gateway = place.serve_with("data", &[QUIET]);
    let mut client = gateway.client();
    let files = [("large", LARGE), ("small", 5)];
    client.mkdir("project");
    let root = client.mount();
    let project = client.lookup(&root, b"project").unwrap();
    fill(&mut client, &project, &files);
    client.put("notes", b"old");
    asked(&gateway, &["snapshot", "create", "hourly"]);
    asked(&gateway, &["flush"]);
    clear(&mut client, "project", &files);
    client.put("notes", b"new");
    asked(&gateway, &["flush"]);

    let order = ["restore", "/project", "--from", "hourly"];
    let said = asked(&gateway, &order);
    assert!(
        said.starts_with("/project is restored: 3 objects, 3"),
        "{said}"
    );
    gateway.says("/project is restored from snapshot \"hourly\": 3 objects with 3");
    // The bucket has the content, and the log the name.
    gateway.kill();
    let gateway = place.serve_with("data", &[QUIET]);
    let mut client = gateway.client();
    assert!(has(&mut client, "project", &files));

    let refused = gateway.ask(&["restore", "/notes", "--from", "hourly"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        refused.stderr.contains("add --replace"),
        "{}",
        refused.stderr
    );
    let order = [
        "restore",
        "/notes",
        "--from",
        "hourly",
        "--replace",
        "--json",
    ];
    let report: Value = serde_json::from_str(&asked(&gateway, &order)).unwrap();
    assert_eq!(report["moved_aside"], "/notes.before-restore");
    gateway.says("1 objects with 3 bytes; the object that was there is now /notes.before-restore");
    assert_eq!(
        (&report["objects"], &report["bytes"]),
        (&1.into(), &3.into())
    );
    assert_eq!(client.get("notes").unwrap(), b"old");
    assert_eq!(client.get("notes.before-restore").unwrap(), b"new");
    let to = ["restore", "/project", "--from", "hourly", "--to", "/copy"];
    asked(&gateway, &to);
    let missing = gateway.ask(&["restore", "/none", "--from", "hourly"]);
    let why = "there is no /none in snapshot";
    assert!(missing.stderr.contains(why), "{}", missing.stderr);

    asked(&gateway, &["snapshot", "delete", "hourly"]);
    asked(&gateway, &["flush"]);
    assert!(has(&mut client, "copy", &files));
    gateway.stop_cleanly();
    is_sound(&place);

    let gateway = place.serve_with("data", &[QUIET]);
    let mut client = gateway.client();
    clear(&mut client, "project", &files);
    clear(&mut client, "copy", &files);
    assert_eq!(client.get("notes").unwrap(), b"old");
    asked(&gateway, &["flush"]);
    gateway.stop_cleanly();
    is_sound(&place);
}

#[test]
fn nothing_is_left_of_a_restored_tree_that_is_removed_in_the_same_life() {
    let place = Place::new();
    let gateway = place.serve_with("data", &[QUIET]);
    let mut client = gateway.client();
    let files = [("file", 300_000)];
    client.mkdir("project");
    let root = client.mount();
    let project = client.lookup(&root, b"project").unwrap();
    fill(&mut client, &project, &files);
    asked(&gateway, &["snapshot", "create", "s"]);
    asked(&gateway, &["flush"]);
    clear(&mut client, "project", &files);
    asked(&gateway, &["flush"]);
    asked(&gateway, &["restore", "/project", "--from", "s"]);
    asked(&gateway, &["snapshot", "delete", "s"]);
    assert!(has(&mut client, "project", &files));
    clear(&mut client, "project", &files);
    asked(&gateway, &["flush"]);
    // What was removed is collected between two publications.
    client.mkdir("other");
    asked(&gateway, &["flush"]);
    gateway.stop_cleanly();
    is_sound(&place);
}
