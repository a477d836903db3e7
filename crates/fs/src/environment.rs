//! What a volume runs on beside the bucket: clock, chance, the gateway's local folder, the store of
//! its metadata.
//!
//! Everything that differs from one run to the next comes in through [`Environment`], so that a
//! simulation can decide it: with a seed, at every step, as often as it likes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use forebay_meta::{MetaStore, Sealing, SlateReader, SlateSettings, SlateStore, StoreError};
use forebay_object::Store;
use forebay_vfs::Timestamp;
use forebay_wal::{FileStorage, Options, Recovery, Storage, Wal};

use crate::FsConfig;
use crate::background;
use crate::local::StateFile;

/// Folder of the log in the local folder.
pub(crate) const LOG_FOLDER: &str = "log";

/// Folder of the disk cache in the local folder.
const CACHE_FOLDER: &str = "cache";

/// The mark in the local folder.
const MARK_FILE: &str = "published";

/// Where the note about a log is that was put aside in the folder `log`.
pub(crate) fn note_path(log: &Path, label: &str) -> PathBuf {
    log.join(format!("{label}.note"))
}

/// Name of the metadata under the volume's prefix.
pub(crate) const META_PREFIX: &str = "meta";

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

/// A folder on the gateway's own disk: a state file and the log.
pub trait LocalFolder: Send + Sync + 'static {
    /// The folder's name, for messages.
    fn path(&self) -> &Path;

    /// Makes the folder if it is missing, and locks the log in it against a second gateway for as
    /// long as what it gives lives.
    fn log(&self) -> io::Result<Arc<dyn Storage>>;

    /// The content of the state file; `None` if there is none.
    fn load_state(&self) -> io::Result<Option<Vec<u8>>>;

    /// Replaces the state file as a whole: after a crash it holds either the old content or the new
    /// one. The new one is on stable storage when this returns.
    fn replace_state(&self, content: &[u8]) -> io::Result<()>;

    /// The mark: what [`set_mark`](Self::set_mark) was last told; `None` if that was never.
    fn mark(&self) -> io::Result<Option<Vec<u8>>>;

    /// Replaces the mark, a line that always has the same length. After a crash it holds the old
    /// line, the new one, or a mixture: nothing but the exactness of a salvage depends on it.
    fn set_mark(&self, line: &[u8]) -> io::Result<()>;

    /// Writes a note beside the log that was put aside under `label`.
    fn write_note(&self, label: &str, text: &[u8]) -> io::Result<()>;

    /// The id that the kernel drew when it booted: as long as it is the same, nothing that was
    /// written is lost, flushed or not. Zeros where that is not known.
    fn boot_id(&self) -> [u8; 16];

    /// Where a disk cache may be, which does not exist yet or is from an earlier run; `None` if there can be none.
    fn disk_cache(&self) -> Option<PathBuf> {
        None
    }

    /// Goes on with a recovered log.
    fn start_log(
        &self,
        recovery: Recovery,
        options: Options,
    ) -> Result<Wal, forebay_wal::OpenError> {
        recovery.into_wal(options)
    }
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
    pub(crate) async fn run<T: Send + 'static>(
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
    pub(crate) async fn run_in_background<T: Send + 'static>(
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

    pub(crate) fn of(config: &FsConfig) -> Environment {
        Environment::real(config.data_dir.clone())
    }
}

/// Random bytes.
pub(crate) fn draw<const N: usize>(random: &dyn Randomness) -> [u8; N] {
    let mut bytes = [0; N];
    random.fill(&mut bytes);
    bytes
}

/// A number from 0 up to, but not including, 1.
pub(crate) fn fraction(random: &dyn Randomness) -> f64 {
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
pub(crate) struct SystemRandomness;

impl Randomness for SystemRandomness {
    fn fill(&self, bytes: &mut [u8]) {
        // The system's generator fails only where there is none; nothing could be opened safely there.
        getrandom::fill(bytes).expect("the system gives random bytes");
    }
}

/// A folder on a disk.
struct DiskFolder {
    path: PathBuf,
    state: StateFile,
}

impl DiskFolder {
    fn new(path: PathBuf) -> DiskFolder {
        DiskFolder {
            state: StateFile::new(&path),
            path,
        }
    }
}

impl LocalFolder for DiskFolder {
    fn path(&self) -> &Path {
        &self.path
    }

    fn log(&self) -> io::Result<Arc<dyn Storage>> {
        let log = self.path.join(LOG_FOLDER);
        std::fs::create_dir_all(&log)?;
        Ok(Arc::new(FileStorage::open(&log)?))
    }

    fn load_state(&self) -> io::Result<Option<Vec<u8>>> {
        self.state.load()
    }

    fn replace_state(&self, content: &[u8]) -> io::Result<()> {
        self.state.replace(content)
    }

    fn mark(&self) -> io::Result<Option<Vec<u8>>> {
        match std::fs::read(self.path.join(MARK_FILE)) {
            Ok(line) => Ok(Some(line)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn set_mark(&self, line: &[u8]) -> io::Result<()> {
        let mut options = File::options();
        options.create(true).truncate(false).write(true);
        let file = options.open(self.path.join(MARK_FILE))?;
        file.write_all_at(line, 0)
    }

    fn write_note(&self, label: &str, text: &[u8]) -> io::Result<()> {
        std::fs::write(note_path(&self.path.join(LOG_FOLDER), label), text)
    }

    fn boot_id(&self) -> [u8; 16] {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        text.ok()
            .and_then(|text| crate::local::unhex(&text.trim().replace('-', "")).ok())
            .unwrap_or_default()
    }

    fn disk_cache(&self) -> Option<PathBuf> {
        Some(self.path.join(CACHE_FOLDER))
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
