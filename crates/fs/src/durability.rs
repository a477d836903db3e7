//! How safe a change is before it is answered.

use forebay_types::Lsn;
use forebay_vfs::{Result, Trouble};

use crate::core::Core;
use crate::journal::Journal;

/// What has to be lost before an answer that promises stable storage (COMMIT, WRITE with DATA_SYNC or
/// FILE_SYNC, and every change of names and attributes) turns out to be wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommitMode {
    /// The gateway's disk: an answer waits until the log is flushed, so a crash and a power cut lose
    /// nothing. For a volume without a log this is [`CommitMode::Bucket`].
    #[default]
    Disk,
    /// The bucket: an answer waits until it is published there, so losing the whole machine loses
    /// nothing. All who wait at the same time share a checkpoint.
    Bucket,
    /// The power of the machine: an answer waits until the change is in the log, not until the disk
    /// has it. A crash of the program loses nothing; after a power cut the write verifier is a new
    /// one, but a client that had its COMMIT answered does not keep what to send again.
    Async,
}

/// A change that is recorded and in memory, and not necessarily stable yet.
#[must_use = "the reply may leave only when the change is stable"]
pub(crate) struct Recorded<T> {
    /// The position after its record: what has to be stable.
    pub(crate) end: Lsn,
    /// What to answer then.
    pub(crate) reply: T,
}

impl Core {
    /// Returns when everything up to `end` is as safe as `mode` says. Nothing is in a volume that has
    /// stopped: the log of a gateway that was taken over will never be part of it.
    ///
    /// [`Delay`](forebay_vfs::Error::Delay) when the log fails: for calls that may be made again, which
    /// then find a log that works. Others use [`Core::stable_once`].
    pub(crate) async fn stable(&self, end: Lsn, mode: CommitMode) -> Result<()> {
        match (self.journal(), mode) {
            (Journal::Disk(wal), CommitMode::Disk) => wal
                .durable(end)
                .await
                .map_err(|failed| self.log_failed(&failed))?,
            (Journal::Disk(wal), CommitMode::Async) => wal.complete(end).await,
            (Journal::Memory { .. }, _) | (_, CommitMode::Bucket) => {
                let _waiting = self.troubles.wait(Trouble::Bucket);
                self.published(end).await?;
            }
        }
        self.check_running()
    }
}
