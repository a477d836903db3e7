//! SlateDB's own log, which is off: an opening neither looks for it nor fences it.
//!
//! Although its log is off, SlateDB does three things with it at each opening: it probes for log files (8 requests), it writes
//! an empty file, the fence, and it reads that file. The requests wait for one another. This module replaces them by nothing.
//!
//! # Why no log needs no fence
//!
//! The fence in the log keeps an earlier writer from adding to the log. Forebay never writes a batch into that log, and no
//! version of it ever did. So there is nothing to replay, and nothing that an earlier writer could add. What an earlier
//! writer could still change is the manifest, and the manifest has a fence of its own (`slate/seen.rs`).
//!
//! # Numbers of log files
//!
//! A manifest has two numbers of log files: the last one whose content is in tables (`replay_after`), and the next one
//! (`next`). Versions of Forebay before this module write a fence at each opening, and take these numbers seriously:
//!
//! * They look for log files from `replay_after` + 1 on, and write the fence behind the last one. So the files from there on
//!   must have no gap.
//! * They refuse to write a manifest whose `next` is lower than that of the manifest before.
//!
//! Here the last log file is taken to be the one before `next`, whether it exists or not. So `next` never changes, and the
//! first commit makes `replay_after` `next` - 1. From `next` on there are no log files, or the fences of openings that were
//! killed before they wrote a number into a manifest. So those versions write their fence as number `next` or a later one, and
//! open the volume. This version opens a volume that they wrote last: all log files are empty, and it reads none.
//!
//! The collector deletes old fences with numbers below `replay_after`. One or a few empty files stay for good.

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::ready;
use slatedb::RowEntry;
use slatedb::wal::{
    WalError, WalFlushResult, WalIterator, WalObserver, WalRows, WalStatus, WalStatusListener,
    WalWriter, WriterInit, WriterInitResult, WriterManifest,
};

/// Opens no log.
pub(super) struct NoLog;

#[async_trait]
impl WriterInit for NoLog {
    async fn fence_and_init(
        &self,
        manifest: &mut WriterManifest,
    ) -> Result<WriterInitResult, WalError> {
        let replayed = manifest.replay_after_wal_id();
        let next = manifest.manifest().next_wal_sst_id();
        // SlateDB writes `number` + 1 as the next one.
        let number = next.saturating_sub(1).max(replayed);
        Ok(WriterInitResult {
            replay_iterator: Box::new(Nothing),
            wal_writer: Box::new(Closed { number }),
        })
    }
}

/// Nothing to replay.
struct Nothing;

#[async_trait]
impl WalIterator for Nothing {
    async fn next(&mut self) -> Result<Option<WalRows>, WalError> {
        Ok(None)
    }
}

/// A log that is closed.
#[derive(Clone)]
struct Closed {
    /// The number of the last log file, which may be missing.
    number: u64,
}

impl Closed {
    fn last_status(&self) -> WalStatus {
        WalStatus {
            closed_reason: Some(WalError::Closed),
            estimated_bytes: 0,
            last_flushed_wal_id: self.number,
            last_flushed_seq: None,
            buffered_wal_entries_count: 0,
        }
    }
}

#[async_trait]
impl WalWriter for Closed {
    async fn append(&mut self, _: &[RowEntry]) -> Result<(), WalError> {
        Err(WalError::Closed)
    }

    async fn flush(&mut self) -> Result<WalFlushResult, WalError> {
        Ok(WalFlushResult {
            wal_id: self.number,
            completion: ready(Err(WalError::Closed)).boxed(),
        })
    }

    fn observer(&self) -> Box<dyn WalObserver> {
        Box::new(self.clone())
    }

    fn status(&self) -> Result<WalStatus, WalStatus> {
        Err(self.last_status())
    }

    async fn close(&mut self) -> Result<(), WalError> {
        Ok(())
    }
}

#[async_trait]
impl WalObserver for Closed {
    fn status(&self) -> Result<WalStatus, WalStatus> {
        Err(self.last_status())
    }

    fn subscribe(&self, _: WalStatusListener) -> Result<(), WalError> {
        Err(WalError::Closed)
    }
}
