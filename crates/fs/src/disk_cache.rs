//! The local disk cache: frames from the bucket, as the bucket has them, on the gateway's own disk.
//!
//! ```text
//!   reader --miss in memory--> disk cache --hit--> verify --------------------------> block buffer
//!                                  |                 ^ damaged: as a miss                 ^
//!                                  miss              |                                    |
//!                                  +----------> ranged GET of the frame --> verify -------+
//!                                                                             |
//!                              disk cache <--- as it came, in the background -+
//! ```
//!
//! A pack never changes and its number is never given again, so that what is kept cannot become wrong; what
//! nobody refers to any more goes when its place is needed. The bytes are those of the bucket: compressed, and
//! sealed where the volume is. They are checked as if they came from the bucket, by the CRC of the block map
//! and all else that a frame says of itself, whatever the library below has checked.
//!
//! What is written goes by the way of readers only: an upload does not write its data to the local disk a second
//! time, beside the log.
//!
//! The cache may be lost at any moment. So nothing in it is flushed, nobody waits for its writes, and a
//! disk that fails costs a warning: it is not used any more until the next start. All of its space is taken
//! when it is opened, so that it never competes with the log for the last bytes of a disk.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use forebay_types::PackId;
use foyer::{
    BlockEngineConfig, Code, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder,
    HybridCachePolicy, PsyncIoEngineConfig, RecoverMode,
};

/// Least bytes of a disk cache: a few dozen of the largest frames.
pub const MIN_DISK_CACHE: u64 = 256 << 20;
/// Most bytes of one.
pub const MAX_DISK_CACHE: u64 = 512 << 30;

/// What is evicted at once, and so the size of a file: large enough for several of the largest frames.
const MIN_REGION: u64 = 16 << 20;
/// At most so many files, each of which is kept open. A place in one has 32 bits, which is why it is below 4 GiB
/// with the largest cache.
const REGIONS: u64 = 256;
const _: () = assert!(MAX_DISK_CACHE / REGIONS < u32::MAX as u64);

/// Where a frame lies in the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FrameKey {
    pub(crate) pack: PackId,
    pub(crate) offset: u32,
}

impl Code for FrameKey {
    fn encode(&self, writer: &mut impl Write) -> foyer::Result<()> {
        self.pack.0.encode(writer)?;
        self.offset.encode(writer)
    }

    fn decode(reader: &mut impl Read) -> foyer::Result<Self> {
        Ok(FrameKey {
            pack: PackId(u64::decode(reader)?),
            offset: u32::decode(reader)?,
        })
    }

    fn estimated_size(&self) -> usize {
        12
    }
}

/// The bytes of a frame, as they lie in the bucket.
#[derive(Clone, Debug)]
struct Stored(Bytes);

impl Code for Stored {
    fn encode(&self, writer: &mut impl Write) -> foyer::Result<()> {
        writer.write_all(&self.0).map_err(foyer::Error::io_error)
    }

    fn decode(reader: &mut impl Read) -> foyer::Result<Self> {
        // The reader ends where the value does.
        let mut bytes = Vec::new();
        reader
            .read_to_end(&mut bytes)
            .map_err(foyer::Error::io_error)?;
        Ok(Stored(bytes.into()))
    }

    fn estimated_size(&self) -> usize {
        self.0.len()
    }
}

/// What the disk cache did since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCacheStatus {
    /// Bytes of disk that it has.
    pub limit_bytes: u64,
    /// Frames that were read from it.
    pub hits: u64,
    /// Frames that it did not have.
    pub misses: u64,
    /// Frames that were damaged in it, and fetched from the bucket instead.
    pub damaged: u64,
    /// Whether its disk failed, so that it is not used any more.
    pub failed: bool,
}

/// See the module's documentation.
pub(crate) struct DiskCache {
    frames: HybridCache<FrameKey, Stored>,
    folder: PathBuf,
    limit_bytes: u64,
    hits: AtomicU64,
    misses: AtomicU64,
    damaged: AtomicU64,
    failed: AtomicBool,
}

impl DiskCache {
    /// Opens the cache in `folder`, which is its own, with what it held before if it had the same size. Takes
    /// all of its space: `limit_bytes`, from [`MIN_DISK_CACHE`] to [`MAX_DISK_CACHE`].
    pub(crate) async fn open(folder: &Path, limit_bytes: u64) -> io::Result<DiskCache> {
        let limit_bytes = limit_bytes.clamp(MIN_DISK_CACHE, MAX_DISK_CACHE);
        let region = (limit_bytes / REGIONS)
            .max(MIN_REGION)
            .next_multiple_of(4096);
        let regions = limit_bytes / region;
        let files = only_folder(folder, &format!("frames-{regions}x{region}"))?;
        let capacity = usize::try_from(regions * region).map_err(io::Error::other)?;
        let frames = build(&files, capacity, region as usize).await;
        let frames = frames.map_err(io::Error::other)?;
        let cache = DiskCache {
            frames,
            folder: folder.to_owned(),
            limit_bytes: regions * region,
            hits: AtomicU64::default(),
            misses: AtomicU64::default(),
            damaged: AtomicU64::default(),
            failed: AtomicBool::default(),
        };
        // The files are there now, and not one byte of them is used yet but what was there before.
        if let Err(error) = reserve(&files) {
            cache.close().await;
            fs::remove_dir_all(&files)?;
            return Err(error);
        }
        Ok(cache)
    }

    /// The frame, as the bucket has it, if it is here. Not verified.
    pub(crate) async fn get(&self, key: FrameKey) -> Option<Bytes> {
        if self.failed.load(Ordering::Relaxed) {
            return None;
        }
        match self.frames.get(&key).await {
            Ok(Some(entry)) => Some(entry.value().0.clone()),
            Ok(None) => {
                self.misses.fetch_add(1, Ordering::Relaxed);
                None
            }
            Err(error) => {
                if !self.failed.swap(true, Ordering::Relaxed) {
                    let folder = self.folder.display();
                    tracing::warn!(
                        "the disk cache in {folder} cannot be read: {error}; it is not used any more until the next start. Check that disk"
                    );
                }
                None
            }
        }
    }

    /// Notes that what was given for `key` was the frame.
    pub(crate) fn was_right(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that what was given for `key` was something else; it is forgotten.
    pub(crate) fn was_damaged(&self, key: FrameKey, why: &impl std::fmt::Display) {
        self.damaged.fetch_add(1, Ordering::Relaxed);
        let folder = self.folder.display();
        tracing::warn!(
            "the disk cache in {folder} gave back other bytes than it was given: {why}; they are fetched from the bucket. Check that disk"
        );
        self.frames.remove(&key);
    }

    /// Keeps a frame that came from the bucket and was found right. While the disk does not keep up, some are
    /// not kept.
    pub(crate) fn put(&self, key: FrameKey, stored: Bytes) {
        if !self.failed.load(Ordering::Relaxed) {
            self.frames.storage_writer(key).insert(Stored(stored));
        }
    }

    /// Waits until what was put is in its files.
    pub(crate) async fn close(&self) {
        if let Err(error) = self.frames.close().await {
            tracing::debug!(%error, "the disk cache was not closed cleanly");
        }
    }

    pub(crate) fn status(&self) -> DiskCacheStatus {
        DiskCacheStatus {
            limit_bytes: self.limit_bytes,
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            damaged: self.damaged.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }
}

/// The library's part. Its cache in memory holds nothing: block buffers are that.
async fn build(
    files: &Path,
    capacity: usize,
    region: usize,
) -> foyer::Result<HybridCache<FrameKey, Stored>> {
    let device = FsDeviceBuilder::new(files)
        .with_capacity(capacity)
        .build()?;
    HybridCacheBuilder::new()
        .with_name("forebay")
        .with_policy(HybridCachePolicy::WriteOnInsertion)
        .with_flush_on_close(false)
        .memory(1)
        .with_shards(1)
        .with_weighter(|_, stored: &Stored| stored.0.len())
        .storage()
        .with_io_engine_config(PsyncIoEngineConfig::new())
        .with_engine_config(BlockEngineConfig::new(device).with_block_size(region))
        .with_recover_mode(RecoverMode::Quiet)
        .build()
        .await
}

/// Makes the folder `name` in `folder`, and removes everything else there: caches of other sizes.
fn only_folder(folder: &Path, name: &str) -> io::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() != name {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(folder.join(name))
}

/// Has the disk set the space of all files aside.
fn reserve(files: &Path) -> io::Result<()> {
    for entry in fs::read_dir(files)? {
        let path = entry?.path();
        let file = File::options().write(true).open(path)?;
        let bytes = file.metadata()?.len();
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)?;
    }
    Ok(())
}
