//! `forebay changes`, `forebay versions`, and `forebay snapshot` on the bucket alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::sealing::secret;
use crate::support::nfs::Client;
use crate::support::{Gateway, Outcome, Place, TIMEOUT, program, run};

/// Nothing is published unless the test says so.
const QUIET: &str = "--checkpoint-interval=1h";
const HOSTILE: &[u8] = b"\xff\x1b[31m\n%";

/// A volume, and how to open it.
struct Volume {
    place: Place,
    more: Vec<String>,
}

impl Volume {
    fn plain() -> Volume {
        Volume {
            place: Place::new(),
            more: Vec::new(),
        }
    }

    fn sealed() -> Volume {
        let place = Place::new();
        let words = secret(&place, "words", b"open sesame\n");
        let more = vec![
            "--encryption=aes-256-gcm".to_owned(),
            format!("--passphrase-file={}", words.display()),
        ];
        Volume { place, more }
    }

    /// A gateway, which makes the volume if there is none.
    fn serve(&self) -> Gateway {
        let more = self.more.iter().map(String::as_str);
        let more: Vec<&str> = more.chain([QUIET]).collect();
        self.place.serve_with("data", &more)
    }

    fn line(&self, words: &[&str]) -> Vec<String> {
        let words = words.iter().map(|word| (*word).to_owned());
        let flags = self.place.flags("data");
        words.chain(flags).chain(self.more.clone()).collect()
    }

    /// A command without the help of a gateway.
    fn ask(&self, words: &[&str]) -> Outcome {
        run(&self.line(words))
    }

    #[track_caller]
    fn said(&self, words: &[&str]) -> String {
        let asked = self.ask(words);
        assert!(asked.status.success(), "{}", asked.stderr);
        asked.stdout
    }

    #[track_caller]
    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.said(&[words, &["--json"]].concat())).unwrap()
    }

    #[track_caller]
    fn refused(&self, words: &[&str]) -> String {
        let asked = self.ask(words);
        assert_eq!(asked.status.code(), Some(1), "{}", asked.stdout);
        assert_eq!(asked.stdout, "");
        asked.stderr
    }

    /// Changes without the numbers of objects, which must be there.
    #[track_caller]
    fn changes(&self, words: &[&str]) -> BTreeSet<String> {
        let said = self.said(&[words, &["--json"]].concat());
        let lines = said.lines().map(|line| {
            let mut line: Value = serde_json::from_str(line).unwrap();
            assert!(line["inode"].as_u64() >= Some(1), "{line}");
            let line = line.as_object_mut().unwrap();
            let is_directory = line["directory"] == true;
            let text = |name: &str| line.get(name).map_or("", |value| value.as_str().unwrap());
            let end = if is_directory { "/" } else { "" };
            format!("{} {}{end} {}", text("change"), text("path"), text("from"))
        });
        lines.collect()
    }

    /// Every object of the bucket.
    fn objects(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        fn add(folder: &Path, all: &mut BTreeMap<PathBuf, Vec<u8>>) {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                match entry.path() {
                    path if path.is_dir() => add(&path, all),
                    path => drop(all.insert(path.clone(), fs::read(&path).unwrap())),
                }
            }
        }
        let mut all = BTreeMap::new();
        add(&self.place.bucket(), &mut all);
        all
    }
}

fn lines(lines: &[&str]) -> BTreeSet<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

/// Makes a snapshot, and waits until the bucket has it.
#[track_caller]
fn snapshot(gateway: &Gateway, name: &str) {
    let made = gateway.ask(&["snapshot", "create", name]);
    assert!(made.status.success(), "{}", made.stderr);
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let shown = gateway.ask(&["snapshot", "show", name, "--json"]);
        let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
        if shown[0]["published"] == true {
            return;
        }
        assert!(Instant::now() < deadline, "{shown}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A list without what the collector of the gateway may change at any time.
fn without_held(mut list: Value) -> Value {
    for snapshot in list.as_array_mut().unwrap() {
        for name in ["unique_bytes", "held_bytes"] {
            let bytes = snapshot.as_object_mut().unwrap().remove(name).unwrap();
            assert!(bytes.is_u64(), "{name}");
        }
    }
    list
}

/// What is in the volume at the snapshot `before`.
fn fill(client: &mut Client) {
    client.put("kept", b"first words");
    client.put("gone", b"x");
    let root = client.mount();
    client.create(&root, HOSTILE);
    client.mkdir("folder");
    let folder = client.lookup(&root, b"folder").unwrap();
    client.create(&folder, b"below");
    client.create(&folder, b"other");
}

/// What changes until the snapshot `after`.
fn change(client: &mut Client) {
    let root = client.mount();
    let folder = client.lookup(&root, b"folder").unwrap();
    client.rename((&root, b"folder"), (&root, b"moved"));
    client.rename((&folder, b"other"), (&root, b"\xfe"));
    client.put("kept", b"other words");
    client.remove(&root, b"gone");
    client.put("new", b"x");
    let kept = client.lookup(&root, b"kept").unwrap();
    client.link(&kept, &folder, b"link");
    let hostile = client.lookup(&root, HOSTILE).unwrap();
    client.chmod(&hostile, 0o600);
}

fn from_before_to_after(volume: &Volume) {
    let expected = lines(&[
        "renamed /moved/ /folder",
        "renamed /%FE /folder/other",
        "content /kept ",
        "removed /gone ",
        "made /new ",
        "link-added /moved/link ",
        "attributes /%FF%1B[31m%0A%25 ",
    ]);
    // The content of an object with two names comes once, under either.
    let named = |changes: BTreeSet<String>| -> BTreeSet<String> {
        let changes = changes.into_iter();
        changes
            .map(|change| match change == "content /moved/link " {
                true => "content /kept ".to_owned(),
                false => change,
            })
            .collect()
    };
    let until = ["changes", "--since", "before", "--until", "after"];
    assert_eq!(named(volume.changes(&until)), expected);
    assert_eq!(
        named(volume.changes(&["snapshot", "diff", "1", "2"])),
        expected
    );
    let mut later = expected;
    later.insert("made /latest ".to_owned());
    assert_eq!(named(volume.changes(&["changes", "--since=before"])), later);
    let text = volume.said(&until);
    for line in [
        "renamed       /folder/ -> /moved/",
        "renamed       /folder/other -> /\\xfe",
        "attributes    /\\xff\\x1b[31m\\n%",
        "removed       /gone",
    ] {
        assert!(text.lines().any(|said| said == line), "{line}: {text}");
    }
    assert_eq!(volume.said(&["snapshot", "diff", "after", "after"]), "");
}

fn versions_of_kept(volume: &Volume) {
    let versions = volume.json(&["versions", "/kept"]);
    let versions = versions.as_array().unwrap();
    let moments = |version: &Value| (version["moments"].clone(), version["change"].clone());
    assert_eq!(moments(&versions[0]), (1.into(), "made".into()));
    assert_eq!(moments(&versions[1]), (2.into(), "content".into()));
    assert_eq!(versions.len(), 2);
    assert_eq!(versions[0]["first"]["name"], "before");
    assert_eq!(versions[0]["size_bytes"], 11);
    assert_eq!(versions[1]["first"]["snapshot"], 2);
    assert_eq!(versions[1]["last"]["snapshot"], Value::Null);
    let gone = volume.said(&["versions", "gone"]);
    let gone: Vec<&str> = gone.lines().skip(1).collect();
    assert!(gone[0].contains(" made        1 before of 20"), "{gone:?}");
    assert!(gone[1].contains(" absent      2 after of 20"), "{gone:?}");
    assert!(gone[1].ends_with(" to the newest state (2)"), "{gone:?}");
    let refused = volume.refused(&["versions", "/never"]);
    assert!(refused.contains("there is no /never"), "{refused}");
}

fn the_past_is_read_from_the_bucket(volume: &Volume) {
    let gateway = volume.serve();
    let mut client = gateway.client();
    fill(&mut client);
    snapshot(&gateway, "before");
    change(&mut client);
    snapshot(&gateway, "after");
    client.put("latest", b"x");
    gateway.flush();

    // Beside the gateway, and without it; nothing is written.
    from_before_to_after(volume);
    versions_of_kept(volume);
    let listed = without_held(volume.json(&["snapshot", "list"]));
    let in_bucket = ["snapshot", "list", "--bucket"];
    assert_eq!(without_held(volume.json(&in_bucket)), listed);
    gateway.stop_cleanly();
    let objects = volume.objects();
    from_before_to_after(volume);
    versions_of_kept(volume);
    assert_eq!(without_held(volume.json(&in_bucket)), listed);
    let shown = without_held(volume.json(&["snapshot", "show", "after", "--bucket"]));
    assert_eq!(shown.as_array().unwrap(), &listed.as_array().unwrap()[1..]);
    let refused = volume.refused(&["snapshot", "list"]);
    assert!(refused.contains("with --bucket"), "{refused}");
    assert!(volume.objects() == objects, "something was written");
}

#[test]
fn the_past_of_a_volume_is_read_with_and_without_its_gateway() {
    the_past_is_read_from_the_bucket(&Volume::plain());
}

#[test]
fn the_past_of_a_sealed_volume_is_read_with_its_passphrase() {
    let volume = Volume::sealed();
    the_past_is_read_from_the_bucket(&volume);
    let flags = volume.place.flags("data");
    let words = ["changes", "--since", "before"].map(str::to_owned);
    let without = run(&[&words[..], &flags[..]].concat());
    assert_eq!(without.status.code(), Some(1));
    assert!(without.stderr.contains("sealed"), "{}", without.stderr);
}

#[test]
fn a_snapshot_that_cannot_be_read_is_refused_with_the_reason() {
    let volume = Volume::plain();
    let gateway = volume.serve();
    let none = "the bucket has no snapshot";
    assert!(volume.refused(&["changes", "--since", "1"]).contains(none));
    assert_eq!(
        volume.said(&["snapshot", "list", "--bucket"]),
        "no snapshots\n"
    );
    snapshot(&gateway, "kept");
    let refused = volume.refused(&["snapshot", "diff", "kept", "fresh"]);
    assert!(
        refused.contains(none) && refused.contains("\"fresh\""),
        "{refused}"
    );
    snapshot(&gateway, "fresh");
    assert_eq!(volume.said(&["snapshot", "diff", "kept", "fresh"]), "");
    assert!(
        gateway
            .ask(&["snapshot", "delete", "fresh"])
            .status
            .success()
    );
    let refused = volume.refused(&["changes", "--since", "fresh"]);
    let is_named = refused.contains(none) || refused.contains("is being deleted");
    assert!(is_named, "{refused}");
    gateway.stop_cleanly();
}

#[test]
fn a_reader_that_goes_away_ends_the_output_quietly() {
    let volume = Volume::plain();
    let gateway = volume.serve();
    snapshot(&gateway, "before");
    gateway.client().put("file", b"x");
    gateway.flush();
    gateway.stop_cleanly();
    for words in [&["changes", "--since=before"][..], &["versions", "/file"]] {
        let mut command = program(&volume.line(words), &[]);
        let mut running = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(running.stdout.take());
        let ended = running.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
        assert_eq!(ended.status.code(), Some(0));
    }
}
