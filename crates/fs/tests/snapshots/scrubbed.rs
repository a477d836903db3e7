//! The scrub and packs that only snapshots hold.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use forebay_fs::{DamageState, Expected, FsConfig, MIN_DISK_CACHE};
use forebay_types::Inode;

use super::{MIB, all, commit, content, delete, eager, settled, snapshot, write};
use crate::common::{Bucket, Life, eventually};
use crate::scrub::{is_over, scrub, status};
use crate::sealing::key_file;

/// The first byte of the second frame that belongs to the frame's content, in a pack of raw frames of the largest size.
const IN_SECOND: usize = 40 + (128 + (256 << 10)) + 128 + 1000;

fn flip(pack: &PathBuf) {
    let mut bytes = fs::read(pack).unwrap();
    bytes[IN_SECOND] ^= 1;
    fs::write(pack, bytes).unwrap();
}

/// A volume with two files of which a snapshot has another content. Returns the files, that content of the first one, and
/// the packs of both.
fn with_held(bucket: &Bucket, life: &Life) -> (Inode, Inode, Vec<u8>, Vec<PathBuf>) {
    let (file, other) = (life.create(b"file"), life.create(b"other"));
    let old = write(life, file, 1, 2 * MIB);
    life.flush();
    write(life, other, 3, 2 * MIB);
    life.flush();
    let packs = bucket.packs().into_iter().map(|(pack, _)| pack).collect();
    snapshot(life, "before");
    write(life, file, 2, 2 * MIB);
    write(life, other, 4, 2 * MIB);
    settled(life, bucket);
    (file, other, old, packs)
}

fn held_packs_are_scrubbed(expected: Expected) {
    let bucket = Bucket::of(expected);
    let life = bucket.start(eager);
    let (_, _, _, old) = with_held(&bucket, &life);
    let before = status(&life);
    assert_eq!(before.held_packs, old.len() as u64);
    assert_eq!(before.held_bytes, life.volume.status().held_bytes);
    assert_eq!(before.packs, bucket.packs().len() as u64);
    let sound = scrub(&life);
    assert_eq!((sound.never, sound.last.unwrap().damaged), (0, 0));
    life.stop();

    // It is noted for them, too.
    let life = bucket.start(eager);
    assert_eq!(status(&life).never, 0);
    flip(&old[0]);
    fs::remove_file(&old[1]).unwrap();
    let found = scrub(&life);
    assert_eq!(found.last.unwrap().damaged, 2);
    let [damaged, missing] = &found.damaged_packs[..] else {
        panic!("{:?}", found.damaged_packs);
    };
    assert_eq!((damaged.damaged_frames, damaged.missing), (1, false));
    assert!(missing.missing);
    for pack in [damaged, missing] {
        assert!(pack.is_held);
        assert_eq!(pack.snapshots, ["before"]);
    }
    let [frame] = &found.damaged_frames[..] else {
        panic!("{:?}", found.damaged_frames);
    };
    assert_eq!(frame.state, DamageState::Lost);
    assert_eq!(frame.snapshots, ["before"]);
    assert_eq!(
        life.volume.status().damaged_frames,
        2,
        "with the missing pack"
    );
    life.stop();

    // Also after a restart, until the snapshot is gone.
    let life = bucket.start(eager);
    assert_eq!(status(&life).damaged_packs.len(), 2);
    delete(&life, "before").unwrap();
    eventually("its packs are deleted", || {
        life.flush();
        life.volume.status().held_bytes == 0 && all(&life).is_empty()
    });
    let after = scrub(&life);
    assert!(after.damaged_packs.is_empty() && after.held_packs == 0);
    assert_eq!(after.last.unwrap().damaged, 0);
    assert_eq!(life.volume.status().damaged_frames, 0);
}

#[test]
fn held_packs_are_scrubbed_and_what_is_found_stays_known() {
    held_packs_are_scrubbed(Expected::NotSealed);
}

#[test]
fn held_packs_of_a_sealed_volume_are_scrubbed() {
    held_packs_are_scrubbed(Expected::Sealed(key_file(1)));
}

fn cached(config: &mut FsConfig) {
    eager(config);
    config.disk_cache_limit = MIN_DISK_CACHE;
}

fn a_held_pack_is_put_again(expected: Expected) {
    let bucket = Bucket::of(expected);
    let life = bucket.start(cached);
    let (file, other, old, packs) = with_held(&bucket, &life);
    assert!(content(&life, "before", file, old.len()) == old);
    content(&life, "before", other, old.len());
    life.stop();
    let good: Vec<_> = packs.iter().map(|pack| fs::read(pack).unwrap()).collect();
    packs.iter().for_each(flip);

    let life = bucket.start(cached);
    let healed = scrub(&life);
    assert!(
        packs
            .iter()
            .zip(&good)
            .all(|(pack, good)| fs::read(pack).unwrap() == *good)
    );
    assert_eq!(healed.last.unwrap().damaged, 0);
    assert!(healed.damaged_packs.is_empty());
    assert_eq!(healed.damaged_frames.len(), packs.len());
    for frame in &healed.damaged_frames {
        assert_eq!(frame.state, DamageState::Healed);
        assert_eq!(frame.snapshots, ["before"]);
    }
    assert_eq!(life.volume.status().damaged_frames, 0);
    life.stop();

    // Without the copies, nothing of the pack is touched.
    packs.iter().for_each(flip);
    let life = bucket.start_elsewhere(eager);
    assert_eq!(scrub(&life).last.unwrap().damaged, packs.len() as u64);
    packs.iter().for_each(flip);
    assert!(scrub(&life).damaged_packs.is_empty());
    assert!(content(&life, "before", file, old.len()) == old);
}

#[test]
fn a_damaged_held_pack_is_put_again_from_the_disk_cache() {
    a_held_pack_is_put_again(Expected::NotSealed);
}

#[test]
fn a_damaged_held_pack_of_a_sealed_volume_is_put_again_from_the_disk_cache() {
    a_held_pack_is_put_again(Expected::Sealed(key_file(1)));
}

#[test]
fn the_header_of_a_held_pack_is_written_again_and_keeps_no_frame_from_being_healed() {
    for expected in [Expected::NotSealed, Expected::Sealed(key_file(1))] {
        let bucket = Bucket::of(expected);
        let life = bucket.start(cached);
        let (file, _, old, packs) = with_held(&bucket, &life);
        assert!(content(&life, "before", file, old.len()) == old);
        life.stop();
        let good: Vec<_> = packs.iter().map(|pack| fs::read(pack).unwrap()).collect();
        // The first one has a damaged frame as well.
        flip(&packs[0]);
        for pack in &packs[..2] {
            let mut bytes = fs::read(pack).unwrap();
            bytes[20] ^= 1;
            fs::write(pack, bytes).unwrap();
        }
        let life = bucket.start(cached);
        let healed = scrub(&life);
        for (pack, good) in packs.iter().zip(&good) {
            assert!(fs::read(pack).unwrap() == *good, "{}", pack.display());
        }
        assert_eq!(healed.last.unwrap().damaged, 0);
        assert!(healed.damaged_packs.is_empty());
        life.stop();
    }
}

/// A gateway that has begun to delete the snapshot of a damaged pack, while its scrub is about to put that pack again.
/// Both wait: the PUT, and the DELETEs of all its packs. A look for orphans deletes packs from the age of a millisecond on.
fn put_and_deleted_at_once(bucket: &Bucket) -> (Life, PathBuf) {
    let life = bucket.start(cached);
    let (file, _, old, packs) = with_held(bucket, &life);
    assert!(content(&life, "before", file, old.len()) == old);
    life.stop();
    let pack = packs[0].clone();
    flip(&pack);
    let life = bucket.start(|config| {
        cached(config);
        config.orphan_grace = Duration::from_millis(1);
    });
    let controls = &bucket.controls;
    controls.pack_puts.close();
    life.volume.start_scrub(Duration::ZERO).unwrap();
    eventually("the pack is about to be put", || {
        controls.pack_puts.held() == 1
    });
    controls.pack_deletes.close();
    delete(&life, "before").unwrap();
    eventually("it is about to be deleted", || {
        commit(&life);
        controls.pack_deletes.held() == packs.len()
    });
    (life, pack)
}

#[test]
fn a_held_pack_that_is_put_after_its_deletion_is_deleted_again() {
    let bucket = Bucket::new();
    let (life, pack) = put_and_deleted_at_once(&bucket);
    let controls = &bucket.controls;
    // The look for a pack that came back waits until it is there: its grace time is a millisecond here.
    controls.pack_looks.close();
    // The record that it is dead stays for now.
    controls.manifest_puts.close();
    controls.pack_deletes.open();
    eventually("it is deleted", || !pack.exists());
    eventually("the commit after that waits", || {
        controls.manifest_puts.held() > 0
    });
    controls.pack_puts.open();
    eventually("the scrub ends", || is_over(&life));
    assert!(pack.exists(), "it was put after its deletion");
    // Too young for each look for orphans, which would hide that nobody has noted it.
    let put = fs::File::options().write(true).open(&pack).unwrap();
    let later = put.metadata().unwrap().modified().unwrap() + Duration::from_secs(3600);
    put.set_modified(later).unwrap();
    controls.pack_looks.open();
    controls.manifest_puts.open();
    settled(&life, &bucket);
    assert!(!pack.exists());
    // It is counted after the answer to the DELETE.
    eventually("it is counted", || {
        life.volume.status().collector.orphans_deleted == 1
    });
    life.stop();
}

#[test]
fn a_held_pack_that_is_deleted_after_it_was_put_stays_away() {
    let bucket = Bucket::new();
    let (life, pack) = put_and_deleted_at_once(&bucket);
    bucket.controls.pack_puts.open();
    eventually("the scrub ends", || is_over(&life));
    bucket.controls.pack_deletes.open();
    settled(&life, &bucket);
    assert!(!pack.exists());
    assert_eq!(life.volume.status().collector.orphans_deleted, 0);
    life.stop();
}
