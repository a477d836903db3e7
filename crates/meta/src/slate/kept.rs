//! Earlier states that stay readable under a name: SlateDB's checkpoints without an end.
//!
//! SlateDB's collector spares every table and manifest that such a checkpoint names, and no other object.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use object_store::path::Path;
use parking_lot::Mutex;
use slatedb::admin::{Admin, AdminBuilder};
use slatedb::config::{CheckpointOptions, CheckpointScope};
use slatedb::{Db, DbReaderMode};

use super::reader::SlateReader;
use super::within;
use crate::error::StoreError;

/// The kept states of one store.
pub(super) struct Kept {
    /// Through which tables and manifests are read.
    store: Arc<dyn ObjectStore>,
    path: Path,
    timeout: Duration,
    /// The name of the last attempt to keep a state, while its outcome is unknown.
    in_doubt: Mutex<Option<String>>,
}

impl Kept {
    pub(super) fn new(store: Arc<dyn ObjectStore>, path: Path, timeout: Duration) -> Kept {
        Kept {
            store,
            path,
            timeout,
            in_doubt: Mutex::default(),
        }
    }

    fn admin(&self) -> Admin {
        AdminBuilder::new(self.path.clone(), self.store.clone()).build()
    }

    /// Keeps the state that is in the bucket under `name`.
    pub(super) async fn keep(&self, db: &Db, name: &str) -> Result<(), StoreError> {
        let is_in_doubt = self.in_doubt.lock().as_deref() == Some(name);
        if is_in_doubt && self.names().await?.contains(name) {
            *self.in_doubt.lock() = None;
            return Ok(());
        }
        *self.in_doubt.lock() = Some(name.to_owned());
        let options = CheckpointOptions {
            name: Some(name.to_owned()),
            ..CheckpointOptions::default()
        };
        let made = db.create_checkpoint(CheckpointScope::Durable, &options);
        within(self.timeout, made).await?;
        *self.in_doubt.lock() = None;
        Ok(())
    }

    /// Ends the keeping under `name`.
    pub(super) async fn release(&self, name: &str) -> Result<(), StoreError> {
        let admin = self.admin();
        for kept in within(self.timeout, admin.list_checkpoints(Some(name))).await? {
            within(self.timeout, admin.delete_checkpoint(kept.id)).await?;
        }
        Ok(())
    }

    pub(super) async fn names(&self) -> Result<BTreeSet<String>, StoreError> {
        let admin = self.admin();
        let all = within(self.timeout, admin.list_checkpoints(None)).await?;
        // Pins have no name.
        Ok(all.into_iter().filter_map(|kept| kept.name).collect())
    }

    /// Opens the state under `name` for reading.
    pub(super) async fn open(&self, name: &str) -> Result<Option<SlateReader>, StoreError> {
        let admin = self.admin();
        let found = within(self.timeout, admin.list_checkpoints(Some(name))).await?;
        let Some(kept) = found.first() else {
            return Ok(None);
        };
        let mode = DbReaderMode::Checkpoint(kept.id);
        let reader =
            SlateReader::open_at(self.store.clone(), self.path.clone(), mode, self.timeout);
        reader.await.map(Some)
    }
}
