//! Quotas: the limits of a tree are enforced before anything is recorded, and its reported usage is what a walk over
//! it finds, whatever happened.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::metadata::Reads;
use crate::common::*;
use async_trait::async_trait;
use bytes::Bytes;
use forebay_fs::{LimitChange, Quota, QuotaError};
use forebay_meta::record::VolumeState;
use forebay_meta::{Batch, Key, KeyRange, Record as _, StoreError};
use forebay_types::Inode;
use forebay_vfs::{Error, FileKind, FileSystem, NewNode, SetAttributes, Stability};
use tokio::sync::{Notify, Semaphore};

mod random;

const MIB: u64 = 1 << 20;

fn set(life: &Life, path: &str, bytes: Option<u64>, files: Option<u64>) -> Quota {
    let path = path.as_bytes().to_vec();
    let limit = |limit: Option<u64>| limit.map_or(LimitChange::Keep, LimitChange::To);
    let (bytes, files) = (limit(bytes), limit(files));
    life.run(|volume| async move { volume.set_quota(&path, bytes, files).await.unwrap() })
}

fn remove(life: &Life, path: &str) {
    let path = path.as_bytes().to_vec();
    life.run(|volume| async move { volume.remove_quota(&path).await.unwrap() });
}

fn quota(life: &Life, path: &str) -> Result<Quota, QuotaError> {
    let path = path.as_bytes().to_vec();
    life.run(|volume| async move { volume.quota(&path).await })
}

fn quotas(life: &Life) -> Vec<Quota> {
    life.run(|volume| async move { volume.quotas().await.unwrap() })
}

fn used(life: &Life, path: &str) -> (u64, u64) {
    let quota = quota(life, path).unwrap();
    (quota.used_bytes, quota.used_files)
}

/// Waits until all counting in the background has ended.
fn settled(life: &Life) {
    eventually("all trees are counted", || {
        quotas(life).iter().all(|quota| !quota.counting)
    });
}

/// The objects below a directory, itself included: bytes by their `used`, and their number.
fn walk(life: &Life, top: Inode, stop_at: &HashSet<Inode>) -> (u64, u64) {
    let (mut bytes, mut seen, mut todo) = (0, HashSet::from([top]), vec![top]);
    while let Some(directory) = todo.pop() {
        for entry in life.list(directory, 50) {
            if matches!(&entry.name[..], b"." | b"..") || stop_at.contains(&entry.inode) {
                continue;
            }
            if !seen.insert(entry.inode) {
                continue;
            }
            let found = life.getattr(entry.inode).unwrap();
            match found.kind {
                FileKind::Directory => todo.push(entry.inode),
                FileKind::Regular => bytes += found.used,
                _ => {}
            }
        }
    }
    (bytes, seen.len() as u64)
}

/// Asserts that every count is what a walk finds.
fn check_counts(life: &Life) {
    let quotas = quotas(life);
    let roots: HashSet<Inode> = quotas.iter().map(|quota| quota.inode).collect();
    for quota in &quotas {
        let mut others = roots.clone();
        others.remove(&quota.inode);
        let found = walk(life, quota.inode, &others);
        assert_eq!((quota.used_bytes, quota.used_files), found, "{quota:?}");
    }
    let sizes = life.run(|volume| async move { volume.statistics().await.unwrap() });
    let counted = (
        sizes.total_bytes - sizes.free_bytes,
        sizes.total_files - sizes.free_files,
    );
    assert_eq!(counted, walk(life, Inode::ROOT, &HashSet::new()));
}

#[test]
fn a_tree_is_full_to_the_byte_and_objects_are_counted_with_its_root() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let top = life.mkdir(Inode::ROOT, b"top");
    let made = set(&life, "/top", Some(MIB), Some(3));
    assert!(!made.counting, "an empty directory needs no walk");
    let file = life.create_in(top, b"file");
    life.write(file, 0, &pattern(1, MIB as usize), Stability::Unstable);
    assert_eq!(life.try_write(file, MIB, b"x"), Err(Error::Quota));
    assert_eq!(life.getattr(file).unwrap().size, MIB, "nothing was done");
    // Bytes that count already may be overwritten, published or not.
    life.write(file, 4096, &pattern(2, 4096), Stability::FileSync);
    life.flush();
    life.write(file, 0, &pattern(3, MIB as usize), Stability::FileSync);
    let directory = life.mkdir(top, b"directory");
    life.run(|volume| async move {
        let set = SetAttributes::default();
        for (name, node) in [
            (&b"d"[..], NewNode::Directory),
            (b"s", NewNode::Symlink(b"to")),
            (b"f", NewNode::Fifo),
        ] {
            let refused = volume
                .make(&crate::common::ROOT, directory, name, node, &set)
                .await;
            assert_eq!(refused, Err(Error::Quota));
        }
        let guarded = forebay_vfs::CreateMode::Guarded(set);
        let refused = volume
            .create(&crate::common::ROOT, top, b"f", &guarded)
            .await;
        assert_eq!(refused, Err(Error::Quota));
    });
    // Another name of an existing object is not another object.
    life.link(file, (directory, b"link")).unwrap();
    assert_eq!(used(&life, "/top/directory"), (MIB, 3));
    // Nothing is limited outside.
    let other = life.create(b"other");
    life.write(other, 0, &pattern(4, 4096), Stability::FileSync);
    check_counts(&life);
    life.try_remove(directory, b"link").unwrap();
    life.rmdir(top, b"directory").unwrap();
    life.create_in(top, b"again");
    check_counts(&life);
}

#[test]
fn limits_may_be_lowered_below_what_is_used_and_then_only_less_is_taken() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let top = life.mkdir(Inode::ROOT, b"top");
    set(&life, "top", Some(MIB), None);
    let file = life.create_in(top, b"file");
    life.write(file, 0, &pattern(1, MIB as usize), Stability::FileSync);
    let lowered = set(&life, "/top/", Some(MIB / 2), Some(2));
    assert_eq!(lowered.limit_bytes, Some(MIB / 2));
    assert_eq!(life.try_write(file, MIB, b"x"), Err(Error::Quota));
    life.write(file, 0, b"over", Stability::FileSync);
    life.truncate(file, MIB / 4);
    life.write(file, MIB / 4, &pattern(2, 4096), Stability::FileSync);
    // Only the given limits change.
    let raised = set(&life, "/top", None, Some(3));
    assert_eq!(
        (raised.limit_bytes, raised.limit_files),
        (Some(MIB / 2), Some(3))
    );
    life.create_in(top, b"third");
    check_counts(&life);
}

#[test]
fn holes_are_free_and_written_over_bytes_of_a_file_with_holes_fit_a_full_tree() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.memory_limit = 16 << 20);
    let top = life.mkdir(Inode::ROOT, b"top");
    set(&life, "/top", Some(MIB), None);
    let file = life.create_in(top, b"sparse");
    life.truncate(file, 1 << 40);
    assert_eq!(used(&life, "/top"), (0, 2));
    for at in [0, 1 << 30, 1 << 35, 1 << 39] {
        life.write(file, at, &pattern(at, 256 << 10), Stability::Unstable);
    }
    assert_eq!(used(&life, "/top"), (MIB, 2));
    // Again: they are in memory.
    life.write(file, 1 << 35, &pattern(1, 256 << 10), Stability::Unstable);
    assert_eq!(life.try_write(file, 1 << 20, b"x"), Err(Error::Quota));
    // And when they are only in the bucket.
    life.flush();
    life.evict();
    life.write(file, 1 << 35, &pattern(2, 256 << 10), Stability::FileSync);
    assert_eq!(used(&life, "/top"), (MIB, 2));
    life.write(file, (1 << 30) + 7, &pattern(3, 999), Stability::FileSync);
    assert_eq!(
        life.try_write(file, (1 << 30) - 1, b"xy"),
        Err(Error::Quota)
    );
    life.truncate(file, 1 << 36);
    life.flush();
    assert_eq!(used(&life, "/top"), (3 * MIB / 4, 2));
    check_counts(&life);
}

#[test]
fn names_do_not_cross_the_border_of_a_tree_but_its_root_does() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let top = life.mkdir(Inode::ROOT, b"top");
    set(&life, "/top", Some(MIB), None);
    let outside = life.create(b"outside");
    life.mkdir(Inode::ROOT, b"directory");
    let inside = life.create_in(top, b"inside");
    let below = life.mkdir(top, b"below");
    let root = Inode::ROOT;
    let refused = Err(Error::CrossDevice);
    assert_eq!(life.rename((root, b"outside"), (top, b"x")), refused);
    assert_eq!(life.rename((root, b"directory"), (top, b"x")), refused);
    assert_eq!(life.rename((top, b"inside"), (root, b"x")), refused);
    assert_eq!(life.rename((top, b"below"), (root, b"x")), refused);
    assert_eq!(life.link(outside, (top, b"x")), refused);
    assert_eq!(life.link(inside, (root, b"x")), refused);
    life.rename((top, b"inside"), (below, b"inside")).unwrap();
    life.link(inside, (top, b"x")).unwrap();
    // A tree in a tree: its objects count there and nowhere else.
    set(&life, "/top/below", Some(MIB / 2), None);
    settled(&life);
    assert_eq!(life.link(inside, (top, b"y")), refused, "it counts below");
    let deep = life.create_in(below, b"deep");
    life.write(
        deep,
        0,
        &pattern(1, (MIB / 2) as usize),
        Stability::FileSync,
    );
    assert_eq!(life.try_write(deep, MIB / 2, b"x"), Err(Error::Quota));
    assert_eq!(used(&life, "/top"), (0, 1));
    assert_eq!(used(&life, "/top/below"), (MIB / 2, 3));
    life.rename((top, b"below"), (root, b"moved")).unwrap();
    assert_eq!(used(&life, "/moved"), (MIB / 2, 3));
    assert_eq!(quotas(&life).len(), 2);
    life.rename((root, b"moved"), (top, b"back")).unwrap();
    assert_eq!(quotas(&life)[1].path, b"/top/back");
}

#[test]
fn a_file_whose_name_inside_has_gone_counts_nowhere_once_the_quota_has() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let top = life.mkdir(Inode::ROOT, b"top");
    let (file, kept) = (life.create_in(top, b"inside"), life.create_in(top, b"kept"));
    life.write(file, 0, &pattern(1, 4096), Stability::Unstable);
    life.link(file, (Inode::ROOT, b"outside")).unwrap();
    set(&life, "/top", Some(MIB), None);
    settled(&life);
    assert_eq!(used(&life, "/top"), (4096, 3));
    life.try_remove(top, b"inside").unwrap();
    assert_eq!(used(&life, "/top"), (4096, 3), "it counts where it did");
    remove(&life, "/top");
    eventually("its quota is gone", || quotas(&life).is_empty());
    // Nothing of the tree is left that would be a border.
    life.rename((Inode::ROOT, b"outside"), (top, b"back"))
        .unwrap();
    life.rename((top, b"kept"), (Inode::ROOT, b"kept")).unwrap();
    check_counts(&life);
    set(&life, "/top", Some(MIB), None);
    settled(&life);
    assert_eq!(used(&life, "/top"), (4096, 2));
    assert!(life.getattr(kept).is_ok());
}

#[test]
fn a_file_whose_name_inside_has_gone_counts_nowhere_once_the_directory_has() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let top = life.mkdir(Inode::ROOT, b"top");
    let file = life.create_in(top, b"inside");
    life.write(file, 0, &pattern(1, 4096), Stability::Unstable);
    life.link(file, (Inode::ROOT, b"outside")).unwrap();
    set(&life, "/top", Some(4096), None);
    settled(&life);
    life.flush();
    life.try_remove(top, b"inside").unwrap();
    life.rmdir(Inode::ROOT, b"top").unwrap();
    // No quota applies to it any more, and no border.
    life.write(file, 4096, &pattern(2, 4096), Stability::Unstable);
    let other = life.mkdir(Inode::ROOT, b"other");
    eventually("nothing makes a border", || {
        life.rename((Inode::ROOT, b"outside"), (other, b"moved"))
            .is_ok()
    });
    life.flush();
    check_counts(&life);
    life.crash();
    let life = bucket.start_elsewhere(|_| {});
    assert!(quotas(&life).is_empty());
    check_counts(&life);
}

#[test]
fn a_directory_with_content_is_counted_in_and_out_again() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let mut directory = life.mkdir(Inode::ROOT, b"top");
    for depth in 0..4 {
        for number in 0..70 {
            let file = life.create_in(directory, format!("f{number}").as_bytes());
            life.write(file, 0, &pattern(number, 700), Stability::Unstable);
        }
        life.mkdir(directory, b"empty");
        directory = life.mkdir(directory, format!("d{depth}").as_bytes());
    }
    let inner = quotas(&life);
    assert!(inner.is_empty());
    set(&life, "/top/d0/d1", Some(100 * MIB), None);
    set(&life, "/top", Some(100 * MIB), None);
    settled(&life);
    check_counts(&life);
    assert_eq!(used(&life, "/top"), (2 * 70 * 1024, 144));
    remove(&life, "/top/d0/d1");
    eventually("it counts in the tree around it", || {
        used(&life, "/top/d0/d1") == (4 * 70 * 1024, 289)
    });
    eventually("its quota is gone", || quotas(&life).len() == 1);
    check_counts(&life);
    remove(&life, "/top");
    eventually("no quota is left", || quotas(&life).is_empty());
    let top = life.lookup(b"top").inode;
    life.rename((top, b"f1"), (Inode::ROOT, b"f1")).unwrap();
    let path = b"/top".to_vec();
    assert!(matches!(
        life.run(|volume| async move { volume.remove_quota(&path).await }),
        Err(QuotaError::None(_))
    ));
    check_counts(&life);
    // The bucket alone has the same counts.
    life.flush();
    life.crash();
    let life = bucket.start_elsewhere(|_| {});
    assert!(quotas(&life).is_empty());
    check_counts(&life);
}

#[test]
fn a_walk_that_a_crash_interrupts_is_done_after_the_start() {
    for leaving in [false, true] {
        let bucket = Bucket::new();
        let life = bucket.start(|_| {});
        let mut directory = life.mkdir(Inode::ROOT, b"top");
        for depth in 0..20 {
            for number in 0..20 {
                life.create_in(directory, format!("{number}").as_bytes());
            }
            directory = life.mkdir(directory, format!("d{depth}").as_bytes());
        }
        set(&life, "/top", Some(MIB), None);
        if leaving {
            settled(&life);
            remove(&life, "/top");
        }
        life.crash();
        let life = bucket.start(|_| {});
        if leaving {
            eventually("no quota is left", || quotas(&life).is_empty());
        } else {
            settled(&life);
            assert_eq!(used(&life, "/top"), (0, 421));
        }
        check_counts(&life);
    }
}

#[test]
fn limits_and_usage_survive_crash_and_takeover_from_the_bucket_alone() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let top = life.mkdir(Inode::ROOT, b"top");
    set(&life, "/top", Some(MIB), Some(10));
    let file = life.create_in(top, b"file");
    life.write(file, 0, &pattern(1, MIB as usize), Stability::FileSync);
    life.crash();
    let life = bucket.start(|_| {});
    assert_eq!(used(&life, "/top"), (MIB, 2));
    assert_eq!(life.try_write(file, MIB, b"x"), Err(Error::Quota));
    check_counts(&life);
    life.flush();
    life.crash();
    let life = bucket.start_elsewhere(|_| {});
    let found = quota(&life, "/top").unwrap();
    assert_eq!(
        (found.limit_bytes, found.limit_files),
        (Some(MIB), Some(10))
    );
    assert_eq!(life.try_write(file, MIB, b"x"), Err(Error::Quota));
    check_counts(&life);
    life.try_remove(top, b"file").unwrap();
    life.rmdir(Inode::ROOT, b"top").unwrap();
    assert!(quotas(&life).is_empty(), "the tree went with its root");
    life.flush();
    life.crash();
    let life = bucket.start_elsewhere(|_| {});
    assert!(quotas(&life).is_empty());
    check_counts(&life);
}

#[test]
fn writers_at_the_same_time_never_pass_a_limit_together() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.volume_limit = 64 * MIB);
    let top = life.mkdir(Inode::ROOT, b"top");
    set(&life, "/top", Some(2 * MIB), Some(17));
    let files: Vec<Inode> = (0..16)
        .map(|number| life.create_in(top, format!("{number}").as_bytes()))
        .collect();
    let writers: Vec<_> = files
        .into_iter()
        .map(|file| {
            life.spawn(move |volume| async move {
                let mut written = 0;
                for piece in 0..16 {
                    let data = pattern(piece, 64 << 10);
                    let at = piece * (64 << 10);
                    let done = volume
                        .write(&crate::common::ROOT, file, at, &data, Stability::Unstable)
                        .await;
                    match done {
                        Ok(reply) => written += u64::from(reply.count),
                        Err(error) => assert_eq!(error, Error::Quota),
                    }
                    let sizes = volume.statistics_at(file).await.unwrap();
                    assert!(sizes.total_bytes - sizes.free_bytes <= 2 * MIB);
                }
                written
            })
        })
        .collect();
    let written: u64 = writers.into_iter().map(|writer| life.join(writer)).sum();
    assert_eq!(written, 2 * MIB, "and no room was left unused");
    check_counts(&life);
}

#[test]
fn statistics_are_those_of_the_tree_and_never_more_than_the_volume_has() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.volume_limit = 4 * MIB);
    let top = life.mkdir(Inode::ROOT, b"top");
    set(&life, "/top", Some(3 * MIB), Some(10));
    let file = life.create_in(top, b"file");
    life.write(file, 0, &pattern(1, MIB as usize), Stability::FileSync);
    let sizes =
        |inode| life.run(|volume| async move { volume.statistics_at(inode).await.unwrap() });
    let of_tree = sizes(file);
    assert_eq!(
        (
            of_tree.total_bytes,
            of_tree.free_bytes,
            of_tree.available_bytes
        ),
        (3 * MIB, 2 * MIB, 2 * MIB)
    );
    assert_eq!(
        (
            of_tree.total_files,
            of_tree.free_files,
            of_tree.available_files
        ),
        (10, 8, 8)
    );
    let other = life.create(b"other");
    life.write(other, 0, &pattern(2, 2 * MIB as usize), Stability::FileSync);
    let of_tree = sizes(top);
    assert_eq!(
        (of_tree.free_bytes, of_tree.available_bytes),
        (2 * MIB, MIB)
    );
    let of_volume = sizes(Inode::ROOT);
    assert_eq!(
        (of_volume.total_bytes, of_volume.free_bytes),
        (4 * MIB, MIB)
    );
    // The volume is full before the tree is.
    life.write(file, MIB, &pattern(3, MIB as usize), Stability::FileSync);
    assert_eq!(life.try_write(file, 2 * MIB, b"x"), Err(Error::NoSpace));
}

#[test]
fn wishes_that_make_no_sense_are_refused_with_what_to_do() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    life.create(b"file");
    life.mkdir(Inode::ROOT, b"top");
    let refusal = |path: &str, bytes| {
        let path = path.as_bytes().to_vec();
        let files = LimitChange::Keep;
        let refused = life.run(|volume| async move { volume.set_quota(&path, bytes, files).await });
        refused.unwrap_err().to_string()
    };
    let limit = LimitChange::To(1);
    assert!(refusal("/", limit).contains("volume_limit"));
    assert!(refusal("/none", limit).contains("there is no /none"));
    assert!(refusal("/file", limit).contains("not a directory"));
    assert!(refusal("/top", LimitChange::Keep).contains("no limit"));
    assert!(matches!(quota(&life, "/top"), Err(QuotaError::None(_))));
}

#[test]
fn a_volume_whose_bytes_were_never_counted_is_counted_when_it_is_opened() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let directory = life.mkdir(Inode::ROOT, b"directory");
    for number in 0..5 {
        let file = life.create_in(directory, format!("{number}").as_bytes());
        life.write(
            file,
            number * 100_000,
            &pattern(number, 5000),
            Stability::FileSync,
        );
    }
    life.stop();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = bucket.store().await;
        let folder = folder();
        let metadata = forebay_fs::Environment::real(folder.path().to_owned()).metadata;
        let metadata = metadata.open(&store, 0, None).await.unwrap();
        let key = Key::Volume.encode();
        let state = metadata.get(&key).await.unwrap().unwrap();
        let state = VolumeState::decode(&key, &state).unwrap();
        assert_eq!(state.charged_bytes, Some(5 * 5120));
        let as_it_was = VolumeState {
            charged_bytes: None,
            ..state
        };
        let mut batch = Batch::new();
        batch.put(&Key::Volume, &as_it_was);
        metadata.commit(&batch).await.unwrap();
        metadata.close().await.unwrap();
    });
    let life = bucket.start(|_| {});
    check_counts(&life);
    life.flush();
    life.crash();
    check_counts(&bucket.start_elsewhere(|_| {}));
}

/// Holds a walk over a tree: at its first scan of the tree's root, and then before each step.
struct HeldWalk {
    top: Inode,
    scanning: Notify,
    scans: Semaphore,
    stepping: Notify,
    steps: Semaphore,
    by_steps: AtomicBool,
}

impl HeldWalk {
    fn over(top: Inode) -> Arc<HeldWalk> {
        Arc::new(HeldWalk {
            top,
            scanning: Notify::new(),
            scans: Semaphore::new(0),
            stepping: Notify::new(),
            steps: Semaphore::new(0),
            by_steps: AtomicBool::new(false),
        })
    }

    fn go_on(&self) {
        self.by_steps.store(false, Ordering::SeqCst);
        self.scans.close();
        self.steps.close();
    }
}

#[async_trait]
impl Reads for HeldWalk {
    async fn got(&self, key: &[u8], found: Option<Bytes>) -> Result<Option<Bytes>, StoreError> {
        let is_step = key == Key::Quota(self.top).encode();
        if is_step && self.by_steps.load(Ordering::SeqCst) {
            self.stepping.notify_one();
            if let Ok(permit) = self.steps.acquire().await {
                permit.forget();
            }
        }
        Ok(found)
    }

    async fn scanned(&self, range: &KeyRange) -> Result<(), StoreError> {
        if range.contains(&Key::Cookie(self.top, u64::MAX).encode()) {
            self.scanning.notify_one();
            let _ = self.scans.acquire().await;
        }
        Ok(())
    }
}

#[test]
fn what_a_walk_has_yet_to_come_to_is_not_renamed_behind_it() {
    for (joins, of_directories) in [(true, false), (true, true), (false, false), (false, true)] {
        let bucket = Bucket::new();
        let life = bucket.start(|_| {});
        let top = life.mkdir(Inode::ROOT, b"top");
        let name = |i: usize| format!("name {i:03}").into_bytes();
        for i in 0..70 {
            if of_directories {
                let directory = life.mkdir(top, &name(i));
                if i > 60 {
                    life.create_in(directory, b"below");
                }
            } else {
                life.create_in(top, &name(i));
            }
        }
        if !joins {
            set(&life, "/top", Some(1000), Some(1000));
            settled(&life);
        }
        life.stop();
        let walk = HeldWalk::over(top);
        let life = bucket.start_watched(bucket.config(), walk.clone());
        if joins {
            set(&life, "/top", Some(1000), Some(1000));
        } else {
            remove(&life, "/top");
        }
        let watched = walk.clone();
        life.run(|volume| async move {
            watched.scanning.notified().await;
            // From here on each step reads the quota from the bucket once.
            volume.flush().await.unwrap();
            watched.by_steps.store(true, Ordering::SeqCst);
            watched.scans.close();
            let steps = if of_directories { 12 } else { 1 };
            for _ in 0..steps {
                watched.stepping.notified().await;
                watched.steps.add_permits(1);
            }
            watched.stepping.notified().await;
        });
        // Names ahead of the walk, over names that it has passed.
        for i in 0..3 {
            life.rename((top, &name(69 - i)), (top, &name(i))).unwrap();
        }
        // And files that are made now.
        if !of_directories {
            life.create_in(top, b"new");
            life.rename((top, b"new"), (top, &name(4))).unwrap();
        }
        walk.go_on();
        settled(&life);
        check_counts(&life);
        assert_eq!(quotas(&life).len(), usize::from(joins));
        life.flush();
        life.crash();
        let life = bucket.start_elsewhere(|_| {});
        settled(&life);
        check_counts(&life);
    }
}
