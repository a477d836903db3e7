//! A volume for tests: a bucket that outlives its gateways, and gateways that live, stop and crash.
#![allow(dead_code, missing_docs, unreachable_pub)]

pub mod disk;
mod life;
pub mod metadata;
pub mod model;
pub mod watchdog;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use forebay_fs::{Environment, Expected, FsConfig, OpenError, Takeover, Volume};
use forebay_object::{RequestCounts, RetrySettings, Store, StoreOptions};
use forebay_vfs::Credentials;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use disk::Disk;
use forebay_object::faults::{Faults, FaultyStore};
pub use life::Life;
#[allow(
    unused_imports,
    reason = "not every test that includes this file uses them"
)]
pub use life::{Moment, read, write};

pub const ROOT: Credentials = Credentials::ROOT;

/// The longest time of any operation of a test: a longer one is a deadlock. A request to a store that does not answer
/// waits 25 s, several times in a row.
pub const TIMEOUT: Duration = Duration::from_secs(240);

/// A bucket in a local folder, and the local folder of a gateway.
pub struct Bucket {
    pub folder: Arc<TempDir>,
    pub local: TempDir,
    pub controls: Arc<Faults>,
    /// The retry settings of stores that are opened from now on.
    pub retry: Mutex<RetrySettings>,
    /// Whether gateways expect the volume to be sealed.
    pub expected: Expected,
    /// Whether gateways with its configuration take the volume from another one.
    pub takeover: Takeover,
    latest: Mutex<Option<FaultyStore>>,
}

pub fn folder() -> TempDir {
    // Functional tests need no disk, and flushes of a real one cost milliseconds.
    let base = if PathBuf::from("/dev/shm").is_dir() {
        "/dev/shm"
    } else {
        "/tmp"
    };
    tempfile::tempdir_in(base).unwrap()
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

impl Bucket {
    /// A bucket with an empty volume.
    pub fn new() -> Bucket {
        Bucket::of(Expected::NotSealed)
    }

    /// A bucket with an empty volume, sealed or not.
    pub fn of(expected: Expected) -> Bucket {
        let bucket = Bucket {
            expected,
            ..Bucket::unformatted()
        };
        let runtime = runtime();
        runtime.block_on(async {
            let store = bucket.store().await;
            Volume::format_as(&store, &bucket.expected).await.unwrap();
        });
        bucket
    }

    /// An empty bucket.
    pub fn unformatted() -> Bucket {
        Bucket {
            folder: Arc::new(folder()),
            local: folder(),
            controls: Arc::default(),
            retry: Mutex::default(),
            expected: Expected::NotSealed,
            takeover: Takeover::Refuse,
            latest: Mutex::default(),
        }
    }

    /// The same bucket on another machine: with its own local folder and its own connection to the bucket. Its
    /// gateways take the volume over.
    pub fn seen_elsewhere(&self) -> Bucket {
        Bucket {
            takeover: Takeover::Allow,
            folder: self.folder.clone(),
            expected: self.expected.clone(),
            ..Bucket::unformatted()
        }
    }

    /// Every object and its bytes, by name. Uploads in progress are not objects.
    pub fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        let mut found = Vec::new();
        walk(&self.path(), &mut found);
        let objects = found.into_iter().filter_map(|(path, _)| {
            let name = path.strip_prefix(self.path()).ok()?.to_str()?.to_owned();
            let bytes = std::fs::read(path).ok()?;
            (!name.contains('#')).then_some((name, bytes))
        });
        objects.collect()
    }

    pub async fn store(&self) -> Store {
        let url = format!("file://{}", self.path().display());
        let options = StoreOptions {
            create: true,
            ..StoreOptions::default()
        };
        let opened = forebay_object::open(&url, &options).await.unwrap();
        let faulty = FaultyStore::new(opened.store, self.controls.clone());
        *self.latest.lock() = Some(faulty.clone());
        Store::new(
            Arc::new(faulty),
            opened.root,
            opened.url,
            self.retry.lock().clone(),
        )
    }

    /// A separate bucket with the same objects as at one moment, and an empty local folder. Its gateways take the
    /// volume over.
    pub fn copy(&self) -> Bucket {
        let copy = Bucket {
            takeover: Takeover::Allow,
            expected: self.expected.clone(),
            ..Bucket::unformatted()
        };
        self.controls.everything.close();
        // Requests in flight end.
        std::thread::sleep(Duration::from_millis(60));
        let mut objects = Vec::new();
        walk(&self.path(), &mut objects);
        for (path, _) in objects {
            let to = copy.path().join(path.strip_prefix(self.path()).unwrap());
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            // Uploads that were given up lie beside the objects, with a `#` in their names.
            if !path.to_string_lossy().contains('#') {
                std::fs::copy(path, to).unwrap();
            }
        }
        self.controls.everything.open();
        copy
    }

    /// The requests to the store that was opened last.
    pub fn counts(&self) -> RequestCounts {
        self.latest.lock().as_ref().unwrap().counts()
    }

    /// The folder of the objects.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("bucket")
    }

    /// All packs and their sizes in bytes.
    pub fn packs(&self) -> Vec<(PathBuf, u64)> {
        let mut found = Vec::new();
        walk(&self.path().join("packs"), &mut found);
        found.sort();
        found
    }

    pub fn pack_bytes(&self) -> u64 {
        self.packs().iter().map(|(_, bytes)| bytes).sum()
    }

    pub fn config(&self) -> FsConfig {
        let mut config = FsConfig::new(self.local.path().to_owned());
        config.expected = self.expected.clone();
        config.takeover = self.takeover;
        // Tests decide when something is published.
        config.checkpoint_interval = Duration::from_secs(3600);
        config.checkpoint_bytes = 1 << 40;
        // And most of them have less memory than any gateway; packs would take a part of it while they wait for the
        // bucket.
        config.early_bytes = 16 << 20;
        // A test that waits for room sets its own limit.
        config.room_wait = Duration::from_secs(3600);
        config.log = forebay_fs::LogConfig::Disk {
            limit: 256 << 20,
            segment: 16 << 20,
        };
        config
    }

    /// Starts a gateway on this bucket with this bucket's local folder.
    pub fn start(&self, change: impl FnOnce(&mut FsConfig)) -> Life {
        let mut config = self.config();
        change(&mut config);
        self.start_with(config)
    }

    /// Starts this bucket's gateway again, after another one that did not stop in order.
    pub fn take_over(&self) -> Life {
        self.start(|config| config.takeover = Takeover::Allow)
    }

    /// Starts a gateway that has only the bucket, and takes the volume over.
    pub fn start_elsewhere(&self, change: impl FnOnce(&mut FsConfig)) -> Life {
        let mut config = self.config();
        config.takeover = Takeover::Allow;
        config.data_dir = self.folder.path().join(format!("elsewhere-{:x}", random()));
        change(&mut config);
        self.start_with(config)
    }

    pub fn start_with(&self, config: FsConfig) -> Life {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let error = match self.try_start_with(config.clone()) {
                Ok(life) => return life,
                Err(error) => error.to_string(),
            };
            // A child process that another test is about to start has the locks of this one's files until it runs its program.
            let is_inherited = error.contains("in use by another process");
            assert!(is_inherited && Instant::now() < deadline, "{error}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts a gateway, or returns the reason why it does not start.
    pub fn try_start_with(&self, config: FsConfig) -> Result<Life, OpenError> {
        let environment = Environment::real(config.data_dir.clone());
        self.try_start_in(config, environment)
    }

    /// Starts a gateway with a local folder that is not on a real disk.
    pub fn start_on(&self, disk: &Disk, change: impl FnOnce(&mut FsConfig)) -> Life {
        self.try_start_on(disk, change)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Like [`Bucket::start_on`], or returns the reason why it does not start.
    pub fn try_start_on(
        &self,
        disk: &Disk,
        change: impl FnOnce(&mut FsConfig),
    ) -> Result<Life, OpenError> {
        let mut config = self.config();
        change(&mut config);
        let environment = self.environment(disk);
        self.try_start_in(config, environment)
    }

    /// Opens the volume and ends as in a crash, after this time at the latest; returns whether it was opened.
    pub fn open_for(&self, disk: &Disk, limit: Duration) -> Option<()> {
        let runtime = runtime();
        let environment = self.environment(disk);
        let opened = runtime.block_on(async {
            let store = self.store().await;
            let opening = Volume::open_in(&store, self.config(), environment);
            tokio::time::timeout(limit, opening).await.ok()
        });
        let done = opened.as_ref().map(|_| ());
        runtime.shutdown_timeout(TIMEOUT);
        done
    }

    /// The real environment, except for the local folder.
    pub fn environment(&self, disk: &Disk) -> Environment {
        Environment {
            local: Arc::new(disk.clone()),
            ..Environment::real(self.local.path().to_owned())
        }
    }

    /// Starts a gateway in the test's environment.
    pub fn try_start_in(
        &self,
        config: FsConfig,
        environment: Environment,
    ) -> Result<Life, OpenError> {
        let runtime = runtime();
        let opened = runtime.block_on(async {
            let store = self.store().await;
            tokio::time::timeout(TIMEOUT, Volume::open_in(&store, config, environment))
                .await
                .expect("a deadlock")
        });
        match opened {
            Ok(volume) => Ok(Life {
                runtime: Some(runtime),
                volume,
                controls: self.controls.clone(),
                spills: false,
                patient: false,
            }),
            Err(error) => {
                runtime.shutdown_timeout(Duration::from_secs(10));
                Err(error)
            }
        }
    }

    /// Why a gateway does not start.
    pub fn refusal(&self, config: FsConfig) -> String {
        match self.try_start_with(config) {
            Ok(_) => panic!("the volume was opened"),
            Err(error) => error.to_string(),
        }
    }
}

/// The same, for a gateway that takes the volume from another one.
pub fn taking_over(config: &FsConfig) -> FsConfig {
    FsConfig {
        takeover: Takeover::Allow,
        ..config.clone()
    }
}

pub fn walk(folder: &Path, found: &mut Vec<(PathBuf, u64)>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => walk(&entry.path(), found),
            Ok(metadata) => found.push((entry.path(), metadata.len())),
            Err(_) => {}
        }
    }
}

pub fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
}

pub fn user(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
    Credentials {
        uid,
        gid,
        groups: groups.into(),
        ..Credentials::default()
    }
}

/// Waits until `so` holds; panics if it takes too long.
pub fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < TIMEOUT, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Compares without printing megabytes of bytes.
#[track_caller]
pub fn assert_bytes(found: &[u8], expected: &[u8]) {
    assert_eq!(found.len(), expected.len(), "length");
    if found == expected {
        return;
    }
    if let Some(at) = (0..found.len()).find(|at| found[*at] != expected[*at]) {
        let wrong = (at..found.len())
            .filter(|at| found[*at] != expected[*at])
            .count();
        panic!(
            "byte {at} is {} and should be {}; {wrong} are wrong",
            found[at], expected[at]
        );
    }
}

/// Bytes that differ from offset to offset and from seed to seed, none of them zero.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    /// A prime, so that no power of two is a period.
    const PERIOD: usize = 1_048_583;
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // A zero would look like a hole.
            (state as u8).max(1)
        };
        (0..PERIOD).map(|_| next()).collect()
    });
    let start = (seed.wrapping_mul(7919) % PERIOD as u64) as usize;
    let mut found = bytes[start..PERIOD.min(start + len)].to_vec();
    while found.len() < len {
        found.extend_from_slice(&bytes[..PERIOD.min(len - found.len())]);
    }
    found
}
