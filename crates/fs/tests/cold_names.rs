//! Names and attributes that are only in the bucket: how many requests they cost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::metadata::Reads;
use crate::common::*;
use async_trait::async_trait;
use bytes::Bytes;
use forebay_meta::{Key, KeyRange, StoreError};
use forebay_types::Inode;
use forebay_vfs::{CreateMode, Error, FileSystem, NewNode, SetAttributes, Stability};

/// A directory of this many files, made one after the other, and a gateway that knows nothing of it.
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

/// Lists a directory with attributes in pieces.
fn list_with_attributes(life: &Life, directory: Inode, files: usize) {
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
}

#[test]
fn listing_a_cold_directory_asks_for_many_objects_at_once() {
    let bucket = Bucket::new();
    let (life, directory) = cold_directory(&bucket, 5000);
    life.stop();
    let asked = Arc::new(Asked::default());
    let life = bucket.start_watched(bucket.config(), asked.clone());
    asked.forget();
    let before = bucket.counts().gets;
    list_with_attributes(&life, directory, 5000);
    let (names, inodes, scans) = asked.counts();
    // For each of 11 pieces, the cookies and the records; the directory and its parent separately.
    assert_eq!(names, 0);
    assert!(inodes <= 4, "{inodes} objects one by one");
    assert!(scans <= 24, "{scans} scans");
    let gets = bucket.counts().gets - before;
    // This includes the requests of the housekeeping after a start.
    assert!(gets < 100, "{gets} requests for 5,000 files");
    // Now they are in memory, and so is the listing.
    asked.forget();
    list_with_attributes(&life, directory, 5000);
    assert_eq!(asked.counts(), (0, 0, 0));
}

/// Counts reads of metadata: of names, of objects, and of ranges of names, cookies and objects.
#[derive(Default)]
struct Asked {
    names: AtomicUsize,
    inodes: AtomicUsize,
    scans: AtomicUsize,
}

impl Asked {
    fn all(&self) -> [&AtomicUsize; 3] {
        [&self.names, &self.inodes, &self.scans]
    }

    fn forget(&self) {
        for count in self.all() {
            count.store(0, Ordering::SeqCst);
        }
    }

    fn counts(&self) -> (usize, usize, usize) {
        self.all().map(|count| count.load(Ordering::SeqCst)).into()
    }
}

#[async_trait]
impl Reads for Asked {
    async fn got(&self, key: &[u8], found: Option<Bytes>) -> Result<Option<Bytes>, StoreError> {
        match Key::decode(key) {
            Ok(Key::Name(..)) => self.names.fetch_add(1, Ordering::SeqCst),
            Ok(Key::Inode(_)) => self.inodes.fetch_add(1, Ordering::SeqCst),
            _ => 0,
        };
        Ok(found)
    }

    async fn scanned(&self, range: &KeyRange) -> Result<(), StoreError> {
        // The publisher scans tables of its own after a checkpoint.
        if matches!(range.start.first(), Some(b'n' | b'c' | b'i')) {
            self.scans.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }
}

fn name(i: usize) -> Vec<u8> {
    format!("name {i}").into_bytes()
}

#[test]
fn free_names_of_a_directory_made_here_are_known_to_be_free() {
    let bucket = Bucket::new();
    let asked = Arc::new(Asked::default());
    let life = bucket.start_watched(bucket.config(), asked.clone());
    let directory = life.mkdir(Inode::ROOT, b"directory");
    let first = life.create_in(directory, b"first");
    life.flush();
    asked.forget();
    for i in 0..100 {
        let found = life.try_lookup(directory, &name(i)).map(drop);
        assert_eq!(found, Err(Error::NotFound));
        life.create_in(directory, &name(i));
    }
    assert_eq!(asked.counts().0, 0);
    // Names that were added in every other way are also found when they are only in the bucket.
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
    // Existing names are refused.
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
    let asked = Arc::new(Asked::default());
    let life = bucket.start_watched(bucket.config(), asked.clone());
    life.flush();
    let found = life.try_lookup(directory, b"published").unwrap();
    assert_eq!(found.inode, published);
    assert_eq!(life.try_lookup(directory, b"logged").unwrap().inode, logged);
    asked.forget();
    let missing = life.try_lookup(directory, b"missing").map(drop);
    assert_eq!(missing, Err(Error::NotFound));
    assert_eq!(asked.counts().0, 1);
}

#[test]
fn small_files_written_together_are_read_with_few_requests() {
    const FILES: u64 = 400;
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let directory = life.mkdir(Inode::ROOT, b"directory");
    let files: Vec<Inode> = (0..FILES)
        .map(|i| {
            let file = life.create_in(directory, &name(i as usize));
            life.write(file, 0, &pattern(i, 4000), Stability::Unstable);
            file
        })
        .collect();
    life.stop();
    let life = bucket.start_elsewhere(|_| {});
    let before = bucket.controls.pack_gets.arrived();
    for (i, file) in files.into_iter().enumerate() {
        assert_bytes(&life.read(file, 0, 4001), &pattern(i as u64, 4000));
    }
    let gets = bucket.controls.pack_gets.arrived() - before;
    // 1.6 MB of them in windows of 256 KiB.
    assert!(gets <= 10, "{gets} requests for {FILES} files");
}

/// Looks up all names of a directory of 5,000 files twice, with this much memory for metadata and little for nodes;
/// returns the number of requests of the second time.
fn requests_of_names_known_before(bucket: &Bucket, directory: Inode, memory: u64) -> u64 {
    let life = bucket.start_elsewhere(|config| {
        config.metadata_cache = memory;
        config.node_limit = 0;
    });
    let look_up_all = || {
        let before = bucket.counts().gets;
        for i in 0..5000 {
            let found = life.try_lookup(directory, format!("file {i}").as_bytes());
            assert!(found.is_ok());
        }
        bucket.counts().gets - before
    };
    look_up_all();
    look_up_all()
}

#[test]
fn metadata_that_fit_in_their_memory_are_not_asked_for_again() {
    let bucket = Bucket::new();
    let (life, directory) = cold_directory(&bucket, 5000);
    life.stop();
    let with_enough = requests_of_names_known_before(&bucket, directory, 64 << 20);
    assert_eq!(with_enough, 0);
    let with_little = requests_of_names_known_before(&bucket, directory, 256 << 10);
    assert!(with_little > 20, "{with_little} requests");
}
