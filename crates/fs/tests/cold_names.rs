//! Names and attributes that are in the bucket only: how often it is asked for them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::*;
use async_trait::async_trait;
use bytes::Bytes;
use forebay_fs::{Environment, Metadata};
use forebay_meta::{Batch, Key, KeyRange, MetaStore, StoreError};
use forebay_object::Store;
use forebay_types::Inode;
use forebay_vfs::{CreateMode, Error, FileSystem, NewNode, SetAttributes};

/// A directory of so many files, made one after the other, and a gateway that knows nothing of it.
fn cold_directory(bucket: &Bucket, files: usize) -> (Life, Inode) {
    let life = bucket.start(|_| {});
    let directory = life.mkdir(Inode::ROOT, b"directory");
    for i in 0..files {
        life.create_in(directory, format!("file {i}").as_bytes());
    }
    life.stop();
    let life = bucket.start_elsewhere(|_| {});
    life.lookup(b"directory");
    (life, directory)
}

/// Lists a directory with attributes in pieces, and gives how many requests that took.
fn list_with_attributes(life: &Life, bucket: &Bucket, directory: Inode, files: usize) -> u64 {
    let before = bucket.counts().gets;
    let mut listed = BTreeSet::new();
    let mut cookie = 0;
    loop {
        let piece = life.run(|volume| async move {
            let listing = volume.readdir(&ROOT, directory, cookie, 500, true).await;
            listing.unwrap()
        });
        for entry in &piece.entries {
            let attributes = entry.attributes.as_ref().expect("attributes of each entry");
            assert_eq!(attributes.inode, entry.inode);
            assert!(listed.insert(entry.name.clone()));
        }
        cookie = piece.entries.last().map_or(cookie, |entry| entry.cookie);
        if piece.end {
            break;
        }
    }
    assert_eq!(listed.len(), files + 2, "with `.` and `..`");
    bucket.counts().gets - before
}

#[test]
fn listing_a_cold_directory_takes_few_requests() {
    let bucket = Bucket::new();
    let (life, directory) = cold_directory(&bucket, 5000);
    let gets = list_with_attributes(&life, &bucket, directory, 5000);
    // Some 80 blocks of 16 KiB hold the cookies and the records.
    assert!(gets < 60, "{gets} requests for 5,000 files");
    // Now they are in memory.
    assert_eq!(
        list_with_attributes(&life, &bucket, directory, 5000),
        0,
        "what is known is not asked for again"
    );
}

/// Metadata that count how often they are asked for a name.
struct Counting {
    inner: Arc<dyn Metadata>,
    asked: Arc<AtomicUsize>,
}

struct CountingStore {
    inner: Arc<dyn MetaStore>,
    asked: Arc<AtomicUsize>,
}

#[async_trait]
impl Metadata for Counting {
    async fn open(
        &self,
        store: &Store,
        cache_bytes: u64,
    ) -> Result<Arc<dyn MetaStore>, StoreError> {
        Ok(Arc::new(CountingStore {
            inner: self.inner.open(store, cache_bytes).await?,
            asked: self.asked.clone(),
        }))
    }
}

#[async_trait]
impl MetaStore for CountingStore {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        if matches!(Key::decode(key), Ok(Key::Name(..))) {
            self.asked.fetch_add(1, Ordering::SeqCst);
        }
        self.inner.get(key).await
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

/// A gateway, and how often it has asked the metadata for a name.
fn start_counting(bucket: &Bucket) -> (Life, Arc<AtomicUsize>) {
    let config = bucket.config();
    let real = Environment::real(config.data_dir.clone());
    let asked = Arc::new(AtomicUsize::new(0));
    let environment = Environment {
        metadata: Arc::new(Counting {
            inner: real.metadata.clone(),
            asked: asked.clone(),
        }),
        ..real
    };
    (bucket.try_start_in(config, environment).unwrap(), asked)
}

fn name(i: usize) -> Vec<u8> {
    format!("name {i}").into_bytes()
}

#[test]
fn free_names_of_a_directory_made_here_are_known_to_be_free() {
    let bucket = Bucket::new();
    let (life, asked) = start_counting(&bucket);
    let directory = life.mkdir(Inode::ROOT, b"directory");
    let first = life.create_in(directory, b"first");
    life.flush();
    asked.store(0, Ordering::SeqCst);
    for i in 0..100 {
        let found = life.try_lookup(directory, &name(i)).map(drop);
        assert_eq!(found, Err(Error::NotFound));
        life.create_in(directory, &name(i));
    }
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    // What came in every other way is there as well once it is in the bucket only.
    let special = life.run(|volume| async move {
        let set = SetAttributes::default();
        let made = volume
            .make(&ROOT, directory, b"symlink", NewNode::Symlink(b"x"), &set)
            .await;
        made.unwrap().attributes.inode
    });
    let inner = life.mkdir(directory, b"inner");
    life.link(first, (directory, b"link")).unwrap();
    let outside = life.create(b"outside");
    life.rename((Inode::ROOT, b"outside"), (directory, b"moved in"))
        .unwrap();
    life.rename((directory, &name(7)), (directory, b"renamed"))
        .unwrap();
    life.try_remove(directory, &name(8)).unwrap();
    life.flush();
    let is = |name: &[u8]| life.try_lookup(directory, name).map(|found| found.inode);
    assert_eq!(is(b"first"), Ok(first));
    assert_eq!(is(b"symlink"), Ok(special));
    assert_eq!(is(b"inner"), Ok(inner));
    assert_eq!(is(b"link"), Ok(first));
    assert_eq!(is(b"moved in"), Ok(outside));
    assert!(is(b"renamed").is_ok() && is(&name(9)).is_ok());
    assert_eq!(is(&name(7)), Err(Error::NotFound));
    assert_eq!(is(&name(8)), Err(Error::NotFound));
    life.create_in(directory, &name(8));
    // Names that are there are refused.
    for taken in [&b"first"[..], b"symlink", b"inner", b"link", b"moved in"] {
        let refused = life.run(|volume| async move {
            let mode = CreateMode::Guarded(SetAttributes::default());
            volume.create(&ROOT, directory, taken, &mode).await
        });
        assert_eq!(refused.map(drop), Err(Error::Exists));
    }
}

#[test]
fn a_directory_that_was_made_before_this_gateway_began_may_have_any_name() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let directory = life.mkdir(Inode::ROOT, b"directory");
    let published = life.create_in(directory, b"published");
    life.flush();
    let logged = life.create_in(directory, b"logged");
    life.crash();
    let (life, asked) = start_counting(&bucket);
    life.flush();
    let found = life.try_lookup(directory, b"published").unwrap();
    assert_eq!(found.inode, published);
    assert_eq!(life.try_lookup(directory, b"logged").unwrap().inode, logged);
    asked.store(0, Ordering::SeqCst);
    let missing = life.try_lookup(directory, b"missing").map(drop);
    assert_eq!(missing, Err(Error::NotFound));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}
