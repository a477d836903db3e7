//! The environment of a volume, beside the bucket: clock, random numbers, the gateway's local folder, the store of
//! its metadata.
//!
//! Everything that differs from one run to the next comes in through [`Environment`], so that a simulation can
//! determine it: from a seed, at every step, and repeatably.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use forebay_meta::{
    Ahead, MetaStore, Sealing, Seen, SlateReader, SlateSettings, SlateStore, StoreError,
};
use forebay_object::{Cause, CausedStore, Store};
use forebay_vfs::Timestamp;
use object_store::ObjectStore;
use parking_lot::Mutex;

use crate::background;
use crate::disk_folder::DiskFolder;
use crate::folder::LocalFolder;

/// Name of the metadata under the volume's prefix.
pub const META_PREFIX: &str = "meta";

/// The environment of a volume.
#[derive(Clone)]
pub struct Environment {
    /// The time of day.
    pub clock: Arc<dyn Clock>,
    /// Random numbers.
    pub random: Arc<dyn Randomness>,
    /// The gateway's local folder.
    pub local: Arc<dyn LocalFolder>,
    /// The store of the metadata.
    pub metadata: Arc<dyn Metadata>,
    /// Where work runs that takes the processor for milliseconds.
    pub compute: Compute,
}

/// A source of the time of day.
pub trait Clock: Send + Sync + 'static {
    /// The current time.
    fn now(&self) -> Timestamp;
}

/// A source of unpredictable random numbers.
pub trait Randomness: Send + Sync + 'static {
    /// Fills `bytes` with random bytes.
    fn fill(&self, bytes: &mut [u8]);
}

/// Opens the metadata of a volume.
#[async_trait]
pub trait Metadata: Send + Sync + 'static {
    /// Asks the bucket for what the next [`read`](Metadata::read) or [`open`](Metadata::open) begins with. That needs no keys, so
    /// it can be under way while the keys are read. It changes nothing; if it fails, the call that follows asks itself.
    async fn look_ahead(&self, _store: &Store) {}

    /// Opens them for writing, which fences every gateway that opened them before. At most `cache_bytes` of the data
    /// that is read are kept in memory. With a `sealing`, everything that is stored is sealed.
    async fn open(
        &self,
        store: &Store,
        cache_bytes: u64,
        sealing: Option<Sealing>,
    ) -> Result<Arc<dyn MetaStore>, StoreError>;

    /// Opens them for reading, as they are now; `None` if there are none. Fences no gateway and changes nothing in
    /// the bucket.
    async fn read(
        &self,
        store: &Store,
        sealing: Option<Sealing>,
    ) -> Result<Option<Arc<dyn MetaStore>>, StoreError>;
}

/// Where work runs that takes the processor for milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compute {
    /// In threads beside those of the runtime: work that a task waits for in the runtime's threads for blocking work,
    /// other work in a few threads of lower priority.
    Threads,
    /// In the calling thread, for repeatable simulations.
    InPlace,
}

impl Compute {
    /// Runs `work`; `Err` if it panicked in its thread.
    pub async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, tokio::task::JoinError> {
        match self {
            Compute::Threads => tokio::task::spawn_blocking(work).await,
            Compute::InPlace => Ok(work()),
        }
    }

    /// Runs `work` that no caller waits for; `Err` if it panicked in its thread.
    ///
    /// It may outlive the volume, so it must hold parts of the volume and never the whole: that would keep the log
    /// locked.
    pub async fn run_in_background<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, background::Ended> {
        match self {
            Compute::Threads => background::run(work).await,
            Compute::InPlace => Ok(work()),
        }
    }
}

impl Environment {
    /// The real environment: the system's clock and random numbers, SlateDB in the volume's own bucket, and `folder`
    /// on the local disk.
    pub fn real(folder: PathBuf) -> Environment {
        Environment {
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandomness),
            local: Arc::new(DiskFolder::new(folder)),
            metadata: Arc::new(SlateMetadata::default()),
            compute: Compute::Threads,
        }
    }
}

/// Random bytes.
pub fn draw<const N: usize>(random: &dyn Randomness) -> [u8; N] {
    let mut bytes = [0; N];
    random.fill(&mut bytes);
    bytes
}

/// A number from 0 up to, but not including, 1.
pub fn fraction(random: &dyn Randomness) -> f64 {
    f64::from(u32::from_le_bytes(draw(random))) / (f64::from(u32::MAX) + 1.0)
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        // A clock before 1970 is set wrong; 1970 is as good an answer.
        let since = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp {
            seconds: since.as_secs().cast_signed(),
            nanos: since.subsec_nanos(),
        }
    }
}

/// The system's random numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandomness;

impl Randomness for SystemRandomness {
    fn fill(&self, bytes: &mut [u8]) {
        // The system's generator fails only if it does not exist; then nothing could be opened safely.
        getrandom::fill(bytes).expect("the system gives random bytes");
    }
}

/// SlateDB under the volume's own prefix.
#[derive(Default)]
struct SlateMetadata {
    /// What was read last and where, for the opening for writing that follows.
    seen: Mutex<Option<(String, Seen)>>,
    /// What was read ahead and where, for the reading or the opening that follows.
    ahead: Mutex<Option<(String, Ahead)>>,
}

impl SlateMetadata {
    fn take_ahead(&self, store: &Store) -> Option<Ahead> {
        let ahead = self.ahead.lock().take();
        let ahead = ahead.filter(|ahead| ahead.0 == place(store));
        ahead.map(|ahead| ahead.1)
    }
}

/// The place of a volume.
fn place(store: &Store) -> String {
    format!("{} {}", store.url, store.root)
}

/// The store, with the cause of requests for metadata.
fn metadata(store: &Store) -> Arc<dyn ObjectStore> {
    let inner = store.store.clone();
    Arc::new(CausedStore::new(inner, Cause::Metadata, |cause| {
        matches!(cause, Cause::Merge | Cause::Heal)
    }))
}

/// The store through which metadata are merged.
fn merging(store: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
    Arc::new(CausedStore::new(store, Cause::Merge, |_| false))
}

#[async_trait]
impl Metadata for SlateMetadata {
    async fn look_ahead(&self, store: &Store) {
        let ahead = Ahead::read(&*metadata(store), &store.path(META_PREFIX)).await;
        *self.ahead.lock() = ahead.map(|ahead| (place(store), ahead));
    }

    async fn open(
        &self,
        store: &Store,
        cache_bytes: u64,
        sealing: Option<Sealing>,
    ) -> Result<Arc<dyn MetaStore>, StoreError> {
        let settings = SlateSettings {
            cache_bytes,
            ..SlateSettings::default()
        };
        let path = store.path(META_PREFIX);
        let seen = self.seen.lock().take();
        let seen = seen
            .filter(|seen| seen.0 == place(store))
            .map(|seen| seen.1);
        let ahead = self.take_ahead(store);
        let seen = seen.or_else(|| ahead?.seen());
        let store = metadata(store);
        let opened = SlateStore::open_after(store, path, settings, sealing, merging, seen).await?;
        Ok(Arc::new(opened))
    }

    async fn read(
        &self,
        store: &Store,
        sealing: Option<Sealing>,
    ) -> Result<Option<Arc<dyn MetaStore>>, StoreError> {
        // If this fails, nothing was read last.
        *self.seen.lock() = None;
        let timeout = SlateSettings::default().timeout;
        let path = store.path(META_PREFIX);
        let ahead = self.take_ahead(store);
        let found = SlateReader::find_first(metadata(store), path, timeout, sealing, ahead).await?;
        Ok(found.map(|(reader, seen)| {
            *self.seen.lock() = Some((place(store), seen));
            Arc::new(reader) as Arc<dyn MetaStore>
        }))
    }
}
