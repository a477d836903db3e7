//! The volume's own metadata store, which can be made unreachable: as if the bucket had not answered for 30 s, but
//! without waiting that long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_fs::Metadata;
use forebay_meta::{Batch, KeyRange, MetaStore, Sealing, StoreError};
use forebay_object::Store;

/// Opens the real store, in a wrapper.
pub(crate) struct Reach {
    pub(crate) real: Arc<dyn Metadata>,
    /// Whether nothing can be read.
    pub(crate) away: Arc<AtomicBool>,
}

#[async_trait]
impl Metadata for Reach {
    async fn look_ahead(&self, store: &Store) {
        self.real.look_ahead(store).await;
    }

    async fn open(
        &self,
        store: &Store,
        cache_bytes: u64,
        sealing: Option<Sealing>,
    ) -> Result<Arc<dyn MetaStore>, StoreError> {
        Ok(Arc::new(Reached {
            real: self.real.open(store, cache_bytes, sealing).await?,
            away: self.away.clone(),
        }))
    }

    async fn read(
        &self,
        store: &Store,
        sealing: Option<Sealing>,
    ) -> Result<Option<Arc<dyn MetaStore>>, StoreError> {
        self.real.read(store, sealing).await
    }
}

struct Reached {
    real: Arc<dyn MetaStore>,
    away: Arc<AtomicBool>,
}

impl Reached {
    fn check(&self) -> Result<(), StoreError> {
        match self.away.load(Ordering::Relaxed) {
            true => Err(StoreError::Transient("the bucket does not answer".into())),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl MetaStore for Reached {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.check()?;
        self.real.get(key).await
    }

    async fn scan(
        &self,
        range: &KeyRange,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        self.check()?;
        self.real.scan(range, limit).await
    }

    async fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.real.commit(batch).await
    }

    async fn prove(&self) -> Result<(), StoreError> {
        self.real.prove().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.real.close().await
    }
}
