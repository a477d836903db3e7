//! A metadata store in memory, for tests and for volumes that do not need a bucket.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

use crate::batch::{Batch, Entry};
use crate::error::StoreError;
use crate::key::KeyRange;
use crate::store::MetaStore;

/// The contents that outlive a [`MemoryStore`], as a bucket outlives the store in it.
#[derive(Clone, Debug, Default)]
pub struct MemoryBucket(Arc<Mutex<Contents>>);

#[derive(Debug, Default)]
struct Contents {
    entries: BTreeMap<Bytes, Bytes>,
    /// Earlier states that are kept, by their names.
    kept: BTreeMap<String, BTreeMap<Bytes, Bytes>>,
    /// Number of stores opened so far; the newest one may write.
    epoch: u64,
}

/// A [`MetaStore`] in memory. A store that a newer one on the same bucket has fenced may only read.
#[derive(Debug)]
pub struct MemoryStore {
    bucket: MemoryBucket,
    epoch: u64,
    closed: std::sync::atomic::AtomicBool,
}

impl MemoryStore {
    /// Opens the store in `bucket` and fences those opened before.
    pub fn open(bucket: &MemoryBucket) -> MemoryStore {
        let mut contents = bucket.0.lock();
        contents.epoch += 1;
        MemoryStore {
            bucket: bucket.clone(),
            epoch: contents.epoch,
            closed: Default::default(),
        }
    }

    /// An empty store with a bucket of its own.
    pub fn new() -> MemoryStore {
        MemoryStore::open(&MemoryBucket::default())
    }

    /// A store with these entries and a bucket of its own.
    pub fn of(entries: BTreeMap<Bytes, Bytes>) -> MemoryStore {
        let contents = Contents {
            entries,
            ..Contents::default()
        };
        MemoryStore::open(&MemoryBucket(Arc::new(Mutex::new(contents))))
    }

    fn check_open(&self) -> Result<(), StoreError> {
        if self.closed.load(std::sync::atomic::Ordering::Acquire) {
            return Err(StoreError::Fatal("it is closed".into()));
        }
        Ok(())
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::new()
    }
}

#[async_trait]
impl MetaStore for MemoryStore {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.check_open()?;
        Ok(self.bucket.0.lock().entries.get(key).cloned())
    }

    async fn scan(
        &self,
        range: &KeyRange,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        self.check_open()?;
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let contents = self.bucket.0.lock();
        let found = contents.entries.range(range.bounds()).take(limit);
        Ok(found
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect())
    }

    async fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.check_open()?;
        let mut contents = self.bucket.0.lock();
        if contents.epoch != self.epoch {
            return Err(StoreError::Fenced);
        }
        for (key, entry) in batch.changes() {
            match entry {
                Entry::Value(value) => contents.entries.insert(key.clone(), value.clone()),
                Entry::Deleted => contents.entries.remove(key),
            };
        }
        Ok(())
    }

    async fn prove(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn keep(&self, name: &str) -> Result<(), StoreError> {
        self.check_open()?;
        let mut contents = self.bucket.0.lock();
        if contents.epoch != self.epoch {
            return Err(StoreError::Fenced);
        }
        let entries = contents.entries.clone();
        contents.kept.entry(name.to_owned()).or_insert(entries);
        Ok(())
    }

    async fn release(&self, name: &str) -> Result<(), StoreError> {
        self.check_open()?;
        let mut contents = self.bucket.0.lock();
        if contents.epoch != self.epoch {
            return Err(StoreError::Fenced);
        }
        contents.kept.remove(name);
        Ok(())
    }

    async fn kept(&self) -> Result<BTreeSet<String>, StoreError> {
        self.check_open()?;
        Ok(self.bucket.0.lock().kept.keys().cloned().collect())
    }

    async fn open_kept(&self, name: &str) -> Result<Option<Arc<dyn MetaStore>>, StoreError> {
        self.check_open()?;
        let contents = self.bucket.0.lock();
        let kept = contents.kept.get(name).cloned();
        Ok(kept.map(|entries| Arc::new(MemoryStore::of(entries)) as Arc<dyn MetaStore>))
    }

    /// Pieces of eight entries.
    fn divisions(&self) -> Vec<Bytes> {
        let contents = self.bucket.0.lock();
        contents.entries.keys().step_by(8).cloned().collect()
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.closed
            .store(true, std::sync::atomic::Ordering::Release);
        Ok(())
    }
}
