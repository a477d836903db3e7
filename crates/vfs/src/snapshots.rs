//! Snapshots of a file system, as front ends see them.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use forebay_types::SnapshotId;

use crate::{FileSystem, Result, Timestamp};

/// A file system that has snapshots: images of all of it at earlier moments.
///
/// An object has in a snapshot the same inode as in the file system itself; an inode that did not exist then is
/// [`crate::Error::Stale`] there.
pub trait Snapshots: FileSystem {
    /// The image of a snapshot. Its changing operations fail with [`crate::Error::ReadOnly`].
    type Image: FileSystem;

    /// Returns the number of the snapshot with this name.
    fn snapshot_named(&self, name: &[u8]) -> Option<SnapshotId>;

    /// Whether the snapshot exists.
    fn has_snapshot(&self, id: SnapshotId) -> bool;

    /// Lists the snapshots with numbers above `after`, the oldest first, at most `max`.
    fn snapshots_after(&self, after: u64, max: usize) -> Vec<(SnapshotId, Bytes)>;

    /// A time that changes whenever a snapshot is made or deleted.
    fn snapshots_changed(&self) -> Timestamp;

    /// Opens a snapshot. Fails with [`crate::Error::Stale`] if it does not exist (any more), and with
    /// [`crate::Error::Delay`] while it cannot be read yet.
    fn snapshot(&self, id: SnapshotId) -> impl Future<Output = Result<Arc<Self::Image>>> + Send;
}
