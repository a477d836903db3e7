//! There is one node for an inode, however the reads of its record end: with two of them, writes to one would be lost
//! to the other, and both would be published.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::metadata::Reads;
use crate::common::*;
use async_trait::async_trait;
use bytes::Bytes;
use forebay_fs::FsConfig;
use forebay_meta::{Key, KeyRange, StoreError};
use forebay_types::Inode;
use forebay_vfs::{CreateMode, Error, FileSystem, SetAttributes, Stability};
use tokio::sync::{mpsc, oneshot};

/// The result of a held read.
enum Verdict {
    /// It returns the record as of the time of the request.
    Answer,
    /// The bucket did not answer.
    Fail,
}

/// Holds the next reads of one object's record, as many as a test says, single ones or those in a scan of objects.
struct Hold {
    key: Bytes,
    /// Number of reads still to be held.
    reads: AtomicUsize,
    /// Reports each of them to the test.
    arrived: mpsc::UnboundedSender<oneshot::Sender<Verdict>>,
}

impl Hold {
    /// Waits for a verdict if this read must be held.
    async fn pass(&self) -> Result<(), StoreError> {
        let one_less = |reads: usize| reads.checked_sub(1);
        if self
            .reads
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less)
            .is_err()
        {
            return Ok(());
        }
        let (verdict, decided) = oneshot::channel();
        self.arrived.send(verdict).unwrap();
        match decided.await.unwrap() {
            Verdict::Answer => Ok(()),
            Verdict::Fail => Err(StoreError::Transient("no answer".into())),
        }
    }
}

#[async_trait]
impl Reads for Hold {
    async fn got(&self, key: &[u8], found: Option<Bytes>) -> Result<Option<Bytes>, StoreError> {
        if key == self.key {
            self.pass().await?;
        }
        Ok(found)
    }

    async fn scanned(&self, range: &KeyRange) -> Result<(), StoreError> {
        if range.contains(&self.key) && KeyRange::inodes().contains(&range.start) {
            self.pass().await?;
        }
        Ok(())
    }
}

/// Starts a gateway that holds this many reads of the record of `inode`.
fn start_holding(
    bucket: &Bucket,
    inode: Inode,
    reads: usize,
) -> (Life, mpsc::UnboundedReceiver<oneshot::Sender<Verdict>>) {
    let config = FsConfig {
        // As few as possible, so that they are removed from the table early.
        node_limit: 0,
        ..bucket.config()
    };
    let (arrived, held) = mpsc::unbounded_channel();
    let hold = Hold {
        key: Key::Inode(inode).encode(),
        reads: AtomicUsize::new(reads),
        arrived,
    };
    let life = bucket.start_watched(config, Arc::new(hold));
    (life, held)
}

/// Asserts the content of a file, for this gateway and for one that has only the bucket.
#[track_caller]
fn holds(life: &Life, bucket: &Bucket, inode: Inode, expected: &[u8]) {
    assert_bytes(&life.read(inode, 0, expected.len() + 1), expected);
    life.flush();
    assert_bytes(&life.read(inode, 0, expected.len() + 1), expected);
    let elsewhere = bucket.start_elsewhere(|_| {});
    assert_bytes(&elsewhere.read(inode, 0, expected.len() + 1), expected);
}

/// No client has a handle of an inode that will be made later, unless its number was assigned before and lost;
/// openings skip such numbers, and one node for an inode must not depend on that.
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
        // Waits for the earlier read, and reads again when that has found nothing.
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
fn a_read_of_metadata_that_fails_leaves_one_node_to_waiting_and_to_later_calls() {
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
            // The waiting call reads in its turn; another one comes meanwhile.
            let read = held.recv().await.unwrap();
            write(&volume, inode, 0, first, Stability::FileSync).await;
            assert!(read.send(Verdict::Answer).is_ok());
        };
        let (failing, (), ()) = tokio::join!(failing, waiting, coming);
        assert_eq!(failing.err(), Some(Error::Delay));
    });
    holds(&life, &bucket, inode, &data);
}

#[test]
fn a_listing_does_not_bring_back_what_it_read_before_the_object_was_changed_published_and_forgotten()
 {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let directory = life.mkdir(Inode::ROOT, b"listed");
    life.create_in(directory, b"before");
    let inode = life.create_in(directory, b"file");
    // Enough for every shard of the table of nodes to be swept more than once.
    let others: Vec<Inode> = (0..4000)
        .map(|i| life.create(format!("other {i}").as_bytes()))
        .collect();
    // Far from the others, so that it is read alone, after the others were read.
    let far = life.create_in(directory, b"far");
    life.stop();
    let (life, mut held) = start_holding(&bucket, far, 1);
    let private = SetAttributes {
        mode: Some(0o600),
        ..Default::default()
    };
    life.run(|volume| async move {
        let caller = ROOT;
        let listing = volume.readdir(&caller, directory, 0, 100, true);
        let changing = async {
            let read = held.recv().await.unwrap();
            volume.setattr(&ROOT, inode, &private, None).await.unwrap();
            volume.flush().await.unwrap();
            for other in others.iter().chain(&others) {
                volume.getattr(*other).await.unwrap();
            }
            assert!(read.send(Verdict::Answer).is_ok());
        };
        let (listing, ()) = tokio::join!(listing, changing);
        let listing = listing.unwrap();
        let listed = listing.entries.iter().find(|entry| entry.inode == inode);
        let attributes = listed.unwrap().attributes.as_ref().unwrap();
        assert_eq!(attributes.mode & 0o777, 0o600);
        assert_eq!(volume.getattr(inode).await.unwrap().mode & 0o777, 0o600);
    });
}

#[test]
fn a_listing_whose_attributes_cannot_be_read_has_the_names_all_the_same() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let directory = life.mkdir(Inode::ROOT, b"listed");
    life.create_in(directory, b"before");
    let inode = life.create_in(directory, b"file");
    life.stop();
    let (life, mut held) = start_holding(&bucket, inode, 1);
    life.run(|volume| async move {
        let caller = ROOT;
        let listing = volume.readdir(&caller, directory, 0, 100, true);
        let failing = async {
            let read = held.recv().await.unwrap();
            assert!(read.send(Verdict::Fail).is_ok());
        };
        let (listing, ()) = tokio::join!(listing, failing);
        let entries = listing.unwrap().entries;
        assert_eq!(entries.len(), 4);
        assert!(entries[3].attributes.is_none());
        let again = volume.readdir(&ROOT, directory, 0, 100, true).await;
        let entries = again.unwrap().entries;
        assert!(entries.iter().all(|entry| entry.attributes.is_some()));
    });
}
