//! The target of a repair: the bucket, or, for a plan, memory over it.

use std::sync::Arc;

use async_trait::async_trait;
use forebay_meta::{Batch, MetaStore, SlateReader, SlateSettings, SlateStore, StoreError};
use parking_lot::Mutex;

use super::{Overlaid, Target};
use crate::check::open;
use crate::source::{InBucket, Past, Source, patiently};

/// A plan: its changes stay in memory.
pub(super) struct Plan {
    place: Arc<InBucket>,
    moment: Arc<SlateReader>,
    changed: Arc<Overlaid>,
}

impl Plan {
    pub(super) async fn open(place: Arc<InBucket>) -> Result<Plan, StoreError> {
        let moment = open(&place, true).await?;
        let changed = Arc::new(Overlaid::new(moment.clone()));
        Ok(Plan {
            place,
            moment,
            changed,
        })
    }

    pub(super) async fn close(&self) {
        close(&self.moment).await;
    }
}

#[async_trait]
impl Target for Plan {
    async fn moment(&self) -> Result<Arc<dyn Source>, StoreError> {
        Ok(self.changed.clone())
    }

    fn past(&self) -> Option<Arc<dyn Past>> {
        Some(self.place.clone())
    }

    async fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.changed.apply(batch);
        Ok(())
    }
}

/// A repair of the bucket.
pub(super) struct Deed {
    place: Arc<InBucket>,
    /// Open for writing, which no other process is.
    metadata: SlateStore,
    /// The moment that was read last.
    moment: Mutex<Option<Arc<SlateReader>>>,
}

impl Deed {
    pub(super) async fn open(place: Arc<InBucket>) -> Result<Deed, StoreError> {
        let open = || {
            let (store, path) = (place.store.clone(), place.path.clone());
            let settings = SlateSettings::default();
            SlateStore::open_with(store, path, settings, place.sealing.clone(), |store| store)
        };
        Ok(Deed {
            metadata: patiently(open).await?,
            place,
            moment: Mutex::new(None),
        })
    }

    pub(super) async fn close(&self) {
        let moment = self.moment.lock().take();
        if let Some(moment) = moment {
            close(&moment).await;
        }
        if let Err(error) = self.metadata.close().await {
            tracing::debug!(%error, "closing the metadata");
        }
    }
}

#[async_trait]
impl Target for Deed {
    async fn moment(&self) -> Result<Arc<dyn Source>, StoreError> {
        let moment = open(&self.place, true).await?;
        let before = self.moment.lock().replace(moment.clone());
        if let Some(before) = before {
            close(&before).await;
        }
        Ok(moment)
    }

    fn past(&self) -> Option<Arc<dyn Past>> {
        Some(self.place.clone())
    }

    async fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        patiently(|| self.metadata.commit(batch)).await
    }
}

pub(super) async fn close(moment: &SlateReader) {
    if let Err(error) = moment.close().await {
        tracing::debug!(%error, "closing a published state of the metadata");
    }
}
