//! A volume for tests: a bucket that outlives gateways, and gateways that live, stop and crash.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use forebay_fs::{FsConfig, Volume};
use forebay_object::{Store, StoreOptions};
use forebay_types::Inode;
use forebay_vfs::{
    Attributes, CreateMode, Credentials, FileSystem, SetAttributes, Stability, WriteReply,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub const ROOT: Credentials = Credentials { uid: 0, gid: 0, groups: Vec::new() };

/// A bucket in a local folder, and the local folder of a gateway.
pub struct Bucket {
    pub folder: TempDir,
    pub local: TempDir,
}

/// One run of a gateway.
pub struct Life {
    pub runtime: Runtime,
    pub volume: Volume,
}

fn folder() -> TempDir {
    // Functional tests need no disk, and flushes of a real one cost milliseconds.
    let base = if PathBuf::from("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" };
    tempfile::tempdir_in(base).unwrap()
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

impl Bucket {
    /// A bucket with an empty volume.
    pub fn new() -> Bucket {
        let bucket = Bucket { folder: folder(), local: folder() };
        let runtime = runtime();
        runtime.block_on(async {
            Volume::format(&bucket.store().await).await.unwrap();
        });
        bucket
    }

    pub async fn store(&self) -> Store {
        let url = format!("file://{}/bucket", self.folder.path().display());
        let options = StoreOptions { create: true, ..StoreOptions::default() };
        forebay_object::open(&url, &options).await.unwrap()
    }

    pub fn config(&self) -> FsConfig {
        let mut config = FsConfig::new(self.local.path().to_owned());
        // Tests say when something is published.
        config.checkpoint_interval = Duration::from_secs(3600);
        config.log = forebay_fs::LogConfig::Disk {
            sync: forebay_wal::SyncMode::Commit,
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
        config.data_dir = self.folder.path().join(format!("elsewhere-{:x}", rand()));
        change(&mut config);
        self.start_with(config)
    }

    pub fn start_with(&self, config: FsConfig) -> Life {
        let runtime = runtime();
        let volume = runtime.block_on(async {
            let store = self.store().await;
            Volume::open(&store, config).await.unwrap()
        });
        Life { runtime, volume }
    }
}

fn rand() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

impl Life {
    /// Runs operations on the volume.
    pub fn run<T, F: Future<Output = T>>(&self, operations: impl FnOnce(Volume) -> F) -> T {
        self.runtime.block_on(operations(self.volume.clone()))
    }

    /// Ends like a killed process: no farewell, no publishing. The system keeps what is in the
    /// log's pages.
    pub fn crash(self) {
        drop(self.volume);
        self.runtime.shutdown_timeout(Duration::from_secs(10));
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
        self.run(|volume| async move {
            let mode = CreateMode::Guarded(SetAttributes::default());
            volume.create(&ROOT, Inode::ROOT, name, &mode).await.unwrap().attributes.inode
        })
    }

    pub fn lookup(&self, name: &[u8]) -> Attributes {
        self.run(|volume| async move { volume.lookup(&ROOT, Inode::ROOT, name).await.unwrap() })
    }

    pub fn remove(&self, name: &[u8]) {
        self.run(|volume| async move { volume.remove(&ROOT, Inode::ROOT, name).await.unwrap() });
    }

    pub fn truncate(&self, inode: Inode, size: u64) {
        let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.run(|volume| async move { volume.setattr(&ROOT, inode, &set, None).await.unwrap() });
    }

    /// Writes in calls of up to 1 MiB, as a client does.
    pub fn write(&self, inode: Inode, offset: u64, data: &[u8], stability: Stability) {
        self.run(|volume| async move {
            let mut at = offset;
            for part in data.chunks(1 << 20) {
                let reply: WriteReply =
                    volume.write(&ROOT, inode, at, part, stability).await.unwrap();
                assert_eq!(reply.count as usize, part.len());
                assert!(reply.stability >= stability);
                at += part.len() as u64;
            }
        });
    }

    /// Reads in calls of up to 1 MiB, up to the end of the file.
    pub fn read(&self, inode: Inode, offset: u64, len: usize) -> Vec<u8> {
        self.run(|volume| async move {
            let mut bytes = Vec::new();
            while bytes.len() < len {
                let count = (len - bytes.len()).min(1 << 20) as u32;
                let at = offset + bytes.len() as u64;
                let reply = volume.read(&ROOT, inode, at, count).await.unwrap();
                reply.data.iter().for_each(|piece| bytes.extend_from_slice(piece));
                if reply.eof {
                    break;
                }
            }
            bytes
        })
    }
}

/// Bytes that differ from place to place and from seed to seed.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
