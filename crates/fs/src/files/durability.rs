//! The stability of a change before it is answered.

use forebay_types::{Inode, Lsn};
use forebay_vfs::{Error, Result, Trouble};
use forebay_waits::{For, waiting};

use super::Files;
use crate::state::Journal;

/// What must be lost before an answer that promises stable storage (COMMIT, WRITE with DATA_SYNC or FILE_SYNC, and
/// every change of names and attributes) turns out to be wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommitMode {
    /// The gateway's disk: an answer waits until the log is flushed, so a crash and a power cut lose
    /// nothing. For a volume without a log this is [`CommitMode::Bucket`].
    #[default]
    Disk,
    /// The bucket: an answer waits until the change is published there, so losing the whole machine loses nothing.
    /// All callers that wait at the same time share a checkpoint.
    Bucket,
    /// The power of the machine: an answer waits until the change is in the log, not until the disk has it. A crash
    /// of the program loses nothing; after a power cut the write verifier is a new one, but a client whose COMMIT was
    /// answered does not keep the bytes to send them again.
    Async,
}

/// A change that is recorded and in memory, and may not be stable yet.
#[must_use = "the reply may leave only when the change is stable"]
pub(crate) struct Recorded<T> {
    /// The position after its record: everything before it must become stable.
    pub(crate) end: Lsn,
    /// The reply after that.
    pub(crate) reply: T,
}

impl Files {
    /// Returns when everything before `end` is as safe as `mode` says. In a volume that has stopped nothing is safe:
    /// the log of a gateway that was taken over will never be part of the volume.
    ///
    /// [`Delay`](forebay_vfs::Error::Delay) if the log fails: for calls that may be repeated, and then find a log
    /// that works. Others use [`Files::stable_once`].
    pub(crate) async fn stable(&self, end: Lsn, mode: CommitMode) -> Result<()> {
        match (self.state.journal(), mode) {
            (Journal::Disk(wal), CommitMode::Disk) => {
                waiting(For::Flush, wal.durable(end))
                    .await
                    .map_err(|failed| self.state.log_failed(&failed))?
            }
            (Journal::Disk(wal), CommitMode::Async) => waiting(For::Flush, wal.complete(end)).await,
            (Journal::Memory { .. }, _) | (_, CommitMode::Bucket) => {
                let _waiting = self.state.troubles.wait(Trouble::Bucket);
                waiting(For::Bucket, self.publisher.wait_for(end)).await?;
            }
        }
        self.state.signals.check_running()
    }

    /// Fails if the bucket did not get all bytes of this file that its clients wrote: only the log had some of them, and its disk
    /// lost them. Not if other bytes were written in their place since.
    pub(crate) async fn check_written(&self, inode: Inode) -> Result<()> {
        let unwritten = self.damages.unwritten(inode).ok_or(Error::Io)?;
        if unwritten.is_empty() {
            return Ok(());
        }
        let node = self.state.node(inode).await?;
        for place in unwritten {
            if self.refers_to(&node, &place).await? {
                return Err(Error::Io);
            }
            self.damages.written_again(&place);
        }
        Ok(())
    }

    /// Like [`Files::stable`], for changes that cannot be made a second time: if the log fails under them, an error
    /// says that their outcome is not known. If the client were told to try again, it would find the name that it
    /// wants to make, or miss the one that it wants to remove.
    pub(crate) async fn stable_once(&self, end: Lsn, mode: CommitMode) -> Result<()> {
        let failed_before = self.state.log_health.has_failed();
        self.stable(end, mode).await.map_err(|error| {
            let log_failed = failed_before || self.state.log_health.has_failed();
            if log_failed { Error::Io } else { error }
        })
    }
}
