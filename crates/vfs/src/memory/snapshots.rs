//! Snapshots of a file system in memory: other file systems, which a test prepares.

use std::sync::Arc;

use bytes::Bytes;
use forebay_types::SnapshotId;

use super::{MemoryFileSystem, now};
use crate::{Error, Result, Snapshots, Timestamp};

/// The snapshots, the oldest first.
#[derive(Default)]
pub(super) struct Images {
    last: u64,
    changed: Timestamp,
    list: Vec<(SnapshotId, Bytes, Arc<MemoryFileSystem>)>,
}

impl Images {
    fn change(&mut self) {
        self.changed = now().max(self.changed);
    }
}

impl MemoryFileSystem {
    /// Adds a snapshot with this image: the inodes of its objects are those of this file system's objects.
    pub fn add_snapshot(&self, name: &str, image: Arc<MemoryFileSystem>) -> SnapshotId {
        let mut images = self.images.lock();
        images.last += 1;
        let id = SnapshotId(images.last);
        let name = Bytes::copy_from_slice(name.as_bytes());
        images.list.push((id, name, image));
        images.change();
        id
    }

    /// Deletes a snapshot.
    pub fn delete_snapshot(&self, id: SnapshotId) {
        let mut images = self.images.lock();
        images.list.retain(|(own, ..)| *own != id);
        images.change();
    }
}

impl Snapshots for MemoryFileSystem {
    type Image = MemoryFileSystem;

    fn snapshot_named(&self, name: &[u8]) -> Option<SnapshotId> {
        let images = self.images.lock();
        let mut list = images.list.iter();
        list.find(|(_, own, _)| own == name).map(|(id, ..)| *id)
    }

    fn has_snapshot(&self, id: SnapshotId) -> bool {
        self.images.lock().list.iter().any(|(own, ..)| *own == id)
    }

    fn snapshots_after(&self, after: u64, max: usize) -> Vec<(SnapshotId, Bytes)> {
        let images = self.images.lock();
        let list = images.list.iter().filter(|(id, ..)| id.0 > after);
        list.map(|(id, name, _)| (*id, name.clone()))
            .take(max)
            .collect()
    }

    fn snapshots_changed(&self) -> Timestamp {
        self.images.lock().changed
    }

    async fn snapshot(&self, id: SnapshotId) -> Result<Arc<MemoryFileSystem>> {
        let images = self.images.lock();
        let found = images.list.iter().find(|(own, ..)| *own == id);
        found.map(|(.., image)| image.clone()).ok_or(Error::Stale)
    }
}
