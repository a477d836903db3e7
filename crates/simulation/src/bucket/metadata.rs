//! The metadata as the product accesses them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_fs::Metadata;
use forebay_meta::{Batch, Entry, KeyRange, MemoryStore, MetaStore, Sealing, StoreError};
use forebay_object::Store;

use super::{Fate, NO_ANSWER, Prefix};
use crate::world::{Step, World};

/// Opens the metadata in a world's bucket.
pub(crate) struct MetaBucket(pub(crate) World);

#[async_trait]
impl Metadata for MetaBucket {
    async fn open(
        &self,
        store: &Store,
        _cache_bytes: u64,
        _sealing: Option<Sealing>,
    ) -> Result<Arc<dyn MetaStore>, StoreError> {
        self.0.travel().await;
        let (prefix, _) = Prefix::of(store.root.as_ref());
        let epoch = self.0.bucket(|bucket| {
            if bucket.fate(false) == Fate::Fails {
                return Err(StoreError::Transient(NO_ANSWER.into()));
            }
            let metadata = bucket.metadata(prefix);
            metadata.fence();
            Ok(metadata.epoch)
        })?;
        self.0.step(Step::OpenedMetadata);
        Ok(Arc::new(Opened {
            world: self.0.clone(),
            prefix,
            epoch: Some(epoch),
            closed: AtomicBool::new(false),
        }))
    }

    async fn read(
        &self,
        store: &Store,
        _sealing: Option<Sealing>,
    ) -> Result<Option<Arc<dyn MetaStore>>, StoreError> {
        self.0.travel().await;
        let opened = Opened {
            world: self.0.clone(),
            prefix: Prefix::of(store.root.as_ref()).0,
            epoch: None,
            closed: AtomicBool::new(false),
        };
        opened.check()?;
        Ok(Some(Arc::new(opened)))
    }
}

/// Makes the changes of a batch.
pub(super) fn add(entries: &mut BTreeMap<Bytes, Bytes>, batch: &Batch) {
    for (key, entry) in batch.changes() {
        match entry {
            Entry::Value(value) => entries.insert(key.clone(), value.clone()),
            Entry::Deleted => entries.remove(key),
        };
    }
}

struct Opened {
    world: World,
    prefix: Prefix,
    /// The epoch taken by opening them for writing.
    epoch: Option<u64>,
    closed: AtomicBool,
}

impl Opened {
    /// Reads the entries: for a writer that was fenced, those of that moment.
    fn entries<T>(&self, read: impl FnOnce(&BTreeMap<Bytes, Bytes>) -> T) -> T {
        self.world.bucket(|bucket| {
            let metadata = bucket.image.metadata_at(self.prefix);
            let is_fenced = self.epoch.is_some_and(|epoch| epoch != metadata.epoch);
            match metadata.former.as_deref().filter(|_| is_fenced) {
                Some(former) => read(former),
                None => read(&metadata.entries),
            }
        })
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(StoreError::Fatal("it is closed".into()));
        }
        match self.world.bucket(|bucket| bucket.fate(false)) {
            Fate::Fails => Err(StoreError::Transient(NO_ANSWER.into())),
            Fate::Works | Fate::Ghost => Ok(()),
        }
    }
}

impl Opened {
    /// Changes the metadata as one step.
    async fn change(
        &self,
        change: impl FnOnce(&mut super::Metadata) + Send,
    ) -> Result<(), StoreError> {
        self.world.travel().await;
        self.world.step(Step::CommitMetadata);
        if self.closed.load(Ordering::Acquire) {
            return Err(StoreError::Fatal("it is closed".into()));
        }
        let fate = self.world.bucket(|bucket| {
            let fate = bucket.fate(true);
            if fate == Fate::Fails {
                return Ok(fate);
            }
            if Some(bucket.image.metadata_at(self.prefix).epoch) != self.epoch {
                return Err(StoreError::Fenced);
            }
            let metadata = bucket.metadata(self.prefix);
            metadata.changes += 1;
            change(metadata);
            Ok(fate)
        })?;
        self.world.step(Step::CommittedMetadata);
        self.world.travel().await;
        match fate {
            Fate::Works => Ok(()),
            Fate::Fails | Fate::Ghost => Err(StoreError::Transient(NO_ANSWER.into())),
        }
    }
}

#[async_trait]
impl MetaStore for Opened {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.world.travel().await;
        self.check()?;
        Ok(self.entries(|entries| entries.get(key).cloned()))
    }

    async fn scan(
        &self,
        range: &KeyRange,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        self.world.travel().await;
        self.check()?;
        if range.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.entries(|entries| {
            let found = entries
                .range(range.start.clone()..)
                .take_while(|(key, _)| range.contains(key))
                .take(limit);
            found
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        }))
    }

    async fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.change(|metadata| add(&mut metadata.entries, batch))
            .await
    }

    async fn prove(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn keep(&self, name: &str) -> Result<(), StoreError> {
        self.change(|metadata| {
            let entries = metadata.entries.clone();
            metadata.kept.entry(name.to_owned()).or_insert(entries);
        })
        .await
    }

    async fn release(&self, name: &str) -> Result<(), StoreError> {
        self.change(|metadata| drop(metadata.kept.remove(name)))
            .await
    }

    async fn kept(&self) -> Result<BTreeSet<String>, StoreError> {
        self.world.travel().await;
        self.check()?;
        let names = |bucket: &mut super::Bucket| {
            let metadata = bucket.image.metadata_at(self.prefix);
            metadata.kept.keys().cloned().collect()
        };
        Ok(self.world.bucket(names))
    }

    async fn open_kept(&self, name: &str) -> Result<Option<Arc<dyn MetaStore>>, StoreError> {
        self.world.travel().await;
        self.check()?;
        let kept = |bucket: &mut super::Bucket| {
            let metadata = bucket.image.metadata_at(self.prefix);
            metadata.kept.get(name).cloned()
        };
        Ok(self.world.bucket(kept).map(|entries| {
            let kept = MemoryStore::of(entries);
            Arc::new(kept) as Arc<dyn MetaStore>
        }))
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.closed.store(true, Ordering::Release);
        Ok(())
    }
}
