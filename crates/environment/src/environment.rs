//! What a volume runs on beside the bucket: clock, chance, the gateway's local folder, the store of
//! its metadata.
//!
//! Everything that differs from one run to the next comes in through [`Environment`], so that a
//! simulation can decide it: with a seed, at every step, as often as it likes.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use forebay_meta::{MetaStore, Sealing, SlateReader, SlateSettings, SlateStore, StoreError};
use forebay_object::Store;
use forebay_vfs::Timestamp;

use crate::background;
use crate::disk_folder::DiskFolder;
use crate::folder::LocalFolder;

/// Name of the metadata under the volume's prefix.
pub const META_PREFIX: &str = "meta";

/// What a volume runs on.
#[derive(Clone)]
pub struct Environment {
    /// The time of day.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub random: Arc<dyn Randomness>,
    /// The gateway's local folder.
    pub local: Arc<dyn LocalFolder>,
    /// Where the metadata are.
    pub metadata: Arc<dyn Metadata>,
    /// Where work is done that takes the processor for milliseconds.
    pub compute: Compute,
}

/// Gives the time of day.
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// Gives numbers that nobody can guess.
pub trait Randomness: Send + Sync + 'static {
    /// Fills `bytes`.
    fn fill(&self, bytes: &mut [u8]);
}

/// Opens the metadata of a volume.
#[async_trait]
pub trait Metadata: Send + Sync + 'static {
    /// Opens them for writing, which fences everybody who opened them before. `cache_bytes` may be
    /// kept in memory of what was read. With a `sealing`, all that is stored is sealed.
    async fn open(
        &self,
        store: &Store,
        cache_bytes: u64,
        sealing: Option<Sealing>,
    ) -> Result<Arc<dyn MetaStore>, StoreError>;

    /// Opens them for reading, as they are at this moment; nothing if there are none. Nobody is fenced, and nothing in
    /// the bucket changes.
    async fn read(
        &self,
        store: &Store,
        sealing: Option<Sealing>,
    ) -> Result<Option<Arc<dyn MetaStore>>, StoreError>;
}

/// Where work is done that takes the processor for milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compute {
    /// In threads beside those of the runtime: what somebody waits for in those for what blocks, what nobody
    /// waits for in a few nicer ones.
    Threads,
    /// Where it comes up, for simulations that are to run the same way again.
    InPlace,
}

impl Compute {
    /// Does `work`; `Err` if it panicked in its thread.
    pub async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, tokio::task::JoinError> {
        match self {
            Compute::Threads => tokio::task::spawn_blocking(work).await,
            Compute::InPlace => Ok(work()),
        }
    }

    /// Does `work` that no caller waits for; `Err` if it panicked in its thread.
    ///
    /// It may outlive the volume, so it holds parts of it and never the whole: that would keep the log locked.
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
    /// The real one: the system's clock and random numbers, SlateDB in the volume's own
    /// bucket, and `folder` on the local disk.
    pub fn real(folder: PathBuf) -> Environment {
        Environment {
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandomness),
            local: Arc::new(DiskFolder::new(folder)),
            metadata: Arc::new(SlateMetadata),
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
        // A clock before 1970 is set wrong; the epoch itself is as good an answer.
        let since = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp {
            seconds: since.as_secs() as i64,
            nanos: since.subsec_nanos(),
        }
    }
}

/// The system's random numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandomness;

impl Randomness for SystemRandomness {
    fn fill(&self, bytes: &mut [u8]) {
        // The system's generator fails only where there is none; nothing could be opened safely there.
        getrandom::fill(bytes).expect("the system gives random bytes");
    }
}

/// SlateDB under the volume's own prefix.
struct SlateMetadata;

#[async_trait]
impl Metadata for SlateMetadata {
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
        let opened = SlateStore::open_with(store.store.clone(), path, settings, sealing).await?;
        Ok(Arc::new(opened))
    }

    async fn read(
        &self,
        store: &Store,
        sealing: Option<Sealing>,
    ) -> Result<Option<Arc<dyn MetaStore>>, StoreError> {
        let timeout = SlateSettings::default().timeout;
        let path = store.path(META_PREFIX);
        let found = SlateReader::find(store.store.clone(), path, timeout, sealing).await?;
        Ok(found.map(|reader| Arc::new(reader) as Arc<dyn MetaStore>))
    }
}
