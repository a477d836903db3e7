//! Calls on a file that is in memory in many small pieces, with the bucket's bytes in between: each frame in between
//! is fetched once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::metadata::Reads;
use crate::common::*;
use async_trait::async_trait;
use bytes::Bytes;
use forebay_fs::{CommitMode, LimitChange};
use forebay_meta::{Key, StoreError};
use forebay_types::Inode;
use forebay_vfs::{FileSystem, Stability};

const MIB: usize = 1 << 20;
const GAPS: usize = 1000;

/// Counts look-ups of block maps.
#[derive(Default)]
struct Maps(AtomicUsize);

impl Maps {
    fn take(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }
}

#[async_trait]
impl Reads for Maps {
    async fn got(&self, key: &[u8], found: Option<Bytes>) -> Result<Option<Bytes>, StoreError> {
        if matches!(Key::decode(key), Ok(Key::Block(_))) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        Ok(found)
    }
}

/// Writes single bytes all over the first MiB of a file; returns its content after that.
fn write_here_and_there(life: &Life, file: Inode, mut content: Vec<u8>) -> Vec<u8> {
    let places = || (0..GAPS).map(|i| i * (MIB / GAPS) + i % 7);
    places().for_each(|at| content[at] = 255);
    life.run(|volume| async move {
        let volume = volume.with_commit_mode(CommitMode::Async);
        for at in places() {
            let written = volume
                .write(&ROOT, file, at as u64, &[255], Stability::Unstable)
                .await;
            assert_eq!(written.unwrap().count, 1);
        }
    });
    content
}

#[test]
fn a_read_over_many_gaps_fetches_each_frame_once() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let file = life.create(b"file");
    let content = pattern(1, MIB);
    life.write(file, 0, &content, Stability::FileSync);
    life.stop();

    let maps = Arc::new(Maps::default());
    let life = bucket.start_watched(bucket.config(), maps.clone());
    let content = write_here_and_there(&life, file, content);
    maps.take();
    let before = bucket.controls.pack_gets.arrived();
    assert_bytes(&life.read(file, 0, MIB), &content);
    assert_eq!(maps.take(), 1, "of one block");
    let gets = bucket.controls.pack_gets.arrived() - before;
    assert!((1..=4).contains(&gets), "{gets} requests for four frames");
    // All of it is in memory now.
    assert_bytes(&life.read(file, 0, MIB), &content);
    assert_eq!(maps.take(), 0);
    life.flush();
    life.crash();
    let life = bucket.start_elsewhere(|_| {});
    assert_bytes(&life.read(file, 0, MIB), &content);
}

#[test]
fn a_write_over_many_gaps_of_a_full_tree_looks_each_block_map_up_once() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let top = life.mkdir(Inode::ROOT, b"top");
    let file = life.create_in(top, b"sparse");
    life.truncate(file, 3 * MIB as u64);
    let content = pattern(1, MIB);
    life.write(file, 0, &content, Stability::FileSync);
    life.run(|volume| async move {
        let bytes = LimitChange::To(MIB as u64);
        let set = volume.set_quota(b"/top", bytes, LimitChange::Keep).await;
        assert_eq!(set.unwrap().limit_bytes, Some(MIB as u64));
    });
    life.stop();

    let maps = Arc::new(Maps::default());
    let life = bucket.start_watched(bucket.config(), maps.clone());
    write_here_and_there(&life, file, content);
    maps.take();
    let content = pattern(2, MIB);
    life.write(file, 0, &content, Stability::FileSync);
    let looked_up = maps.take();
    assert!((1..=2).contains(&looked_up), "{looked_up} block maps");
    assert_bytes(&life.read(file, 0, MIB), &content);
    let full = life.try_write(file, 2 * MIB as u64, b"x").map(drop);
    assert_eq!(full, Err(forebay_vfs::Error::Quota));
}
