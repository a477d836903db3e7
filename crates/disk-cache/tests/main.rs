//! The cache on a real disk: its content after each kind of end, the reuse of regions, and the effects of damage.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

mod model;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use forebay_disk_cache::{FrameCache, FrameKey, MAX_DISK_CACHE, MAX_FRAME, MIN_DISK_CACHE, Shape};
use forebay_metrics::{Samples, Source};
use forebay_types::PackId;
use tempfile::TempDir;

/// A folder with a cache of the smallest size: 16 regions of 16 MiB.
struct Disk(TempDir);

impl Disk {
    fn new() -> Disk {
        Disk(tempfile::tempdir().unwrap())
    }

    fn open(&self) -> FrameCache {
        FrameCache::open(self.0.path(), Shape::of(MIN_DISK_CACHE)).unwrap()
    }

    /// The files of all regions, by number.
    fn files(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.0.path()).unwrap();
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        files
    }
}

fn key(n: u32) -> FrameKey {
    FrameKey {
        pack: PackId(u64::from(n / 8)),
        offset: n % 8 * 4096,
    }
}

/// Bytes that only this frame has.
fn frame(n: u32, len: usize) -> Bytes {
    let mut state = u64::from(n) + 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        bytes.extend_from_slice(&state.to_be_bytes());
    }
    bytes.truncate(len);
    bytes.into()
}

/// Salts that were never used before.
fn salts() -> impl FnMut() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    || NEXT.fetch_add(1, Ordering::Relaxed)
}

fn put(cache: &FrameCache, frames: impl IntoIterator<Item = u32>, len: usize) {
    let frames = frames.into_iter().map(|n| (key(n), frame(n, len)));
    cache.put(frames, salts()).unwrap();
}

fn has(cache: &FrameCache, n: u32, len: usize) -> bool {
    match cache.get(key(n)).unwrap() {
        Some(found) => {
            assert_eq!(found, frame(n, len), "frame {n}");
            true
        }
        None => false,
    }
}

#[test]
fn what_was_put_is_there_after_a_clean_end_and_after_a_kill() {
    for clean in [true, false] {
        let disk = Disk::new();
        let cache = disk.open();
        put(&cache, 0..100, 5000);
        assert!((0..100).all(|n| has(&cache, n, 5000)));
        assert!(!has(&cache, 100, 5000));
        if clean {
            cache.close().unwrap();
        }
        drop(cache);
        let cache = disk.open();
        assert!((0..100).all(|n| has(&cache, n, 5000)), "clean: {clean}");
        // Entries are appended behind the old ones in both cases.
        put(&cache, 100..200, 5000);
        drop(cache);
        let cache = disk.open();
        assert!((0..200).all(|n| has(&cache, n, 5000)), "clean: {clean}");
    }
}

#[test]
fn frames_of_any_length_up_to_the_longest_are_kept_and_longer_ones_left_out() {
    let disk = Disk::new();
    let cache = disk.open();
    for (n, len) in [0, 1, 4096, MAX_FRAME].into_iter().enumerate() {
        put(&cache, [n as u32], len);
        assert!(has(&cache, n as u32, len), "{len} bytes");
    }
    put(&cache, [9], MAX_FRAME + 1);
    assert!(!cache.has(key(9)));
}

const MIB: usize = 1 << 20;

/// Number of frames of 1 MiB that fit into a region.
const OF_A_REGION: u32 = 15;
const REGIONS: u32 = 16;

#[test]
fn the_oldest_make_room_region_by_region() {
    let disk = Disk::new();
    let cache = disk.open();
    assert_eq!(cache.used_bytes(), 0);
    put(&cache, 0..OF_A_REGION * REGIONS, MIB);
    let used = cache.used_bytes();
    let frames = u64::from(OF_A_REGION * REGIONS) * MIB as u64;
    assert!((frames..frames + frames / 100).contains(&used), "{used}");
    assert!((0..OF_A_REGION * REGIONS).all(|n| cache.has(key(n))));
    put(&cache, [9999], MIB);
    for n in 0..OF_A_REGION * REGIONS {
        assert_eq!(cache.has(key(n)), n >= OF_A_REGION, "frame {n}");
    }
    let samples = Samples::of([&cache as &dyn Source]);
    let dropped = |name| samples.number(name, &["disk_cache"]);
    assert_eq!(dropped("evictions"), Some(f64::from(OF_A_REGION)));
    let bytes = (OF_A_REGION as usize * MIB) as f64;
    assert_eq!(dropped("evicted_bytes"), Some(bytes));
    // The oldest region has one frame now.
    assert!(cache.used_bytes() < used);
    let used = cache.used_bytes();
    // A restart keeps the order.
    cache.close().unwrap();
    drop(cache);
    let cache = disk.open();
    assert_eq!(cache.used_bytes(), used);
    put(&cache, 10_000..10_000 + OF_A_REGION, MIB);
    for n in 0..OF_A_REGION * REGIONS {
        assert_eq!(cache.has(key(n)), n >= 2 * OF_A_REGION, "frame {n}");
    }
    assert!(has(&cache, 9999, MIB));
}

#[test]
fn what_is_read_much_stays_longer_and_not_for_ever() {
    let disk = Disk::new();
    let cache = disk.open();
    put(&cache, 0..OF_A_REGION * REGIONS, MIB);
    // More than a quarter of the oldest region.
    assert!((0..5).all(|n| has(&cache, n, MIB)));
    put(&cache, 1000..1000 + OF_A_REGION, MIB);
    assert!(cache.has(key(0)), "it was read");
    assert!(!cache.has(key(OF_A_REGION)), "it was not");
    put(&cache, 2000..2000 + OF_A_REGION * REGIONS, MIB);
    assert!(!cache.has(key(0)), "not since");
    assert!(cache.has(key(2000)));
}

#[test]
fn when_all_is_read_much_the_oldest_makes_room() {
    let disk = Disk::new();
    let cache = disk.open();
    put(&cache, 0..OF_A_REGION * REGIONS, MIB);
    assert!((0..OF_A_REGION * REGIONS).all(|n| has(&cache, n, MIB)));
    put(&cache, [9999], MIB);
    assert!(!cache.has(key(0)));
    assert!(cache.has(key(OF_A_REGION * REGIONS - 1)));
}

#[test]
fn a_frame_that_was_forgotten_can_be_put_again_and_the_newer_one_counts() {
    let disk = Disk::new();
    let cache = disk.open();
    let wrong = (key(3), frame(77, 5000));
    cache.put([wrong], salts()).unwrap();
    put(&cache, [3], 5000);
    let found = cache.get(key(3)).unwrap();
    assert_eq!(found, Some(frame(77, 5000)), "it has one already");
    assert!(!cache.forget(key(3)), "it is of this run");
    assert!(!cache.has(key(3)));
    put(&cache, [3], 5000);
    assert!(has(&cache, 3, 5000));
    drop(cache);
    let cache = disk.open();
    assert!(has(&cache, 3, 5000));
    assert!(cache.forget(key(3)), "it is of an earlier run");
    assert!(!cache.forget(key(3)), "it is gone");
}

#[test]
fn a_region_begun_again_has_nothing_of_its_former_life() {
    let disk = Disk::new();
    let cache = disk.open();
    put(&cache, 0..OF_A_REGION * REGIONS, MIB);
    // At the same places, so that valid headers of old entries follow the new ones.
    put(&cache, [9999], MIB);
    drop(cache);
    let cache = disk.open();
    assert!(has(&cache, 9999, MIB));
    for n in 0..OF_A_REGION {
        assert!(!cache.has(key(n)), "frame {n}");
    }
}

/// Clients choose the content of frames: it must not be taken for entries.
#[test]
fn a_frame_that_looks_like_entries_brings_none() {
    let disk = Disk::new();
    let cache = disk.open();
    put(&cache, 0..20, 5000);
    cache.put([(key(20), frame(20, 100))], salts()).unwrap();
    cache.close().unwrap();
    drop(cache);
    let region = fs::read(&disk.files()[0]).unwrap();
    let forged = Bytes::copy_from_slice(&region[..200_000]);

    let victim = Disk::new();
    let cache = victim.open();
    cache.put([(key(500), forged.clone())], salts()).unwrap();
    drop(cache);
    // The header before it is damaged, and all of it lies where entries are searched.
    let file = fs::File::options().write(true).open(&victim.files()[0]);
    file.unwrap().write_all_at(&forged[32..], 32).unwrap();
    let cache = victim.open();
    assert!((0..21).all(|n| !cache.has(key(n))));
}

#[test]
fn files_that_are_missing_or_of_any_length_or_content_hold_nothing_and_are_used_again() {
    let disk = Disk::new();
    let cache = disk.open();
    put(&cache, 0..OF_A_REGION * 4, MIB);
    cache.close().unwrap();
    drop(cache);
    let files = disk.files();
    assert_eq!(files.len() as u32, REGIONS);
    let whole = fs::metadata(&files[0]).unwrap().len();
    // The first four of them were used.
    fs::remove_file(&files[0]).unwrap();
    fs::write(&files[1], b"").unwrap();
    fs::write(&files[2], frame(1, whole as usize)).unwrap();
    fs::write(&files[3], frame(1, whole as usize + 5000)).unwrap();
    for file in &files[4..] {
        fs::write(file, vec![0; 5000]).unwrap();
    }
    let cache = disk.open();
    assert!((0..OF_A_REGION * 4).all(|n| !cache.has(key(n))));
    put(&cache, 0..OF_A_REGION * REGIONS, MIB);
    drop(cache);
    let cache = disk.open();
    assert!((0..OF_A_REGION * REGIONS).all(|n| has(&cache, n, MIB)));
    for file in &disk.files() {
        assert_eq!(fs::metadata(file).unwrap().len(), whole);
    }
}

#[test]
fn a_disk_that_ends_early_is_an_error_and_no_panic() {
    let disk = Disk::new();
    let cache = disk.open();
    put(&cache, 0..10, 5000);
    for file in disk.files() {
        let file = fs::File::options().write(true).open(file).unwrap();
        file.set_len(100).unwrap();
    }
    let error = cache.get(key(5)).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
}

#[test]
fn a_cache_has_at_most_so_many_files_and_so_many_bytes() {
    for limit in [
        0,
        MIN_DISK_CACHE,
        300 << 20,
        5_000_000_000,
        50 << 30,
        u64::MAX,
    ] {
        let bytes = Shape::of(limit).bytes();
        let bounded = limit.clamp(MIN_DISK_CACHE, MAX_DISK_CACHE);
        assert!(
            bytes <= bounded && bytes > bounded - bounded / 15,
            "{limit}: {bytes}"
        );
    }
    assert_eq!(Shape::of(MIN_DISK_CACHE).to_string(), "16x16777216");
    assert_eq!(Shape::of(MAX_DISK_CACHE).to_string(), "256x2147483648");
}

#[test]
fn frames_are_read_while_others_are_put() {
    let disk = Disk::new();
    let cache = disk.open();
    let rounds = OF_A_REGION * REGIONS * 2;
    let all_are_put = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (cache, all_are_put) = (&cache, &all_are_put);
            scope.spawn(move || {
                let mut found = 0;
                // Once more after all puts: then the last frames are cached.
                let mut is_last = false;
                while !is_last {
                    is_last = all_are_put.load(Ordering::Relaxed);
                    for n in 0..rounds {
                        // Never other bytes than the frame's, even if its region is reused at this moment.
                        found += u32::from(has(cache, (n * 7 + reader) % rounds, MIB / 16));
                    }
                }
                assert!(found > 0);
            });
        }
        for n in 0..rounds * 16 {
            put(&cache, [n % rounds], MIB / 16);
        }
        all_are_put.store(true, Ordering::Relaxed);
    });
}
