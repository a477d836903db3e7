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
        let (restore, mode) = (self.rooms.restore.clone(), self.commit);
        let restoring = async move { restore.run(&request, mode).await };
        match tokio::spawn(caused(Cause::Metadata, Box::pin(restoring))).await {
            Ok(result) => result,
            Err(error) => Err(RestoreError::Unreadable(error.to_string())),
        }
    }
}
