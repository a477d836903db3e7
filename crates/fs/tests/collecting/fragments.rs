//! Blocks whose bytes lie in many places are copied into one.

use std::time::Duration;

use forebay_fs::{Compression, Dedup, Expected, FsConfig, Levels};
use forebay_types::Inode;
use forebay_vfs::Stability;

use super::{MIB, eager, nudge, nudged_until, unhurried};
use crate::common::{Bucket, Life, eventually, pattern};
use crate::sealing::key_file;
use crate::snapshots::{delete, snapshot};

/// The file, one block.
const LEN: usize = 4 * MIB as usize;
/// Large enough that the block's map has room for all: an upload writes a block with more in one piece.
const PAGE: usize = 16 << 10;
/// The number of checkpoints that write the pages in turns: adjoining pages come from different ones.
const PLACES: usize = 12;
/// GETs for a file in one place: one for each READ.
const FEW: usize = LEN / MIB as usize;

/// A collector that copies fragmented blocks at once.
fn soon(config: &mut FsConfig) {
    eager(config);
    config.pack_bytes = 8 * MIB;
    config.defragment_after = Duration::from_millis(10);
}

/// One that copies none.
fn never(config: &mut FsConfig) {
    unhurried(config);
    config.defragment_after = Duration::ZERO;
    config.pack_bytes = 8 * MIB;
}

/// Writes the file page by page in many checkpoints. Returns its content.
fn scatter(life: &Life, inode: Inode, seed: u64) -> Vec<u8> {
    let content = pattern(seed, LEN);
    for place in 0..PLACES {
        for page in (place..LEN / PAGE).step_by(PLACES) {
            let at = page * PAGE;
            life.write(
                inode,
                at as u64,
                &content[at..at + PAGE],
                Stability::Unstable,
            );
        }
        life.flush();
    }
    content
}

/// GETs for packs with which a gateway that has nothing in memory reads the file.
fn cold_gets(bucket: &Bucket, inode: Inode, content: &[u8]) -> usize {
    let life = bucket.start_elsewhere(never);
    let before = bucket.controls.pack_gets.arrived();
    assert!(life.read(inode, 0, LEN) == content);
    let gets = bucket.controls.pack_gets.arrived() - before;
    life.crash();
    gets
}

fn defragmented(life: &Life) -> u64 {
    life.volume.status().collector.defragmented_blocks
}

#[test]
fn a_block_that_a_reader_meets_in_many_places_is_in_one_afterwards() {
    let bucket = Bucket::new();
    let life = bucket.start(never);
    let inode = life.create(b"file");
    let content = scatter(&life, inode, 1);
    assert_eq!(life.volume.status().collector.fragmented_blocks, 0);
    life.stop();
    assert!(cold_gets(&bucket, inode, &content) >= PLACES);

    let life = bucket.start_elsewhere(soon);
    nudge(&life);
    assert!(life.read(inode, 0, LEN) == content);
    eventually("it is copied", || defragmented(&life) == 1);
    let status = life.volume.status();
    assert_eq!(status.collector.defragmented_bytes, LEN as u64);
    assert_eq!(status.collector.rewritten, 0);
    assert_eq!(status.used_bytes, LEN as u64);
    nudge(&life);
    eventually("its former packs have gone", || {
        let space = life.volume.status().collector.space;
        space.is_some_and(|space| (space.packs, space.live_bytes) == (1, LEN as u64))
    });
    assert!(life.read(inode, 0, LEN) == content);
    life.stop();
    assert!(cold_gets(&bucket, inode, &content) <= FEW);
}

#[test]
fn what_is_published_in_many_places_is_copied_without_a_reader_once_it_is_quiet() {
    let bucket = Bucket::new();
    let life = bucket.start(soon);
    let inode = life.create(b"file");
    let content = scatter(&life, inode, 1);
    eventually("it is in few places", || {
        let status = life.volume.status().collector;
        status.defragmented_blocks > 0 && status.fragmented_blocks == 0
    });
    life.stop();
    assert!(cold_gets(&bucket, inode, &content) <= FEW);
}

#[test]
fn what_is_written_during_the_copy_stays_as_it_was_written() {
    let bucket = Bucket::new();
    let life = bucket.start(never);
    let inode = life.create(b"file");
    let mut content = scatter(&life, inode, 1);
    life.stop();

    let life = bucket.start_elsewhere(soon);
    nudge(&life);
    bucket.controls.pack_puts.close();
    assert!(life.read(inode, 0, LEN) == content);
    eventually("its copy is on its way", || {
        bucket.controls.pack_puts.held() > 0
    });
    let new = pattern(2, 3 * PAGE);
    life.write(inode, MIB + 5, &new, Stability::Unstable);
    content[MIB as usize + 5..][..new.len()].copy_from_slice(&new);
    let flush = life.spawn(|volume| async move { volume.flush().await.unwrap() });
    eventually("the new bytes are on their way as well", || {
        bucket.controls.pack_puts.held() > 1
    });
    bucket.controls.pack_puts.open();
    life.join(flush);
    eventually("it is copied", || defragmented(&life) >= 1);
    assert!(life.read(inode, 0, LEN) == content);
    life.stop();
    // The new bytes are elsewhere.
    assert!(cold_gets(&bucket, inode, &content) <= FEW + 1);
}

#[test]
fn a_block_that_a_snapshot_holds_is_copied_when_that_is_gone() {
    let bucket = Bucket::new();
    let life = bucket.start(never);
    let inode = life.create(b"file");
    let content = scatter(&life, inode, 1);
    snapshot(&life, "before");
    life.flush();
    life.stop();

    let life = bucket.start_elsewhere(soon);
    let before = bucket.pack_bytes();
    assert!(life.read(inode, 0, LEN) == content);
    // The collector begins with the first commit.
    assert_eq!(life.volume.status().collector.fragmented_blocks, 1);
    nudge(&life);
    eventually("it is left alone", || {
        life.volume.status().collector.fragmented_blocks == 0
    });
    assert_eq!(defragmented(&life), 0);
    assert_eq!(bucket.pack_bytes(), before);
    delete(&life, "before").unwrap();
    life.flush();
    life.stop();

    let life = bucket.start_elsewhere(soon);
    nudge(&life);
    assert!(life.read(inode, 0, LEN) == content);
    eventually("it is copied", || defragmented(&life) == 1);
    life.stop();
    assert!(cold_gets(&bucket, inode, &content) <= FEW);
}

#[test]
fn frames_that_blocks_share_stay_where_they_are() {
    let sharing = |config: &mut FsConfig| {
        soon(config);
        config.dedup = Dedup::Full;
    };
    let bucket = Bucket::new();
    let life = bucket.start(|config| {
        never(config);
        config.dedup = Dedup::Full;
    });
    let (one, other) = (life.create(b"one"), life.create(b"other"));
    let content = scatter(&life, one, 1);
    scatter(&life, other, 1);
    life.stop();

    let life = bucket.start_elsewhere(sharing);
    let before = bucket.pack_bytes();
    for inode in [one, other] {
        assert!(life.read(inode, 0, LEN) == content);
    }
    assert_eq!(life.volume.status().collector.fragmented_blocks, 2);
    nudge(&life);
    eventually("both are left alone", || {
        life.volume.status().collector.fragmented_blocks == 0
    });
    assert_eq!(defragmented(&life), 0);
    assert_eq!(bucket.pack_bytes(), before);
    life.stop();
}

#[test]
fn a_file_that_goes_during_the_copy_is_gone() {
    let bucket = Bucket::new();
    let life = bucket.start(never);
    let (short, gone) = (life.create(b"short"), life.create(b"gone"));
    let content = scatter(&life, short, 1);
    scatter(&life, gone, 2);
    life.stop();

    let life = bucket.start_elsewhere(soon);
    for inode in [short, gone] {
        life.read(inode, 0, LEN);
    }
    bucket.controls.pack_puts.close();
    nudge(&life);
    eventually("the copy is on its way", || {
        bucket.controls.pack_puts.held() > 0
    });
    life.remove(b"gone");
    life.truncate(short, PAGE as u64 + 1);
    life.truncate(short, LEN as u64);
    life.flush();
    bucket.controls.pack_puts.open();
    let mut left = vec![0; LEN];
    left[..=PAGE].copy_from_slice(&content[..=PAGE]);
    eventually("what is left of it is in one place", || {
        defragmented(&life) > 0 && life.volume.status().collector.fragmented_blocks == 0
    });
    assert!(life.read(short, 0, LEN) == left);
    assert_eq!(
        life.volume.status().collector.defragmented_bytes,
        PAGE as u64 + 1
    );
    assert_eq!(life.volume.status().used_bytes, PAGE as u64 + 1);
    life.stop();
    assert!(cold_gets(&bucket, short, &left) <= 1);
}

#[test]
fn blocks_of_a_sealed_and_compressed_volume_are_copied_as_well() {
    let compressed = |config: &mut FsConfig| config.compression = Compression::Auto(Levels::ONE);
    let bucket = Bucket::of(Expected::Sealed(key_file(1)));
    let life = bucket.start(|config| {
        never(config);
        compressed(config);
    });
    let inode = life.create(b"file");
    let content = scatter(&life, inode, 1);
    life.stop();

    let life = bucket.start_elsewhere(|config| {
        soon(config);
        compressed(config);
    });
    assert!(life.read(inode, 0, LEN) == content);
    nudge(&life);
    eventually("it is copied", || defragmented(&life) == 1);
    assert!(life.read(inode, 0, LEN) == content);
    life.stop();
    assert!(cold_gets(&bucket, inode, &content) <= FEW);
}

#[test]
fn a_block_that_is_damaged_does_not_keep_others_from_being_copied() {
    let bucket = Bucket::new();
    let life = bucket.start(never);
    let damaged = life.create(b"damaged");
    let bytes = scatter(&life, damaged, 1);
    // Frames of the first page and of every twelfth one.
    let (pack, len) = bucket.packs().remove(0);
    let fine = life.create(b"fine");
    let content = scatter(&life, fine, 2);
    life.stop();
    let mut stored = std::fs::read(&pack).unwrap();
    stored[len as usize / 2] ^= 1;
    std::fs::write(&pack, &stored).unwrap();

    let life = bucket.start_elsewhere(soon);
    let place = bucket.packs().iter().position(|(other, _)| *other == pack);
    let page = (place.unwrap() + 1) * PAGE;
    assert!(life.read(damaged, page as u64, PAGE) == bytes[page..page + PAGE]);
    assert!(life.read(fine, 0, LEN) == content);
    assert_eq!(life.volume.status().collector.fragmented_blocks, 2);
    // The frame might have been damaged on its way: it is fetched again after each of some commits.
    nudged_until(&life, "the other one is copied, and both rest", || {
        defragmented(&life) == 1 && life.volume.status().collector.fragmented_blocks == 0
    });
    life.stop();
    assert!(cold_gets(&bucket, fine, &content) <= FEW);
}
