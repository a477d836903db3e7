//! The two places where changes are recorded before they count: the log on disk, or, in volumes without a log, only a
//! position that increases.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use forebay_types::Lsn;
use forebay_wal::{AppendError, LogFailed, RecordKind, RecordReader, Recovery, Storage, Wal};
use futures_util::future::BoxFuture;

use super::memory::SafeLog;

/// The place of a recorded change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// Where its record begins in the log; `None` without a log.
    pub(crate) record: Option<Lsn>,
    /// The position after it.
    pub(crate) end: Lsn,
}

/// Where changes are recorded.
pub(crate) enum Journal {
    /// In the log: a kill loses nothing, and a commit costs one flush of the disk.
    Disk(Arc<Wal>),
    /// Nowhere: a kill loses the changes that are not in the bucket yet, and a commit waits for the bucket.
    Memory {
        /// The position after the last change.
        next: AtomicU64,
        /// Keeps the local folder locked against a second gateway.
        _folder: Arc<dyn Storage>,
    },
}

/// The log as the place of bytes that are not in memory: as it was scanned until recovery is done, and then as it is open.
pub(crate) struct OwnLog {
    scanned: RecordReader,
    /// The end of what was scanned.
    end: Lsn,
    open: OnceLock<Arc<Wal>>,
}

impl OwnLog {
    pub(super) fn new(recovery: &Recovery) -> OwnLog {
        OwnLog {
            scanned: recovery.reader(),
            end: recovery.end(),
            open: OnceLock::new(),
        }
    }

    /// Recovery is done, and this is the open log.
    pub(super) fn begin(&self, wal: Arc<Wal>) {
        // Called once, by the opening of the volume.
        let _ = self.open.set(wal);
    }

    /// Reads single records.
    pub(super) fn reader(&self) -> RecordReader {
        match self.open.get() {
            Some(wal) => wal.reader(),
            None => self.scanned.clone(),
        }
    }
}

impl SafeLog for OwnLog {
    /// Before the log is open, all that was scanned: no client is served before it is flushed, and a crash repeats the
    /// replay.
    fn settled_lsn(&self) -> Lsn {
        self.open.get().map_or(self.end, |wal| wal.settled_lsn())
    }

    fn flush(&self) -> BoxFuture<'static, ()> {
        let durable = self.open.get().map(|wal| wal.durable(wal.complete_lsn()));
        Box::pin(async move {
            if let Some(durable) = durable {
                // A log that fails keeps its bytes in memory until it works again.
                drop(durable.await);
            }
        })
    }
}

impl Journal {
    /// Records a change.
    pub(crate) fn append(
        &self,
        kind: RecordKind,
        parts: &[&[u8]],
    ) -> Result<Position, AppendError> {
        match self {
            Journal::Disk(wal) => {
                let appended = wal.append(kind, parts)?;
                Ok(Position {
                    record: Some(appended.lsn),
                    end: appended.end,
                })
            }
            Journal::Memory { next, .. } => {
                let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
                let bytes = bytes.max(1);
                Ok(Position {
                    record: None,
                    end: Lsn(next.fetch_add(bytes, Ordering::AcqRel) + bytes),
                })
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
