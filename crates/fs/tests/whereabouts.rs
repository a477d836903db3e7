//! Where a file or tree is, and one published: in memory, in the log, in the bucket.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::common::*;
use crate::sealing::key_file;
use forebay_fs::{
    Compression, Dedup, Expected, FsConfig, Kind, LogConfig, MIN_DISK_CACHE, PathError, Whereabouts,
};
use forebay_object::RetrySettings;
use forebay_types::{BLOCK_SIZE, Inode};
use forebay_vfs::Stability;

const BLOCK: usize = BLOCK_SIZE as usize;

fn quiet(config: &mut FsConfig) {
    config.checkpoint_interval = Duration::from_secs(3600);
    config.compression = Compression::Off;
    config.prefetch_bytes = 0;
}

fn small(config: &mut FsConfig) {
    quiet(config);
    config.memory_limit = 16 << 20;
}

fn try_where(life: &Life, path: &[u8]) -> Result<Whereabouts, PathError> {
    let seen = AtomicU64::new(0);
    life.run(|volume| async move { volume.whereabouts(path, &seen).await })
}

#[track_caller]
fn whereabouts(life: &Life, path: &str) -> Whereabouts {
    try_where(life, path.as_bytes()).unwrap()
}

/// Whether there was something to wait for.
fn flush_path(life: &Life, path: &str) -> bool {
    let flushed = life.run(|volume| async move { volume.flush_path(path.as_bytes()).await });
    flushed.unwrap().waited
}

fn write(life: &Life, inode: Inode, data: &[u8], stability: Stability) {
    life.write(inode, 0, data, stability);
}

#[test]
fn bytes_go_from_memory_to_the_log_and_to_the_bucket() {
    let sealed = Bucket::of(Expected::Sealed(Arc::clone(&key_file(1))));
    for bucket in [Bucket::new(), sealed] {
        let life = bucket.start(small);
        let file = life.create(b"file");
        let data = pattern(1, BLOCK + 5000);
        let len = data.len() as u64;
        write(&life, file, &data, Stability::Unstable);
        let found = whereabouts(&life, "/file");
        assert_eq!(
            (found.kind, found.objects, found.files),
            (Kind::Regular, 1, 1)
        );
        assert_eq!(found.is_in_bucket, Some(false));
        assert_eq!((found.size_bytes, found.unpublished_bytes()), (len, len));
        assert_eq!(
            (found.memory_bytes, found.packs, found.since),
            (len, 0, None)
        );
        life.commit(file);
        let found = whereabouts(&life, "/file");
        assert_eq!((found.log_bytes, found.unflushed_bytes), (len, 0));
        assert_eq!(found.is_in_bucket, Some(false));
        assert!(flush_path(&life, "file"));
        let found = whereabouts(&life, "/file");
        assert_eq!(found.is_in_bucket, Some(true));
        assert_eq!((found.unpublished_bytes(), found.published_bytes), (0, len));
        assert!(found.since.unwrap().is_exact);
        assert!(found.packs >= 1 && found.stored_bytes >= len, "{found:?}");
        assert_eq!((found.shared_bytes, found.disk_cache_bytes), (0, 0));
        // A part of it again: the rest stays published.
        life.write(file, 100, &[7; 1000], Stability::FileSync);
        let found = whereabouts(&life, "/file");
        assert_eq!((found.log_bytes, found.published_bytes), (1000, len - 1000));
        assert_eq!((found.is_in_bucket, found.since), (Some(false), None));
        // And cut off.
        life.truncate(file, 600);
        let found = whereabouts(&life, "/file");
        assert_eq!(
            (found.unpublished_bytes(), found.published_bytes),
            (500, 100)
        );
        life.flush();
        life.evict();
        life.stop();
        // In memory and on the local disk is nothing any more.
        let elsewhere = bucket.seen_elsewhere();
        let life = elsewhere.start(small);
        let found = whereabouts(&life, "/file");
        assert_eq!((found.published_bytes, found.size_bytes), (600, 600));
        assert_eq!((found.is_in_bucket, found.memory_bytes), (Some(true), 0));
        assert!(!found.since.unwrap().is_exact);
        assert!(!flush_path(&life, "/file"));
        life.stop();
    }
}

#[test]
fn after_a_crash_the_log_has_what_the_bucket_has_not() {
    let bucket = Bucket::new();
    let life = bucket.start(small);
    write(&life, life.create(b"old"), &[1; 1000], Stability::FileSync);
    life.flush();
    write(&life, life.create(b"new"), &[2; 1000], Stability::FileSync);
    life.crash();
    let life = bucket.start(small);
    let found = whereabouts(&life, "/old");
    assert_eq!(found.is_in_bucket, Some(true));
    let tree = whereabouts(&life, "/");
    let found = whereabouts(&life, "/new");
    if found.is_in_bucket == Some(false) {
        // The replay is published later.
        assert_eq!(found.log_bytes, 1000);
        assert_eq!(tree.log_bytes, 1000);
    }
    flush_path(&life, "/new");
    assert_eq!(whereabouts(&life, "/").is_in_bucket, Some(true));
    life.stop();
}

#[test]
fn a_tree_is_the_sum_of_what_is_in_it() {
    let bucket = Bucket::new();
    let life = bucket.start(small);
    let top = life.mkdir(Inode::ROOT, b"top");
    let deep = life.mkdir(top, b"deep");
    let empty = life.mkdir(top, b"empty");
    for number in 0..600_u32 {
        let inode = life.create_in(deep, format!("{number}").as_bytes());
        write(&life, inode, &[number as u8; 10], Stability::Unstable);
    }
    life.flush();
    let published = whereabouts(&life, "/top");
    assert_eq!((published.directories, published.files), (3, 600));
    assert_eq!((published.objects, published.size_bytes), (603, 6000));
    assert_eq!(
        (published.published_bytes, published.unpublished_bytes()),
        (6000, 0)
    );
    assert_eq!(published.is_in_bucket, Some(true));
    let other = life.create(b"other");
    write(&life, other, &[3; 50], Stability::FileSync);
    // Nothing of the tree has changed, so there is nothing to wait for.
    assert!(!flush_path(&life, "/top"));
    assert_eq!(whereabouts(&life, "/other").is_in_bucket, Some(false));
    let new = life.create_in(empty, b"new");
    write(&life, new, &[3; 70], Stability::FileSync);
    life.truncate(other, 20);
    let mixed = whereabouts(&life, "/top");
    assert_eq!((mixed.files, mixed.log_bytes), (601, 70));
    assert_eq!(
        (mixed.published_bytes, mixed.unpublished_objects),
        (6000, 2)
    );
    assert_eq!(mixed.is_in_bucket, Some(false));
    assert_eq!(whereabouts(&life, "/top/deep").is_in_bucket, Some(true));
    assert_eq!(whereabouts(&life, "/").log_bytes, 90);
    assert!(flush_path(&life, "/top"));
    assert_eq!(whereabouts(&life, "/top").is_in_bucket, Some(true));
    life.stop();
}

#[test]
fn a_name_that_is_not_published_is_not_in_the_bucket() {
    let bucket = Bucket::new();
    let life = bucket.start(small);
    let (one, two) = (
        life.mkdir(Inode::ROOT, b"one"),
        life.mkdir(Inode::ROOT, b"two"),
    );
    let below = life.mkdir(one, b"below");
    life.create_in(below, b"file");
    life.flush();
    life.rename((one, b"below"), (two, b"moved")).unwrap();
    // The file is unchanged, but not under this path.
    let found = whereabouts(&life, "/two/moved/file");
    assert_eq!(
        (found.is_in_bucket, found.unpublished_objects),
        (Some(false), 0)
    );
    assert!(flush_path(&life, "/two/moved/file"));
    assert_eq!(
        whereabouts(&life, "/two/moved/file").is_in_bucket,
        Some(true)
    );
    life.stop();
}

#[test]
fn paths_that_lead_nowhere_are_refused_each_with_its_reason() {
    let bucket = Bucket::new();
    let life = bucket.start(small);
    life.create(b"file");
    life.create(b"a\nb\x1b[0m\xff");
    let link = life.run(|volume| async move {
        use forebay_vfs::FileSystem;
        let set = forebay_vfs::SetAttributes::default();
        let root = Inode::ROOT;
        let target = forebay_vfs::NewNode::Symlink(b"/file");
        let made = volume.make(&ROOT, root, b"link", target, &set).await;
        made.map(drop)
    });
    link.unwrap();
    let why = |path: &[u8]| try_where(&life, path).unwrap_err().to_string();
    assert!(why(b"/none").contains("there is no /none"));
    assert!(why(b"/file/x").contains("/file is not a directory"));
    assert!(why(b"/link/x").contains("/link is a symbolic link"));
    assert!(why(b"/a/../b").contains(".."));
    assert!(why(b"").contains("empty"));
    assert!(why(b"/no\x1b[2J").is_ascii());
    assert!(!why(b"/no\x1b[2J").contains('\x1b'));
    let found = whereabouts(&life, "/link");
    assert_eq!((found.kind, found.files), (Kind::Symlink, 0));
    let odd = try_where(&life, b"/a\nb\x1b[0m\xff").unwrap();
    assert_eq!(odd.kind, Kind::Regular);
    assert!(flush_path(&life, "/file"));
    life.stop();
}

#[test]
fn shared_bytes_and_the_disk_cache_are_told() {
    let bucket = Bucket::new();
    let dedup = |config: &mut FsConfig| {
        small(config);
        config.dedup = Dedup::Full;
        config.disk_cache_limit = MIN_DISK_CACHE;
    };
    let life = bucket.start(dedup);
    let data = pattern(1, BLOCK);
    write(&life, life.create(b"original"), &data, Stability::Unstable);
    life.flush();
    write(&life, life.create(b"copy"), &data, Stability::Unstable);
    life.flush();
    assert_eq!(whereabouts(&life, "/original").shared_bytes, 0);
    let copy = whereabouts(&life, "/copy");
    assert_eq!(
        (copy.shared_bytes, copy.published_bytes),
        (BLOCK_SIZE, BLOCK_SIZE)
    );
    let both = whereabouts(&life, "/");
    assert_eq!(
        (both.shared_bytes, both.published_bytes),
        (BLOCK_SIZE, 2 * BLOCK_SIZE)
    );
    life.stop();
    let life = bucket.start(dedup);
    let copy = life.lookup(b"copy").inode;
    life.read(copy, 0, BLOCK);
    eventually("the frames are on the disk", || {
        whereabouts(&life, "/copy").disk_cache_bytes == BLOCK_SIZE
    });
    life.stop();
}

#[test]
fn blocks_that_were_uploaded_early_are_not_published() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| {
        small(config);
        config.pack_bytes = BLOCK_SIZE;
        config.early_bytes = 0;
    });
    let file = life.create(b"file");
    write(&life, file, &pattern(1, 2 * BLOCK), Stability::Unstable);
    eventually("both blocks are uploaded", || {
        whereabouts(&life, "/file").uploaded_bytes == 2 * BLOCK_SIZE
    });
    let found = whereabouts(&life, "/file");
    assert_eq!(found.unpublished_bytes(), 2 * BLOCK_SIZE);
    assert_eq!(
        (found.is_in_bucket, found.published_bytes),
        (Some(false), 0)
    );
    life.write(file, 10, &[0; 100], Stability::Unstable);
    let found = whereabouts(&life, "/file");
    assert_eq!(found.uploaded_bytes, 2 * BLOCK_SIZE - 100);
    assert_eq!(found.unpublished_bytes(), 2 * BLOCK_SIZE);
    assert!(flush_path(&life, "/file"));
    let found = whereabouts(&life, "/file");
    assert_eq!(
        (found.uploaded_bytes, found.published_bytes),
        (0, 2 * BLOCK_SIZE)
    );
    life.stop();
}

#[test]
fn without_a_log_unpublished_bytes_are_in_memory_alone() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| {
        small(config);
        config.log = LogConfig::None;
    });
    let file = life.create(b"file");
    write(&life, file, &[1; 1000], Stability::Unstable);
    let found = whereabouts(&life, "/file");
    assert_eq!((found.unflushed_bytes, found.log_bytes), (1000, 0));
    assert!(flush_path(&life, "/file"));
    assert_eq!(whereabouts(&life, "/file").is_in_bucket, Some(true));
    life.stop();
}

#[test]
fn while_the_bucket_is_away_what_is_known_here_is_told_and_a_flush_waits() {
    let bucket = Bucket::new();
    *bucket.retry.lock() = RetrySettings {
        attempts: 1,
        ..RetrySettings::default()
    };
    let life = bucket.start(small);
    let cold = life.mkdir(Inode::ROOT, b"cold");
    for number in 0..20 {
        let inode = life.create_in(cold, format!("{number}").as_bytes());
        write(&life, inode, &[1; 5000], Stability::Unstable);
    }
    life.stop();
    let life = bucket.start(small);
    let file = life.create(b"file");
    bucket.controls.set_down(true);
    write(&life, file, &[1; 1000], Stability::FileSync);
    let found = whereabouts(&life, "/file");
    assert_eq!((found.is_in_bucket, found.log_bytes), (Some(false), 1000));
    assert_eq!(found.unknown, None);
    let tree = whereabouts(&life, "/");
    assert_eq!(tree.is_in_bucket, Some(false));
    assert_eq!(tree.log_bytes, 1000);
    let flushing = life.spawn(|volume| async move { volume.flush_path(b"/file").await });
    eventually("the bucket is known to be away", || {
        life.volume.status().store_trouble.is_some()
    });
    assert!(!flushing.is_finished());
    bucket.controls.set_down(false);
    bucket.controls.heal();
    assert!(life.join(flushing).unwrap().waited);
    assert_eq!(whereabouts(&life, "/").is_in_bucket, Some(true));
    life.stop();
}
