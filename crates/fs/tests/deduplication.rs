//! Content that the volume has already is not uploaded again, reads as it was written whatever happens to the file
//! that brought it, and is deleted when nothing refers to it any more.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::*;
use crate::histories::try_all;
use forebay_fs::{Compression, Dedup, DedupStatus, FsConfig, Takeover};
use forebay_meta::record::{KnownFrame, PackFrames};
use forebay_meta::{Key, KeyRange, MetaStore, Record, SlateReader};
use forebay_types::{BLOCK_SIZE, Inode, PackId};
use forebay_vfs::Stability;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const BLOCK: usize = BLOCK_SIZE as usize;

/// Little memory; stored bytes are as many as were written.
fn with(dedup: Dedup) -> impl Fn(&mut FsConfig) {
    move |config| {
        config.memory_limit = 16 * MIB;
        config.compression = Compression::Off;
        config.dedup = dedup;
    }
}

/// Blocks are uploaded as soon as they are full, each in a pack of its own.
fn eager(config: &mut FsConfig) {
    with(Dedup::Full)(config);
    config.pack_bytes = BLOCK_SIZE;
    config.early_bytes = 0;
}

fn dedup(life: &Life) -> DedupStatus {
    life.volume.status().dedup.unwrap()
}

/// Waits until the notes of earlier runs have been read.
fn has_learnt(life: &Life) {
    eventually("what earlier runs noted is known", || {
        !dedup(life).is_learning
    });
}

/// Files of all sizes, one of them of several blocks.
const SIZES: [usize; 6] = [1, 700, 5000, 300_000, BLOCK, 2 * BLOCK + 77];

fn write_tree(life: &Life, name: &str) -> Vec<Inode> {
    let write = |(number, len): (usize, &usize)| {
        let inode = life.create(format!("{name}-{number}").as_bytes());
        let content = pattern(number as u64, *len);
        life.write(inode, 0, &content, Stability::Unstable);
        inode
    };
    SIZES.iter().enumerate().map(write).collect()
}

fn check_tree(life: &Life, tree: &[Inode]) {
    for (number, (inode, len)) in tree.iter().zip(SIZES).enumerate() {
        assert_bytes(&life.read(*inode, 0, len + 1), &pattern(number as u64, len));
    }
}

fn remove_tree(life: &Life, name: &str) {
    for number in 0..SIZES.len() {
        life.remove(format!("{name}-{number}").as_bytes());
    }
}

/// The bucket's notes on the content of packs, and on the blocks that share it.
fn notes(bucket: &Bucket) -> Vec<(Key, Vec<KnownFrame>)> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = bucket.store().await;
        let path = store.root.clone().join("meta");
        let reader = SlateReader::open(store.store.clone(), path, Duration::from_secs(60));
        let reader = reader.await.unwrap();
        let mut notes = Vec::new();
        for range in [
            KeyRange::pack_frames_from(PackId(0)),
            KeyRange::referrers_from(PackId(0)),
        ] {
            for (key, value) in reader.scan(&range, 1 << 20).await.unwrap() {
                let frames = PackFrames::decode(&key, &value);
                let frames = frames.map_or_else(|_| Vec::new(), |PackFrames(frames)| frames);
                notes.push((Key::decode(&key).unwrap(), frames));
            }
        }
        reader.close().await.unwrap();
        notes
    })
}

#[test]
fn a_tree_that_is_written_again_takes_no_more_room_and_outlives_the_first() {
    for mode in [Dedup::Full, Dedup::Fast] {
        let bucket = Bucket::new();
        let life = bucket.start(with(mode));
        let first = write_tree(&life, "first");
        life.flush();
        let before = bucket.pack_bytes();
        let second = write_tree(&life, "second");
        life.flush();
        let more = bucket.pack_bytes() - before;
        assert!(more < 4096, "only what is too small to be noted: {more}");
        let all: usize = SIZES.iter().sum();
        assert_eq!(life.volume.status().used_bytes, 2 * all as u64);
        // All but the first two, and the end of the last.
        assert_eq!(dedup(&life).saved_bytes, (all - 701 - 77) as u64);
        let shared = |life: &Life| {
            life.volume.status().collector.space.map(|space| {
                assert!(space.used_bytes() <= space.raw_bytes, "{space:?}");
                space.shared_bytes
            })
        };
        eventually("what is shared is known", || {
            shared(&life) == Some((all - 701 - 77) as u64)
        });
        life.evict();
        check_tree(&life, &second);

        remove_tree(&life, "first");
        life.flush();
        life.flush();
        life.evict();
        check_tree(&life, &second);
        life.crash();
        let life = bucket.start_elsewhere(with(mode));
        check_tree(&life, &second);
        // And a third one is found by the notes on the first.
        has_learnt(&life);
        let before = bucket.pack_bytes();
        let third = write_tree(&life, "third");
        life.flush();
        assert!(bucket.pack_bytes() - before < 4096);
        life.evict();
        check_tree(&life, &third);
        drop(first);

        remove_tree(&life, "second");
        remove_tree(&life, "third");
        life.flush();
        life.flush();
        eventually("the packs are deleted", || bucket.packs().is_empty());
        assert_eq!(life.volume.status().used_bytes, 0);
        eventually("notes go with their packs", || notes(&bucket).is_empty());
        life.stop();
    }
}

#[test]
fn what_comes_up_often_in_one_checkpoint_is_uploaded_once() {
    for mode in [Dedup::Full, Dedup::Fast] {
        let bucket = Bucket::new();
        let life = bucket.start(|config| {
            with(mode)(config);
            config.memory_limit = 64 * MIB;
            config.pack_bytes = BLOCK_SIZE;
        });
        let (zeros, twice) = (life.create(b"zeros"), life.create(b"twice"));
        life.write(zeros, 0, &vec![0; 3 * BLOCK], Stability::Unstable);
        let half = pattern(1, BLOCK);
        life.write(twice, 0, &[&half[..], &half].concat(), Stability::Unstable);
        life.flush();
        let put = bucket.pack_bytes();
        // Fast uploads content without a hash once more, at most once for each pack.
        let most = match mode {
            Dedup::Full => BLOCK_SIZE + (300 << 10),
            _ => 2 * BLOCK_SIZE + ((4 * 300) << 10),
        };
        assert!(put <= most, "{mode:?}: {put} bytes");
        life.crash();
        let life = bucket.start_elsewhere(with(mode));
        assert_bytes(&life.read(zeros, 0, 4 * BLOCK), &vec![0; 3 * BLOCK]);
        assert_bytes(&life.read(twice, 0, BLOCK), &half);
        assert_bytes(&life.read(twice, BLOCK_SIZE, BLOCK), &half);
    }
}

/// CRC32 is linear: this difference does not change it.
fn with_the_same_crc(bytes: &[u8]) -> Vec<u8> {
    let mut other = bytes.to_vec();
    let at = other.len() - 1000;
    for (byte, difference) in other[at..].iter_mut().zip([0x41, 0x06, 0x71, 0xdb, 0x01]) {
        *byte ^= difference;
    }
    assert_ne!(other, bytes);
    assert_eq!(crc32fast::hash(&other), crc32fast::hash(bytes));
    other
}

#[test]
fn what_only_looks_the_same_to_the_cheap_filter_is_not_shared() {
    let bucket = Bucket::new();
    let life = bucket.start(with(Dedup::Fast));
    let content = pattern(3, 100_000);
    let other = with_the_same_crc(&content);
    let (first, second) = (life.create(b"first"), life.create(b"second"));
    life.write(first, 0, &content, Stability::Unstable);
    life.flush();
    let before = bucket.pack_bytes();
    life.write(second, 0, &other, Stability::Unstable);
    life.flush();
    assert!(bucket.pack_bytes() >= before + 100_000);
    assert_eq!(dedup(&life).saved_bytes, 0);
    life.evict();
    assert_bytes(&life.read(first, 0, content.len()), &content);
    assert_bytes(&life.read(second, 0, other.len()), &other);
}

/// A block that is uploaded eagerly finds its content in the pack of the file `first`, which is removed in the
/// checkpoint before: that has closed, and waits for the pack of another file. The file `lost` loses its bytes in the
/// same way after `first`, and nobody finds its pack.
fn found_while_the_first_goes(
    bucket: &Bucket,
    life: &Life,
    content: &[u8],
    goes: fn(&Life, &[u8]),
) -> Found {
    let (first, second) = (life.create(b"first"), life.create(b"second"));
    life.write(first, 0, content, Stability::Unstable);
    life.flush();
    let packs = bucket.packs();
    assert_eq!(packs.len(), 1);
    let lost = life.create(b"lost");
    life.write(lost, 0, &pattern(6, BLOCK), Stability::Unstable);
    life.flush();
    let is_new = |(pack, _): &(PathBuf, u64)| *pack != packs[0].0;
    let (lost_pack, _) = bucket.packs().into_iter().find(is_new).unwrap();
    goes(life, b"first");
    goes(life, b"lost");
    let other = life.create(b"other");
    life.write(other, 0, b"too short to be shared", Stability::Unstable);
    bucket.controls.pack_puts.close();
    let flush = life.spawn(|volume| async move {
        let _ = volume.flush().await;
    });
    eventually("its pack is on its way", || {
        bucket.controls.pack_puts.held() > 0
    });
    life.write(second, 0, content, Stability::Unstable);
    eventually("the block has left", || {
        life.volume.status().dirty_bytes <= 100
    });
    assert_eq!(bucket.packs().len(), 2, "it was found");
    Found {
        second,
        lost_pack,
        flush,
    }
}

/// See [`found_while_the_first_goes`].
struct Found {
    second: Inode,
    lost_pack: PathBuf,
    /// The flush of the checkpoint that has closed.
    flush: tokio::task::JoinHandle<()>,
}

fn cut_off(life: &Life, name: &[u8]) {
    life.truncate(life.lookup(name).inode, 0);
}

#[test]
fn a_pack_that_is_found_and_then_loses_its_last_bytes_is_kept() {
    // How the first file loses its bytes, and whether with its checkpoint or when its maps are collected.
    let ways: [fn(&Life, &[u8]); 2] = [Life::remove, cut_off];
    for (case, goes) in ways.into_iter().enumerate() {
        for crashes in [false, true] {
            let bucket = Bucket::new();
            let life = bucket.start(eager);
            let content = pattern(5, BLOCK);
            let Found {
                second,
                lost_pack,
                flush,
            } = found_while_the_first_goes(&bucket, &life, &content, goes);
            bucket.controls.pack_puts.open();
            life.join(flush);
            // Dead packs are deleted in the order of their numbers.
            eventually("the pack behind it is deleted", || !lost_pack.exists());
            assert_eq!(bucket.packs().len(), 2, "case {case}: it is pinned");
            if crashes {
                life.crash();
                let life = bucket.start(eager);
                assert_bytes(&life.read(second, 0, BLOCK), &content);
                life.flush();
                life.flush();
                assert_bytes(&life.read(second, 0, BLOCK), &content);
                life.crash();
            } else {
                life.evict();
                assert_bytes(&life.read(second, 0, BLOCK), &content);
                life.flush();
                life.crash();
            }
            let life = bucket.start_elsewhere(eager);
            assert_bytes(&life.read(second, 0, BLOCK), &content);
            life.remove(b"second");
            life.remove(b"other");
            life.flush();
            life.flush();
            eventually("the packs are deleted", || bucket.packs().is_empty());
        }
    }
}

#[test]
fn a_pack_that_was_found_in_vain_goes_after_all() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    let Found { second, flush, .. } =
        found_while_the_first_goes(&bucket, &life, &pattern(5, BLOCK), cut_off);
    life.truncate(second, 0);
    life.remove(b"other");
    bucket.controls.pack_puts.open();
    life.join(flush);
    life.flush();
    life.flush();
    eventually("the pack is deleted", || bucket.packs().is_empty());
}

#[test]
fn a_gateway_without_it_reads_what_is_shared_and_takes_the_notes_away() {
    let bucket = Bucket::new();
    let life = bucket.start(with(Dedup::Full));
    write_tree(&life, "first");
    let second = write_tree(&life, "second");
    life.flush();
    life.stop();
    let kinds = |bucket: &Bucket| {
        let notes = notes(bucket);
        let of = |kind: fn(&Key) -> bool| notes.iter().filter(|(key, _)| kind(key)).count();
        (
            of(|key| matches!(key, Key::PackFrames(..))),
            of(|key| matches!(key, Key::Referrer(..))),
        )
    };
    let (frames, referrers) = kinds(&bucket);
    assert!(frames > 0 && referrers > 0, "{frames}, {referrers}");
    let life = bucket.start_elsewhere(with(Dedup::Off));
    assert_eq!(life.volume.status().dedup, None);
    check_tree(&life, &second);
    remove_tree(&life, "first");
    life.flush();
    life.flush();
    check_tree(&life, &second);
    let third = write_tree(&life, "third");
    life.flush();
    remove_tree(&life, "second");
    life.flush();
    life.flush();
    life.evict();
    check_tree(&life, &third);
    eventually("notes go with their packs", || notes(&bucket).is_empty());
    life.stop();
}

#[test]
fn a_volume_that_ends_lets_go_of_its_log_whatever_is_still_looked_for() {
    let bucket = Bucket::new();
    let settings = |config: &mut FsConfig| {
        with(Dedup::Full)(config);
        config.memory_limit = 192 * MIB;
        config.pack_bytes = 64 * MIB;
    };
    let life = bucket.start(settings);
    let inode = life.create(b"file");
    for block in 0..16 {
        let content = pattern(block, BLOCK);
        life.write(inode, block * BLOCK_SIZE, &content, Stability::Unstable);
    }
    let mut config = bucket.config();
    settings(&mut config);
    let is_over = AtomicBool::new(false);
    let started = std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        // Its frames are hashed by threads that a runtime does not wait for. They have a lower priority: beside busy
        // ones they may still run after the next start.
        drop(life.spawn(|volume| async move { volume.flush().await }));
        life.crash();
        let started = bucket.try_start_with(config);
        is_over.store(true, Ordering::Relaxed);
        started
    });
    let life = started.unwrap_or_else(|error| panic!("{error}"));
    assert_bytes(&life.read(inode, 0, BLOCK), &pattern(0, BLOCK));
}

#[derive(Clone, Debug)]
enum Event {
    /// A block of a file gets one of a few contents.
    Fill(u8, u64, u64),
    /// A part of a block.
    Write(u8, u64, usize, u64),
    Truncate(u8, u64),
    Remove(u8),
    Rename(u8, u8),
    Evict,
    Flush,
    FlushBeside,
    Crash,
    Lose,
}

const FILES: u8 = 4;
const BLOCKS: u64 = 3;

fn event() -> impl Strategy<Value = Event> {
    let content = || 0..3u64;
    let at = prop_oneof![
        (0..BLOCKS * 16).prop_map(|frame| frame << 18),
        0..BLOCKS * BLOCK_SIZE
    ];
    prop_oneof![
        9 => (0..FILES, 0..BLOCKS, content()).prop_map(|(f, block, c)| Event::Fill(f, block, c)),
        5 => (0..FILES, at.clone(), 1..600_000usize, content())
            .prop_map(|(f, at, len, c)| Event::Write(f, at, len, c)),
        3 => (0..FILES, at).prop_map(|(f, at)| Event::Truncate(f, at)),
        3 => (0..FILES).prop_map(Event::Remove),
        1 => (0..FILES, 0..FILES).prop_map(|(from, to)| Event::Rename(from, to)),
        1 => Just(Event::Evict),
        2 => Just(Event::Flush),
        5 => Just(Event::FlushBeside),
        1 => Just(Event::Crash),
        1 => Just(Event::Lose),
    ]
}

/// The expected content of each file, by name.
#[derive(Default)]
struct Expected(std::collections::BTreeMap<u8, (Inode, Vec<u8>)>);

fn name(file: u8) -> Vec<u8> {
    format!("file-{file}").into_bytes()
}

impl Expected {
    fn write(&mut self, life: &Life, file: u8, at: u64, bytes: &[u8]) {
        let (inode, content) = self
            .0
            .entry(file)
            .or_insert_with(|| (life.create(&name(file)), Vec::new()));
        life.write(*inode, at, bytes, Stability::Unstable);
        let at = at as usize;
        content.resize(content.len().max(at + bytes.len()), 0);
        content[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn check(&self, life: &Life) {
        for (inode, content) in self.0.values() {
            assert_bytes(&life.read(*inode, 0, content.len() + 1), content);
        }
    }
}

fn run(mode: Dedup, events: &[Event]) {
    let bucket = Bucket::new();
    let settings = |config: &mut FsConfig| {
        eager(config);
        config.dedup = mode;
    };
    let mut life = bucket.start(settings);
    let mut expected = Expected::default();
    for event in events {
        match *event {
            Event::Fill(file, block, content) => {
                let bytes = pattern(content, BLOCK);
                expected.write(&life, file, block * BLOCK_SIZE, &bytes);
            }
            Event::Write(file, at, len, content) => {
                expected.write(&life, file, at, &pattern(content, len));
            }
            Event::Truncate(file, size) => {
                if let Some((inode, content)) = expected.0.get_mut(&file) {
                    life.truncate(*inode, size);
                    content.resize(size as usize, 0);
                }
            }
            Event::Remove(file) => {
                if expected.0.remove(&file).is_some() {
                    life.remove(&name(file));
                }
            }
            Event::Rename(from, to) => {
                if from != to
                    && let Some(moved) = expected.0.remove(&from)
                {
                    let root = Inode::ROOT;
                    life.rename((root, &name(from)), (root, &name(to))).unwrap();
                    expected.0.insert(to, moved);
                }
            }
            Event::Evict => life.evict(),
            Event::Flush => life.flush(),
            Event::FlushBeside => {
                drop(life.spawn(|volume| async move { volume.flush().await }));
            }
            Event::Crash => {
                life.crash();
                life = bucket.start(settings);
                expected.check(&life);
            }
            Event::Lose => {
                life.flush();
                life.crash();
                // Its local folder is lost with it.
                std::fs::remove_dir_all(bucket.local.path()).unwrap();
                life = bucket.start(|config| {
                    settings(config);
                    config.takeover = Takeover::Allow;
                });
                expected.check(&life);
            }
        }
        assert_eq!(life.volume.status().stopped, None);
    }
    expected.check(&life);
    life.flush();
    life.evict();
    expected.check(&life);
    life.crash();
    let life = bucket.start_elsewhere(settings);
    expected.check(&life);
    for file in expected.0.keys() {
        life.remove(&name(*file));
    }
    life.flush();
    life.flush();
    assert_eq!(life.volume.status().used_bytes, 0);
    // Nothing refers to objects that a crash left behind; all others are deleted.
    eventually("notes go with their packs", || notes(&bucket).is_empty());
    life.stop();
}

#[test]
fn files_read_as_they_were_written_whatever_is_shared() {
    let mode = prop_oneof![Just(Dedup::Full), Just(Dedup::Fast)];
    let histories = (mode, prop::collection::vec(event(), 5..50));
    try_all(&histories, |(mode, events)| run(mode, &events));
}
