//! A volume in a folder, written by a gateway.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_fs::{Expected, FsConfig, Unlock, Volume};
use forebay_fsck::{CheckError, Finding, Options, Progress, Report, check};
use forebay_object::{Store, StoreOptions};
use forebay_seal::KeyFile;
use forebay_types::Inode;
use forebay_vfs::{CreateMode, Credentials, FileSystem, NewNode, SetAttributes, Stability};
use tempfile::TempDir;

pub(crate) static WHO: Credentials = Credentials::ROOT;

pub(crate) struct Place {
    pub(crate) folder: TempDir,
    pub(crate) expected: Expected,
}

impl Place {
    pub(crate) async fn new() -> Place {
        Place::of(Expected::NotSealed).await
    }

    /// A volume that is sealed or not, as `expected` says.
    pub(crate) async fn of(expected: Expected) -> Place {
        let place = Place {
            folder: tempfile::tempdir_in(base()).unwrap(),
            expected,
        };
        let store = place.store().await;
        Volume::format_as(&store, &place.expected).await.unwrap();
        place
    }

    /// The state that a kill at this moment would leave: a copy of the bucket and of the gateway's local folder.
    pub(crate) fn copied(&self) -> Place {
        let copy = Place {
            folder: tempfile::tempdir_in(base()).unwrap(),
            expected: self.expected.clone(),
        };
        for file in files(self.folder.path()) {
            let to = copy
                .folder
                .path()
                .join(file.strip_prefix(self.folder.path()).unwrap());
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            // Sockets are not copied.
            if file.is_file() {
                std::fs::copy(&file, to).unwrap();
            }
        }
        copy
    }

    /// All objects of the bucket.
    pub(crate) fn objects(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        files(&self.bucket())
            .into_iter()
            .filter(|path| path.is_file())
            .map(|path| (path.clone(), std::fs::read(path).unwrap()))
            .collect()
    }

    pub(crate) fn bucket(&self) -> PathBuf {
        self.folder.path().join("bucket")
    }

    pub(crate) async fn store(&self) -> Store {
        let url = format!("file://{}", self.bucket().display());
        let options = StoreOptions {
            create: true,
            ..StoreOptions::default()
        };
        forebay_object::open(&url, &options).await.unwrap()
    }

    /// Opens a gateway that publishes only on `flush`.
    pub(crate) async fn open(&self) -> Volume {
        self.open_with(|_| {}).await
    }

    pub(crate) async fn open_with(&self, change: impl FnOnce(&mut FsConfig)) -> Volume {
        let mut config = FsConfig::new(self.folder.path().join("local"));
        config.expected = self.expected.clone();
        config.checkpoint_interval = Duration::from_secs(3600);
        config.checkpoint_bytes = 1 << 40;
        // All frames in packs come with a checkpoint, unless a test changes this.
        config.early_bytes = 16 << 20;
        config.log = forebay_fs::LogConfig::Disk {
            limit: 256 << 20,
            segment: 16 << 20,
        };
        // A gateway here ends like a lost machine, and another takes over.
        config.takeover = forebay_fs::Takeover::Allow;
        change(&mut config);
        Volume::open(&self.store().await, config).await.unwrap()
    }

    pub(crate) async fn try_check(&self, options: &Options) -> Result<Report, CheckError> {
        let store = self.store().await;
        let progress = Arc::new(Progress::default());
        check(store.store, store.root, options, progress).await
    }

    /// Checks the volume, including the data.
    pub(crate) async fn check(&self) -> Report {
        let options = Options {
            expected: self.expected.clone(),
            read_data: true,
            ..Options::default()
        };
        self.try_check(&options).await.unwrap()
    }

    pub(crate) fn packs(&self) -> Vec<PathBuf> {
        let mut packs = files(&self.bucket().join("packs"));
        packs.sort_by_key(|path| path.file_name().map(ToOwned::to_owned));
        packs
    }
}

/// A folder in memory, if the system has one.
fn base() -> &'static str {
    match Path::new("/dev/shm").is_dir() {
        true => "/dev/shm",
        false => "/tmp",
    }
}

pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(files(&path)),
            path => found.push(path),
        }
    }
    found
}

pub(crate) fn findings(report: &Report) -> Vec<&Finding> {
    let kinds = report.findings.kinds();
    kinds.flat_map(|(_, _, kept)| kept).collect()
}

pub(crate) async fn close(volume: Volume) {
    volume.close(Duration::from_secs(60)).await;
}

/// A key file that opens a sealed volume, or does not.
pub(crate) fn key_file(byte: u8) -> Expected {
    let content = vec![byte; KeyFile::MIN_LEN].into();
    Expected::Sealed(Arc::new(Unlock::KeyFile(KeyFile::new(content).unwrap())))
}

pub(crate) async fn create(volume: &Volume, directory: Inode, name: &str) -> Inode {
    try_create(volume, directory, name).await.unwrap()
}

pub(crate) async fn try_create(
    volume: &Volume,
    directory: Inode,
    name: &str,
) -> forebay_vfs::Result<Inode> {
    let mode = CreateMode::Guarded(SetAttributes::default());
    let made = volume.create(&WHO, directory, name.as_bytes(), &mode).await;
    Ok(made?.attributes.inode)
}

pub(crate) async fn make_directory(volume: &Volume, parent: Inode, name: &str) -> Inode {
    let made = try_make(volume, parent, name, NewNode::Directory);
    made.await.unwrap()
}

pub(crate) async fn try_make(
    volume: &Volume,
    parent: Inode,
    name: &str,
    node: NewNode<'_>,
) -> forebay_vfs::Result<Inode> {
    let set = SetAttributes::default();
    let made = volume.make(&WHO, parent, name.as_bytes(), node, &set);
    Ok(made.await?.attributes.inode)
}

/// The same numbers every time.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Bytes that no codec compresses, another sequence for each seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    (0..len).map(|_| (dice.next() >> 24) as u8).collect()
}

pub(crate) async fn write(volume: &Volume, inode: Inode, offset: u64, data: &[u8]) {
    try_write(volume, inode, offset, data).await.unwrap();
}

pub(crate) async fn try_write(
    volume: &Volume,
    inode: Inode,
    offset: u64,
    data: &[u8],
) -> forebay_vfs::Result<()> {
    let mut at = offset;
    for part in data.chunks(1 << 20) {
        let wrote = volume.write(&WHO, inode, at, part, Stability::Unstable);
        wrote.await?;
        at += part.len() as u64;
    }
    Ok(())
}
