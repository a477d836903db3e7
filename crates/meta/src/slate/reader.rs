//! The store in the bucket, for reading only: it fences no gateway.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use object_store::ObjectStore;
use object_store::path::Path;
use slatedb::config::{DbReaderOptions, ScanOptions};
use slatedb::manifest::SsTableHandle;
use slatedb::{DbReader, DbReaderBuilder, DbReaderMode};

use super::ahead::{Ahead, AheadStore};
use super::cache::{Cache, INDEX_CACHE_BYTES};
use super::first_looks::FirstLooks;
use super::kept::Kept;
use super::pin::Pin;
use super::seen::{Seen, SeenStore};
use super::still::StillStore;
use super::{MANIFEST, NEVER, Sealing, read_again, scan_options, verified, within};
use crate::batch::Batch;
use crate::error::StoreError;
use crate::key::KeyRange;
use crate::store::MetaStore;

/// Bytes that a walk through all entries fetches with one GET, for each table.
const WALK_READ_AHEAD: usize = 1 << 20;
/// Number of such fetches in flight, for each table.
const WALK_FETCHES: usize = 2;

/// A [`MetaStore`] that reads the state of the bucket at the moment of opening, while a gateway may be writing it.
///
/// Merges and deletions by that gateway meanwhile (not before [`retention`](super::SlateSettings::retention) is over)
/// make calls of an [opened](SlateReader::open) reader fail: open it again. A [pinned](SlateReader::open_pinned) one
/// has a note in the bucket while it exists, which keeps gateways from deleting the objects that it reads.
pub struct SlateReader {
    reader: DbReader,
    /// Through which its objects are read, and where they are.
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) path: Path,
    pub(super) timeout: Duration,
    pin: Option<Pin>,
    /// For readers that someone waits for.
    first_looks: FirstLooks,
}

impl SlateReader {
    /// Opens the store of a volume that is not sealed under `path`; the store must exist. It writes no object. Calls
    /// stop waiting for the bucket after `timeout`.
    pub async fn open(
        store: Arc<dyn ObjectStore>,
        path: Path,
        timeout: Duration,
    ) -> Result<SlateReader, StoreError> {
        SlateReader::open_with(store, path, timeout, None).await
    }

    /// Like [`open`](SlateReader::open), for a volume that is sealed if there is a `sealing`, as in
    /// [`SlateStore::open_with`](super::SlateStore::open_with).
    pub async fn open_with(
        store: Arc<dyn ObjectStore>,
        path: Path,
        timeout: Duration,
        sealing: Option<Sealing>,
    ) -> Result<SlateReader, StoreError> {
        let store = StillStore::new(verified(store, &path, sealing));
        SlateReader::build(store, path, timeout, Some(Cache::of_reader())).await
    }

    /// Opens the state of the manifest with this number, through a store whose objects are [verified](super::verified). It
    /// uses the cache of an open store, if that has one.
    pub(super) async fn open_at(
        store: Arc<dyn ObjectStore>,
        path: Path,
        manifest: u64,
        timeout: Duration,
        cache: Option<Cache>,
    ) -> Result<SlateReader, StoreError> {
        let store = StillStore::at(store, &path, manifest);
        SlateReader::build(store, path, timeout, cache).await
    }

    /// Opens the latest state in `store`.
    async fn build(
        store: StillStore,
        path: Path,
        timeout: Duration,
        cache: Option<Cache>,
    ) -> Result<SlateReader, StoreError> {
        let store: Arc<dyn ObjectStore> = Arc::new(store);
        let builder = builder(store.clone(), path.clone(), DbReaderMode::FollowLatest);
        let builder = match cache {
            Some(cache) => cache.serve(builder),
            None => builder.with_db_cache_disabled(),
        };
        Ok(SlateReader {
            reader: within(timeout, builder.build()).await?,
            store,
            path,
            timeout,
            pin: None,
            first_looks: FirstLooks::none(),
        })
    }

    /// Looks into all tables that may have a key at the same time, when a key is asked for: fewer round trips for more requests.
    /// It must have a cache, which has `room` for the bytes that are read for one key.
    pub(super) fn with_first_looks(self, room: u64) -> SlateReader {
        let first_looks = FirstLooks::new(&self.reader.manifest(), room);
        SlateReader {
            first_looks,
            ..self
        }
    }

    /// Opens the state that a gateway [keeps](MetaStore::keep) under `name`; `None` if there is none. It writes no object.
    pub async fn open_kept(
        store: Arc<dyn ObjectStore>,
        path: Path,
        name: &str,
        timeout: Duration,
        sealing: Option<Sealing>,
    ) -> Result<Option<SlateReader>, StoreError> {
        let store = verified(store, &path, sealing);
        let kept = Kept::new(store, path, timeout, Some(Cache::of_reader()));
        kept.open_listed(name).await
    }

    /// The same, or `None` if there is no store: nothing was written yet, or all manifests were deleted.
    pub async fn find(
        store: Arc<dyn ObjectStore>,
        path: Path,
        timeout: Duration,
        sealing: Option<Sealing>,
    ) -> Result<Option<SlateReader>, StoreError> {
        let found = SlateReader::find_first(store, path, timeout, sealing, None).await?;
        Ok(found.map(|(reader, _)| reader))
    }

    /// Like [`find`](SlateReader::find), with what it sees from then on, for an opening for writing that follows
    /// ([`SlateStore::open_after`](super::SlateStore::open_after)). It does not ask for what was read `ahead` of it.
    pub async fn find_first(
        store: Arc<dyn ObjectStore>,
        path: Path,
        timeout: Duration,
        sealing: Option<Sealing>,
        ahead: Option<Ahead>,
    ) -> Result<Option<(SlateReader, Seen)>, StoreError> {
        let seen = Seen::default();
        let answering = Arc::new(AheadStore::new(store.clone(), ahead));
        let verified = verified(answering, &path, sealing);
        let noting = Arc::new(SeenStore::noting(verified, path.clone(), seen.clone()));
        let still = StillStore::new(noting);
        let opened =
            SlateReader::build(still, path.clone(), timeout, Some(Cache::of_reader())).await;
        if let Err(StoreError::Corrupt(_) | StoreError::Gone(_)) = opened
            && has_no_manifest(&*store, &path, timeout).await
        {
            return Ok(None);
        }
        let mut reader = opened?;
        // An opening looks for the state of the volume, which each commit writes. Index and filter at the same time save a round
        // trip, and the opening for writing asks for the same parts.
        let newest = FirstLooks::in_the_newest(&reader.reader.manifest(), INDEX_CACHE_BYTES);
        reader.first_looks = newest;
        Ok(Some((reader, seen)))
    }

    /// Like [`open`](SlateReader::open), with a note in the store's manifest that keeps the objects that it reads from
    /// being deleted. The note is valid for `lifetime`, and is renewed until the reader is closed or dropped;
    /// [`close`](MetaStore::close) removes it, and a note that was left behind expires.
    ///
    /// It is written by a conditional PUT of the next manifest, as the gateway's merges are: a gateway that is writing
    /// reads the manifest again and continues.
    pub async fn open_pinned(
        store: Arc<dyn ObjectStore>,
        path: Path,
        timeout: Duration,
        lifetime: Duration,
    ) -> Result<SlateReader, StoreError> {
        SlateReader::open_pinned_with(store, path, timeout, lifetime, None).await
    }

    /// Like [`open_pinned`](SlateReader::open_pinned), for a volume that is sealed if there is a
    /// `sealing`. The note is sealed as well.
    pub async fn open_pinned_with(
        store: Arc<dyn ObjectStore>,
        path: Path,
        timeout: Duration,
        lifetime: Duration,
        sealing: Option<Sealing>,
    ) -> Result<SlateReader, StoreError> {
        let store = verified(store, &path, sealing);
        let pin = Pin::set(store.clone(), path.clone(), timeout, lifetime).await?;
        match build(store.clone(), path.clone(), pin.mode(), timeout).await {
            Ok(reader) => Ok(SlateReader {
                reader,
                store,
                path,
                timeout,
                pin: Some(pin),
                first_looks: FirstLooks::none(),
            }),
            Err(error) => {
                pin.release().await;
                Err(error)
            }
        }
    }

    /// Whether nothing that it reads was deleted so far, as far as it knows: it has a note, which was always renewed in
    /// time.
    pub fn is_held(&self) -> bool {
        self.pin.as_ref().is_some_and(Pin::holds)
    }

    /// The same, after asking the bucket now: for finding out why a read failed.
    pub async fn is_still_held(&self) -> bool {
        match &self.pin {
            Some(pin) => pin.holds() && pin.renew().await.is_ok(),
            None => false,
        }
    }

    /// The tables of the state, unmerged and merged.
    pub(super) fn tables(&self) -> Vec<SsTableHandle> {
        let manifest = self.reader.manifest();
        let views = manifest.all_sst_views();
        views.map(|view| view.sst.clone()).collect()
    }

    /// The first keys and values in `range`, ascending: at most `entries`, and none after the one that makes them reach
    /// `bytes` bytes. An empty result means that the range has no more. For walks through all entries: it reads far
    /// ahead.
    pub async fn page(
        &self,
        range: &KeyRange,
        entries: usize,
        bytes: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let options = ScanOptions::default()
            .with_read_ahead_bytes(WALK_READ_AHEAD)
            .with_max_fetch_tasks(WALK_FETCHES);
        self.collect(range, &options, entries, bytes).await
    }

    async fn collect(
        &self,
        range: &KeyRange,
        options: &ScanOptions,
        entries: usize,
        bytes: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        if range.is_empty() || entries == 0 {
            return Ok(Vec::new());
        }
        let scan = || async {
            let (mut found, mut taken) = (Vec::new(), 0);
            let mut rest = self
                .reader
                .scan_with_options(range.bounds(), options)
                .await?;
            while found.len() < entries && taken < bytes {
                let Some(entry) = rest.next().await? else {
                    break;
                };
                taken += entry.key.len() + entry.value.len();
                found.push((entry.key, entry.value));
            }
            Ok(found)
        };
        let scan = || self.first_looks.with_scan(&self.reader, range, scan());
        read_again(self.timeout, scan).await
    }
}

pub(super) async fn build(
    store: Arc<dyn ObjectStore>,
    path: Path,
    mode: DbReaderMode,
    timeout: Duration,
) -> Result<DbReader, StoreError> {
    within(timeout, builder(store, path, mode).build()).await
}

fn builder(store: Arc<dyn ObjectStore>, path: Path, mode: DbReaderMode) -> DbReaderBuilder<Path> {
    let options = DbReaderOptions {
        // One view until the end.
        manifest_poll_interval: NEVER,
        // The store's own log is off.
        skip_wal_replay: true,
        ..DbReaderOptions::default()
    };
    DbReader::builder(path, store)
        .with_reader_mode(mode)
        .with_options(options)
}

/// Whether there is no manifest. SlateDB reports a damaged one in the same way.
async fn has_no_manifest(store: &dyn ObjectStore, path: &Path, timeout: Duration) -> bool {
    let manifests = path.clone().join(MANIFEST);
    let mut listed = store.list(Some(&manifests));
    matches!(tokio::time::timeout(timeout, listed.next()).await, Ok(None))
}

#[async_trait]
impl MetaStore for SlateReader {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let get = || {
            let get = self.reader.get(key);
            self.first_looks.with_key(&self.reader, key, get)
        };
        read_again(self.timeout, get).await
    }

    async fn scan(
        &self,
        range: &KeyRange,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        self.collect(range, &scan_options(limit), limit, usize::MAX)
            .await
    }

    async fn commit(&self, _batch: &Batch) -> Result<(), StoreError> {
        Err(StoreError::Fatal(
            "the metadata are open for reading only".into(),
        ))
    }

    async fn prove(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// The first keys of tables.
    fn divisions(&self) -> Vec<Bytes> {
        let tables = self.tables().into_iter();
        tables.filter_map(|table| table.info.first_entry).collect()
    }

    async fn close(&self) -> Result<(), StoreError> {
        let closed = within(self.timeout, self.reader.close()).await;
        if let Some(pin) = &self.pin {
            pin.release().await;
        }
        closed
    }
}
