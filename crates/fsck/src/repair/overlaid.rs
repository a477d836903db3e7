//! Metadata with changes over them: the state that a plan would make of the moment that it began with.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as MapEntry;
use std::ops::Bound;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_meta::{Batch, Entry, KeyRange, StoreError};
use parking_lot::Mutex;

use crate::source::Source;

/// A moment and the changes since, read as one.
pub(crate) struct Overlaid {
    below: Arc<dyn Source>,
    changes: Mutex<BTreeMap<Bytes, Entry>>,
}

impl Overlaid {
    pub(crate) fn new(below: Arc<dyn Source>) -> Overlaid {
        Overlaid {
            below,
            changes: Mutex::default(),
        }
    }

    /// Applies the changes of a batch.
    pub(crate) fn apply(&self, batch: &Batch) {
        let mut changes = self.changes.lock();
        changes.extend(batch.changes().iter().cloned());
    }

    /// Applies one change.
    pub(super) fn set(&self, key: Bytes, entry: Entry) {
        self.changes.lock().insert(key, entry);
    }

    fn changed(&self, range: &KeyRange) -> BTreeMap<Bytes, Entry> {
        if range.is_empty() {
            return BTreeMap::new();
        }
        let end = match range.end.is_empty() {
            true => Bound::Unbounded,
            false => Bound::Excluded(range.end.clone()),
        };
        let changes = self.changes.lock();
        let within = changes.range((Bound::Included(range.start.clone()), end));
        within
            .map(|(key, entry)| (key.clone(), entry.clone()))
            .collect()
    }
}

#[async_trait]
impl Source for Overlaid {
    async fn page(
        &self,
        range: &KeyRange,
        entries: usize,
        bytes: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let mut rest = range.clone();
        loop {
            let below = self.below.page(&rest, entries, bytes).await?;
            let last = below.last().map(|(key, _)| key.clone());
            // Entries behind the page are not read yet.
            let seen = match &last {
                Some(last) => rest.up_to(last),
                None => rest.clone(),
            };
            let mut merged = self.changed(&seen);
            for (key, value) in below {
                if let MapEntry::Vacant(place) = merged.entry(key) {
                    place.insert(Entry::Value(value));
                }
            }
            let merged = merged.into_iter();
            let found: Vec<_> = merged
                .filter_map(|(key, entry)| Some((key, entry.value()?)))
                .collect();
            match last {
                // The whole page is deleted: that is not the end.
                Some(last) if found.is_empty() => rest = rest.after(&last),
                _ => return Ok(found),
            }
        }
    }

    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let changed = self.changes.lock().get(key).cloned();
        match changed {
            Some(entry) => Ok(entry.value()),
            None => self.below.get(key).await,
        }
    }
}
