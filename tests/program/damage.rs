//! Damage in the bucket or the local folder is reported, and damaged bytes are never served.

use std::fs;
use std::path::{Path, PathBuf};

use crate::metrics::{ADMIN, Scrape};
use crate::support::nfs::{IO, NOENT};
use crate::support::signs::Signs;
use crate::support::{Place, refused};

fn serve(place: &Place) -> Vec<String> {
    let mut arguments = vec!["serve".to_owned()];
    arguments.extend(place.flags("data"));
    arguments
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// Flips a bit in every 64th byte.
fn damage(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes
        .iter_mut()
        .skip(5)
        .step_by(64)
        .for_each(|byte| *byte ^= 1);
    fs::write(path, bytes).unwrap();
}

/// Damages the only pack that has this text; returns its path.
#[track_caller]
pub(crate) fn damage_pack_with(place: &Place, text: &[u8]) -> PathBuf {
    let mut packs = files(&place.bucket());
    packs.retain(|path| holds(path, text));
    let [pack] = &packs[..] else {
        panic!("not one pack holds the text: {packs:?}")
    };
    damage(pack);
    pack.clone()
}

fn holds(path: &Path, text: &[u8]) -> bool {
    fs::read(path)
        .unwrap()
        .windows(text.len())
        .any(|window| window == text)
}

#[test]
fn a_damaged_pack_is_an_error_of_its_files_and_no_others() {
    let place = Place::new();
    let gateway = place.serve();
    gateway
        .client()
        .put("damaged", b"these bytes will be damaged");
    gateway.flush();
    gateway.client().put("sound", b"these will not");
    gateway.stop_cleanly();
    let pack = damage_pack_with(&place, b"these bytes will be damaged");

    // In a new folder, so that no cache of the old one can help.
    let gateway = place.serve_with("elsewhere", &[ADMIN]);
    assert_eq!(gateway.client().get("damaged"), Err(IO));
    let signs = Signs {
        trouble: "a frame in the bucket is damaged",
        metric: "damaged_frames",
        at_least: 1.0,
        problem: "bytes_lost",
        message: "damaged",
    };
    signs.are_seen(&gateway);
    let errors = Scrape::of(&gateway).value("nfs_errors_total{status=\"NFS3ERR_IO\"}");
    assert!(errors > 0.0);
    assert_eq!(gateway.client().get("sound").unwrap(), b"these will not");
    // The log names the object.
    let name = pack.file_name().unwrap().to_str().unwrap();
    gateway.says(name);
    gateway.client().put("damaged", b"written again");
    assert_eq!(gateway.client().get("damaged").unwrap(), b"written again");
    gateway.stop_cleanly();
}

#[test]
fn a_missing_pack_is_an_error_of_its_files() {
    let place = Place::new();
    let gateway = place.serve();
    gateway.client().put("lost", b"these bytes will be lost");
    gateway.stop_cleanly();
    let all = files(&place.bucket());
    let pack = all
        .iter()
        .find(|path| holds(path, b"these bytes will be lost"))
        .unwrap();
    fs::remove_file(pack).unwrap();
    let gateway = place.serve_with("elsewhere", &[]);
    assert_eq!(gateway.client().get("lost"), Err(IO));
    gateway.stop_cleanly();
}

#[test]
fn damaged_metadata_are_refused() {
    let place = Place::new();
    place.serve().stop_cleanly();
    let all = files(&place.bucket());
    let manifests: Vec<_> = all
        .iter()
        .filter(|path| path.to_string_lossy().contains("manifest"))
        .collect();
    assert!(!manifests.is_empty(), "{all:?}");
    manifests.iter().for_each(|path| damage(path));
    let refusal = refused(&serve(&place));
    assert_eq!(refusal.code, 1);
    refusal.says(&["metadata"]);
}

#[test]
fn a_damaged_descriptor_is_refused() {
    let place = Place::new();
    place.serve().stop_cleanly();
    damage(&place.bucket().join("forebay.volume"));
    let refusal = refused(&serve(&place));
    assert_eq!(refusal.code, 1);
    refusal.says(&[
        "forebay.volume is damaged",
        "restore it (from an earlier version of the object",
    ]);
}

#[test]
fn damaged_local_state_is_refused() {
    let place = Place::new();
    place.serve().stop_cleanly();
    let state = place.data_dir().join("state");
    damage(&state);
    let refusal = refused(&serve(&place));
    assert_eq!(refusal.code, 1);
    refusal.says(&["state is damaged", "move it and the log folder"]);
}

/// Flips a bit in the log's copy of a text.
fn damage_log(place: &Place, text: &[u8]) {
    let log = files(&place.data_dir().join("log"));
    let segment = log.iter().find(|path| holds(path, text)).unwrap();
    let mut bytes = fs::read(segment).unwrap();
    let at = bytes
        .windows(text.len())
        .position(|window| window == text)
        .unwrap();
    bytes[at] ^= 1;
    fs::write(segment, bytes).unwrap();
}

#[test]
fn a_damaged_log_is_replayed_up_to_the_damage_and_reported() {
    let place = Place::new();
    let flags = ["--checkpoint-interval=1h", "--log-segment=4MiB"];
    let gateway = place.serve_with("data", &flags);
    gateway.client().put("before", b"before the damage");
    gateway.client().put("hit", b"in the middle of the log");
    // The next segment's header has the durable LSN at that time.
    gateway.client().put("more", &[7; 6 << 20]);
    let mut client = gateway.client();
    let root = client.mount();
    let file = client.create(&root, b"after");
    let verifier = client.commit(&file);
    gateway.kill();
    damage_log(&place, b"in the middle of the log");

    let gateway = place.serve();
    gateway.says("is damaged: it can be read up to");
    let mut client = gateway.client();
    assert_eq!(client.get("before").unwrap(), b"before the damage");
    // Its name was created before the damage. Its bytes are not used, nor any record behind them.
    assert_eq!(client.get("hit").unwrap(), b"");
    assert_eq!(client.get("more"), Err(NOENT));
    assert_eq!(client.get("after"), Err(NOENT));
    let file = client.lookup(&root, b"before").unwrap();
    assert_ne!(client.commit(&file), verifier, "clients must learn of it");
    gateway.stop_cleanly();
}

#[test]
fn a_damaged_end_of_the_log_is_left_out_and_reported() {
    let place = Place::new();
    let gateway = place.serve_with("data", &["--checkpoint-interval=1h"]);
    gateway.client().put("before", b"before the tear");
    gateway.client().put("torn", b"at the very end of the log");
    gateway.kill();
    damage_log(&place, b"at the very end of the log");

    let gateway = place.serve();
    // The header is complete and its payload does not match, which a killed process never leaves.
    gateway.says("is damaged: it can be read up to");
    assert_eq!(gateway.client().get("before").unwrap(), b"before the tear");
    assert_eq!(gateway.client().get("torn").unwrap(), b"");
    gateway.stop_cleanly();
}
