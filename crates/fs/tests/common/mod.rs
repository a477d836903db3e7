//! A volume for tests: a bucket that outlives gateways, and gateways that live, stop and crash.
#![allow(dead_code, missing_docs, unreachable_pub)]

pub mod disk;
pub mod metadata;
pub mod model;
pub mod watchdog;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use forebay_fs::{Environment, Expected, FsConfig, OpenError, Volume};
use forebay_object::{PaceSettings, RequestCounts, Store, StoreOptions};
use forebay_types::Inode;
use forebay_vfs::{
    Attributes, CreateMode, Credentials, DirectoryEntry, Error, FileSystem, NewNode, SetAttributes,
    Stability, WriteReply,
};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use disk::Disk;
use forebay_object::faults::{Faults, FaultyStore};

pub const ROOT: Credentials = Credentials {
    uid: 0,
    gid: 0,
    groups: Vec::new(),
};

/// What no operation of a test may take: longer means a deadlock. A store that does not answer is waited
/// for 25 s, some times in a row.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// A bucket in a local folder, and the local folder of a gateway.
pub struct Bucket {
    pub folder: Arc<TempDir>,
    pub local: TempDir,
    pub controls: Arc<Faults>,
    /// How stores are asked that are opened from now on.
    pub pace: Mutex<PaceSettings>,
    /// Whether gateways expect the volume to be sealed.
    pub expected: Expected,
    latest: Mutex<Option<FaultyStore>>,
}

/// One run of a gateway. Dropping it is a crash.
pub struct Life {
    /// None once it has ended.
    runtime: Option<Runtime>,
    pub volume: Volume,
    controls: Arc<Faults>,
    /// Asks again when told to come back later, as clients do.
    pub patient: bool,
}

impl Drop for Life {
    fn drop(&mut self) {
        // The block cache of SlateDB locks itself out for ever if the runtime ends while a read of
        // metadata begins; a process that is killed has no such moment. So everything comes to rest
        // at the bucket's door before.
        self.controls.everything.close();
        std::thread::sleep(Duration::from_millis(30));
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(PATIENCE);
        }
        self.controls.everything.open();
    }
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

    /// A bucket with nothing in it.
    pub fn unformatted() -> Bucket {
        Bucket {
            folder: Arc::new(folder()),
            local: folder(),
            controls: Arc::default(),
            pace: Mutex::default(),
            expected: Expected::NotSealed,
            latest: Mutex::default(),
        }
    }

    /// The same bucket as another machine sees it: with a local folder and a way to the bucket of
    /// its own.
    pub fn seen_elsewhere(&self) -> Bucket {
        Bucket {
            folder: self.folder.clone(),
            expected: self.expected.clone(),
            ..Bucket::unformatted()
        }
    }

    /// Every object and its bytes, by its name. Uploads under way are no objects.
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
            self.pace.lock().clone(),
        )
    }

    /// A bucket of its own with the same objects as of one moment, and an empty local folder.
    pub fn copy(&self) -> Bucket {
        let copy = Bucket {
            expected: self.expected.clone(),
            ..Bucket::unformatted()
        };
        self.controls.everything.close();
        // What is under way ends.
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

    /// What the store that was opened last was asked for.
    pub fn counts(&self) -> RequestCounts {
        self.latest.lock().as_ref().unwrap().counts()
    }

    /// Where the objects are.
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
        // Tests say when something is published.
        config.checkpoint_interval = Duration::from_secs(3600);
        config.checkpoint_bytes = 1 << 40;
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

    /// Starts a gateway that has nothing but the bucket.
    pub fn start_elsewhere(&self, change: impl FnOnce(&mut FsConfig)) -> Life {
        let mut config = self.config();
        config.data_dir = self.folder.path().join(format!("elsewhere-{:x}", random()));
        change(&mut config);
        self.start_with(config)
    }

    pub fn start_with(&self, config: FsConfig) -> Life {
        self.try_start_with(config)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Starts a gateway, or gives the reason why it does not.
    pub fn try_start_with(&self, config: FsConfig) -> Result<Life, OpenError> {
        let environment = Environment::real(config.data_dir.clone());
        self.try_start_in(config, environment)
    }

    /// Starts a gateway with another local folder than one on a real disk.
    pub fn start_on(&self, disk: &Disk, change: impl FnOnce(&mut FsConfig)) -> Life {
        self.try_start_on(disk, change)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Like [`Bucket::start_on`], or gives the reason why it does not start.
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

    /// Opens the volume and ends as a crash does, after this time at the latest; says whether it was
    /// opened.
    pub fn open_for(&self, disk: &Disk, limit: Duration) -> Option<()> {
        let runtime = runtime();
        let environment = self.environment(disk);
        let opened = runtime.block_on(async {
            let store = self.store().await;
            let opening = Volume::open_in(&store, self.config(), environment);
            tokio::time::timeout(limit, opening).await.ok()
        });
        let done = opened.as_ref().map(|_| ());
        runtime.shutdown_timeout(PATIENCE);
        done
    }

    /// The real one but for the local folder.
    pub fn environment(&self, disk: &Disk) -> Environment {
        Environment {
            local: Arc::new(disk.clone()),
            ..Environment::real(self.local.path().to_owned())
        }
    }

    /// Starts a gateway in an environment of the test's own.
    pub fn try_start_in(
        &self,
        config: FsConfig,
        environment: Environment,
    ) -> Result<Life, OpenError> {
        let runtime = runtime();
        let opened = runtime.block_on(async {
            let store = self.store().await;
            tokio::time::timeout(PATIENCE, Volume::open_in(&store, config, environment))
                .await
                .expect("a deadlock")
        });
        match opened {
            Ok(volume) => Ok(Life {
                runtime: Some(runtime),
                volume,
                controls: self.controls.clone(),
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
        groups: groups.to_vec(),
    }
}

/// Waits until something is so; panics if it takes too long.
pub fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Life {
    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it has not ended")
    }

    /// Runs operations on the volume.
    pub fn run<T, F: Future<Output = T>>(&self, operations: impl FnOnce(Volume) -> F) -> T {
        let operations = operations(self.volume.clone());
        self.runtime()
            .block_on(async { tokio::time::timeout(PATIENCE, operations).await })
            .expect("the operation hangs")
    }

    /// Runs one operation on the volume, as often as this client asks.
    fn ask<T, F>(&self, mut operation: impl FnMut(Volume) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let patient = self.patient;
        self.run(|volume| async move {
            loop {
                match operation(volume.clone()).await {
                    Err(Error::Delay) if patient => {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    result => return result,
                }
            }
        })
    }

    /// Runs operations on the volume beside the test.
    pub fn spawn<T, F>(&self, operations: impl FnOnce(Volume) -> F) -> tokio::task::JoinHandle<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.runtime().spawn(operations(self.volume.clone()))
    }

    /// The result of what was spawned.
    pub fn join<T>(&self, task: tokio::task::JoinHandle<T>) -> T {
        self.run(|_| task).unwrap()
    }

    /// Ends like a killed process: no farewell, no publishing. The system keeps what is in the
    /// log's pages.
    pub fn crash(self) {
        drop(self);
    }

    /// Ends in order.
    pub fn stop(self) {
        self.run(|volume| async move { volume.close(Duration::from_secs(60)).await });
        self.crash();
    }

    pub fn flush(&self) {
        self.run(|volume| async move { volume.flush().await.unwrap() });
    }

    pub fn create(&self, name: &[u8]) -> Inode {
        self.create_in(Inode::ROOT, name)
    }

    pub fn create_in(&self, directory: Inode, name: &[u8]) -> Inode {
        let created = self.ask(|volume| async move {
            let mode = CreateMode::Guarded(SetAttributes::default());
            volume.create(&ROOT, directory, name, &mode).await
        });
        created.unwrap().attributes.inode
    }

    pub fn mkdir(&self, directory: Inode, name: &[u8]) -> Inode {
        let made = self.ask(|volume| async move {
            let set = SetAttributes::default();
            volume
                .make(&ROOT, directory, name, NewNode::Directory, &set)
                .await
        });
        made.unwrap().attributes.inode
    }

    pub fn lookup(&self, name: &[u8]) -> Attributes {
        self.try_lookup(Inode::ROOT, name).unwrap()
    }

    pub fn try_lookup(&self, directory: Inode, name: &[u8]) -> Result<Attributes, Error> {
        self.ask(|volume| async move { volume.lookup(&ROOT, directory, name).await })
    }

    pub fn getattr(&self, inode: Inode) -> Result<Attributes, Error> {
        self.ask(|volume| async move { volume.getattr(inode).await })
    }

    pub fn set(&self, who: &Credentials, inode: Inode, set: SetAttributes) -> Result<(), Error> {
        self.ask(|volume| async move { volume.setattr(who, inode, &set, None).await.map(drop) })
    }

    pub fn remove(&self, name: &[u8]) {
        self.try_remove(Inode::ROOT, name).unwrap();
    }

    pub fn try_remove(&self, directory: Inode, name: &[u8]) -> Result<(), Error> {
        self.ask(|volume| async move { volume.remove(&ROOT, directory, name).await.map(drop) })
    }

    pub fn rmdir(&self, directory: Inode, name: &[u8]) -> Result<(), Error> {
        self.ask(|volume| async move { volume.rmdir(&ROOT, directory, name).await.map(drop) })
    }

    pub fn rename(&self, from: (Inode, &[u8]), to: (Inode, &[u8])) -> Result<(), Error> {
        self.ask(|volume| async move { volume.rename(&ROOT, from, to).await.map(drop) })
    }

    pub fn link(&self, inode: Inode, to: (Inode, &[u8])) -> Result<(), Error> {
        self.ask(|volume| async move { volume.link(&ROOT, inode, to.0, to.1).await.map(drop) })
    }

    pub fn truncate(&self, inode: Inode, size: u64) {
        self.set(
            &ROOT,
            inode,
            SetAttributes {
                size: Some(size),
                ..Default::default()
            },
        )
        .unwrap();
    }

    pub fn commit(&self, inode: Inode) {
        self.ask(|volume| async move { volume.commit(&ROOT, inode, 0, 0).await.map(drop) })
            .unwrap();
    }

    /// Writes in calls of up to 1 MiB, as a client does.
    pub fn write(&self, inode: Inode, offset: u64, data: &[u8], stability: Stability) {
        let mut at = offset;
        for part in data.chunks(1 << 20) {
            let written = self
                .ask(|volume| async move { volume.write(&ROOT, inode, at, part, stability).await });
            let reply = written.unwrap();
            assert_eq!(reply.count as usize, part.len());
            assert!(reply.stability >= stability);
            at += part.len() as u64;
        }
    }

    pub fn try_write(&self, inode: Inode, offset: u64, data: &[u8]) -> Result<WriteReply, Error> {
        self.run(|volume| async move {
            volume
                .write(&ROOT, inode, offset, data, Stability::Unstable)
                .await
        })
    }

    /// Reads in calls of up to 1 MiB, up to the end of the file.
    pub fn read(&self, inode: Inode, offset: u64, len: usize) -> Vec<u8> {
        self.try_read(inode, offset, len).unwrap()
    }

    pub fn try_read(&self, inode: Inode, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        self.ask(|volume| async move { read(&volume, inode, offset, len).await })
    }

    /// Names in a directory, with their cookies, asked for in pieces.
    pub fn list(&self, directory: Inode, piece: usize) -> Vec<DirectoryEntry> {
        let (mut entries, mut cookie) = (Vec::new(), 0);
        loop {
            let found = self
                .ask(|volume| async move {
                    volume.readdir(&ROOT, directory, cookie, piece, false).await
                })
                .unwrap();
            cookie = found.entries.last().map_or(cookie, |entry| entry.cookie);
            entries.extend(found.entries);
            if found.end {
                return entries;
            }
        }
    }

    /// Makes the cache forget what it can, by reading something else that fills it. The limit of
    /// memory must be small: 16 MiB.
    pub fn evict(&self) {
        let limit = self.volume.status().memory_limit;
        assert!(limit <= 32 << 20, "with a large cache nothing is evicted");
        let name = format!("evictor-{:x}", random());
        let inode = self.create(name.as_bytes());
        for i in 0..limit >> 20 {
            self.write(inode, i << 20, &pattern(i, 1 << 20), Stability::Unstable);
        }
        self.remove(name.as_bytes());
        self.flush();
    }
}

pub async fn write(volume: &Volume, inode: Inode, offset: u64, data: &[u8], stability: Stability) {
    let mut at = offset;
    for part in data.chunks(1 << 20) {
        let reply = volume
            .write(&ROOT, inode, at, part, stability)
            .await
            .unwrap();
        assert_eq!(reply.count as usize, part.len());
        assert!(reply.stability >= stability);
        at += part.len() as u64;
    }
}

pub async fn read(
    volume: &Volume,
    inode: Inode,
    offset: u64,
    len: usize,
) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let count = (len - bytes.len()).min(1 << 20) as u32;
        let at = offset + bytes.len() as u64;
        let reply = volume.read(&ROOT, inode, at, count).await?;
        reply
            .data
            .iter()
            .for_each(|piece| bytes.extend_from_slice(piece));
        if reply.eof {
            break;
        }
    }
    Ok(bytes)
}

/// Compares without printing megabytes.
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

/// Bytes that differ from place to place and from seed to seed, none of them zero.
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
