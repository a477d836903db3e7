//! There is one node for an inode, however the reads of its record end: with two of them, what is
//! written to one would be lost to the other, and both would be published.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::*;
use async_trait::async_trait;
use bytes::Bytes;
use forebay_fs::{Environment, Metadata};
use forebay_meta::{Batch, Key, KeyRange, MetaStore, StoreError};
use forebay_object::Store;
use forebay_types::Inode;
use forebay_vfs::{CreateMode, Error, FileSystem, SetAttributes, Stability};
use tokio::sync::{mpsc, oneshot};

/// What becomes of a read that was held up.
enum Verdict {
    /// It gives what was there when it was asked.
    Answer,
    /// The bucket did not answer.
    Fail,
}

/// Metadata that hold up the next reads of one key, as many as a test says.
struct Held {
    inner: Arc<dyn Metadata>,
    hold: Arc<Hold>,
}

struct Hold {
    key: Bytes,
    /// Reads that are still to be held up.
    reads: AtomicUsize,
    /// Tells the test of each.
    arrived: mpsc::UnboundedSender<oneshot::Sender<Verdict>>,
}

struct HeldStore {
    inner: Arc<dyn MetaStore>,
    hold: Arc<Hold>,
}

#[async_trait]
impl Metadata for Held {
    async fn open(
        &self,
        store: &Store,
        cache_bytes: u64,
    ) -> Result<Arc<dyn MetaStore>, StoreError> {
        Ok(Arc::new(HeldStore {
            inner: self.inner.open(store, cache_bytes).await?,
            hold: self.hold.clone(),
        }))
    }
}

#[async_trait]
impl MetaStore for HeldStore {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let found = self.inner.get(key).await;
        let one_less = |reads: usize| reads.checked_sub(1);
        let is_held = key == self.hold.key
            && self
                .hold
                .reads
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less)
                .is_ok();
        if !is_held {
            return found;
        }
        let (verdict, decided) = oneshot::channel();
        self.hold.arrived.send(verdict).unwrap();
        match decided.await.unwrap() {
            Verdict::Answer => found,
            Verdict::Fail => Err(StoreError::Transient("no answer".into())),
        }
    }

    async fn scan(
        &self,
        range: &KeyRange,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        self.inner.scan(range, limit).await
    }

    async fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.inner.commit(batch).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}

/// Starts a gateway that holds up so many reads of the record of `inode`.
fn start_holding(
    bucket: &Bucket,
    inode: Inode,
    reads: usize,
) -> (Life, mpsc::UnboundedReceiver<oneshot::Sender<Verdict>>) {
    let config = bucket.config();
    let real = Environment::real(config.data_dir.clone());
    let (arrived, held) = mpsc::unbounded_channel();
    let hold = Hold {
        key: Key::Inode(inode).encode(),
        reads: AtomicUsize::new(reads),
        arrived,
    };
    let environment = Environment {
        metadata: Arc::new(Held {
            inner: real.metadata.clone(),
            hold: Arc::new(hold),
        }),
        ..real
    };
    let life = bucket.try_start_in(config, environment).unwrap();
    (life, held)
}

/// The file is this, for this gateway and for one that has nothing but the bucket.
#[track_caller]
fn holds(life: &Life, bucket: &Bucket, inode: Inode, expected: &[u8]) {
    assert_bytes(&life.read(inode, 0, expected.len() + 1), expected);
    life.flush();
    assert_bytes(&life.read(inode, 0, expected.len() + 1), expected);
    let elsewhere = bucket.start_elsewhere(|_| {});
    assert_bytes(&elsewhere.read(inode, 0, expected.len() + 1), expected);
}

/// No client has a handle of an inode that is yet to be made, unless its number was given out before and
/// lost; openings leave such numbers out, and one node for an inode must not depend on that.
#[test]
fn calls_for_an_inode_that_is_made_meanwhile_find_the_one_that_was_made() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let inode = Inode(life.create(b"before").0 + 1);
    life.stop();
    let (life, mut held) = start_holding(&bucket, inode, 1);
    let data = pattern(1, 8192);
    let (first, second) = data.split_at(4096);
    life.run(|volume| async move {
        let early = volume.getattr(inode);
        // Waits for the read of the one before, and reads again when that has found nothing.
        let waiting = write(&volume, inode, 4096, second, Stability::FileSync);
        let making = async {
            let read = held.recv().await.unwrap();
            let mode = CreateMode::Guarded(SetAttributes::default());
            let made = volume.create(&ROOT, Inode::ROOT, b"file", &mode).await;
            assert_eq!(made.unwrap().attributes.inode, inode);
            write(&volume, inode, 0, first, Stability::FileSync).await;
            volume.flush().await.unwrap();
            assert!(read.send(Verdict::Answer).is_ok());
        };
        let (early, (), ()) = tokio::join!(early, waiting, making);
        assert_eq!(early.err(), Some(Error::Stale));
    });
    holds(&life, &bucket, inode, &data);
}

#[test]
fn a_read_of_metadata_that_fails_leaves_one_node_to_those_who_waited_and_to_those_who_come() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let inode = life.create(b"file");
    life.stop();
    let (life, mut held) = start_holding(&bucket, inode, 2);
    let data = pattern(2, 8192);
    let (first, second) = data.split_at(4096);
    life.run(|volume| async move {
        let failing = volume.getattr(inode);
        let waiting = write(&volume, inode, 4096, second, Stability::FileSync);
        let coming = async {
            let read = held.recv().await.unwrap();
            assert!(read.send(Verdict::Fail).is_ok());
            // The one that waited reads in its turn; another one comes while it does.
            let read = held.recv().await.unwrap();
            write(&volume, inode, 0, first, Stability::FileSync).await;
            assert!(read.send(Verdict::Answer).is_ok());
        };
        let (failing, (), ()) = tokio::join!(failing, waiting, coming);
        assert_eq!(failing.err(), Some(Error::Delay));
    });
    holds(&life, &bucket, inode, &data);
}
