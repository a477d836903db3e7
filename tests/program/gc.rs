//! `forebay gc`: says what is garbage beside a gateway and after it, deletes only that, and the gateway rewrites by itself.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::nfs::Stable;
use crate::support::{Outcome, Place, run};

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
    // What a gateway of the first epoch would have left that ended before it had published.
    let pack = scene.packs().pop().unwrap();
    let orphan = scene.place.bucket().join("packs/ff/000001000000ffff.pack");
    std::fs::create_dir_all(orphan.parent().unwrap()).unwrap();
    std::fs::copy(&pack, &orphan).unwrap();
    // Its own epoch is the newest, so it may be on its way.
    let report = scene.report(&["--grace", "0s"], 0);
    assert_eq!(report["under_way"]["count"], 1, "{report}");
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
    // Nothing was taken from the gateway.
    assert_eq!(gateway.client().get("file").unwrap(), b"precious");
    gateway.client().put("more", b"and still the only writer");
    gateway.stop_cleanly();
    let checked = scene.command("fsck", &["--read-data"]);
    assert_eq!(checked.status.code(), Some(0), "{}", checked.stdout);
}

#[test]
fn a_gateway_rewrites_what_is_mostly_dead_and_says_so() {
    let scene = Collecting {
        place: Place::new(),
    };
    let flags = ["--pack-bytes", "1MiB", "--compression", "off"];
    let gateway = scene.place.serve_with("data", &flags);
    let mut client = gateway.client();
    let root = client.mount();
    let file = client.create(&root, b"file");
    for at in 0..4 {
        let bytes = vec![at as u8; MIB];
        client
            .write(&file, (at * MIB) as u64, &bytes, Stable::Unstable)
            .unwrap();
    }
    client.commit(&file);
    gateway.flush();
    for at in 1..4 {
        let bytes = vec![10 + at as u8; MIB];
        client
            .write(&file, (at * MIB) as u64, &bytes, Stable::Unstable)
            .unwrap();
    }
    client.commit(&file);
    gateway.flush();
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
