//! `forebay gc`: reports garbage beside a gateway and after it, and deletes only that; the gateway rewrites packs by
//! itself.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::nfs::Stable;
use crate::support::{Gateway, Outcome, Place, run};

const MIB: usize = 1 << 20;

struct Collecting {
    place: Place,
}

impl Collecting {
    fn gc(&self, more: &[&str]) -> Outcome {
        self.command("gc", more)
    }

    fn command(&self, name: &str, more: &[&str]) -> Outcome {
        let mut all = vec![name.to_owned()];
        all.extend(self.place.flags("data"));
        all.extend(more.iter().map(|&flag| flag.to_owned()));
        run(&all)
    }

    #[track_caller]
    fn report(&self, more: &[&str], code: i32) -> Value {
        let outcome = self.gc(&[&["--json"], more].concat());
        assert_eq!(outcome.status.code(), Some(code), "{}", outcome.stderr);
        serde_json::from_str(&outcome.stdout).unwrap()
    }

    fn packs(&self) -> Vec<PathBuf> {
        let folders = std::fs::read_dir(self.place.bucket().join("packs")).unwrap();
        let files = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
        files.map(|file| file.unwrap().path()).collect()
    }
}

#[test]
fn what_nothing_refers_to_is_reported_and_deleted_only_when_told_to() {
    let scene = Collecting {
        place: Place::new(),
    };
    assert_eq!(scene.gc(&[]).status.code(), Some(2), "there is no volume");
    let gateway = scene.place.serve();
    gateway.client().put("file", b"precious");
    gateway.flush();
    gateway.stop_cleanly();
    // A pack as left by a gateway of the first epoch that ended before it had published.
    let pack = scene.packs().pop().unwrap();
    let orphan = scene.place.bucket().join("packs/ff/000001000000ffff.pack");
    std::fs::create_dir_all(orphan.parent().unwrap()).unwrap();
    std::fs::copy(&pack, &orphan).unwrap();
    // The pack's epoch is the newest one, so that it may still be published.
    let report = scene.report(&["--grace", "0s"], 0);
    assert_eq!(report["under_way"]["count"], 1, "{report}");
    // One pack, whose bytes all belong to the file.
    assert_eq!(report["in_use"]["count"], 1, "{report}");
    assert_eq!(report["in_use"]["bytes"], report["raw_bytes"], "{report}");
    assert_eq!(report["without_account"]["count"], 0, "{report}");
    assert_eq!(report["packs"]["count"], 1, "{report}");

    let gateway = scene.place.serve();
    let report = scene.report(&[], 0);
    assert_eq!(report["young"]["count"], 1, "{report}");
    let text = scene.gc(&["--grace", "0s"]);
    assert_eq!(text.status.code(), Some(1), "{}", text.stderr);
    assert!(
        text.stdout.contains("packs/ff/000001000000ffff.pack"),
        "{}",
        text.stdout
    );
    assert!(orphan.exists(), "it is only reported");

    let report = scene.report(&["--grace", "0s", "--delete"], 0);
    assert_eq!(report["orphans"]["count"], 1, "{report}");
    assert_eq!(report["deleted"], report["orphans"], "{report}");
    assert!(!orphan.exists() && pack.exists());
    let quiet = scene.gc(&["--grace", "0s", "--quiet"]);
    assert_eq!((quiet.status.code(), quiet.stdout.as_str()), (Some(0), ""));
    // The gateway has lost nothing.
    assert_eq!(gateway.client().get("file").unwrap(), b"precious");
    gateway.client().put("more", b"and still the only writer");
    gateway.stop_cleanly();
    let checked = scene.command("fsck", &["--read-data"]);
    assert_eq!(checked.status.code(), Some(0), "{}", checked.stdout);
}

/// Writes a file, and most of it a second time.
fn write_twice(gateway: &Gateway) {
    let mut client = gateway.client();
    let root = client.mount();
    let file = client.create(&root, b"file");
    for round in 0..2 {
        for at in round..4 {
            let bytes = vec![(10 * round + at) as u8; MIB];
            client
                .write(&file, (at * MIB) as u64, &bytes, Stable::Unstable)
                .unwrap();
        }
        client.commit(&file);
        gateway.flush();
    }
}

const SMALL_PACKS: [&str; 4] = ["--pack-bytes", "1MiB", "--compression", "off"];

#[test]
fn what_is_mostly_dead_is_rewritten_at_once_when_the_gateway_is_asked_to() {
    let scene = Collecting {
        place: Place::new(),
    };
    let by_itself = [&SMALL_PACKS[..], &["--rewrite-below", "0"]].concat();
    let gateway = scene.place.serve_with("data", &by_itself);
    write_twice(&gateway);
    // It rewrites nothing, and says why.
    let refused = scene.gc(&["--delete"]);
    assert_eq!(refused.status.code(), Some(0), "{}", refused.stderr);
    assert!(
        refused
            .stdout
            .contains("not now: the gateway rewrites no packs"),
        "{}",
        refused.stdout
    );
    gateway.stop_cleanly();
    // No gateway runs that could rewrite it.
    let report = scene.report(&["--delete"], 0);
    assert_eq!(report["to_rewrite"]["count"], 1, "{report}");
    assert_eq!(report["rewriting"]["done"], false, "{report}");
    let problem = report["rewriting"]["problem"].as_str().unwrap();
    assert!(
        problem.contains("no gateway runs with data_dir"),
        "{problem}"
    );
    assert_eq!(scene.report(&[], 0)["rewriting"], Value::Null);

    // A gateway without any writers.
    let gateway = scene.place.serve_with("data", &SMALL_PACKS);
    let report = scene.report(&["--delete"], 0);
    assert_eq!(report["rewriting"]["problem"], Value::Null, "{report}");
    assert_eq!(report["rewriting"]["done"], true, "{report}");
    assert_eq!(report["rewriting"]["packs_rewritten"], 1, "{report}");
    assert_eq!(report["rewriting"]["bytes_copied"], MIB, "{report}");
    assert_eq!(gateway.status()["space"]["packs_rewritten"], 1);
    assert_eq!(scene.report(&[], 0)["to_rewrite"]["count"], 0);
    let text = scene.gc(&["--delete", "--no-wait"]);
    assert!(!text.stdout.contains("rewriting"), "{}", text.stdout);
    gateway.stop_cleanly();
    let checked = scene.command("fsck", &["--read-data"]);
    assert_eq!(checked.status.code(), Some(0), "{}", checked.stdout);
}

#[test]
fn a_gateway_rewrites_what_is_mostly_dead_and_says_so() {
    let scene = Collecting {
        place: Place::new(),
    };
    let gateway = scene.place.serve_with("data", &SMALL_PACKS);
    write_twice(&gateway);
    let begun = Instant::now();
    while gateway.status()["space"]["packs_rewritten"] == 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{}",
            gateway.messages()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    gateway.flush();
    let space = gateway.status()["space"].clone();
    assert_eq!(space["live_bytes"], 4 * MIB, "{space}");
    gateway.stop_cleanly();
    let stored: u64 = scene
        .packs()
        .iter()
        .map(|pack| pack.metadata().unwrap().len())
        .sum();
    assert!(stored < 5 * MIB as u64, "{stored}");
    let report = scene.report(&[], 0);
    assert_eq!(report["to_rewrite"]["count"], 0, "{report}");
    let checked = scene.command("fsck", &["--read-data"]);
    assert_eq!(checked.status.code(), Some(0), "{}", checked.stdout);
}
