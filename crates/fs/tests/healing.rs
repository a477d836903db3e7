//! Damaged frames: they are reported, the rest of the file is readable, and an available good copy is uploaded again.

use std::fs;
use std::path::Path;

use crate::common::{Bucket, Life, assert_bytes, eventually, pattern};
use crate::scrub::{file, scrub, status};
use forebay_fs::{DamageState, DamagedFrame, MIN_DISK_CACHE, ScrubStatus};
use forebay_types::Inode;
use forebay_vfs::{Error, Stability};

/// Length of the largest frame.
const FRAME: usize = 256 << 10;

/// Flips a bit in the bytes of the n-th frame of a pack of raw frames of the largest size.
fn damage(pack: &Path, frame: usize) {
    let mut bytes = fs::read(pack).unwrap();
    bytes[40 + frame * (128 + FRAME) + 128 + 1000] ^= 1;
    fs::write(pack, bytes).unwrap();
}

fn only_pack(bucket: &Bucket) -> std::path::PathBuf {
    let packs = bucket.packs();
    assert_eq!(packs.len(), 1, "{packs:?}");
    packs[0].0.clone()
}

fn uncompressed(config: &mut forebay_fs::FsConfig) {
    config.compression = forebay_fs::Compression::Off;
}

/// The damaged frames, when none of them is undecided any more.
fn settled(life: &Life) -> Vec<DamagedFrame> {
    let frames = || status(life).damaged_frames;
    let is_settled = |frame: &DamagedFrame| match frame.state {
        DamageState::Found => false,
        DamageState::Lost | DamageState::PartlyHealed { .. } => frame.path.is_some(),
        DamageState::Healed | DamageState::Unused => true,
    };
    eventually("what can be done is done", || {
        let frames = frames();
        !frames.is_empty() && frames.iter().all(is_settled)
    });
    frames()
}

/// Whether another gateway reads the file unchanged.
fn is_whole_elsewhere(bucket: &Bucket, inode: Inode, len: usize) {
    let life = bucket.start_elsewhere(|_| {});
    assert_bytes(&life.read(inode, 0, len), &pattern(len as u64, len));
}

fn states(status: &ScrubStatus) -> Vec<DamageState> {
    let frames = status.damaged_frames.iter();
    frames.map(|frame| frame.state).collect()
}

#[test]
fn clean_bytes_in_memory_heal_what_the_scrub_finds() {
    let bucket = Bucket::new();
    let life = bucket.start(uncompressed);
    let len = 4 * FRAME;
    let inode = file(&life, "file", len);
    damage(&only_pack(&bucket), 1);
    damage(&only_pack(&bucket), 3);
    assert_eq!(scrub(&life).damaged_packs[0].damaged_frames, 2);
    let frames = settled(&life);
    assert_eq!(frames.len(), 2);
    for (frame, from) in frames.iter().zip([FRAME, 3 * FRAME]) {
        assert_eq!(frame.state, DamageState::Healed);
        assert_eq!(frame.inode, inode);
        assert_eq!((frame.from, frame.to), (from as u64, (from + FRAME) as u64));
    }
    assert_eq!(life.volume.status().damaged_frames, 0);
    // Only those frames are uploaded again.
    let before = bucket.pack_bytes();
    life.flush();
    let more = (bucket.pack_bytes() - before) as usize;
    assert!((2 * FRAME..2 * FRAME + 2000).contains(&more), "{more}");
    let used = life.volume.status().used_bytes;
    assert_eq!(used, len as u64, "they count once");
    // No file needs the damaged frames any more.
    let again = scrub(&life);
    assert_eq!(again.damaged_packs.len(), 1);
    eventually("it is looked up", || {
        states(&status(&life)) == [DamageState::Unused; 2]
    });
    life.stop();
    is_whole_elsewhere(&bucket, inode, len);
}

#[test]
fn a_pack_that_is_gone_is_healed_from_memory_and_not_missed_any_more() {
    let bucket = Bucket::new();
    let life = bucket.start(uncompressed);
    let len = 20 * FRAME + 17;
    let inode = file(&life, "file", len);
    let size = |life: &Life| life.getattr(inode).unwrap();
    let before = size(&life);
    for (pack, _) in bucket.packs() {
        fs::remove_file(pack).unwrap();
    }
    let status = scrub(&life);
    assert!(status.damaged_packs.iter().all(|pack| pack.missing));
    let frames = settled(&life);
    assert_eq!(frames.len(), 21);
    assert!(
        frames
            .iter()
            .all(|frame| frame.state == DamageState::Healed)
    );
    life.flush();
    assert_eq!(size(&life), before, "the file has not changed");
    eventually("its packs are forgotten", || {
        scrub(&life).damaged_packs.is_empty()
    });
    life.stop();
    is_whole_elsewhere(&bucket, inode, len);
}

#[test]
fn the_disk_cache_heals_what_memory_has_not() {
    let bucket = Bucket::new();
    let len = 4 * FRAME;
    let life = bucket.start(uncompressed);
    let inode = file(&life, "file", len);
    life.stop();
    let cached = |config: &mut forebay_fs::FsConfig| config.disk_cache_limit = MIN_DISK_CACHE;
    let life = bucket.start(cached);
    life.read(inode, 0, len);
    life.stop();
    damage(&only_pack(&bucket), 2);
    let life = bucket.start(cached);
    scrub(&life);
    assert_eq!(settled(&life)[0].state, DamageState::Healed);
    life.stop();
    is_whole_elsewhere(&bucket, inode, len);
}

#[test]
fn of_a_window_what_the_disk_cache_has_is_healed_and_what_it_has_not_is_named() {
    let bucket = Bucket::new();
    let len = 4 * FRAME;
    let life = bucket.start(uncompressed);
    let inode = file(&life, "file", len);
    life.stop();
    let cached = |config: &mut forebay_fs::FsConfig| {
        config.disk_cache_limit = MIN_DISK_CACHE;
        config.prefetch_bytes = 0;
    };
    let life = bucket.start(cached);
    life.read(inode, FRAME as u64, FRAME);
    life.stop();
    let pack = only_pack(&bucket);
    damage(&pack, 1);
    damage(&pack, 2);

    let life = bucket.start(cached);
    // One GET fetches all four for a reader.
    assert_eq!(life.try_read(inode, 0, len), Err(Error::Io));
    scrub(&life);
    let frames = settled(&life);
    let [healed, lost] = &frames[..] else {
        panic!("{frames:?}")
    };
    assert_eq!(healed.state, DamageState::Healed);
    assert_eq!(healed.from, FRAME as u64);
    assert_eq!(lost.state, DamageState::Lost);
    assert_eq!((lost.from, lost.to), (2 * FRAME as u64, 3 * FRAME as u64));
    assert_eq!(lost.path.as_deref(), Some(&b"/file"[..]));
    assert_eq!(lost.offset as usize, 40 + 2 * (128 + FRAME));
    assert!(pack.ends_with(&lost.object), "{}", lost.object);
    assert_eq!(life.volume.status().damaged_frames, 1);
    let expected = pattern(len as u64, len);
    let reads_the_rest = |life: &Life| {
        assert_bytes(&life.read(inode, 0, 2 * FRAME), &expected[..2 * FRAME]);
        let behind = 3 * FRAME;
        assert_bytes(&life.read(inode, behind as u64, FRAME), &expected[behind..]);
        let damaged = life.try_read(inode, lost.from, 1);
        assert_eq!(damaged, Err(Error::Io));
    };
    reads_the_rest(&life);
    life.stop();
    let life = bucket.start_elsewhere(|config| config.prefetch_bytes = 0);
    reads_the_rest(&life);
}

#[test]
fn what_is_nowhere_else_is_named_and_the_rest_of_the_file_is_read() {
    let bucket = Bucket::new();
    let life = bucket.start(uncompressed);
    let len = 4 * FRAME;
    let folder = life.mkdir(Inode::ROOT, b"folder");
    let inode = life.create_in(folder, b"file");
    life.write(inode, 0, &pattern(len as u64, len), Stability::Unstable);
    life.stop();
    let pack = only_pack(&bucket);
    damage(&pack, 1);

    // A reader meets the damage.
    let life = bucket.start(|config| config.prefetch_bytes = 0);
    assert_eq!(life.try_read(inode, 0, len), Err(Error::Io));
    let expected = pattern(len as u64, len);
    assert_bytes(&life.read(inode, 0, FRAME), &expected[..FRAME]);
    let behind = 2 * FRAME;
    let rest = life.read(inode, behind as u64, len - behind);
    assert_bytes(&rest, &expected[behind..]);
    let frames = settled(&life);
    let [frame] = &frames[..] else {
        panic!("{frames:?}")
    };
    assert_eq!(frame.state, DamageState::Lost);
    assert_eq!(frame.path.as_deref(), Some(&b"/folder/file"[..]));
    assert_eq!(frame.inode, inode);
    assert_eq!((frame.from, frame.to), (FRAME as u64, behind as u64));
    assert_eq!(frame.offset as usize, 40 + 128 + FRAME);
    assert!(pack.ends_with(&frame.object), "{}", frame.object);
    assert_eq!(life.volume.status().damaged_frames, 1);
    // The scrub finds the same one.
    scrub(&life);
    assert_eq!(settled(&life), frames);

    // A client writes the bytes again.
    let rewritten = pattern(1, FRAME);
    life.write(inode, FRAME as u64, &rewritten, Stability::Unstable);
    life.flush();
    scrub(&life);
    assert_eq!(settled(&life)[0].state, DamageState::Unused);
    assert_eq!(life.volume.status().damaged_frames, 0);
    assert_bytes(&life.read(inode, FRAME as u64, FRAME), &rewritten);
}

#[test]
fn healing_keeps_what_is_written_and_cut_off_meanwhile() {
    let bucket = Bucket::new();
    let life = bucket.start(uncompressed);
    let len = 3 * FRAME;
    let inode = file(&life, "file", len);
    for frame in 0..3 {
        damage(&only_pack(&bucket), frame);
    }
    // Unpublished bytes, which are newer than the damaged ones.
    life.write(inode, 100, b"newer", Stability::Unstable);
    life.truncate(inode, 2 * FRAME as u64 + 5);
    scrub(&life);
    assert!(
        settled(&life)
            .iter()
            .all(|frame| frame.state == DamageState::Healed)
    );
    life.truncate(inode, FRAME as u64);
    life.stop();
    let life = bucket.start_elsewhere(|_| {});
    let mut expected = pattern(len as u64, len)[..FRAME].to_vec();
    expected[100..105].copy_from_slice(b"newer");
    assert_bytes(&life.read(inode, 0, len), &expected);
}

#[test]
fn a_crash_before_the_checkpoint_leaves_it_to_be_found_again() {
    let bucket = Bucket::new();
    let life = bucket.start(uncompressed);
    let len = FRAME;
    let inode = file(&life, "file", len);
    damage(&only_pack(&bucket), 0);
    scrub(&life);
    assert_eq!(settled(&life)[0].state, DamageState::Healed);
    life.crash();
    let life = bucket.start(|_| {});
    assert_eq!(life.try_read(inode, 0, len), Err(Error::Io));
    assert_eq!(settled(&life)[0].state, DamageState::Lost);
}

#[test]
fn files_that_are_gone_need_no_healing() {
    let bucket = Bucket::new();
    let life = bucket.start(uncompressed);
    file(&life, "file", FRAME);
    damage(&only_pack(&bucket), 0);
    life.remove(b"file");
    scrub(&life);
    assert_eq!(settled(&life)[0].state, DamageState::Unused);
}
