//! `forebay clone` and `forebay restore --volume`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::sealing::works;
use crate::support::{Gateway, Outcome, Place, program, run};

/// A volume and its clone, and the flags that open both.
struct Volumes {
    place: Place,
    more: Vec<String>,
}

impl Volumes {
    fn new(sealed: bool) -> Volumes {
        let place = Place::new();
        let key = place.path("key");
        fs::write(&key, [7; 64]).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let more = match sealed {
            true => vec![
                "--encryption=aes-256-gcm".to_owned(),
                format!("--key-file={}", key.display()),
            ],
            false => Vec::new(),
        };
        Volumes { place, more }
    }

    fn url(&self, name: &str) -> String {
        format!("file://{}", self.place.path(name).display())
    }

    fn flags(&self, name: &str) -> Vec<String> {
        let data_dir = self.place.path(&format!("data-of-{name}"));
        let own = [
            format!("--store={}", self.url(name)),
            format!("--data-dir={}", data_dir.display()),
        ];
        [&own[..], &self.more].concat()
    }

    fn serve(&self, name: &str) -> Gateway {
        let mut flags = self.flags(name);
        flags.extend(["--listen=127.0.0.1:0", "--checkpoint-interval=1h"].map(str::to_owned));
        Gateway::start(&flags, &[])
    }

    fn line(&self, name: &str, words: &[&str]) -> Vec<String> {
        let words = words.iter().map(|&word| word.to_owned());
        words.chain(self.flags(name)).collect()
    }

    fn run(&self, name: &str, words: &[&str]) -> Outcome {
        run(&self.line(name, words))
    }

    /// Runs a command that is killed at some moment, if it has not ended by then.
    fn killed(&self, name: &str, words: &[&str], after: Duration) {
        let mut child = program(&self.line(name, words), &[]).spawn().unwrap();
        thread::sleep(after);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn is_sound(&self, name: &str) -> String {
        works(self.run(name, &["fsck", "--read-data"]))
    }

    fn clones(&self, name: &str) -> Value {
        let listed = works(self.run(name, &["clone", "list", "--json"]));
        serde_json::from_str(&listed).unwrap()
    }
}

fn bytes(seed: u8) -> Vec<u8> {
    let mut state = u64::from(seed) + 1;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..300_000).map(|_| next()).collect()
}

fn removed(folder: &Path) {
    fs::remove_dir_all(folder).unwrap();
}

fn a_clone_lives(sealed: bool) {
    let volumes = Volumes::new(sealed);
    let gateway = volumes.serve("source");
    let mut client = gateway.client();
    client.put("file", &bytes(1));
    works(gateway.ask(&["snapshot", "create", "monday"]));
    gateway.flush();
    client.put("file", &bytes(2));
    gateway.flush();

    // The gateway of the source runs.
    let to = format!("--to={}", volumes.url("clone"));
    for after in [10, 60, 200] {
        volumes.killed(
            "source",
            &["clone", "monday", &to],
            Duration::from_millis(after),
        );
    }
    let is_made = volumes.place.path("clone/forebay.volume").exists();
    let made = volumes.run("source", &["clone", "monday", &to]);
    match is_made {
        false => assert!(works(made).contains("is a clone of snapshot \"monday\"")),
        true => assert!(made.stderr.contains("there is a volume"), "{}", made.stderr),
    }
    let other = volumes.serve("clone");
    assert!(other.client().get("file").unwrap() == bytes(1));
    other.client().put("more", &bytes(3));
    other.stop_cleanly();
    // An attempt that was killed before it put anything at the place of the clone has left a note of another clone.
    let clones = volumes.clones("source")["clones"].take();
    let notes = clones.as_array().unwrap().iter();
    let (needing, left): (Vec<_>, Vec<_>) = notes.partition(|note| note["standing"] == "needs");
    assert_eq!(needing.len(), 1, "{clones}");
    assert!(
        left.iter().all(|note| note["standing"] == "detached"),
        "{clones}"
    );
    assert_eq!(volumes.clones("clone")["sources"][0]["snapshot"], 1);
    let refused = gateway.ask(&["snapshot", "delete", "monday"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(refused.stderr.contains("is held by"), "{}", refused.stderr);
    assert!(gateway.client().get("file").unwrap() == bytes(2));
    let said = volumes.is_sound("source");
    let line = said
        .lines()
        .find(|line| line.contains("snapshot \"monday\" holds"));
    assert!(line.unwrap().contains("; kept for "), "{said}");
    let gc = works(volumes.run("source", &["gc", "--json"]));
    let gc: Value = serde_json::from_str(&gc).unwrap();
    let held = &gc["held_by"][0];
    assert_eq!(held["name"], "monday", "{gc}");
    let clones = volumes.clones("source");
    assert_eq!(held["clones"][0], clones["clones"][0]["place"], "{clones}");
    assert_eq!(held["held_bytes"], gc["held_packs"]["bytes"], "{gc}");
    volumes.is_sound("clone");

    for after in [10, 60, 200] {
        volumes.killed("clone", &["clone", "detach"], Duration::from_millis(after));
        volumes.is_sound("clone");
    }
    let detached = volumes.run("clone", &["clone", "detach"]);
    assert!(
        detached.status.success() || detached.stderr.contains("is detached"),
        "{}",
        detached.stderr
    );
    works(gateway.ask(&["snapshot", "delete", "monday"]));
    gateway.stop_cleanly();
    volumes.is_sound("source");
    removed(&volumes.place.path("source"));
    let other = volumes.serve("clone");
    assert!(other.client().get("file").unwrap() == bytes(1));
    assert!(other.client().get("more").unwrap() == bytes(3));
    other.stop_cleanly();
    volumes.is_sound("clone");
}

#[test]
fn a_clone_is_made_served_and_detached_beside_its_source_and_survives_kills() {
    a_clone_lives(false);
}

#[test]
fn a_sealed_clone_is_made_served_and_detached_beside_its_source_and_survives_kills() {
    a_clone_lives(true);
}

fn a_volume_goes_back(sealed: bool) {
    let volumes = Volumes::new(sealed);
    let gateway = volumes.serve("source");
    let mut client = gateway.client();
    let root = client.mount();
    client.put("file", &bytes(1));
    let handle = client.lookup(&root, b"file").unwrap();
    works(gateway.ask(&["snapshot", "create", "monday"]));
    // What follows is in the log alone: nothing else makes the gateway publish.
    gateway.flush();
    client.put("file", &bytes(2));
    client.put("later", &bytes(3));
    let busy = volumes.run("source", &["restore", "--volume=monday"]);
    assert!(busy.stderr.contains("stop it first"), "{}", busy.stderr);
    // Its log has changes that the bucket does not have.
    gateway.kill();
    let unpublished = volumes.run("source", &["restore", "--volume=monday"]);
    assert!(
        unpublished
            .stderr
            .contains("changes that are not in the bucket"),
        "{}",
        unpublished.stderr
    );
    volumes.serve("source").stop_cleanly();

    for after in [10, 60, 200] {
        volumes.killed(
            "source",
            &["restore", "--volume=monday"],
            Duration::from_millis(after),
        );
        volumes.is_sound("source");
    }
    let said = works(volumes.run("source", &["restore", "--volume=monday"]));
    assert!(
        said.contains("the volume is as in snapshot \"monday\""),
        "{said}"
    );
    volumes.is_sound("source");
    let gateway = volumes.serve("source");
    let mut client = gateway.client();
    assert!(client.read(&handle, 0, 300_000).unwrap() == bytes(1));
    assert!(client.get("later").is_err());
    let all: Value =
        serde_json::from_str(&works(gateway.ask(&["snapshot", "list", "--json"]))).unwrap();
    let names = all
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap());
    let mut names = names;
    let before = names.find(|name| name.starts_with("before-restore-"));
    let before = before.unwrap().to_owned();
    gateway.stop_cleanly();

    works(volumes.run("source", &["restore", "--volume", &before]));
    let gateway = volumes.serve("source");
    assert!(gateway.client().get("file").unwrap() == bytes(2));
    assert!(gateway.client().get("later").unwrap() == bytes(3));
    gateway.stop_cleanly();
    volumes.is_sound("source");
}

#[test]
fn a_volume_goes_back_to_a_snapshot_and_forth_and_survives_kills() {
    a_volume_goes_back(false);
}

#[test]
fn a_sealed_volume_goes_back_to_a_snapshot_and_forth_and_survives_kills() {
    a_volume_goes_back(true);
}

/// The name of the newest snapshot that a restore has made.
fn before(gateway: &Gateway) -> String {
    let listed = works(gateway.ask(&["snapshot", "list", "--json"]));
    let all: Value = serde_json::from_str(&listed).unwrap();
    let names = all.as_array().unwrap().iter().rev();
    let mut names = names.map(|one| one["name"].as_str().unwrap());
    let found = names.find(|name| name.starts_with("before-restore-"));
    found.unwrap().to_owned()
}

#[test]
fn a_restore_goes_on_without_a_killed_gateway_and_without_its_log_if_that_is_ordered() {
    let volumes = Volumes::new(false);
    let gateway = volumes.serve("source");
    let mut client = gateway.client();
    client.put("file", &bytes(1));
    works(gateway.ask(&["snapshot", "create", "monday"]));
    client.put("file", &bytes(2));
    gateway.flush();
    client.put("logged alone", &bytes(3));
    gateway.kill();
    // Each order is for one of the two.
    let restore = |more: &[&str]| {
        let words = [&["restore", "--volume=monday"], more].concat();
        volumes.run("source", &words)
    };
    let logged = "changes that are not in the bucket";
    for (more, why) in [
        (&["--take-over"][..], logged),
        (&["--put-log-aside"], "--take-over goes on without it"),
    ] {
        let refused = restore(more);
        assert_eq!(refused.status.code(), Some(1), "{more:?}");
        assert!(refused.stderr.contains(why), "{more:?}: {}", refused.stderr);
    }
    let said = works(restore(&["--take-over", "--put-log-aside"]));
    assert!(said.contains("as in snapshot \"monday\""), "{said}");
    volumes.is_sound("source");
    let gateway = volumes.serve("source");
    gateway.says("is archived");
    let mut client = gateway.client();
    assert!(client.get("file").unwrap() == bytes(1));
    assert!(client.get("logged alone").is_err());
    let before = before(&gateway);
    gateway.stop_cleanly();
    works(volumes.run("source", &["restore", "--volume", &before]));
    let gateway = volumes.serve("source");
    let mut client = gateway.client();
    // What the log alone had is not in the snapshot of the state before.
    assert!(client.get("file").unwrap() == bytes(2));
    assert!(client.get("logged alone").is_err());
    gateway.stop_cleanly();
    // It is in the log that was archived.
    let archived = works(volumes.run("source", &["log", "list"]));
    assert!(archived.contains("logged alone"), "{archived}");
    volumes.is_sound("source");
}

#[test]
fn a_restore_by_another_machine_takes_the_volume_from_a_killed_gateway() {
    let volumes = Volumes::new(false);
    let gateway = volumes.serve("source");
    gateway.client().put("file", &bytes(1));
    works(gateway.ask(&["snapshot", "create", "monday"]));
    gateway.client().put("file", &bytes(2));
    gateway.flush();
    gateway.kill();
    let elsewhere = [
        format!("--store={}", volumes.url("source")),
        format!("--data-dir={}", volumes.place.path("elsewhere").display()),
    ];
    let restore = |more: &[&str]| {
        let words = ["restore", "--volume=monday"].iter().chain(more);
        let words = words.map(|&word| word.to_owned());
        let line: Vec<String> = words.chain(elsewhere.clone()).collect();
        run(&line)
    };
    let refused = restore(&[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(refused.stderr.contains("--take-over"), "{}", refused.stderr);
    works(restore(&["--take-over"]));
    volumes.is_sound("source");
    let gateway = volumes.serve("source");
    assert!(gateway.client().get("file").unwrap() == bytes(1));
    gateway.stop_cleanly();
}
