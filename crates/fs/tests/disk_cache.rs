//! The local disk cache: frames that were fetched from the bucket are not fetched again, even after a restart, and no
//! byte is served from it that is not the bucket's.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::common::{Bucket, Life, assert_bytes, pattern};
use forebay_fs::{DiskCacheStatus, FsConfig, MIN_DISK_CACHE};
use forebay_metrics::{Samples, Source};
use forebay_types::Inode;
use forebay_vfs::Stability;

const FILE_BYTES: usize = 9 << 20;

/// A bucket with a file in it.
fn bucket() -> (Bucket, Inode) {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let inode = life.create(b"file");
    life.write(inode, 0, &pattern(1, FILE_BYTES), Stability::Unstable);
    life.flush();
    life.stop();
    (bucket, inode)
}

fn with_cache(config: &mut FsConfig) {
    config.disk_cache_limit = MIN_DISK_CACHE;
    config.memory_limit = 16 << 20;
    // No byte is fetched that was not asked for.
    config.prefetch_bytes = 0;
}

fn cache(life: &Life) -> DiskCacheStatus {
    life.volume.status().disk_cache.expect("a disk cache")
}

fn read_all(life: &Life, inode: Inode) {
    assert_bytes(&life.read(inode, 0, FILE_BYTES), &pattern(1, FILE_BYTES));
}

/// Bytes of answered READs from memory, disk cache, bucket and holes.
fn read_bytes(life: &Life) -> [f64; 4] {
    let samples = Samples::of([&life.volume as &dyn Source]);
    ["memory", "disk_cache", "bucket", "hole"]
        .map(|tier| samples.number("read_bytes", &[tier]).unwrap())
}

/// The files of the cache.
fn files(bucket: &Bucket) -> Vec<PathBuf> {
    let folder = bucket.local.path().join("cache");
    let sizes: Vec<_> = fs::read_dir(folder).unwrap().collect();
    assert_eq!(sizes.len(), 1, "the cache of one size");
    let files = fs::read_dir(sizes[0].as_ref().unwrap().path()).unwrap();
    files.map(|entry| entry.unwrap().path()).collect()
}

/// Reads everything through the cache, and stops in order.
fn fill(bucket: &Bucket, inode: Inode) {
    let life = bucket.start(with_cache);
    read_all(&life, inode);
    let status = cache(&life);
    assert_eq!((status.hits, status.damaged), (0, 0));
    assert!(status.misses >= 3, "three blocks: {status:?}");
    let [memory, disk, fetched, hole] = read_bytes(&life);
    assert_eq!(
        (memory + fetched, disk, hole),
        (FILE_BYTES as f64, 0.0, 0.0)
    );
    assert!(fetched > 0.0);
    life.stop();
}

/// Deletes all file data from the bucket: reads must be served from elsewhere.
fn delete_packs(bucket: &Bucket) {
    for (pack, _) in bucket.packs() {
        match fs::remove_file(pack) {
            // The gateway has collected it meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed.unwrap(),
        }
    }
}

#[test]
fn what_was_fetched_is_there_after_a_restart_without_the_bucket() {
    let (bucket, inode) = bucket();
    fill(&bucket, inode);
    delete_packs(&bucket);
    let life = bucket.start(with_cache);
    read_all(&life, inode);
    let status = cache(&life);
    assert_eq!((status.misses, status.damaged), (0, 0));
    assert!(status.hits >= 3, "{status:?}");
    let [memory, disk, fetched, hole] = read_bytes(&life);
    assert_eq!(
        (memory + disk, fetched, hole),
        (FILE_BYTES as f64, 0.0, 0.0)
    );
    assert!(disk > 0.0);
}

#[test]
fn what_left_memory_is_not_fetched_again() {
    let (bucket, inode) = bucket();
    let life = bucket.start(with_cache);
    read_all(&life, inode);
    let fetched = bucket.counts().bytes_got;
    // Until the disk has it: frames that wait to be written are not found yet.
    for _ in 0..100 {
        life.evict();
        let before = cache(&life).misses;
        read_all(&life, inode);
        if cache(&life).misses == before {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    life.evict();
    delete_packs(&bucket);
    read_all(&life, inode);
    assert!(cache(&life).hits >= 3);
    assert!(
        fetched >= FILE_BYTES as u64,
        "the first time it was fetched"
    );
}

#[test]
fn data_that_is_written_over_is_never_found_in_its_former_state() {
    let (bucket, inode) = bucket();
    fill(&bucket, inode);
    let life = bucket.start(with_cache);
    life.write(inode, 5 << 20, b"newer", Stability::Unstable);
    life.truncate(inode, 6 << 20);
    life.flush();
    life.stop();
    let life = bucket.start(with_cache);
    let mut expected = pattern(1, FILE_BYTES)[..6 << 20].to_vec();
    expected[5 << 20..][..5].copy_from_slice(b"newer");
    assert_bytes(&life.read(inode, 0, FILE_BYTES), &expected);
    let status = cache(&life);
    assert!(status.hits > 0, "{status:?}");
    assert_eq!(status.damaged, 0, "one frame is not taken for another");
}

#[test]
fn damage_on_the_local_disk_is_never_served_and_healed_from_the_bucket() {
    let (bucket, inode) = bucket();
    fill(&bucket, inode);
    // One byte in every 64 KiB of the used part.
    let mut damaged = 0;
    for path in files(&bucket) {
        let file = fs::File::options()
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        for offset in (1000..file.metadata().unwrap().len()).step_by(64 << 10) {
            let mut byte = [0];
            file.read_exact_at(&mut byte, offset).unwrap();
            if byte != [0] {
                file.write_all_at(&[!byte[0]], offset).unwrap();
                damaged += 1;
            }
        }
    }
    assert!(damaged > 100, "{damaged} places");
    let life = bucket.start(with_cache);
    read_all(&life, inode);
    let status = cache(&life);
    assert_eq!(status.hits, 0, "{status:?}");
    life.stop();
    // The frames that were fetched then are good again.
    delete_packs(&bucket);
    read_all(&bucket.start(with_cache), inode);
}

#[test]
fn files_of_anything_are_no_cache() {
    let (bucket, inode) = bucket();
    fill(&bucket, inode);
    for (index, path) in files(&bucket).into_iter().enumerate() {
        let bytes = fs::metadata(&path).unwrap().len();
        match index % 3 {
            0 => fs::write(&path, pattern(7, bytes as usize)).unwrap(),
            1 => fs::write(&path, b"").unwrap(),
            _ => fs::remove_file(&path).unwrap(),
        }
    }
    let life = bucket.start(with_cache);
    read_all(&life, inode);
    assert_eq!(cache(&life).hits, 0);
}

#[test]
fn all_of_its_space_is_taken_at_the_start_and_no_more_ever() {
    use std::os::unix::fs::MetadataExt;

    let (bucket, inode) = bucket();
    let taken = |bucket: &Bucket| -> u64 {
        let blocks = files(bucket).into_iter();
        blocks
            .map(|path| fs::metadata(path).unwrap().blocks() * 512)
            .sum()
    };
    let life = bucket.start(with_cache);
    assert_eq!(taken(&bucket), MIN_DISK_CACHE);
    read_all(&life, inode);
    life.stop();
    assert_eq!(taken(&bucket), MIN_DISK_CACHE);
    // Another size starts with an empty cache, and none frees the space.
    let life = bucket.start(|config| config.disk_cache_limit = MIN_DISK_CACHE + (32 << 20));
    assert_eq!(taken(&bucket), MIN_DISK_CACHE + (32 << 20));
    life.stop();
    let life = bucket.start(|_| {});
    assert_eq!(life.volume.status().disk_cache, None);
    assert!(!bucket.local.path().join("cache").exists());
}

#[test]
fn a_cache_that_cannot_be_opened_is_done_without() {
    let (bucket, inode) = bucket();
    fs::write(bucket.local.path().join("cache"), b"not a folder").unwrap();
    let life = bucket.start(with_cache);
    assert_eq!(life.volume.status().disk_cache, None);
    read_all(&life, inode);
}

#[test]
fn more_than_fits_leaves_the_oldest_out_and_serves_right_bytes() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    // A quarter more than the cache can hold.
    let files: Vec<Inode> = (0..10)
        .map(|i| life.create(format!("{i}").as_bytes()))
        .collect();
    let content = |i: usize| pattern(i as u64, 32 << 20);
    for (i, &inode) in files.iter().enumerate() {
        life.write(inode, 0, &content(i), Stability::Unstable);
        life.flush();
    }
    life.stop();
    let life = bucket.start(with_cache);
    for round in 0..2 {
        for (i, &inode) in files.iter().enumerate() {
            assert_bytes(&life.read(inode, 0, 32 << 20), &content(i));
            life.evict();
        }
        assert_eq!(cache(&life).damaged, 0, "round {round}");
    }
}

#[test]
fn after_a_crash_what_is_found_is_right() {
    let (bucket, inode) = bucket();
    for _ in 0..4 {
        let life = bucket.start(with_cache);
        read_all(&life, inode);
        assert_eq!(cache(&life).damaged, 0);
        life.crash();
    }
}

#[test]
fn a_disk_that_fails_ends_the_use_of_the_cache_and_nothing_else() {
    let (bucket, inode) = bucket();
    fill(&bucket, inode);
    let life = bucket.start(with_cache);
    for path in files(&bucket) {
        // Reads of frames that the cache has meet the end of the file.
        fs::File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(0)
            .unwrap();
    }
    read_all(&life, inode);
    let status = cache(&life);
    assert!(status.failed, "{status:?}");
    assert_eq!(status.hits, 0);
}
