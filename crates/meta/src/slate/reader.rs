//! The store in the bucket, for reading only: nobody is fenced.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use object_store::ObjectStore;
use object_store::path::Path;
use slatedb::config::{DbReaderOptions, ScanOptions};
use slatedb::{DbReader, DbReaderMode};

use super::pin::Pin;
use super::still::StillStore;
use super::{MANIFEST, NEVER, Sealing, read_again, scan_options, verified, within};
use crate::batch::Batch;
use crate::error::StoreError;
use crate::key::KeyRange;
use crate::store::MetaStore;

/// What a walk through everything asks for with one GET, of each table.
const WALK_READ_AHEAD: usize = 1 << 20;
/// How many of these are under way at a time, of each table.
const WALK_FETCHES: usize = 2;

/// A [`MetaStore`] that reads what the bucket holds at the moment of opening, while a gateway may
/// be writing it.
///
/// What that gateway merges and deletes meanwhile (not before
/// [`retention`](super::SlateSettings::retention) is over) makes calls of an
/// [opened](SlateReader::open) reader fail: open it again. A [pinned](SlateReader::open_pinned) one has a note in
/// the bucket for as long as it lives, which keeps gateways from deleting what it reads.
pub struct SlateReader {
    reader: DbReader,
    timeout: Duration,
    pin: Option<Pin>,
}

impl SlateReader {
    /// Opens the store of a volume that is not sealed under `path`, which must be there. Not one object is written.
    /// Calls give up waiting for the bucket after `timeout`.
    pub async fn open(
        store: Arc<dyn ObjectStore>,
        path: Path,
        timeout: Duration,
    ) -> Result<SlateReader, StoreError> {
        SlateReader::open_with(store, path, timeout, None).await
    }

    /// The same of a volume that is sealed if there is a `sealing`, as of
    /// [`SlateStore::open_with`](super::SlateStore::open_with).
    pub async fn open_with(
        store: Arc<dyn ObjectStore>,
        path: Path,
        timeout: Duration,
        sealing: Option<Sealing>,
    ) -> Result<SlateReader, StoreError> {
        let store = Arc::new(StillStore::new(verified(store, &path, sealing)));
        let reader = build(store, path, DbReaderMode::FollowLatest, timeout).await?;
        Ok(SlateReader {
            reader,
            timeout,
            pin: None,
        })
    }

    /// The same, or nothing where there is none: nobody has written there, or all manifests were deleted.
    pub async fn find(
        store: Arc<dyn ObjectStore>,
        path: Path,
        timeout: Duration,
        sealing: Option<Sealing>,
    ) -> Result<Option<SlateReader>, StoreError> {
        let opened = SlateReader::open_with(store.clone(), path.clone(), timeout, sealing).await;
        if let Err(StoreError::Corrupt(_) | StoreError::Gone(_)) = opened
            && has_no_manifest(&*store, &path, timeout).await
        {
            return Ok(None);
        }
        opened.map(Some)
    }

    /// The same as [`open`](SlateReader::open), with a note in the store's manifest that keeps what is read from being
    /// deleted. The note counts for `lifetime`, and is renewed until the reader is closed or dropped;
    /// [`close`](MetaStore::close) takes it back, and one that was left behind counts for nothing when its time is over.
    ///
    /// It is written by a conditional PUT of the next manifest, as the gateway's merges are: a gateway that is writing
    /// reads the manifest again and goes on.
    pub async fn open_pinned(
        store: Arc<dyn ObjectStore>,
        path: Path,
        timeout: Duration,
        lifetime: Duration,
    ) -> Result<SlateReader, StoreError> {
        SlateReader::open_pinned_with(store, path, timeout, lifetime, None).await
    }

    /// The same of a volume that is sealed if there is a `sealing`. The note is sealed as well.
    pub async fn open_pinned_with(
        store: Arc<dyn ObjectStore>,
        path: Path,
        timeout: Duration,
        lifetime: Duration,
        sealing: Option<Sealing>,
    ) -> Result<SlateReader, StoreError> {
        let store = verified(store, &path, sealing);
        let pin = Pin::set(store.clone(), path.clone(), timeout, lifetime).await?;
        match build(store, path, pin.mode(), timeout).await {
            Ok(reader) => Ok(SlateReader {
                reader,
                timeout,
                pin: Some(pin),
            }),
            Err(error) => {
                pin.release().await;
                Err(error)
            }
        }
    }

    /// Whether nothing that it reads was deleted so far, as far as it knows: it has a note, and that could be renewed
    /// in time.
    pub fn is_held(&self) -> bool {
        self.pin.as_ref().is_some_and(Pin::holds)
    }

    /// The same, asked of the bucket now: what a read that failed may have been up against.
    pub async fn is_still_held(&self) -> bool {
        match &self.pin {
            Some(pin) => pin.holds() && pin.renew().await.is_ok(),
            None => false,
        }
    }

    /// Keys and values in `range`, ascending: those that come first, at most `entries`, and no further one when they
    /// have `bytes` bytes. Nothing at all means that the range has no more. For walks through everything:
    /// it reads far ahead.
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
        read_again(self.timeout, scan).await
    }
}

async fn build(
    store: Arc<dyn ObjectStore>,
    path: Path,
    mode: DbReaderMode,
    timeout: Duration,
) -> Result<DbReader, StoreError> {
    let options = DbReaderOptions {
        // One view to the end.
        manifest_poll_interval: NEVER,
        // The store's own log is off.
        skip_wal_replay: true,
        ..DbReaderOptions::default()
    };
    let build = DbReader::builder(path, store)
        .with_reader_mode(mode)
        .with_options(options)
        .build();
    within(timeout, build).await
}

/// SlateDB says the same of one that is damaged.
async fn has_no_manifest(store: &dyn ObjectStore, path: &Path, timeout: Duration) -> bool {
    let manifests = path.clone().join(MANIFEST);
    let mut listed = store.list(Some(&manifests));
    matches!(tokio::time::timeout(timeout, listed.next()).await, Ok(None))
}

#[async_trait]
impl MetaStore for SlateReader {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        read_again(self.timeout, || self.reader.get(key)).await
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

    async fn close(&self) -> Result<(), StoreError> {
        let closed = within(self.timeout, self.reader.close()).await;
        if let Some(pin) = &self.pin {
            pin.release().await;
        }
        closed
    }
}
