//! Snapshots and the disk cache: it serves what only a snapshot has, as it was, and nothing of it for the live file.

use forebay_fs::{DiskCacheStatus, Expected, FsConfig, MIN_DISK_CACHE};

use super::{MIB, content, delete, eager, settled, snapshot, write};
use crate::common::{Bucket, Life};
use crate::sealing::key_file;

/// The disk cache, and no byte that was not asked for.
fn with_cache(config: &mut FsConfig) {
    eager(config);
    config.disk_cache_limit = MIN_DISK_CACHE;
    config.memory_limit = 16 << 20;
    config.prefetch_bytes = 0;
}

fn cache(life: &Life) -> DiskCacheStatus {
    life.volume.status().disk_cache.unwrap()
}

fn reads_are_served_by_the_disk_cache(expected: Expected) {
    let bucket = Bucket::of(expected);
    let life = bucket.start(eager);
    let file = life.create(b"file");
    let old = write(&life, file, 1, 3 * MIB);
    life.flush();
    snapshot(&life, "before");
    let new = write(&life, file, 2, 3 * MIB);
    settled(&life, &bucket);
    life.stop();

    let life = bucket.start(with_cache);
    assert!(content(&life, "before", file, old.len()) == old);
    assert!(life.read(file, 0, new.len()) == new);
    let first = cache(&life);
    assert!(first.misses >= 6, "{first:?}");
    life.stop();

    // No pack is read again, after a restart either.
    let life = bucket.start(with_cache);
    assert!(content(&life, "before", file, old.len()) == old);
    assert!(life.read(file, 0, new.len()) == new);
    let second = cache(&life);
    assert_eq!((second.misses, second.damaged), (0, 0));
    assert!(second.hits >= 6, "{second:?}");

    // What the cache has of packs that are deleted with the snapshot is not read.
    delete(&life, "before").unwrap();
    settled(&life, &bucket);
    let newer = write(&life, file, 3, MIB);
    life.flush();
    life.stop();
    let life = bucket.start(with_cache);
    let read = life.read(file, 0, new.len());
    assert!(read[..newer.len()] == newer && read[newer.len()..] == new[newer.len()..]);
    assert_eq!(cache(&life).damaged, 0);
    life.stop();
}

#[test]
fn reads_in_a_snapshot_are_served_by_the_disk_cache() {
    reads_are_served_by_the_disk_cache(Expected::NotSealed);
}

#[test]
fn reads_in_a_snapshot_of_a_sealed_volume_are_served_by_the_disk_cache() {
    reads_are_served_by_the_disk_cache(Expected::Sealed(key_file(1)));
}
