//! The source of metadata: one moment of them, read in large pages.

use std::sync::Arc;
use std::time::Duration;
use std::vec;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_meta::record::{Record, kept_name};
use forebay_meta::{
    Corrupt, Key, KeyRange, MetaStore, Sealing, SlateReader, StoreError, keys_that_may_differ,
};
use forebay_types::{SnapshotId, VolumeId};
use object_store::ObjectStore;
use object_store::path::Path;
use tokio::task::JoinHandle;

use crate::finding::{Finding, Sink};
use crate::progress::Progress;

/// Entries and bytes of a page; the next page is fetched while one is judged. A block map has 150 KB at most.
const PAGE_ENTRIES: usize = 32 << 10;
const PAGE_BYTES: usize = 4 << 20;

/// How long one request for metadata may take.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// Attempts for each call that the bucket does not answer.
const ATTEMPTS: u32 = 5;
/// Pause before the next attempt, times the number of attempts.
const PAUSE: Duration = Duration::from_secs(2);

/// The published metadata, always of the same moment.
#[async_trait]
pub(crate) trait Source: Send + Sync {
    /// The first entries of a range, in order; empty if the range has no more.
    async fn page(
        &self,
        range: &KeyRange,
        entries: usize,
        bytes: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError>;

    /// The value under a key.
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError>;
}

#[async_trait]
impl Source for SlateReader {
    async fn page(
        &self,
        range: &KeyRange,
        entries: usize,
        bytes: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        patiently(|| SlateReader::page(self, range, entries, bytes)).await
    }

    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        patiently(|| MetaStore::get(self, key)).await
    }
}

/// Source of newer moments than the one that is checked.
#[async_trait]
pub(crate) trait Newest: Send + Sync {
    /// The newest metadata.
    async fn newest(&self) -> Result<Arc<dyn Source>, StoreError>;
}

/// One moment of the metadata.
#[derive(Clone)]
pub(crate) struct Moment {
    pub(crate) source: Arc<dyn Source>,
    /// The same, where its tables are known: tables that two moments have need no comparison.
    tables: Option<Arc<SlateReader>>,
}

impl Moment {
    /// A moment whose tables are known.
    pub(crate) fn of(reader: Arc<SlateReader>) -> Moment {
        Moment {
            source: reader.clone(),
            tables: Some(reader),
        }
    }

    /// A moment that is compared as a whole.
    pub(crate) fn whole(source: Arc<dyn Source>) -> Moment {
        Moment {
            source,
            tables: None,
        }
    }

    /// Ends reading a state that was opened for itself.
    pub(crate) async fn close(&self) {
        if let Some(reader) = &self.tables
            && let Err(error) = MetaStore::close(&**reader).await
        {
            tracing::debug!(%error, "closing the state of a snapshot");
        }
    }

    /// The keys that `is_wanted` and that may have different values in the other moment, ascending; `None` if both
    /// have to be read as a whole.
    pub(crate) async fn may_differ(
        &self,
        other: &Moment,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Option<Vec<Bytes>> {
        let (one, other) = (self.tables.as_ref()?, other.tables.as_ref()?);
        match keys_that_may_differ(one, other, is_wanted).await {
            Ok(keys) => keys,
            // Reading both finds out which of them is damaged.
            Err(error) => {
                tracing::debug!(%error, "looking for what differs");
                None
            }
        }
    }
}

/// The states of snapshots.
#[async_trait]
pub(crate) trait Past: Send + Sync {
    /// The state of a snapshot; `None` if it is not kept.
    async fn state(&self, snapshot: SnapshotId) -> Result<Option<Moment>, StoreError>;
}

/// The metadata of a volume in its bucket.
pub(crate) struct InBucket {
    /// The volume.
    pub(crate) volume: VolumeId,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) path: Path,
    pub(crate) sealing: Option<Sealing>,
}

impl InBucket {
    /// Opens the newest moment, for reading.
    pub(crate) async fn open(&self) -> Result<SlateReader, StoreError> {
        let open = || {
            let (store, path) = (self.store.clone(), self.path.clone());
            SlateReader::open_with(store, path, TIMEOUT, self.sealing.clone())
        };
        patiently(open).await
    }
}

#[async_trait]
impl Newest for InBucket {
    async fn newest(&self) -> Result<Arc<dyn Source>, StoreError> {
        Ok(Arc::new(self.open().await?))
    }
}

#[async_trait]
impl Past for InBucket {
    async fn state(&self, snapshot: SnapshotId) -> Result<Option<Moment>, StoreError> {
        let name = kept_name(snapshot);
        let open = || {
            let (store, path) = (self.store.clone(), self.path.clone());
            SlateReader::open_kept(store, path, &name, TIMEOUT, self.sealing.clone())
        };
        let kept = patiently(open).await?;
        Ok(kept.map(|reader| Moment::of(Arc::new(reader))))
    }
}

/// Repeats a call while the bucket does not answer.
pub(crate) async fn patiently<T, F>(mut ask: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut attempt = 1;
    loop {
        match ask().await {
            Err(StoreError::Transient(why)) if attempt < ATTEMPTS => {
                tracing::warn!("{why}; trying again");
                tokio::time::sleep(PAUSE * attempt).await;
            }
            answer => return answer,
        }
        attempt += 1;
    }
}

type Page = Result<Vec<(Bytes, Bytes)>, StoreError>;

/// Reads a range entry by entry.
pub(crate) struct Cursor {
    source: Arc<dyn Source>,
    rest: KeyRange,
    page: vec::IntoIter<(Bytes, Bytes)>,
    /// The next page, in flight.
    coming: Option<JoinHandle<Page>>,
    progress: Option<Arc<Progress>>,
}

impl Drop for Cursor {
    fn drop(&mut self) {
        if let Some(coming) = &self.coming {
            coming.abort();
        }
    }
}

impl Cursor {
    pub(crate) fn new(source: &Arc<dyn Source>, range: KeyRange) -> Cursor {
        let mut cursor = Cursor {
            source: source.clone(),
            rest: range,
            page: Vec::new().into_iter(),
            coming: None,
            progress: None,
        };
        cursor.order();
        cursor
    }

    /// Counts each entry in `progress`.
    pub(crate) fn counting(self, progress: &Arc<Progress>) -> Cursor {
        let mut counting = self;
        counting.progress = Some(progress.clone());
        counting
    }

    /// The next entry.
    pub(crate) async fn next(&mut self) -> Result<Option<(Bytes, Bytes)>, StoreError> {
        loop {
            if let Some(entry) = self.page.next() {
                if let Some(progress) = &self.progress {
                    progress.add(1);
                }
                return Ok(Some(entry));
            }
            let Some(coming) = &mut self.coming else {
                return Ok(None);
            };
            let page = coming.await;
            self.coming = None;
            let page = page.map_err(|error| StoreError::Fatal(error.to_string()))??;
            if let Some((last, _)) = page.last() {
                self.rest = self.rest.after(last);
                self.order();
            }
            self.page = page.into_iter();
        }
    }

    /// The next record with its key. A fault is reported to `sink`; if only the key can be read, it comes without a
    /// record.
    pub(crate) async fn record<R: Record>(
        &mut self,
        sink: &mut dyn Sink,
    ) -> Result<Option<(Key, Option<R>)>, StoreError> {
        while let Some((key, value)) = self.next().await? {
            let record = or_report(R::decode(&key, &value), sink);
            if let Some(key) = or_report(Key::decode(&key), sink) {
                return Ok(Some((key, record)));
            }
        }
        Ok(None)
    }

    fn order(&mut self) {
        let (source, range) = (self.source.clone(), self.rest.clone());
        self.coming = Some(tokio::spawn(async move {
            source.page(&range, PAGE_ENTRIES, PAGE_BYTES).await
        }));
    }
}

/// The value; `None` after reporting its fault.
pub(crate) fn or_report<T>(read: Result<T, Corrupt>, sink: &mut dyn Sink) -> Option<T> {
    match read {
        Ok(value) => Some(value),
        Err(Corrupt { key, why }) => {
            sink.found(Finding::DamagedRecord { key, why });
            None
        }
    }
}
