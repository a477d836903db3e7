//! A file system in which READ and CREATE, and also WRITE, can be made to wait.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use forebay_types::{Inode, SnapshotId};
use forebay_vfs::memory::MemoryFileSystem;
use forebay_vfs::{
    Access, Attributes, Change, CreateMode, Created, Credentials, Error, FileSystem, Listing,
    NewNode, ReadReply, Result, SetAttributes, Snapshots, Stability, Statistics, Timestamp, Trash,
    Verifier, WriteReply,
};
use forebay_waits::{For, waiting};
use tokio::sync::watch;

pub struct Gated {
    pub inner: MemoryFileSystem,
    open: watch::Sender<bool>,
    writes_open: watch::Sender<bool>,
    /// Of each file, this many bytes are in memory: READs of them do not wait.
    in_memory: AtomicU64,
    /// Calls of CREATE and REMOVE that reached the file system.
    pub changes: AtomicUsize,
    /// The caller of the last WRITE.
    pub writer: Mutex<Credentials>,
}

impl Gated {
    pub fn new(open: bool) -> Arc<Gated> {
        Arc::new(Gated {
            inner: MemoryFileSystem::new(),
            open: watch::channel(open).0,
            writes_open: watch::channel(true).0,
            in_memory: AtomicU64::new(0),
            changes: AtomicUsize::new(0),
            writer: Mutex::default(),
        })
    }

    pub fn set_open(&self, open: bool) {
        self.open.send_replace(open);
    }

    pub fn set_writes_open(&self, open: bool) {
        self.writes_open.send_replace(open);
    }

    pub fn set_in_memory(&self, bytes: u64) {
        self.in_memory.store(bytes, Ordering::Relaxed);
    }

    fn is_in_memory(&self, offset: u64, count: u32) -> bool {
        offset + u64::from(count) <= self.in_memory.load(Ordering::Relaxed)
    }

    async fn pass(&self) {
        let mut open = self.open.subscribe();
        let opened = open.wait_for(|open| *open);
        waiting(For::Bucket, opened).await.unwrap();
    }
}

impl FileSystem for Gated {
    async fn getattr(&self, inode: Inode) -> Result<Attributes> {
        self.inner.getattr(inode).await
    }

    async fn setattr(
        &self,
        caller: &Credentials,
        inode: Inode,
        set: &SetAttributes,
        guard: Option<Timestamp>,
    ) -> Result<Change> {
        self.inner.setattr(caller, inode, set, guard).await
    }

    async fn lookup(&self, caller: &Credentials, dir: Inode, name: &[u8]) -> Result<Attributes> {
        if name == b"later" {
            return Err(Error::Delay);
        }
        self.inner.lookup(caller, dir, name).await
    }

    async fn access(
        &self,
        caller: &Credentials,
        inode: Inode,
        wanted: Access,
    ) -> Result<(Access, Attributes)> {
        self.inner.access(caller, inode, wanted).await
    }

    async fn readlink(&self, caller: &Credentials, inode: Inode) -> Result<(Bytes, Attributes)> {
        self.inner.readlink(caller, inode).await
    }

    async fn read(
        &self,
        caller: &Credentials,
        inode: Inode,
        offset: u64,
        count: u32,
    ) -> Result<ReadReply> {
        if !self.is_in_memory(offset, count) {
            self.pass().await;
        }
        self.inner.read(caller, inode, offset, count).await
    }

    fn read_in_memory(
        &self,
        caller: &Credentials,
        inode: Inode,
        offset: u64,
        count: u32,
    ) -> Option<ReadReply> {
        if !self.is_in_memory(offset, count) {
            return None;
        }
        let read = pin!(self.inner.read(caller, inode, offset, count));
        match read.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(read) => read.ok(),
            Poll::Pending => None,
        }
    }

    async fn write(
        &self,
        caller: &Credentials,
        inode: Inode,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> Result<WriteReply> {
        *self.writer.lock().unwrap() = caller.clone();
        let mut open = self.writes_open.subscribe();
        open.wait_for(|open| *open).await.unwrap();
        self.inner
            .write(caller, inode, offset, data, stability)
            .await
    }

    async fn create(
        &self,
        caller: &Credentials,
        dir: Inode,
        name: &[u8],
        mode: &CreateMode,
    ) -> Result<Created> {
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.pass().await;
        self.inner.create(caller, dir, name, mode).await
    }

    async fn make(
        &self,
        caller: &Credentials,
        dir: Inode,
        name: &[u8],
        node: NewNode<'_>,
        set: &SetAttributes,
    ) -> Result<Created> {
        self.inner.make(caller, dir, name, node, set).await
    }

    async fn remove(&self, caller: &Credentials, dir: Inode, name: &[u8]) -> Result<Change> {
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.inner.remove(caller, dir, name).await
    }

    async fn rmdir(&self, caller: &Credentials, dir: Inode, name: &[u8]) -> Result<Change> {
        self.inner.rmdir(caller, dir, name).await
    }

    async fn rename(
        &self,
        caller: &Credentials,
        from: (Inode, &[u8]),
        to: (Inode, &[u8]),
    ) -> Result<(Change, Change)> {
        self.inner.rename(caller, from, to).await
    }

    async fn link(
        &self,
        caller: &Credentials,
        inode: Inode,
        dir: Inode,
        name: &[u8],
    ) -> Result<(Attributes, Change)> {
        self.inner.link(caller, inode, dir, name).await
    }

    async fn readdir(
        &self,
        caller: &Credentials,
        dir: Inode,
        cookie: u64,
        max_entries: usize,
        with_attributes: bool,
    ) -> Result<Listing> {
        let inner = &self.inner;
        inner
            .readdir(caller, dir, cookie, max_entries, with_attributes)
            .await
    }

    async fn statistics(&self) -> Result<Statistics> {
        self.inner.statistics().await
    }

    /// Six different numbers, as if the object had a quota in a volume that is nearly full.
    async fn statistics_at(&self, inode: Inode) -> Result<Statistics> {
        Ok(Statistics {
            total_bytes: 6000 + inode.0,
            free_bytes: 5000,
            available_bytes: 4000,
            total_files: 3000,
            free_files: 2000,
            available_files: 1000,
        })
    }

    async fn commit(
        &self,
        caller: &Credentials,
        inode: Inode,
        offset: u64,
        count: u32,
    ) -> Result<(Change, Verifier)> {
        self.inner.commit(caller, inode, offset, count).await
    }
}

/// It has no trash.
impl Trash for Gated {}

/// It has no snapshots.
impl Snapshots for Gated {
    type Image = MemoryFileSystem;

    fn snapshot_named(&self, _name: &[u8]) -> Option<SnapshotId> {
        None
    }

    fn has_snapshot(&self, _id: SnapshotId) -> bool {
        false
    }

    fn snapshots_after(&self, _after: u64, _max: usize) -> Vec<(SnapshotId, Bytes)> {
        Vec::new()
    }

    fn snapshots_changed(&self) -> Timestamp {
        Timestamp::default()
    }

    async fn snapshot(&self, _id: SnapshotId) -> Result<Arc<MemoryFileSystem>> {
        Err(Error::Stale)
    }
}
