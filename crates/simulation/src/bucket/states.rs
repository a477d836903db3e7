//! The metadata as clones and restores of a whole volume copy them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_clones::states::{Place, States};
use forebay_meta::{Batch, MemoryStore, MetaStore, StoreError};

use super::metadata::add;
use super::{MANIFEST, MetaBucket, Metadata, Prefix};
use crate::world::Step;

fn prefix(at: &Place) -> Prefix {
    Prefix::of(at.store.root.as_ref()).0
}

fn frozen(entries: BTreeMap<Bytes, Bytes>) -> Arc<dyn MetaStore> {
    Arc::new(MemoryStore::of(entries))
}

impl MetaBucket {
    fn look<T>(&self, at: &Place, look: impl FnOnce(&Metadata) -> T) -> T {
        let prefix = prefix(at);
        self.0
            .bucket(|bucket| look(bucket.image.metadata_at(prefix)))
    }
}

#[async_trait]
impl States for MetaBucket {
    async fn newest(&self, at: &Place) -> Result<Arc<dyn MetaStore>, StoreError> {
        self.0.travel().await;
        Ok(frozen(self.look(at, |metadata| metadata.entries.clone())))
    }

    async fn kept(&self, at: &Place, name: &str) -> Result<Option<Arc<dyn MetaStore>>, StoreError> {
        self.0.travel().await;
        let kept = self.look(at, |metadata| metadata.kept.get(name).cloned());
        Ok(kept.map(frozen))
    }

    async fn open(&self, at: &Place) -> Result<Arc<dyn MetaStore>, StoreError> {
        forebay_fs::Metadata::open(self, &at.store, 0, None).await
    }

    async fn check(&self, at: &Place, name: &str) -> Result<(), StoreError> {
        match self.look(at, |metadata| metadata.kept.contains_key(name)) {
            true => Ok(()),
            false => Err(StoreError::Gone(format!("{name} is not kept"))),
        }
    }

    async fn begin(
        &self,
        (from, name): (&Place, &str),
        to: &Place,
        batches: &[Batch],
    ) -> Result<bool, StoreError> {
        let Some(kept) = self.look(from, |metadata| metadata.kept.get(name).cloned()) else {
            return Ok(false);
        };
        self.0.travel().await;
        self.0.step(Step::CommitMetadata);
        let prefix = prefix(to);
        let is_first = self.0.bucket(|bucket| {
            let objects = bucket.objects(prefix);
            let is_first = objects.insert(MANIFEST.to_owned(), Bytes::new()).is_none();
            if is_first {
                *bucket.metadata(prefix) = Metadata {
                    entries: kept,
                    ..Metadata::default()
                };
            }
            is_first
        });
        self.0.step(Step::CommittedMetadata);
        if !is_first {
            return Ok(false);
        }
        for batch in batches {
            self.0.travel().await;
            self.0.step(Step::CommitMetadata);
            self.0
                .bucket(|bucket| add(&mut bucket.metadata(prefix).entries, batch));
            self.0.step(Step::CommittedMetadata);
        }
        Ok(true)
    }

    async fn number(&self, at: &Place) -> Result<Option<u64>, StoreError> {
        self.0.travel().await;
        Ok(Some(self.look(at, |metadata| metadata.changes)))
    }

    async fn replace(
        &self,
        at: &Place,
        name: &str,
        batches: &[Batch],
        number: u64,
    ) -> Result<bool, StoreError> {
        let Some(mut entries) = self.look(at, |metadata| metadata.kept.get(name).cloned()) else {
            return Ok(false);
        };
        for batch in batches {
            add(&mut entries, batch);
        }
        self.0.travel().await;
        self.0.step(Step::ReplaceMetadata);
        let prefix = prefix(at);
        let is_next = self.0.bucket(|bucket| {
            let metadata = bucket.metadata(prefix);
            let is_next = metadata.changes == number;
            if is_next {
                metadata.fence();
                metadata.entries = entries;
            }
            is_next
        });
        self.0.step(Step::ReplacedMetadata);
        Ok(is_next)
    }

    async fn tables(&self, _at: &Place) -> Result<BTreeSet<String>, StoreError> {
        // They are no objects here.
        Ok(BTreeSet::new())
    }
}
