//! SlateDB's own log, which is off: an opening neither probes for it nor fences it.
//!
//! With its log off, SlateDB still looks for log files (8 requests), writes an empty one that fences earlier writers of the log,
//! and reads it back: requests one after the other, at each opening. No version of Forebay has ever written a batch into
//! that log, so there is nothing to replay and no writer of it to fence. Earlier writers are fenced by the manifest: an
//! opening writes the next one with an epoch of its own, each commit is the creation of the next manifest, and a writer
//! whose creation fails reads the newer epoch and stops. That order is SlateDB's and stays as it is.
//!
//! Earlier versions write the fence. Numbers go on as if it were written here as well, so that they open the store as
//! before, and the collector deletes fences that they left.

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
        // SlateDB refuses to write a manifest with a lower number than the one before.
        let number = manifest.manifest().next_wal_sst_id().max(replayed + 1);
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
    /// The number of the file that an earlier version would have written.
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
