//! A note in the manifest that keeps the objects that a reader needs from being deleted: SlateDB calls it a checkpoint.
//!
//! SlateDB's collector, which gateways run after commits, spares every table and manifest that such a note names until
//! the note expires. The clock of the gateway's machine decides: if it is ahead by more than four fifths of a lifetime,
//! the note counts as expired.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use object_store::ObjectStore;
use object_store::path::Path;
use slatedb::admin::{Admin, AdminBuilder};
use slatedb::config::CheckpointOptions;
use slatedb::{CheckpointCreateResult, DbReaderMode};
use tokio::task::JoinHandle;

use super::within;
use crate::error::StoreError;

/// Renewals of a note in one lifetime.
const RENEWALS: u32 = 5;
/// Pause before a failed renewal is repeated.
const RENEW_AGAIN: Duration = Duration::from_secs(5);

/// One note. If this is dropped, the note stays until it expires.
pub(super) struct Pin {
    admin: Arc<Admin>,
    note: CheckpointCreateResult,
    timeout: Duration,
    lifetime: Duration,
    held: Arc<AtomicBool>,
    renewing: JoinHandle<()>,
}

impl Pin {
    /// Writes a note on the newest state, and renews it from then on.
    pub(super) async fn set(
        store: Arc<dyn ObjectStore>,
        path: Path,
        timeout: Duration,
        lifetime: Duration,
    ) -> Result<Pin, StoreError> {
        let admin = Arc::new(AdminBuilder::new(path, store).build());
        let options = CheckpointOptions {
            lifetime: Some(lifetime),
            ..CheckpointOptions::default()
        };
        let note = within(timeout, admin.create_detached_checkpoint(&options)).await?;
        let held = Arc::new(AtomicBool::new(true));
        let renewing = tokio::spawn(renew(
            admin.clone(),
            note.clone(),
            timeout,
            lifetime,
            held.clone(),
        ));
        Ok(Pin {
            admin,
            note,
            timeout,
            lifetime,
            held,
            renewing,
        })
    }

    /// The mode in which to open the state of the note.
    pub(super) fn mode(&self) -> DbReaderMode {
        DbReaderMode::Checkpoint(self.note.id)
    }

    /// Whether the note has never expired.
    pub(super) fn holds(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// Renews the note now; fails if it is missing.
    pub(super) async fn renew(&self) -> Result<(), StoreError> {
        let renewal = self
            .admin
            .refresh_checkpoint(self.note.id, Some(self.lifetime));
        within(self.timeout, renewal).await
    }

    /// Removes the note. If that fails, it expires by itself.
    pub(super) async fn release(&self) {
        self.renewing.abort();
        let deletion = self.admin.delete_checkpoint(self.note.id);
        if let Err(error) = within(self.timeout, deletion).await {
            tracing::debug!(%error, "cannot remove a pin of the metadata; it expires");
        }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

async fn renew(
    admin: Arc<Admin>,
    note: CheckpointCreateResult,
    timeout: Duration,
    lifetime: Duration,
    held: Arc<AtomicBool>,
) {
    let mut renewed = Instant::now();
    let mut pause = lifetime / RENEWALS;
    loop {
        tokio::time::sleep(pause).await;
        let asked = Instant::now();
        match within(timeout, admin.refresh_checkpoint(note.id, Some(lifetime))).await {
            Ok(()) if asked.duration_since(renewed) < lifetime => {
                renewed = asked;
                pause = lifetime / RENEWALS;
            }
            // The note had expired, so the objects that it named may have been deleted.
            Ok(()) => return held.store(false, Ordering::Release),
            Err(StoreError::Transient(why)) => {
                tracing::warn!("cannot renew the pin of the metadata: {why}; trying again");
                pause = RENEW_AGAIN.min(pause);
            }
            Err(error) => {
                tracing::warn!("the pin of the metadata is gone: {error}");
                return held.store(false, Ordering::Release);
            }
        }
    }
}
