//! `forebay fsck`: clean beside a gateway and after it; names damaged objects, and reports them by its exit code.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Place, run};

fn packs(place: &Place) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(place.bucket().join("packs")).unwrap();
    let packs = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
    packs.map(|pack| pack.unwrap().path()).collect()
}

#[test]
fn a_volume_is_checked_beside_its_gateway_and_damage_is_named() {
    let place = Place::new();
    let mut command = vec!["fsck".to_owned()];
    command.extend(place.flags("data"));
    let with = |more: &[&str]| {
        let mut all = command.clone();
        all.extend(more.iter().map(|&flag| flag.to_owned()));
        run(&all)
    };
    let unchecked = with(&[]);
    assert_eq!(unchecked.status.code(), Some(2), "{}", unchecked.stderr);

    let gateway = place.serve();
    gateway.client().put("file", b"these bytes will be damaged");
    gateway.flush();
    let clean = with(&["--read-data"]);
    assert_eq!(
        clean.status.code(),
        Some(0),
        "{}{}",
        clean.stdout,
        clean.stderr
    );
    assert!(
        clean.stdout.contains("the volume is consistent"),
        "{}",
        clean.stdout
    );
    let quiet = with(&["--quiet"]);
    assert_eq!((quiet.status.code(), quiet.stdout.as_str()), (Some(0), ""));
    // The gateway was not fenced.
    gateway.client().put("more", b"and these will not");
    gateway.stop_cleanly();

    let mut damaged = 0;
    for pack in packs(&place) {
        let mut bytes = std::fs::read(&pack).unwrap();
        let text = b"these bytes will be damaged";
        if let Some(at) = bytes.windows(text.len()).position(|window| window == text) {
            bytes[at] ^= 1;
            std::fs::write(&pack, bytes).unwrap();
            damaged += 1;
        }
    }
    assert_eq!(damaged, 1);
    assert_eq!(with(&[]).status.code(), Some(0), "data are not read");
    let found = with(&["--read-data", "--quiet"]);
    assert_eq!(found.status.code(), Some(1), "{}", found.stderr);
    assert!(
        found.stdout.contains("damaged-frame: 1"),
        "{}",
        found.stdout
    );
    assert!(found.stdout.contains("/file"), "{}", found.stdout);

    let found = with(&["--read-data", "--json"]);
    assert_eq!(found.status.code(), Some(1));
    let report: Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(report["clean"], false, "{report}");
    let finding = &report["findings"][0];
    assert_eq!(
        (&finding["finding"], &finding["count"]),
        (&"damaged-frame".into(), &1.into())
    );
    let example = &finding["examples"][0];
    assert_eq!(example["path"], "/file", "{report}");
    assert_eq!((&example["from"], &example["to"]), (&0.into(), &27.into()));
    assert_eq!(report["census"]["objects"], 3, "{report}");
}

/// The names in the metadata cannot be changed from outside, but objects can be deleted.
#[test]
fn a_repair_says_what_it_does_and_what_is_left_by_its_exit_code() {
    let place = Place::new();
    let mut command = vec!["fsck".to_owned(), "--repair".to_owned()];
    command.extend(place.flags("data"));
    let with = |more: &[&str]| {
        let mut all = command.clone();
        all.extend(more.iter().map(|&flag| flag.to_owned()));
        run(&all)
    };
    let gateway = place.serve();
    gateway.client().put("file", b"these bytes will be lost");
    gateway.flush();
    let running = with(&[]);
    assert_eq!(running.status.code(), Some(2), "{}", running.stdout);
    assert!(
        running.stderr.contains("stop it first"),
        "{}",
        running.stderr
    );
    gateway.stop_cleanly();
    let clean = with(&[]);
    let printed = (clean.stdout.as_str(), clean.stderr.as_str());
    assert_eq!(clean.status.code(), Some(0), "{printed:?}");

    std::fs::remove_dir_all(place.bucket().join("packs")).unwrap();
    for flags in [&["--dry-run"][..], &[]] {
        let left = with(flags);
        assert_eq!(left.status.code(), Some(4), "{}", left.stderr);
        assert!(
            left.stdout.contains("/file: bytes 0 to 24, in packs/"),
            "{}",
            left.stdout
        );
        assert!(
            left.stdout.contains("nothing was repaired"),
            "{}",
            left.stdout
        );
    }
    let left = with(&["--json"]);
    assert_eq!(left.status.code(), Some(4));
    let report: Value = serde_json::from_str(&left.stdout).unwrap();
    assert_eq!(report["steps"], serde_json::json!([]), "{report}");
    assert_eq!(report["lost"]["examples"][0]["path"], "/file", "{report}");
    assert_eq!(report["after"]["findings"][0]["finding"], "missing-pack");
    // The volume can be served nevertheless.
    place.serve().stop_cleanly();
}

#[test]
fn a_bucket_that_was_put_back_is_not_repaired_where_a_later_one_was_seen() {
    let place = Place::new();
    place.serve().stop_cleanly();
    let copy = |from: &Path, to: &Path| {
        let _ = std::fs::remove_dir_all(to);
        let copied = Command::new("cp").arg("-a").args([from, to]).status();
        assert!(copied.unwrap().success());
    };
    let earlier = place.path("earlier");
    copy(&place.bucket(), &earlier);
    place.serve().stop_cleanly();
    copy(&earlier, &place.bucket());
    let repair = |data_dir: &str, more: &[&str]| {
        let mut command = vec!["fsck".to_owned(), "--repair".to_owned()];
        command.extend(place.flags(data_dir));
        command.extend(more.iter().map(|&flag| flag.to_owned()));
        run(&command)
    };
    for more in [&["--dry-run"][..], &[], &[]] {
        let refused = repair("data", more);
        assert_eq!(refused.status.code(), Some(2), "{}", refused.stdout);
        assert!(
            refused.stderr.contains("an earlier state was put back"),
            "{}",
            refused.stderr
        );
    }
    let allowed = repair("elsewhere", &[]);
    assert_eq!(allowed.status.code(), Some(0), "{}", allowed.stderr);
}

#[test]
fn files_are_salvaged_when_the_metadata_are_gone() {
    let place = Place::new();
    let gateway = place.serve();
    gateway
        .client()
        .put("file", b"these bytes are all that is left");
    gateway.stop_cleanly();
    std::fs::remove_dir_all(place.bucket().join("meta")).unwrap();
    let to = place.path("salvaged");
    let mut command = vec!["salvage".to_owned()];
    command.extend(["--to".to_owned(), to.display().to_string()]);
    command.extend(place.flags("data"));
    let salvaged = run(&command);
    assert_eq!(salvaged.status.code(), Some(0), "{}", salvaged.stderr);
    assert!(
        salvaged.stdout.starts_with("1 files are in "),
        "{}",
        salvaged.stdout
    );
    let files = std::fs::read_dir(to.join("files/0")).unwrap();
    let files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    assert_eq!(
        std::fs::read(&files[0]).unwrap(),
        b"these bytes are all that is left"
    );
    let manifest = std::fs::read_to_string(to.join("MANIFEST.txt")).unwrap();
    assert_eq!(manifest, salvaged.stdout);
    let again = run(&command);
    assert_eq!(again.status.code(), Some(1));
    assert!(again.stderr.contains("exists already"), "{}", again.stderr);

    // The JSON output, with a pack that is cut off within a frame.
    let pack = std::fs::File::options().write(true).open(&packs(&place)[0]);
    pack.unwrap().set_len(100).unwrap();
    let to = place.path("again");
    command[2] = to.display().to_string();
    command.push("--json".to_owned());
    let salvaged = run(&command);
    assert_eq!(salvaged.status.code(), Some(0), "{}", salvaged.stderr);
    let report: Value = serde_json::from_str(&salvaged.stdout).unwrap();
    assert_eq!(
        (&report["files"], &report["unsalvaged"]),
        (&json!(0), &json!(1))
    );
    let list = std::fs::read_to_string(report["lost"].as_str().unwrap()).unwrap();
    let lost: Value = serde_json::from_str(&list).unwrap();
    let stretch = (&lost["from"], &lost["to"], &lost["of_is_all"]);
    assert_eq!(stretch, (&json!(40), &json!(100), &json!(false)));
}
