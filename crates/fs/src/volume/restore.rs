//! Restoring files and directories of snapshots.

use forebay_object::{Cause, caused};

use super::Volume;
use crate::restore::{RestoreError, RestoreRequest, Restored};

impl Volume {
    /// Number of objects that the [restore](Volume::restore) that runs has made so far.
    pub fn restored_so_far(&self) -> u64 {
        self.rooms.restore.made()
    }

    /// Puts a file or directory of a snapshot back, as a new object with the attributes and the content that it had;
    /// names of the same file within it stay names of one file. Copies no content. The bucket has it when this returns.
    /// It goes on if the future is dropped.
    ///
    /// # Errors
    ///
    /// See [`RestoreError`]. While the bucket does not answer, it waits, as [`flush`](Volume::flush) does.
    pub async fn restore(&self, request: RestoreRequest) -> Result<Restored, RestoreError> {
        let volume = self.clone();
        let restoring = async move { volume.restore_while_polled(&request).await };
        match tokio::spawn(Box::pin(restoring)).await {
            Ok(result) => result,
            Err(error) => Err(RestoreError::Unreadable(error.to_string())),
        }
    }

    /// Like [`restore`](Volume::restore), and ends when the future is dropped: then `.forebay-restore` may be left, as
    /// after a crash. Yields to other tasks after each change.
    ///
    /// # Errors
    ///
    /// As of [`restore`](Volume::restore).
    pub async fn restore_while_polled(
        &self,
        request: &RestoreRequest,
    ) -> Result<Restored, RestoreError> {
        let restoring = self.rooms.restore.run(request, self.commit);
        let restored = caused(Cause::Metadata, Box::pin(restoring)).await?;
        let aside = restored.moved_aside.as_ref().map_or(String::new(), |path| {
            format!("; the object that was there is now {}", path.escape_ascii())
        });
        tracing::info!(
            "{} is restored from snapshot {:?}: {} objects with {} bytes{aside}",
            restored.path.escape_ascii(),
            request.snapshot,
            restored.objects,
            restored.bytes
        );
        Ok(restored)
    }
}
