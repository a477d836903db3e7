//! A volume in a folder, written by a gateway.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_fs::{FsConfig, Volume};
use forebay_fsck::{Finding, Options, Progress, Report, check};
use forebay_object::{Store, StoreOptions};
use forebay_types::Inode;
use forebay_vfs::{CreateMode, Credentials, FileSystem, NewNode, SetAttributes, Stability};
use tempfile::TempDir;

pub(crate) static WHO: Credentials = Credentials {
    uid: 0,
    gid: 0,
    groups: Vec::new(),
};

pub(crate) struct Place {
    pub(crate) folder: TempDir,
}

impl Place {
    pub(crate) async fn new() -> Place {
        let place = Place {
            folder: tempfile::tempdir().unwrap(),
        };
        Volume::format(&place.store().await).await.unwrap();
        place
    }

    /// What a kill at this moment would leave: a copy of the bucket and of the gateway's local folder.
    pub(crate) fn copied(&self) -> Place {
        let copy = Place {
            folder: tempfile::tempdir().unwrap(),
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

    /// A gateway that publishes when it is told to.
    pub(crate) async fn open(&self) -> Volume {
        let mut config = FsConfig::new(self.folder.path().join("local"));
        config.checkpoint_interval = Duration::from_secs(3600);
        config.log = forebay_fs::LogConfig::Disk {
            limit: 64 << 20,
            segment: 16 << 20,
        };
        Volume::open(&self.store().await, config).await.unwrap()
    }

    /// Checks everything there is.
    pub(crate) async fn check(&self) -> Report {
        let store = self.store().await;
        let options = Options {
            read_data: true,
            ..Options::default()
        };
        let progress = Arc::new(Progress::default());
        check(store.store, store.root, &options, progress)
            .await
            .unwrap()
    }

    pub(crate) fn packs(&self) -> Vec<PathBuf> {
        let mut packs = files(&self.bucket().join("packs"));
        packs.sort_by_key(|path| path.file_name().map(ToOwned::to_owned));
        packs
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
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

pub(crate) async fn create(volume: &Volume, directory: Inode, name: &str) -> Inode {
    let mode = CreateMode::Guarded(SetAttributes::default());
    let made = volume.create(&WHO, directory, name.as_bytes(), &mode).await;
    made.unwrap().attributes.inode
}

pub(crate) async fn make_directory(volume: &Volume, parent: Inode, name: &str) -> Inode {
    let set = SetAttributes::default();
    let made = volume.make(&WHO, parent, name.as_bytes(), NewNode::Directory, &set);
    made.await.unwrap().attributes.inode
}

/// Bytes that no codec makes smaller, another row for each seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

pub(crate) async fn write(volume: &Volume, inode: Inode, offset: u64, data: &[u8]) {
    let mut at = offset;
    for part in data.chunks(1 << 20) {
        let wrote = volume.write(&WHO, inode, at, part, Stability::Unstable);
        wrote.await.unwrap();
        at += part.len() as u64;
    }
}
