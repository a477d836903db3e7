//! Makes a state of one store the beginning, or the continuation, of a store.
//!
//! A state is its manifest and the tables that this names; tables never change. So a clone begins with a copy of the
//! manifest, and a volume goes back to a snapshot by a next manifest that has the snapshot's tables. Either is one
//! object, written with a condition.

mod composed;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use slatedb::admin::{Admin, AdminBuilder};
use slatedb::config::{FlushOptions, FlushType, Settings, WriteOptions};
use slatedb::{Db, VersionedManifest};

use super::engine::{close_engine, engine_settings};
use super::no_log::NoLog;
use super::{BLOCK_SIZE, MANIFEST, Sealing, verified, within};
use crate::batch::{Batch, Entry};
use crate::error::StoreError;
use composed::{Root, composed};

/// Unmerged tables that the states of snapshots may have, and those that are added: nothing merges them here.
const MAX_TABLES: usize = 4096;
/// Manifests of checkpoints that are read concurrently.
const AT_ONCE: usize = 8;

/// A store of metadata, as objects: it is not open.
pub struct SlateFolder {
    store: Arc<dyn ObjectStore>,
    path: Path,
    timeout: Duration,
}

/// A manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredManifest {
    /// Its number: manifests count up.
    pub number: u64,
    bytes: Bytes,
}

impl StoredManifest {
    /// The manifest of a new store with the same tables, without the states that this one keeps.
    ///
    /// # Errors
    /// When it is of another version of the engine.
    pub fn alone(&self) -> Result<Bytes, StoreError> {
        composed(&Root::of(&self.bytes)?, None)
    }

    /// The manifest after `newest`, with the tables of this one. The states that `newest` keeps stay kept, and every
    /// writer that has the store open is fenced.
    ///
    /// # Errors
    /// When one of them is of another version of the engine.
    pub fn after(&self, newest: &StoredManifest) -> Result<Bytes, StoreError> {
        composed(&Root::of(&self.bytes)?, Some(&Root::of(&newest.bytes)?))
    }
}

impl SlateFolder {
    /// The store under `path`, sealed if there is a `sealing`.
    pub fn new(
        store: Arc<dyn ObjectStore>,
        path: Path,
        timeout: Duration,
        sealing: Option<Sealing>,
    ) -> SlateFolder {
        SlateFolder {
            store: verified(store, &path, sealing),
            path,
            timeout,
        }
    }

    fn admin(&self) -> Admin {
        AdminBuilder::new(self.path.clone(), self.store.clone()).build()
    }

    fn location(&self, number: u64) -> Path {
        let name = format!("{number:020}.{MANIFEST}");
        self.path.clone().join(MANIFEST).join(name)
    }

    async fn read(&self, number: u64) -> Result<StoredManifest, StoreError> {
        let location = self.location(number);
        let found = self.store.get(&location).await.map_err(failed)?;
        let bytes = found.bytes().await.map_err(failed)?;
        Ok(StoredManifest { number, bytes })
    }

    /// The newest manifest; `None` if there is no store.
    ///
    /// # Errors
    /// When the bucket fails, or the manifest is damaged.
    pub async fn newest(&self) -> Result<Option<StoredManifest>, StoreError> {
        let folder = self.path.clone().join(MANIFEST);
        let listed: Vec<_> = self
            .store
            .list(Some(&folder))
            .try_collect()
            .await
            .map_err(failed)?;
        let numbers = listed.iter().filter_map(|object| {
            let name = object.location.filename()?;
            name.strip_suffix(MANIFEST)?.strip_suffix('.')?.parse().ok()
        });
        match numbers.max() {
            Some(number) => self.read(number).await.map(Some),
            None => Ok(None),
        }
    }

    /// The manifest that is kept under a name; `None` if there is none.
    ///
    /// # Errors
    /// When the bucket fails, or a manifest is damaged.
    pub async fn kept(&self, name: &str) -> Result<Option<StoredManifest>, StoreError> {
        let admin = self.admin();
        let listed = within(self.timeout, admin.list_checkpoints(Some(name))).await?;
        match listed.first() {
            Some(kept) => self.read(kept.manifest_id).await.map(Some),
            None => Ok(None),
        }
    }

    /// Stores a manifest, if there is none with this number; returns whether it did.
    ///
    /// # Errors
    /// When the bucket fails.
    pub async fn put(&self, number: u64, manifest: Bytes) -> Result<bool, StoreError> {
        let (location, options) = (self.location(number), PutOptions::from(PutMode::Create));
        match self
            .store
            .put_opts(&location, manifest.clone().into(), options)
            .await
        {
            Ok(_) => Ok(true),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
                // Perhaps our own: the request was repeated because its answer was lost.
                Ok(self.read(number).await?.bytes == manifest)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Adds changes to a store that nothing else has open. They are durable when this returns; no part of it if it
    /// fails, or some of the batches.
    ///
    /// # Errors
    /// When the bucket fails, or the store is opened meanwhile.
    pub async fn add(&self, batches: &[Batch]) -> Result<(), StoreError> {
        let settings = Settings {
            l0_max_ssts: MAX_TABLES,
            l0_max_ssts_per_key: MAX_TABLES,
            ..engine_settings()
        };
        let builder = Db::builder(self.path.clone(), self.store.clone())
            .with_settings(settings)
            .with_wal_writer(Box::new(NoLog))
            .with_sst_block_size(BLOCK_SIZE)
            .with_db_cache_disabled();
        let db = within(self.timeout, builder.build()).await?;
        let added = self.add_to(&db, batches).await;
        close_engine(&db).await;
        added
    }

    async fn add_to(&self, db: &Db, batches: &[Batch]) -> Result<(), StoreError> {
        for batch in batches {
            let mut write = slatedb::WriteBatch::new();
            for (key, entry) in batch.changes() {
                match entry {
                    Entry::Value(value) => write.put_bytes(key.clone(), value.clone()),
                    Entry::Deleted => write.delete(key),
                }
            }
            let options = WriteOptions::default();
            within(self.timeout, db.write_with_options(write, &options)).await?;
            let flush = db.flush_with_options(FlushOptions {
                flush_type: FlushType::MemTable,
            });
            within(self.timeout, flush).await?;
        }
        Ok(())
    }

    /// The names, below the store's folder, of all tables that the newest state and the kept ones need.
    ///
    /// # Errors
    /// When the bucket fails, or a manifest is gone.
    pub async fn tables(&self) -> Result<BTreeSet<String>, StoreError> {
        let admin = self.admin();
        let newest = within(self.timeout, admin.read_manifest(None)).await?;
        let Some(newest) = newest else {
            return Ok(BTreeSet::new());
        };
        let kept: BTreeSet<u64> = newest
            .checkpoints()
            .iter()
            .map(|kept| kept.manifest_id)
            .collect();
        let mut names: BTreeSet<String> = names(&newest).collect();
        let reads = kept.into_iter().map(|number| {
            let admin = &admin;
            async move {
                let manifest = within(self.timeout, admin.read_manifest(Some(number))).await?;
                manifest.ok_or_else(|| StoreError::Gone(format!("manifest {number} is gone")))
            }
        });
        let mut manifests = futures_util::stream::iter(reads).buffer_unordered(AT_ONCE);
        while let Some(manifest) = manifests.try_next().await? {
            names.extend(self::names(&manifest));
        }
        Ok(names)
    }
}

fn names(manifest: &VersionedManifest) -> impl Iterator<Item = String> {
    let tables = manifest.all_sst_views().map(|view| view.sst.id.value());
    tables.map(|table| format!("compacted/{table}.sst"))
}

fn failed(error: Error) -> StoreError {
    let damage = super::sources(&error).any(super::is_damage);
    match error {
        error if damage => StoreError::Corrupt(format!(
            "the metadata in the bucket is damaged ({error}); use an undamaged copy of the bucket"
        )),
        Error::NotFound { path, .. } => StoreError::Gone(format!(
            "{path}, of the volume's metadata, is gone from the bucket"
        )),
        error => StoreError::Transient(error.to_string()),
    }
}
