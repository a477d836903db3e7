//! Earlier states that stay readable under a name: SlateDB's checkpoints without an end.
//!
//! SlateDB's collector spares every table and manifest that such a checkpoint names, and no other object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use object_store::ObjectStore;
use object_store::path::Path;
use parking_lot::Mutex;
use slatedb::admin::{Admin, AdminBuilder};
use slatedb::config::{CheckpointOptions, CheckpointScope};
use slatedb::{Checkpoint, CheckpointCreateResult, Db};

use super::cache::{Cache, OpenCache};
use super::reader::SlateReader;
use super::within;
use crate::error::StoreError;

/// A checkpoint that SlateDB writes with the same manifest as a batch. It survives a commit that did not end in time.
pub(super) struct Keeping {
    name: String,
    made: BoxFuture<'static, Result<CheckpointCreateResult, slatedb::Error>>,
}

/// The kept states of one store.
pub(super) struct Kept {
    /// Through which tables and manifests are read.
    store: Arc<dyn ObjectStore>,
    path: Path,
    timeout: Duration,
    /// The cache of the open store: a kept state has many tables in common with it.
    cache: Option<Cache>,
    /// Bytes of the cache for the first look of clients into a kept state.
    room: u64,
    /// The name of the last attempt to keep a state, while its outcome is unknown.
    in_doubt: Mutex<Option<String>>,
    /// The manifests of the states that were kept since the store was opened, and `None` for those that were released.
    changed: Mutex<BTreeMap<String, Option<u64>>>,
}

impl Kept {
    pub(super) fn new(
        store: Arc<dyn ObjectStore>,
        path: Path,
        timeout: Duration,
        cache: Option<Cache>,
    ) -> Kept {
        Kept {
            store,
            path,
            timeout,
            cache,
            room: 0,
            in_doubt: Mutex::default(),
            changed: Mutex::default(),
        }
    }

    /// The same beside an open store with this cache: clients wait for what is read.
    pub(super) fn of_open_store(
        store: Arc<dyn ObjectStore>,
        path: Path,
        timeout: Duration,
        cache: Option<&OpenCache>,
    ) -> Kept {
        Kept {
            room: cache.map_or(0, OpenCache::first_look_bytes),
            ..Kept::new(store, path, timeout, cache.map(OpenCache::shared))
        }
    }

    fn admin(&self) -> Admin {
        AdminBuilder::new(self.path.clone(), self.store.clone()).build()
    }

    /// Begins to keep the state after the batch that `db` has taken last, under `name`. That batch is flushed with it:
    /// SlateDB freezes the memtable, and adds the checkpoint to the manifest that names the batch's table. If the table
    /// should be in the bucket sooner than SlateDB takes the checkpoint up, it writes a manifest of its own for it.
    pub(super) fn begin(&self, db: &Db, name: &str) -> Keeping {
        *self.in_doubt.lock() = Some(name.to_owned());
        let (db, options) = (db.clone(), named(name));
        Keeping {
            name: name.to_owned(),
            made: Box::pin(async move {
                let made = db.create_checkpoint(CheckpointScope::All, &options);
                made.await
            }),
        }
    }

    /// Waits until both the batch and the checkpoint are in the bucket. A call that is cancelled may be repeated.
    pub(super) async fn end(
        &self,
        db: &Db,
        keeping: &mut Option<Keeping>,
    ) -> Result<(), slatedb::Error> {
        let Some(begun) = keeping else {
            return Ok(());
        };
        let made = (&mut begun.made).await;
        if let Some(ended) = keeping.take() {
            self.note(db, &ended.name, made?.manifest_id);
        }
        Ok(())
    }

    /// Keeps the state that is in the bucket under `name`, unless the last commit has done it.
    pub(super) async fn keep(&self, db: &Db, name: &str) -> Result<(), StoreError> {
        if matches!(self.changed.lock().get(name), Some(Some(_))) {
            return Ok(());
        }
        let is_in_doubt = self.in_doubt.lock().as_deref() == Some(name);
        if is_in_doubt && self.names().await?.contains(name) {
            *self.in_doubt.lock() = None;
            self.changed.lock().remove(name);
            return Ok(());
        }
        *self.in_doubt.lock() = Some(name.to_owned());
        let options = named(name);
        let made = db.create_checkpoint(CheckpointScope::Durable, &options);
        let made = within(self.timeout, made).await?;
        self.note(db, name, made.manifest_id);
        Ok(())
    }

    /// Notes that the state of a manifest is kept under `name`.
    fn note(&self, db: &Db, name: &str, manifest: u64) {
        let known = db.manifest();
        let is_known = |name: &str| {
            let mut all = known.checkpoints().iter();
            all.any(|kept| kept.name.as_deref() == Some(name))
        };
        let mut changed = self.changed.lock();
        changed.retain(|name, manifest| manifest.is_some() || is_known(name));
        changed.insert(name.to_owned(), Some(manifest));
        drop(changed);
        *self.in_doubt.lock() = None;
    }

    /// Ends the keeping under `name`.
    pub(super) async fn release(&self, name: &str) -> Result<(), StoreError> {
        self.changed.lock().insert(name.to_owned(), None);
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

    /// The number of the manifest that is kept under `name`. `db` knows those from before it was opened; no request is
    /// needed but in doubt.
    async fn manifest_of(&self, db: &Db, name: &str) -> Result<Option<u64>, StoreError> {
        if let Some(changed) = self.changed.lock().get(name) {
            return Ok(*changed);
        }
        let is_named = |kept: &&Checkpoint| kept.name.as_deref() == Some(name);
        if let Some(kept) = db.manifest().checkpoints().iter().find(is_named) {
            return Ok(Some(kept.manifest_id));
        }
        self.listed(name).await
    }

    /// The same, as the bucket has it.
    async fn listed(&self, name: &str) -> Result<Option<u64>, StoreError> {
        let admin = self.admin();
        let listed = within(self.timeout, admin.list_checkpoints(Some(name))).await?;
        Ok(listed.first().map(|kept| kept.manifest_id))
    }

    /// Opens the state under `name` for reading.
    pub(super) async fn open(
        &self,
        db: &Db,
        name: &str,
    ) -> Result<Option<SlateReader>, StoreError> {
        let manifest = self.manifest_of(db, name).await?;
        let opened = self.open_at(manifest).await?;
        Ok(opened.map(|reader| match self.room {
            0 => reader,
            room => reader.with_first_looks(room),
        }))
    }

    /// The same without an open store.
    pub(super) async fn open_listed(&self, name: &str) -> Result<Option<SlateReader>, StoreError> {
        let manifest = self.listed(name).await?;
        self.open_at(manifest).await
    }

    async fn open_at(&self, manifest: Option<u64>) -> Result<Option<SlateReader>, StoreError> {
        let Some(manifest) = manifest else {
            return Ok(None);
        };
        let (store, path, cache) = (self.store.clone(), self.path.clone(), self.cache.clone());
        let reader = SlateReader::open_at(store, path, manifest, self.timeout, cache);
        reader.await.map(Some)
    }
}

/// A checkpoint without an end.
fn named(name: &str) -> CheckpointOptions {
    CheckpointOptions {
        name: Some(name.to_owned()),
        ..CheckpointOptions::default()
    }
}
