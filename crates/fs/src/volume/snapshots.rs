//! Snapshots of a volume.

use std::sync::Arc;

use bytes::Bytes;
use forebay_types::SnapshotId;
use forebay_vfs::{Result, Timestamp};
use forebay_view::View;

use super::Volume;
use crate::snapshots::{SnapshotError, SnapshotInfo, Snapshots};

impl Volume {
    /// Makes a snapshot of the whole volume with this name: of everything that was acknowledged before the call, and
    /// nothing that is begun after it returns. Stable when it returns; the bucket has it with the next publication.
    ///
    /// # Errors
    ///
    /// See [`SnapshotError`].
    pub async fn make_snapshot(
        &self,
        name: &str,
        made_by: &str,
    ) -> std::result::Result<SnapshotInfo, SnapshotError> {
        let (made, end) = self.files.make_snapshot(name, made_by).await?;
        self.files.stable(end, self.commit).await?;
        Ok(made)
    }

    /// All snapshots, the oldest first. Reads the records of dead packs that they hold.
    ///
    /// # Errors
    ///
    /// If the metadata cannot be read.
    pub async fn snapshots(&self) -> std::result::Result<Vec<SnapshotInfo>, SnapshotError> {
        self.rooms.snapshots.infos().await
    }

    /// The same without counts, as far as memory knows them: does not ask the bucket.
    pub fn listed_snapshots(&self) -> Vec<SnapshotInfo> {
        let mut listed = self.rooms.state.snapshots.all();
        listed.retain(|(_, one)| !one.record.is_being_deleted);
        let infos = listed.into_iter().map(|(id, one)| SnapshotInfo {
            is_published: one.is_published,
            ..Snapshots::made(id, one.record)
        });
        infos.collect()
    }

    /// The number of the snapshot with this name, or of the one with this number if none has that name.
    pub fn snapshot_given(&self, name_or_number: &str) -> Option<SnapshotId> {
        let given = self.rooms.state.snapshots.given(name_or_number);
        given.map(|(id, _)| id)
    }

    /// Opens a snapshot, given by its name or number, for reading. It reads through this volume's caches of frames and metadata.
    ///
    /// # Errors
    ///
    /// See [`SnapshotError`].
    pub async fn open_snapshot(&self, name: &str) -> std::result::Result<Arc<View>, SnapshotError> {
        self.rooms.snapshots.open(name).await
    }

    /// Deletes a snapshot, given by its name or number. Returns when the bucket knows that its deletion has begun; its space is given back in the
    /// background. While the bucket does not answer, it waits.
    ///
    /// # Errors
    ///
    /// See [`SnapshotError`].
    pub async fn delete_snapshot(&self, name: &str) -> std::result::Result<(), SnapshotError> {
        self.rooms.snapshots.delete(name).await
    }
}

impl forebay_vfs::Snapshots for Volume {
    type Image = View;

    fn snapshot_named(&self, name: &[u8]) -> Option<SnapshotId> {
        let name = std::str::from_utf8(name).ok()?;
        self.rooms.state.snapshots.named(name).map(|(id, _)| id)
    }

    fn has_snapshot(&self, id: SnapshotId) -> bool {
        self.rooms.state.snapshots.has(id)
    }

    fn snapshots_after(&self, after: u64, max: usize) -> Vec<(SnapshotId, Bytes)> {
        self.rooms.state.snapshots.names_after(after, max)
    }

    fn snapshots_changed(&self) -> Timestamp {
        self.rooms.state.snapshots.changed()
    }

    async fn snapshot(&self, id: SnapshotId) -> Result<Arc<View>> {
        self.rooms.snapshots.image(id).await
    }
}
