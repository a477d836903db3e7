//! The store in the bucket: SlateDB with its own log off, because the gateway has a log of its own.
//!
//! # What a commit costs and when it is durable
//!
//! A commit writes the batch into SlateDB's memtable as one piece and flushes the memtable: one PUT of a sorted table
//! and one conditional PUT of the next manifest. A table is part of the store once a manifest names it, and a batch is
//! never split over two tables, so a batch is stored whole or not at all, wherever a crash interrupts the commit.
//!
//! So the table of a batch whose packs are still on their way may be put at the same time as they are; only the
//! manifest waits until they have arrived (`BarrierStore`). Reads do not see a batch before its manifest is in the
//! bucket.
//!
//! # No requests while idle
//!
//! By default SlateDB polls the bucket all the time: the manifest once a second, the list of
//! compactions every five seconds, the garbage collector every minute. Here all of that is off:
//! there is one writer, so there is no news. The work that remains (merging tables, deleting
//! replaced ones) is done by the housekeeper after commits, until nothing is left to do; then it
//! stops. Tables replaced by the last merge before a volume becomes idle are deleted after the
//! first commit that follows the idle time.
//!
//! # When the bucket is unreachable
//!
//! SlateDB repeats failed requests without end, with up to a second between them. Calls here stop waiting after
//! [`SlateSettings::timeout`] and return [`StoreError::Transient`], while the flush continues in the background; the
//! repeated commit of the same batch does not write it again, it only continues to wait. So memory stays bounded, and
//! the store recovers by itself when the bucket is reachable again.
//!
//! # Damage in transit
//!
//! SlateDB's tables have checksums, and are tied to their names; all other objects have a checksum of this crate
//! (`ChecksummedStore`). An object that fails its checksum may have been damaged in transit, so reads are repeated up
//! to three times before the metadata are reported as damaged.
//!
//! # Sealed volumes
//!
//! With a [`Sealing`], everything is stored sealed (`SealedStore`), at the same number of requests: authentication tags
//! replace those checksums.
//!
//! # Memory
//!
//! At most [`SlateSettings::cache_bytes`] for blocks that were read, 64 MiB of batches that are not in the bucket yet
//! (and one batch more), and while tables are merged two of them that wait for the link, and a copy of each in flight:
//! some 32 MiB with a cache of up to 64 MiB, half of the cache up to 256 MiB, and 128 MiB above. Sealing takes 20 MiB more.

mod ahead;
mod answer;
mod barrier;
mod cache;
mod checksummed;
mod clock;
mod collector;
mod commit;
mod engine;
mod first_looks;
mod housekeeping;
mod kept;
mod neighbours;
mod no_log;
mod objects;
mod own;
mod pin;
mod presence;
mod reader;
mod rounds;
mod sealed;
mod seen;
mod still;
mod transplant;
mod unshared;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
pub use forebay_seal::Sealing;
use object_store::ObjectStore;
use object_store::path::Path;
use slatedb::config::{DurabilityLevel, ReadOptions, ScanOptions, SstBlockSize};
use slatedb::{CloseReason, Db, ErrorKind};
use tokio::sync::{Mutex, Notify};

use crate::batch::Batch;
use crate::error::StoreError;
use crate::key::KeyRange;
use crate::store::{CacheStatus, MetaStore, Ready};
use barrier::{Barrier, BarrierStore};
use cache::OpenCache;
use checksummed::{ChecksummedStore, Damaged};
use clock::VolumeClock;
use commit::Unflushed;
use engine::engine_settings;
use first_looks::FirstLooks;
use housekeeping::{Housekeeper, Upkeep, table_bytes};
use kept::Kept;
use no_log::NoLog;
use own::{Newest, OwnStore};
use presence::{NotingStore, Presence, Suspect};
use sealed::{Refused, SealedStore};
use seen::{PutBack, SeenStore};

#[cfg(feature = "fuzzing")]
pub(crate) use {checksummed::fuzzing as trailers, sealed::fuzzing as sealed_objects};

pub use ahead::Ahead;
pub use objects::{Condition, MetaObject, SlateObjects};
pub use reader::SlateReader;
pub use seen::Seen;
pub use transplant::{SlateFolder, StoredManifest};
pub use unshared::keys_that_may_differ;

/// Extension of the names of manifests.
const MANIFEST: &str = "manifest";

/// Longer than any gateway runs: SlateDB has no switch for its polling of the manifest.
const NEVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Number of unmerged tables at which commits wait. Merging begins far below it
/// ([`housekeeping::COMPACT_AT_TABLES`]), so it is reached only if commits come faster than merges
/// end, or if merges fail.
const MAX_TABLES: usize = 64;

/// Approximate size of an entry in a table: it determines how much one GET of a long scan fetches. SlateDB itself
/// fetches its blocks of 4 KiB one after the other, each in a round trip.
const ENTRY_BYTES: usize = 80;
/// Most bytes that a scan fetches with one GET, for each table.
const MAX_READ_AHEAD: usize = 256 << 10;

/// Block size of tables: the unit that a cold lookup fetches. A quarter as many blocks as with SlateDB's default of 4
/// KiB need a quarter of the memory for indexes, and listing a cold directory with its attributes takes a quarter of
/// the requests.
const BLOCK_SIZE: SstBlockSize = SstBlockSize::Block16Kib;

/// How many times an object that arrives damaged is read.
const READS: u32 = 4;
/// Pause before the next read, times the number of tries. No other process has the same trouble at the same time, so
/// there is no jitter.
const READ_AGAIN: Duration = Duration::from_millis(50);

/// Limits of a [`SlateStore`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlateSettings {
    /// Memory for blocks of metadata that were read, in bytes. Default 32 MiB.
    pub cache_bytes: u64,
    /// How long a call waits for the bucket before it fails as [`StoreError::Transient`]. Default
    /// 30 s.
    pub timeout: Duration,
    /// How long replaced objects stay in the bucket at least, so that a read that began before can end;
    /// also the shortest time between two collections of them. Not shorter than `timeout`. Default 60 s.
    pub retention: Duration,
}

impl Default for SlateSettings {
    fn default() -> Self {
        SlateSettings {
            cache_bytes: 32 << 20,
            timeout: Duration::from_secs(30),
            retention: Duration::from_secs(60),
        }
    }
}

/// A [`MetaStore`] in a bucket. Dropping it also ends its work in the background, a little later
/// than [`close`](MetaStore::close) does.
pub struct SlateStore {
    db: Db,
    timeout: Duration,
    /// The batch that SlateDB has taken and that is not known to be in the bucket. Locked during a
    /// commit: one commit at a time.
    unflushed: Mutex<Option<Unflushed>>,
    /// The signals that manifests wait for.
    barrier: Barrier,
    /// Notified when a commit has ended, or waits for a merge.
    changed: Arc<Notify>,
    housekeeper: Housekeeper,
    presence: Presence,
    newest: Newest,
    kept: Kept,
    cache: Option<OpenCache>,
    /// Of the tables at the opening. None without a cache.
    first_looks: FirstLooks,
}

impl SlateStore {
    /// Opens the store of a volume that is not sealed under `path` and fences those opened before; creates it if it
    /// does not exist. Must be called within a tokio runtime, which runs its background work from then on.
    ///
    /// Needs of `store`: conditional PUTs that create and (by If-Match) update, multipart uploads, ranged GETs,
    /// listing, and user metadata of objects.
    pub async fn open(
        store: Arc<dyn ObjectStore>,
        path: Path,
        settings: SlateSettings,
    ) -> Result<SlateStore, StoreError> {
        SlateStore::open_with(store, path, settings, None, |store| store).await
    }

    /// Like [`open`](SlateStore::open), for a volume that is sealed if there is a `sealing`. Then an object that is not
    /// sealed is [`StoreError::Corrupt`], and one that was sealed with a data key which is not among the keys is
    /// [`StoreError::Fatal`]. Tables are merged and deleted through the store that `merging` makes of this one.
    pub async fn open_with(
        store: Arc<dyn ObjectStore>,
        path: Path,
        settings: SlateSettings,
        sealing: Option<Sealing>,
        merging: impl FnOnce(Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore>,
    ) -> Result<SlateStore, StoreError> {
        SlateStore::open_after(store, path, settings, sealing, merging, None).await
    }

    /// Like [`open_with`](SlateStore::open_with), after a reader of the same store has `seen` its state: what that one has
    /// read is not asked for again, as far as that is safe.
    pub async fn open_after(
        store: Arc<dyn ObjectStore>,
        path: Path,
        settings: SlateSettings,
        sealing: Option<Sealing>,
        merging: impl FnOnce(Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore>,
        seen: Option<Seen>,
    ) -> Result<SlateStore, StoreError> {
        let suspect = Suspect::default();
        let newest = Newest::default();
        let presence = Presence::new(store.clone(), path.clone(), suspect.clone(), newest.clone());
        let store = Arc::new(NotingStore::new(store, suspect.clone()));
        let store = verified(store, &path, sealing);
        let retention = settings.retention.max(settings.timeout);
        let clock = Arc::new(VolumeClock::default());
        let barrier = Barrier::open();
        let giving = Arc::new(SeenStore::giving(store.clone(), path.clone(), seen));
        let own = Arc::new(OwnStore::new(giving.clone(), newest.clone()));
        let ordered = BarrierStore::new(own, barrier.clone());
        let builder = Db::builder(path.clone(), Arc::new(ordered))
            .with_settings(engine_settings())
            .with_system_clock(clock.clone())
            .with_wal_writer(Box::new(NoLog))
            .with_sst_block_size(BLOCK_SIZE);
        let cache = OpenCache::new(settings.cache_bytes);
        let builder = match &cache {
            // SlateDB warns about a cache of size zero.
            None => builder.with_db_cache_disabled(),
            Some(cache) => cache.serve(builder),
        };
        let db = within(settings.timeout, builder.build()).await?;
        giving.end_opening();
        let (kept_store, kept_path) = (store.clone(), path.clone());
        let kept = Kept::of_open_store(kept_store, kept_path, settings.timeout, cache.as_ref());
        let first_looks = match &cache {
            Some(cache) => FirstLooks::new(&db.manifest(), cache.first_look_bytes()),
            None => FirstLooks::none(),
        };
        clock.follow(&db);
        let changed = Arc::new(Notify::new());
        let housekeeper = Housekeeper::start(
            db.clone(),
            clock,
            merging(store),
            path,
            Upkeep {
                retention,
                table_bytes: table_bytes(settings.cache_bytes),
            },
            Arc::clone(&changed),
            (suspect, newest.clone()),
        );
        Ok(SlateStore {
            db,
            timeout: settings.timeout,
            unflushed: Mutex::new(None),
            barrier,
            changed,
            housekeeper,
            presence,
            newest,
            kept,
            cache,
            first_looks,
        })
    }

    /// Number of tables that have not been merged yet, and of merged runs: a read may have to look in each of them.
    pub fn tables(&self) -> (usize, usize) {
        let manifest = self.db.manifest();
        (manifest.l0().len(), manifest.compacted().len())
    }

    async fn read<T, F>(&self, ask: impl FnMut() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, slatedb::Error>>,
    {
        read_again(self.timeout, ask).await
    }
}

/// The store as SlateDB sees it: reads return what was written, or fail.
fn verified(
    store: Arc<dyn ObjectStore>,
    path: &Path,
    sealing: Option<Sealing>,
) -> Arc<dyn ObjectStore> {
    match sealing {
        None => Arc::new(ChecksummedStore::new(store)),
        Some(sealing) => Arc::new(SealedStore::new(store, path.clone(), sealing)),
    }
}

/// Reads, and repeats a read of data that arrive damaged, unless the store below has repeated it already.
async fn read_again<T, F>(timeout: Duration, mut ask: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, slatedb::Error>>,
{
    let mut attempt = 1;
    loop {
        let mut was_repeated = false;
        let answer = async {
            let answer = ask().await;
            answer.inspect_err(|error| {
                was_repeated = sources(error).any(|source| source.is::<Refused>());
            })
        };
        match within(timeout, answer).await {
            // A missing table may have been merged and deleted while it was read.
            Err(StoreError::Corrupt(why) | StoreError::Gone(why))
                if attempt < READS && !was_repeated =>
            {
                tracing::warn!("{why}; it is read again");
                tokio::time::sleep(READ_AGAIN * attempt).await;
            }
            result => return result,
        }
        attempt += 1;
    }
}

/// Options for a scan of at most `limit` entries, one or more.
fn scan_options(limit: usize) -> ScanOptions {
    let ahead = limit.saturating_mul(ENTRY_BYTES).min(MAX_READ_AHEAD);
    ScanOptions::default()
        .with_read_ahead_bytes(ahead)
        .with_durability_filter(DurabilityLevel::Remote)
}

/// Reads only data in the bucket, and nothing of a batch that is on its way there.
fn read_options() -> ReadOptions {
    ReadOptions::default().with_durability_filter(DurabilityLevel::Remote)
}

#[async_trait]
impl MetaStore for SlateStore {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let options = read_options();
        let get = || {
            let get = self.db.get_with_options(key, &options);
            self.first_looks.with_key(&self.db, key, get)
        };
        self.read(get).await
    }

    async fn scan(
        &self,
        range: &KeyRange,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        if range.is_empty() || limit == 0 {
            return Ok(Vec::new());
        }
        let options = scan_options(limit).with_cache_blocks(true);
        let scan = || async {
            let mut found = Vec::new();
            let mut entries = self.db.scan_with_options(range.bounds(), &options).await?;
            while found.len() < limit {
                let Some(entry) = entries.next().await? else {
                    break;
                };
                found.push((entry.key, entry.value));
            }
            Ok(found)
        };
        let scan = || self.first_looks.with_scan(&self.db, range, scan());
        self.read(scan).await
    }

    async fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.commit_when(batch, &Ready::now()).await
    }

    async fn commit_when(&self, batch: &Batch, ready: &Ready) -> Result<(), StoreError> {
        self.commit_one(batch, ready).await
    }

    fn is_merging(&self) -> bool {
        self.tables().0 >= MAX_TABLES
    }

    async fn prove(&self) -> Result<(), StoreError> {
        self.presence.prove(&self.db, self.timeout).await
    }

    async fn keep(&self, name: &str) -> Result<(), StoreError> {
        // No batch is on its way.
        let _idle = self.unflushed.lock().await;
        self.kept.keep(&self.db, name).await
    }

    async fn release(&self, name: &str) -> Result<(), StoreError> {
        let released = self.kept.release(name).await;
        // It has added a manifest, also if its answer was lost.
        self.newest.forget();
        released?;
        self.changed.notify_one();
        Ok(())
    }

    async fn kept(&self) -> Result<BTreeSet<String>, StoreError> {
        self.kept.names().await
    }

    async fn open_kept(&self, name: &str) -> Result<Option<Arc<dyn MetaStore>>, StoreError> {
        let reader = self.kept.open(&self.db, name).await?;
        Ok(reader.map(|reader| Arc::new(reader) as Arc<dyn MetaStore>))
    }

    fn cache(&self) -> Option<CacheStatus> {
        self.cache.as_ref().map(OpenCache::status)
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.housekeeper.stop(self.timeout).await
    }
}

/// Waits for `call`, at most for `timeout`.
async fn within<T>(
    timeout: Duration,
    call: impl Future<Output = Result<T, slatedb::Error>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(timeout, call).await {
        Ok(result) => result.map_err(|error| sorted(&error)),
        Err(_) => Err(StoreError::Transient(format!(
            "no answer within {} s",
            timeout.as_secs_f32()
        ))),
    }
}

/// Sorts an error of SlateDB by what the caller can do about it.
fn sorted(error: &slatedb::Error) -> StoreError {
    let corrupt = || {
        StoreError::Corrupt(format!(
            "the metadata in the bucket is damaged ({error}); use an undamaged copy of the bucket"
        ))
    };
    if let Some(refused) = sources(error).find_map(|source| source.downcast_ref::<Refused>()) {
        return match refused.unknown_key() {
            Some(_) => StoreError::Fatal(refused.to_string()),
            None => corrupt(),
        };
    }
    if let Some(damaged) = sources(error).find_map(|source| source.downcast_ref::<Damaged>()) {
        return match damaged.is_earlier() {
            true => StoreError::Fatal(damaged.to_string()),
            false => corrupt(),
        };
    }
    if let Some(put_back) = sources(error).find_map(|source| source.downcast_ref::<PutBack>()) {
        return StoreError::Fatal(put_back.to_string());
    }
    if let Some(path) = sources(error).find_map(missing) {
        return StoreError::Gone(format!(
            "{path}, of the volume's metadata, is gone from the bucket"
        ));
    }
    match error.kind() {
        ErrorKind::Closed(CloseReason::Fenced) => StoreError::Fenced,
        ErrorKind::Closed(CloseReason::Clean) => StoreError::Fatal("it is closed".into()),
        ErrorKind::Unavailable | ErrorKind::Transaction => StoreError::Transient(error.to_string()),
        ErrorKind::Data => corrupt(),
        _ => StoreError::Fatal(error.to_string()),
    }
}

/// The location of the object that the bucket does not have, if that is the error.
fn missing<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a str> {
    let shared = error.downcast_ref::<Arc<object_store::Error>>();
    let error = shared.map(Arc::as_ref).or(error.downcast_ref())?;
    match error {
        object_store::Error::NotFound { path, .. } => Some(path),
        _ => None,
    }
}

/// Whether the error means that an object differs from what was written there.
fn is_damage(error: &(dyn std::error::Error + 'static)) -> bool {
    sources(error).any(|source| {
        let refused = source.downcast_ref::<Refused>();
        source.is::<Damaged>() || refused.is_some_and(|refused| refused.unknown_key().is_none())
    })
}

/// The error and its chain of sources.
fn sources<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

#[cfg(test)]
mod tests;
