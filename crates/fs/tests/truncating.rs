//! The block maps of large files that are truncated or removed are deleted in steps of their own: no batch grows with
//! the file, and between two steps readers, and a gateway that starts after a crash, find the file as it was
//! published.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use async_trait::async_trait;
use forebay_fs::{Expected, FsConfig};
use forebay_meta::{Batch, Key, StoreError};
use forebay_types::{BLOCK_SIZE, Inode};
use forebay_vfs::{FileSystem, SetAttributes, Stability};
use forebay_view::View;

use crate::common::metadata::Reads;
use crate::common::*;

/// Block maps of one step.
const AT_ONCE: usize = 4;
/// Number of blocks of the file.
const BLOCKS: u64 = 30;
/// Bytes in each of them, and where they begin in the block.
const LEN: u64 = 100;
const AT: u64 = 7;

fn small_steps(config: &mut FsConfig) {
    config.maps_at_once = AT_ONCE;
    config.memory_limit = 16 << 20;
}

/// Number of block maps that a batch changes.
fn maps_in(batch: &Batch) -> usize {
    let keys = batch.changes().iter();
    let keys = keys.map(|(key, _)| Key::decode(key).unwrap());
    keys.filter(|key| matches!(key, Key::Block(_))).count()
}

/// Counts the block maps in batches, and keeps a copy of the bucket before each.
#[derive(Default)]
struct Steps {
    bucket: OnceLock<Bucket>,
    watches: AtomicBool,
    most: AtomicUsize,
    copies: Mutex<Vec<Bucket>>,
}

#[async_trait]
impl Reads for Steps {
    async fn commits(&self, batch: &Batch) -> Result<(), StoreError> {
        if self.watches.load(Ordering::SeqCst) {
            self.most.fetch_max(maps_in(batch), Ordering::SeqCst);
            let copy = self.bucket.get().unwrap().copy();
            self.copies.lock().unwrap().push(copy);
        }
        Ok(())
    }
}

/// The first bytes of each block of a file.
type Heads = Vec<Vec<u8>>;

fn heads(life: &Life, inode: Inode) -> Heads {
    let head = |block| life.read(inode, block * BLOCK_SIZE, 2 * (AT + LEN) as usize);
    (0..BLOCKS).map(head).collect()
}

/// The same out of the bucket alone.
fn published_heads(bucket: &Bucket, inode: Inode) -> Heads {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = bucket.store().await;
        let view = View::open(&store, &Expected::NotSealed).await.unwrap();
        let mut heads = Vec::new();
        for block in 0..BLOCKS {
            let (at, len) = (block * BLOCK_SIZE, 2 * (AT + LEN) as u32);
            let head = view.read(&ROOT, inode, at, len).await.unwrap();
            heads.push(head.data.iter().flat_map(|part| part.to_vec()).collect());
        }
        heads
    })
}

fn empty() -> Heads {
    vec![vec![0; 2 * (AT + LEN) as usize]; BLOCKS as usize]
}

/// A published file with some bytes in each of its blocks.
fn sparse_file(life: &Life, name: &[u8]) -> (Inode, Heads) {
    let inode = life.create(name);
    let mut expected = empty();
    for block in 0..BLOCKS {
        let data = pattern(block + 1, LEN as usize);
        life.write(inode, block * BLOCK_SIZE + AT, &data, Stability::Unstable);
        expected[block as usize][AT as usize..(AT + LEN) as usize].copy_from_slice(&data);
    }
    // A size that no other file has.
    life.truncate(inode, BLOCKS * BLOCK_SIZE - 1);
    life.flush();
    assert_eq!(life.volume.status().used_bytes, BLOCKS * LEN);
    (inode, expected)
}

#[test]
fn a_large_file_is_truncated_in_steps_and_each_of_them_may_be_the_last() {
    let steps = Arc::new(Steps::default());
    let bucket = Bucket::new();
    let mut config = bucket.config();
    small_steps(&mut config);
    let life = bucket.start_watched(config, steps.clone());
    let (inode, before) = sparse_file(&life, b"file");
    assert!(steps.bucket.set(bucket).is_ok());

    // A part of the third block is left. Two truncated blocks are written again, in the same checkpoint.
    life.truncate(inode, 2 * BLOCK_SIZE + 50);
    let mut after = empty();
    after[..3].clone_from_slice(&before[..3]);
    after[2][50..].fill(0);
    for block in [9, 20] {
        let at = block * BLOCK_SIZE + 60;
        life.write(inode, at, b"later", Stability::Unstable);
        after[block as usize][60..65].copy_from_slice(b"later");
    }
    life.truncate(inode, BLOCKS * BLOCK_SIZE);
    steps.watches.store(true, Ordering::SeqCst);
    life.flush();
    assert_eq!(heads(&life, inode), after);
    let left = 2 * LEN + 50 - AT + 2 * 5;
    eventually("what was truncated is collected", || {
        life.volume.status().used_bytes == left
    });
    // The file's own count, rounded up to 512.
    assert_eq!(life.getattr(inode).unwrap().used, 512);
    steps.watches.store(false, Ordering::SeqCst);
    life.evict();
    assert_eq!(heads(&life, inode), after);
    // Writes in the same checkpoint add to the budget of a step.
    let most = steps.most.load(Ordering::SeqCst);
    assert!(most <= AT_ONCE + 2, "{most} block maps in one batch");
    life.stop();

    let copies = std::mem::take(&mut *steps.copies.lock().unwrap());
    assert!(
        copies.len() as u64 > BLOCKS / AT_ONCE as u64,
        "{} steps",
        copies.len()
    );
    let mut seen = [0, 0];
    for copy in copies {
        let published = published_heads(&copy, inode);
        let life = copy.start_elsewhere(small_steps);
        let is_before = life.getattr(inode).unwrap().size == BLOCKS * BLOCK_SIZE - 1;
        seen[usize::from(is_before)] += 1;
        if is_before {
            assert_eq!(heads(&life, inode), before);
            assert_eq!(published, before);
            continue;
        }
        assert_eq!(heads(&life, inode), after);
        assert_eq!(published, after);
        // A block whose former map may still exist.
        let mut later = after.clone();
        life.write(inode, 25 * BLOCK_SIZE + 1, b"new", Stability::Unstable);
        later[25][1..4].copy_from_slice(b"new");
        life.flush();
        life.evict();
        assert_eq!(heads(&life, inode), later);
        eventually("the rest is collected", || {
            life.volume.status().used_bytes == left + 3
        });
        life.evict();
        assert_eq!(heads(&life, inode), later);
        life.remove(b"file");
        life.flush();
        eventually("nothing is left", || {
            life.volume.status().used_bytes == 0 && copy.packs().is_empty()
        });
        life.stop();
    }
    assert!(seen[0] > 1 && seen[1] == 1, "{seen:?}");
}

#[test]
fn a_file_that_is_removed_while_it_is_collected_leaves_nothing() {
    let bucket = Bucket::new();
    let steps = Arc::new(Steps::default());
    let mut config = bucket.config();
    small_steps(&mut config);
    let life = bucket.start_watched(config, steps.clone());
    let (inode, _) = sparse_file(&life, b"file");
    assert!(steps.bucket.set(bucket).is_ok());
    steps.watches.store(true, Ordering::SeqCst);
    // All of it: from here on the file counts nothing.
    life.truncate(inode, 0);
    life.flush();
    assert_eq!(life.getattr(inode).unwrap().used, 0);
    eventually("all is collected", || life.volume.status().used_bytes == 0);
    steps.watches.store(false, Ordering::SeqCst);
    life.stop();
    for copy in std::mem::take(&mut *steps.copies.lock().unwrap()) {
        let life = copy.start_elsewhere(small_steps);
        life.remove(b"file");
        life.flush();
        eventually("nothing is left", || {
            life.volume.status().used_bytes == 0 && copy.packs().is_empty()
        });
        life.stop();
    }
}

/// Lets one batch pass after it was armed.
#[derive(Default)]
struct OneBatch {
    is_armed: AtomicBool,
    passed: AtomicUsize,
}

#[async_trait]
impl Reads for OneBatch {
    async fn commits(&self, _: &Batch) -> Result<(), StoreError> {
        if self.is_armed.load(Ordering::SeqCst) && self.passed.fetch_add(1, Ordering::SeqCst) > 0 {
            return Err(StoreError::Transient("held up by the test".into()));
        }
        Ok(())
    }
}

#[test]
fn a_change_that_the_log_replays_brings_no_truncated_bytes_back() {
    let bucket = Bucket::new();
    let batches = Arc::new(OneBatch::default());
    let mut config = bucket.config();
    small_steps(&mut config);
    let life = bucket.start_watched(config.clone(), batches.clone());
    let (inode, before) = sparse_file(&life, b"file");
    life.truncate(inode, BLOCK_SIZE);
    let end = life.volume.status().end;
    batches.is_armed.store(true, Ordering::SeqCst);
    // It does not return before a step of the collection was tried.
    let flush = life.spawn(|volume| async move { volume.flush().await });
    eventually("the truncation is published", || {
        life.volume.status().published >= end
    });
    // In the log, and not in the bucket: each of them with all attributes.
    let set = SetAttributes {
        mode: Some(0o600),
        ..Default::default()
    };
    life.set(&ROOT, inode, set).unwrap();
    life.truncate(inode, BLOCKS * BLOCK_SIZE);
    life.commit(inode);
    drop(flush);
    life.crash();

    let mut after = empty();
    after[0].clone_from(&before[0]);
    let life = bucket.start_with(config);
    assert_eq!(heads(&life, inode), after);
    life.flush();
    life.evict();
    assert_eq!(heads(&life, inode), after);
    eventually("what was truncated is collected", || {
        life.volume.status().used_bytes == LEN
    });
    life.crash();
    let life = bucket.start_elsewhere(small_steps);
    assert_eq!(heads(&life, inode), after);
}
