//! The two places where changes are recorded before they count: the log on disk, or, in volumes without a log, only a
//! position that increases.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_types::Lsn;
use forebay_wal::{AppendError, LogFailed, RecordKind, Storage, Wal};

/// Where changes are recorded.
pub(crate) enum Journal {
    /// In the log: a kill loses nothing, and a commit costs one flush of the disk.
    Disk(Wal),
    /// Nowhere: a kill loses the changes that are not in the bucket yet, and a commit waits for the bucket.
    Memory {
        /// The position after the last change.
        next: AtomicU64,
        /// Keeps the local folder locked against a second gateway.
        _folder: Arc<dyn Storage>,
    },
}

impl Journal {
    /// Records a change and returns the position after it.
    pub(crate) fn append(&self, kind: RecordKind, parts: &[&[u8]]) -> Result<Lsn, AppendError> {
        match self {
            Journal::Disk(wal) => wal.append(kind, parts).map(|appended| appended.end),
            Journal::Memory { next, .. } => {
                let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
                let bytes = bytes.max(1);
                Ok(Lsn(next.fetch_add(bytes, Ordering::AcqRel) + bytes))
            }
        }
    }

    /// The position after the last record.
    pub(crate) fn next_lsn(&self) -> Lsn {
        match self {
            Journal::Disk(wal) => wal.next_lsn(),
            Journal::Memory { next, .. } => Lsn(next.load(Ordering::Acquire)),
        }
    }

    /// Returns when a record of `bytes` may be appended again.
    pub(crate) async fn room(&self, bytes: u64) -> Result<(), LogFailed> {
        match self {
            Journal::Disk(wal) => wal.room(bytes).await,
            Journal::Memory { .. } => Ok(()),
        }
    }

    /// Returns when a kill of the process can no longer lose the records before `upto`, as far as this journal can
    /// promise that.
    pub(crate) async fn complete(&self, upto: Lsn) {
        if let Journal::Disk(wal) = self {
            wal.complete(upto).await;
        }
    }

    /// Everything before `published` is in the bucket, and the log no longer needs it.
    pub(crate) fn recycle(&self, published: Lsn) {
        if let Journal::Disk(wal) = self {
            wal.recycle(published);
        }
    }

    /// The log, if there is one.
    pub(crate) fn wal(&self) -> Option<&Wal> {
        match self {
            Journal::Disk(wal) => Some(wal),
            Journal::Memory { .. } => None,
        }
    }
}
