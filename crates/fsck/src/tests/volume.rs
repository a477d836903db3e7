//! A consistent volume, made by hand.
//!
//! ```text
//! /              1
//! /file          3     5000 bytes of 6000, in pack 1; also /tree/hard
//! /link          4     a symbolic link
//! /tree          2     with a quota
//! /tree/inner    5
//! /tree/big      6     4096 bytes in pack 1, a hole, 100 bytes in pack 2
//!                7     a removed file, one block of which in pack 2 is still to be collected
//! ```
//!
//! Pack 3 is to be deleted. Pack 2 was read back once.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_meta::record::{
    Content, CookieRecord, DeadPack, Directory, FrameAddress, Garbage, Kind, NameRecord,
    PackRecord, QuotaRecord, Record, Recount, ScrubRecord, Timestamp, UsageRecord, VolumeState,
};
use forebay_meta::{Batch, BlockMap, Entry, InodeRecord, Key, KeyRange, StoreError};
use forebay_pack::{Compression, FrameRef, PackKeys, PackWriter, object_name};
use forebay_types::{
    BlockIndex, BlockKey, ByteRange, Epoch, Inode, Lsn, PackId, SnapshotId, VolumeId,
};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parking_lot::Mutex;

use crate::bucket::Bucket;
use crate::check::{Options, attempt_on};
use crate::finding::Nobody;
use crate::repair::{RepairOptions, Repaired, Step, Target, rounds};
use crate::report::{Findings, Report};
use crate::source::{Moment, Newest, Past, Source};
use crate::walk::Walk;

const VOLUME: VolumeId = VolumeId([7; 16]);

/// The n-th pack of epoch 1.
pub(super) fn pack(n: u64) -> PackId {
    PackId((1 << 40) | n)
}

pub(super) fn block(inode: u64, block: u64) -> Key {
    Key::Block(BlockKey {
        inode: Inode(inode),
        block: BlockIndex(block),
    })
}

pub(super) fn name(directory: u64, name: &'static str) -> Key {
    Key::Name(Inode(directory), name.into())
}

pub(super) fn address(frame: &FrameRef) -> FrameAddress {
    FrameAddress {
        pack: frame.pack,
        offset: frame.offset,
        stored_len: frame.stored_len,
        raw_len: frame.raw_len,
        raw_start: frame.start,
        crc32: frame.crc32,
        origin: None,
    }
}

/// Entries of the metadata, and objects of the bucket.
#[derive(Clone, Default)]
pub(super) struct Volume {
    pub(super) entries: BTreeMap<Bytes, Bytes>,
    pub(super) objects: BTreeMap<String, Vec<u8>>,
    /// The metadata after a gateway has gone on, if it has.
    pub(super) newest: Option<BTreeMap<Bytes, Bytes>>,
    /// The metadata of snapshots; `None` if no check reads them.
    pub(super) past: Option<BTreeMap<u64, BTreeMap<Bytes, Bytes>>>,
}

impl Volume {
    pub(super) fn put<R: Record>(&mut self, key: &Key, record: &R) {
        self.entries.insert(key.encode(), record.encode());
    }

    pub(super) fn delete(&mut self, key: &Key) {
        self.entries.remove(&key.encode()).expect("it is there");
    }

    pub(super) fn edit<R: Record>(&mut self, key: &Key, change: impl FnOnce(&mut R)) {
        let encoded = key.encode();
        let mut record = R::decode(&encoded, &self.entries[&encoded]).unwrap();
        change(&mut record);
        self.put(key, &record);
    }

    pub(super) fn inode(&mut self, inode: u64, change: impl FnOnce(&mut InodeRecord)) {
        self.edit(&Key::Inode(Inode(inode)), change);
    }

    pub(super) fn own(&mut self, inode: u64, change: impl FnOnce(&mut Directory)) {
        self.inode(inode, |record| change(record.directory_mut().unwrap()));
    }

    pub(super) fn state(&mut self, change: impl FnOnce(&mut VolumeState)) {
        self.edit(&Key::Volume, change);
    }

    /// A name with its cookie, as it should be.
    pub(super) fn name(&mut self, directory: u64, text: &'static str, inode: u64, kind: Kind) {
        let at = Key::Inode(Inode(directory));
        let mut cookie = 0;
        self.edit::<InodeRecord>(&at, |record| {
            record.nlink += u32::from(kind == Kind::Directory);
            let own = record.directory_mut().unwrap();
            cookie = own.next_cookie;
            own.next_cookie += 1;
            own.entries += 1;
        });
        let inode = Inode(inode);
        let record = NameRecord {
            inode,
            cookie,
            kind,
        };
        self.put(&name(directory, text), &record);
        let record = CookieRecord {
            inode,
            kind,
            name: text.into(),
        };
        self.put(&Key::Cookie(Inode(directory), cookie), &record);
    }

    /// Adds an object without a name.
    pub(super) fn object(&mut self, inode: u64, content: Content, size: u64, tree: Option<u64>) {
        let record = InodeRecord {
            nlink: if content.kind() == Kind::Directory {
                2
            } else {
                1
            },
            content,
            mode: 0o755,
            uid: 0,
            gid: 0,
            size,
            used: 0,
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
            create_verifier: None,
            tree: tree.map(Inode),
            truncated: Default::default(),
        };
        self.put(&Key::Inode(Inode(inode)), &record);
    }

    pub(super) fn directory(&mut self, inode: u64, parent: u64, tree: Option<u64>) {
        let own = Directory {
            parent: Inode(parent),
            next_cookie: 3,
            entries: 0,
        };
        self.object(inode, Content::Directory(own), 0, tree);
    }

    /// A block map of one extent that covers a whole frame.
    pub(super) fn map(&mut self, inode: u64, at: u64, frame: &FrameRef) {
        let mut map = BlockMap::new();
        map.insert(frame.range(), address(frame)).unwrap();
        self.put(&block(inode, at), &map);
    }

    pub(super) fn pack(&mut self, n: u64, blocks: &[(u64, u64, u64)]) -> Vec<FrameRef> {
        let mut writer = PackWriter::new(pack(n), &keys(), Compression::Off);
        let mut frames = Vec::new();
        for &(inode, at, len) in blocks {
            let key = BlockKey {
                inode: Inode(inode),
                block: BlockIndex(at),
            };
            let raw = vec![inode as u8; len as usize];
            let pieces = std::iter::once(raw.as_slice());
            frames.push(writer.push(key, ByteRange::new(0, len), pieces));
        }
        let finished = writer.finish();
        let bytes = finished.bytes.to_vec();
        let raw_bytes = blocks.iter().map(|(_, _, len)| len).sum();
        let record = PackRecord {
            bytes: bytes.len() as u64,
            raw_bytes,
            live_bytes: raw_bytes,
            frames: blocks.len() as u32,
            born: Default::default(),
        };
        self.put(&Key::Pack(pack(n)), &record);
        self.objects.insert(object_name(pack(n)), bytes);
        frames
    }

    /// The volume that is pictured above.
    pub(super) fn sound() -> Volume {
        let mut volume = Volume::default();
        volume.directory(1, 1, None);
        volume.directory(2, 1, Some(2));
        volume.object(3, Content::Regular, 6000, None);
        let target = Bytes::from_static(b"to/where");
        volume.object(4, Content::Symlink { target }, 8, None);
        volume.directory(5, 2, Some(2));
        volume.object(6, Content::Regular, (8 << 20) + 100, Some(2));
        volume.name(1, "tree", 2, Kind::Directory);
        volume.name(1, "file", 3, Kind::Regular);
        volume.name(1, "link", 4, Kind::Symlink);
        volume.name(2, "inner", 5, Kind::Directory);
        volume.name(2, "big", 6, Kind::Regular);
        volume.name(2, "hard", 3, Kind::Regular);
        volume.inode(3, |record| (record.nlink, record.used) = (2, 5000));
        volume.inode(6, |record| record.used = 4196);

        let first = volume.pack(1, &[(3, 0, 5000), (6, 0, 4096)]);
        volume.map(3, 0, &first[0]);
        volume.map(6, 0, &first[1]);
        let second = volume.pack(2, &[(6, 2, 100), (7, 1, 300)]);
        volume.map(6, 2, &second[0]);
        volume.map(7, 1, &second[1]);
        let garbage = Garbage {
            size: 8 << 20,
            first_block: BlockIndex(1),
        };
        volume.put(&Key::Garbage(Inode(7)), &garbage);
        volume.objects.insert(object_name(pack(3)), vec![0; 10]);
        volume.put(&Key::DeadPack(pack(3)), &DeadPack::default());

        let check = ScrubRecord {
            checked: 1_790_000_000,
            ..ScrubRecord::default()
        };
        volume.put(&Key::Scrub(pack(2)), &check);

        let quota = QuotaRecord {
            limit_bytes: 1 << 30,
            limit_files: u64::MAX,
            recount: Recount::Done,
        };
        volume.put(&Key::Quota(Inode(2)), &quota);
        let usage = UsageRecord {
            bytes: 4608,
            files: 3,
        };
        volume.put(&Key::Usage(Inode(2)), &usage);
        let state = VolumeState {
            published: Lsn(1),
            epoch: Epoch(2),
            gateway: [1; 16],
            next_inode: 100,
            inode_lease: Some(0),
            next_pack: pack(4).0,
            used_bytes: 5000 + 4096 + 100 + 300,
            used_inodes: 6,
            charged_bytes: Some(5120 + 4608),
            history: Default::default(),
            trash: Default::default(),
        };
        volume.put(&Key::Volume, &state);
        volume
    }

    /// Checks the volume; returns the report, or panics.
    pub(super) fn check(&self, options: &Options) -> Report {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(self.checked(options))
    }

    async fn checked(&self, options: &Options) -> Report {
        let newest = self.newest.as_ref().unwrap_or(&self.entries);
        let newest = Arc::new(Now(Arc::new(Entries(newest.clone()))));
        let bucket = self.bucket(newest).await;
        let source = Arc::new(Entries(self.entries.clone()));
        let progress = Arc::default();
        let past = self.past.clone();
        let past = past.map(|past| Arc::new(States(past)) as Arc<dyn Past>);
        let states = (Moment::whole(source), past);
        let report = attempt_on(states, bucket, VOLUME, options, &progress).await;
        report.unwrap()
    }

    /// The pages in which its states are compared: the number of block maps in each, and their bytes.
    pub(super) fn pages(&self) -> Vec<(usize, usize)> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let entries = Arc::new(Entries(self.entries.clone()));
        let newest: Arc<dyn Newest> = Arc::new(Now(entries.clone()));
        let past: Arc<dyn Past> = Arc::new(States(self.past.clone().unwrap()));
        let states = (Moment::whole(entries), Some(past));
        let mut walk = Walk::new(states, Arc::default(), 1 << 20, Findings::keeping(10));
        runtime.block_on(async {
            walk.begin().await.unwrap();
            let mut chain = walk.chain(&newest, true).unwrap();
            let mut pages = Vec::new();
            while let Some(page) = chain.next(&mut Nobody).await.unwrap() {
                let maps = page.found.iter();
                let maps = maps.flat_map(|one| one.newer.iter().chain(&one.older));
                let lens: Vec<usize> = maps.map(|map| map.encode().len()).collect();
                pages.push((lens.len(), lens.iter().sum()));
            }
            pages
        })
    }

    async fn bucket(&self, newest: Arc<dyn Newest>) -> Bucket {
        let store = Arc::new(InMemory::new());
        let root = Path::from("some/volume");
        for (name, bytes) in &self.objects {
            let path: Path = root
                .parts()
                .chain(Path::from(name.as_str()).parts())
                .collect();
            store.put(&path, bytes.clone().into()).await.unwrap();
        }
        let store: Arc<dyn ObjectStore> = store;
        Bucket::new(store, &root, Arc::new(keys()), newest)
    }

    /// Repairs the volume, and is cut off after `batches` batches. Returns the reported steps, and the outcome unless
    /// cut off.
    pub(super) fn repair(
        &mut self,
        accept_loss: bool,
        batches: usize,
    ) -> (Vec<Step>, Option<Repaired>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let options = RepairOptions {
            check: Options::default(),
            dry_run: false,
            accept_loss,
            now: std::time::Duration::ZERO,
            seen: Epoch(0),
        };
        let target = Arc::new(CutOff {
            entries: Mutex::new(self.entries.clone()),
            batches: AtomicUsize::new(batches),
            past: self.past.clone(),
        });
        let mut steps = Vec::new();
        let outcome = runtime.block_on(async {
            let bucket = self.bucket(target.clone()).await;
            let progress = Arc::default();
            rounds(&*target, &bucket, VOLUME, &options, &progress, &mut steps).await
        });
        self.entries = target.entries.lock().clone();
        (steps, outcome.ok())
    }
}

/// Metadata that fail after some batches.
struct CutOff {
    entries: Mutex<BTreeMap<Bytes, Bytes>>,
    batches: AtomicUsize,
    past: Option<BTreeMap<u64, BTreeMap<Bytes, Bytes>>>,
}

#[async_trait]
impl Newest for CutOff {
    async fn newest(&self) -> Result<Arc<dyn Source>, StoreError> {
        self.moment().await
    }
}

#[async_trait]
impl Target for CutOff {
    async fn moment(&self) -> Result<Arc<dyn Source>, StoreError> {
        Ok(Arc::new(Entries(self.entries.lock().clone())))
    }

    fn past(&self) -> Option<Arc<dyn Past>> {
        let past = self.past.clone();
        past.map(|past| Arc::new(States(past)) as Arc<dyn Past>)
    }

    async fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        let left = self.batches.load(Ordering::Relaxed);
        let Some(left) = left.checked_sub(1) else {
            return Err(StoreError::Fatal("cut off".into()));
        };
        self.batches.store(left, Ordering::Relaxed);
        let mut entries = self.entries.lock();
        for (key, entry) in batch.changes() {
            match entry.clone() {
                Entry::Value(value) => entries.insert(key.clone(), value),
                Entry::Deleted => entries.remove(key),
            };
        }
        Ok(())
    }
}

pub(super) fn keys() -> PackKeys {
    PackKeys::new(VOLUME, &[9; 32])
}

struct Entries(BTreeMap<Bytes, Bytes>);

#[async_trait]
impl Source for Entries {
    async fn page(
        &self,
        range: &KeyRange,
        entries: usize,
        _bytes: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let from = Bound::Included(range.start.clone());
        let found = self.0.range((from, Bound::Unbounded));
        let found = found.filter(|(key, _)| range.contains(key));
        // Small pages, so that their boundaries are met.
        let found = found.take(entries.min(3));
        Ok(found
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect())
    }

    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Ok(self.0.get(key).cloned())
    }
}

/// The states of snapshots.
struct States(BTreeMap<u64, BTreeMap<Bytes, Bytes>>);

#[async_trait]
impl Past for States {
    async fn state(&self, snapshot: SnapshotId) -> Result<Option<Moment>, StoreError> {
        let state = self.0.get(&snapshot.0).cloned();
        Ok(state.map(|entries| Moment::whole(Arc::new(Entries(entries)))))
    }
}

struct Now(Arc<Entries>);

#[async_trait]
impl Newest for Now {
    async fn newest(&self) -> Result<Arc<dyn Source>, StoreError> {
        Ok(self.0.clone())
    }
}
