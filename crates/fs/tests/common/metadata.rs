//! Metadata whose reads a test sees, delays, fails or changes; and actions of others while a gateway starts.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_fs::{Environment, FsConfig, Metadata};
use forebay_meta::{Batch, KeyRange, MetaStore, Sealing, StoreError};
use forebay_object::Store;

use super::{Bucket, Life};

/// A test's reaction to reads and commits.
#[async_trait]
pub trait Reads: Send + Sync + 'static {
    /// Called with the value found under `key`. The gateway gets the returned value.
    async fn got(&self, key: &[u8], found: Option<Bytes>) -> Result<Option<Bytes>, StoreError> {
        let _ = key;
        Ok(found)
    }

    /// Called before this batch is committed.
    async fn commits(&self, batch: &Batch) -> Result<(), StoreError> {
        let _ = batch;
        Ok(())
    }

    /// Called when `range` was scanned.
    async fn scanned(&self, range: &KeyRange) -> Result<(), StoreError> {
        let _ = range;
        Ok(())
    }
}

impl Bucket {
    /// Starts a gateway whose reads of metadata pass through `reads`.
    pub fn start_watched(&self, config: FsConfig, reads: Arc<dyn Reads>) -> Life {
        let real = Environment::real(config.data_dir.clone());
        let metadata = Arc::new(Watched {
            inner: real.metadata.clone(),
            reads,
        });
        let environment = Environment { metadata, ..real };
        self.try_start_in(config, environment).unwrap()
    }
}

/// Runs a hook once the volume's state was read for the first time, before the metadata are opened for writing.
struct Interrupted {
    inner: Arc<dyn Metadata>,
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Bucket {
    /// Starts a gateway, and runs a hook in the middle of the start.
    pub fn start_interrupted(&self, meanwhile: impl FnOnce() + Send + 'static) -> Life {
        let config = self.config();
        let real = Environment::real(config.data_dir.clone());
        let metadata = Arc::new(Interrupted {
            inner: real.metadata.clone(),
            meanwhile: Mutex::new(Some(Box::new(meanwhile))),
        });
        let environment = Environment { metadata, ..real };
        self.try_start_in(config, environment).unwrap()
    }
}

#[async_trait]
impl Metadata for Interrupted {
    async fn look_ahead(&self, store: &Store) {
        self.inner.look_ahead(store).await;
    }

    async fn open(
        &self,
        store: &Store,
        cache_bytes: u64,
        sealing: Option<Sealing>,
    ) -> Result<Arc<dyn MetaStore>, StoreError> {
        // A reader has closed the metadata that it has read.
        let meanwhile = self.meanwhile.lock().unwrap().take();
        let meanwhile = meanwhile.expect("it is opened once");
        tokio::task::spawn_blocking(meanwhile).await.unwrap();
        self.inner.open(store, cache_bytes, sealing).await
    }

    async fn read(
        &self,
        store: &Store,
        sealing: Option<Sealing>,
    ) -> Result<Option<Arc<dyn MetaStore>>, StoreError> {
        self.inner.read(store, sealing).await
    }
}

struct Watched {
    inner: Arc<dyn Metadata>,
    reads: Arc<dyn Reads>,
}

struct WatchedStore {
    inner: Arc<dyn MetaStore>,
    reads: Arc<dyn Reads>,
}

#[async_trait]
impl Metadata for Watched {
    async fn look_ahead(&self, store: &Store) {
        self.inner.look_ahead(store).await;
    }

    async fn open(
        &self,
        store: &Store,
        cache_bytes: u64,
        sealing: Option<Sealing>,
    ) -> Result<Arc<dyn MetaStore>, StoreError> {
        Ok(Arc::new(WatchedStore {
            inner: self.inner.open(store, cache_bytes, sealing).await?,
            reads: self.reads.clone(),
        }))
    }

    async fn read(
        &self,
        store: &Store,
        sealing: Option<Sealing>,
    ) -> Result<Option<Arc<dyn MetaStore>>, StoreError> {
        self.inner.read(store, sealing).await
    }
}

#[async_trait]
impl MetaStore for WatchedStore {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let found = self.inner.get(key).await?;
        self.reads.got(key, found).await
    }

    async fn scan(
        &self,
        range: &KeyRange,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let found = self.inner.scan(range, limit).await?;
        self.reads.scanned(range).await?;
        Ok(found)
    }

    async fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.reads.commits(batch).await?;
        self.inner.commit(batch).await
    }

    async fn prove(&self) -> Result<(), StoreError> {
        self.inner.prove().await
    }

    fn is_merging(&self) -> bool {
        self.inner.is_merging()
    }

    async fn keep(&self, name: &str) -> Result<(), StoreError> {
        self.inner.keep(name).await
    }

    async fn release(&self, name: &str) -> Result<(), StoreError> {
        self.inner.release(name).await
    }

    async fn kept(&self) -> Result<BTreeSet<String>, StoreError> {
        self.inner.kept().await
    }

    async fn open_kept(&self, name: &str) -> Result<Option<Arc<dyn MetaStore>>, StoreError> {
        self.inner.open_kept(name).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}
