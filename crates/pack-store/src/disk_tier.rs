//! The local disk cache: frames from the bucket, in their stored form, on the gateway's local disk.
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
//! A pack never changes and its number is never assigned again, so a kept frame cannot become wrong; frames to which
//! nothing refers any more are dropped when their space is needed. The bytes are those of the bucket: compressed, and
//! sealed if the volume is. They are verified as if they came from the bucket, by the CRC of the block map and
//! everything else in the frame, whatever the library below has checked.
//!
//! Only reads fill the cache: an upload does not write its data to the local disk a second time, beside the log.
//!
//! The cache may be lost at any moment. So nothing in it is flushed, no task waits for its writes, and a disk that
//! fails costs a warning: it is not used any more until the next start. All of its space is allocated when it is
//! opened, so that it never competes with the log for the last bytes of a disk.
//!
//! [`FrameCache`] manages the files, and blocks on the disk. This module keeps callers from blocking: reads run on
//! threads for blocking work, and one thread writes.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::{fs, io};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_disk_cache::{FrameCache, Shape};

pub use forebay_disk_cache::{FrameKey, MAX_DISK_CACHE, MIN_DISK_CACHE};
use forebay_environment::{Randomness, draw};
use forebay_metrics::{Samples, Source, Value, table};
use parking_lot::Mutex;

use crate::tier::Tier;

/// The most bytes of frames that wait for the disk; beyond it, further frames are not kept.
const MAX_WAITING: u64 = 32 << 20;
/// The most bytes that are written at once, not counting the last frame of them.
const BATCH: u64 = 4 << 20;

/// Counts of the disk cache since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCacheStatus {
    /// Bytes of disk space.
    pub limit_bytes: u64,
    /// Bytes of it with frames that were written and not replaced yet.
    pub used_bytes: u64,
    /// Number of frames that were read from it.
    pub hits: u64,
    /// Number of frames that it did not have.
    pub misses: u64,
    /// Number of frames that were damaged in it, and fetched from the bucket instead.
    pub damaged: u64,
    /// Whether its disk failed, so that it is not used any more.
    pub failed: bool,
}

/// The state that readers and the writing thread share.
#[derive(Debug)]
struct Shared {
    frames: FrameCache,
    folder: PathBuf,
    /// Bytes that wait to be written.
    waiting: AtomicU64,
    failed: AtomicBool,
    /// Waiting frames need not be written any more.
    abandoned: AtomicBool,
}

/// See the module's documentation.
pub struct DiskCache {
    shared: Arc<Shared>,
    limit_bytes: u64,
    writer: Mutex<Option<Writer>>,
    hits: AtomicU64,
    misses: AtomicU64,
    damaged: AtomicU64,
}

/// The writing thread. It ends when its last sender is dropped.
struct Writer {
    frames: Sender<(FrameKey, Bytes)>,
    thread: JoinHandle<()>,
}

impl DiskCache {
    /// Opens the cache in `folder`, which is its own, with its earlier content if it had the same size. Allocates all
    /// of its space: `limit_bytes`, from [`MIN_DISK_CACHE`] to [`MAX_DISK_CACHE`].
    pub async fn open(
        folder: &Path,
        limit_bytes: u64,
        random: Arc<dyn Randomness>,
    ) -> io::Result<DiskCache> {
        let shape = Shape::of(limit_bytes);
        let shared_folder = folder.to_owned();
        let frames = tokio::task::spawn_blocking(move || open_frames(&shared_folder, shape));
        let shared = Arc::new(Shared {
            frames: frames.await.map_err(io::Error::other)??,
            folder: folder.to_owned(),
            waiting: AtomicU64::default(),
            failed: AtomicBool::default(),
            abandoned: AtomicBool::default(),
        });
        let (sender, receiver) = channel();
        let thread = thread::Builder::new().name("disk-cache".into());
        let thread = thread.spawn({
            let shared = Arc::clone(&shared);
            move || shared.write(&receiver, &*random)
        })?;
        Ok(DiskCache {
            shared,
            limit_bytes: shape.bytes(),
            writer: Mutex::new(Some(Writer {
                frames: sender,
                thread,
            })),
            hits: AtomicU64::default(),
            misses: AtomicU64::default(),
            damaged: AtomicU64::default(),
        })
    }

    /// Waits until all frames that were put are in its files. Nothing is kept after that.
    pub async fn close(&self) {
        let Some(writer) = self.writer.lock().take() else {
            return;
        };
        let shared = Arc::clone(&self.shared);
        let closed = tokio::task::spawn_blocking(move || {
            writer.end();
            shared.frames.close()
        });
        let closed = closed
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)));
        if let Err(error) = closed {
            tracing::debug!(%error, "the disk cache was not closed cleanly");
        }
    }

    /// Whether it has this frame, as far as its index knows. Reads nothing, and counts as no use.
    pub fn has(&self, key: FrameKey) -> bool {
        !self.shared.failed.load(Ordering::Relaxed) && self.shared.frames.has(key)
    }

    /// The counts of the cache since the start.
    pub fn status(&self) -> DiskCacheStatus {
        DiskCacheStatus {
            limit_bytes: self.limit_bytes,
            used_bytes: self.shared.frames.used_bytes(),
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            damaged: self.damaged.load(Ordering::Relaxed),
            failed: self.shared.failed.load(Ordering::Relaxed),
        }
    }
}

#[async_trait]
impl Tier for DiskCache {
    /// The frame in its stored form, if it is cached. Not verified.
    async fn get(&self, key: FrameKey) -> Option<Bytes> {
        if self.shared.failed.load(Ordering::Relaxed) {
            return None;
        }
        let found = if self.shared.frames.has(key) {
            let shared = Arc::clone(&self.shared);
            let read = tokio::task::spawn_blocking(move || shared.frames.get(key));
            read.await
                .unwrap_or_else(|error| Err(io::Error::other(error)))
        } else {
            Ok(None)
        };
        match found {
            Ok(Some(frame)) => Some(frame),
            Ok(None) => {
                self.misses.fetch_add(1, Ordering::Relaxed);
                None
            }
            Err(error) => {
                self.shared.fail("read", &error);
                None
            }
        }
    }

    /// Notes that the bytes returned for `key` were those of the frame.
    fn was_right(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that the bytes returned for `key` were not those of the frame, and forgets them.
    fn was_damaged(&self, key: FrameKey, why: &(dyn Display + Sync)) {
        self.damaged.fetch_add(1, Ordering::Relaxed);
        let check = if self.shared.frames.forget(key) {
            "Unless the machine stopped before its last start, check that disk"
        } else {
            "Check that disk"
        };
        let folder = self.shared.folder.display();
        tracing::warn!(
            "the disk cache in {folder} returned damaged bytes: {why}; they are fetched from the bucket. {check}"
        );
    }

    /// Keeps a frame that came from the bucket and was verified. While the disk does not keep up, some frames are not
    /// kept.
    fn put(&self, key: FrameKey, stored: Bytes) {
        let shared = &*self.shared;
        let bytes = stored.len() as u64;
        if shared.failed.load(Ordering::Relaxed) || shared.frames.has(key) {
            return;
        }
        if shared.waiting.fetch_add(bytes, Ordering::Relaxed) + bytes > MAX_WAITING {
            shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
            return;
        }
        let writer = self.writer.lock();
        let sent = writer
            .as_ref()
            .map(|writer| writer.frames.send((key, stored)));
        if !matches!(sent, Some(Ok(()))) {
            shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Source for DiskCache {
    fn collect(&self, samples: &mut Samples) {
        let waiting = self.shared.waiting.load(Ordering::Relaxed);
        let waiting = Value::Gauge(waiting as f64);
        samples.add(&table::DISK_CACHE_WAITING, [], waiting);
        self.shared.frames.collect(samples);
    }
}

impl Drop for DiskCache {
    /// Stops the writing, so that a later opening of the same files finds no writer.
    fn drop(&mut self) {
        self.shared.abandoned.store(true, Ordering::Relaxed);
        if let Some(writer) = self.writer.get_mut().take() {
            writer.end();
        }
    }
}

impl Writer {
    fn end(self) {
        drop(self.frames);
        if self.thread.join().is_err() {
            tracing::error!("the thread of the disk cache panicked");
        }
    }
}

impl Shared {
    /// Writes frames until all senders are dropped.
    fn write(&self, frames: &Receiver<(FrameKey, Bytes)>, random: &dyn Randomness) {
        while let Ok(first) = frames.recv() {
            let mut bytes = first.1.len() as u64;
            let mut batch = vec![first];
            while bytes < BATCH
                && let Ok(next) = frames.try_recv()
            {
                bytes += next.1.len() as u64;
                batch.push(next);
            }
            let wanted = [&self.failed, &self.abandoned];
            if !wanted.iter().any(|flag| flag.load(Ordering::Relaxed))
                && let Err(error) = self.frames.put(batch, || u64::from_le_bytes(draw(random)))
            {
                self.fail("written", &error);
            }
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    fn fail(&self, what: &str, error: &io::Error) {
        if !self.failed.swap(true, Ordering::Relaxed) {
            let folder = self.folder.display();
            tracing::warn!(
                "the disk cache in {folder} cannot be {what}: {error}; it is not used until the next start. Check that disk"
            );
        }
    }
}

/// Opens the files in a folder of their own, which is removed if that fails: then it takes no space.
fn open_frames(folder: &Path, shape: Shape) -> io::Result<FrameCache> {
    let files = only_folder(folder, &format!("regions-{shape}"))?;
    FrameCache::open(&files, shape).inspect_err(|_| {
        let _ = fs::remove_dir_all(&files);
    })
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
    let own = folder.join(name);
    fs::create_dir_all(&own)?;
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_environment::SystemRandomness;

    #[tokio::test]
    async fn what_comes_while_too_much_waits_for_the_disk_is_not_kept_and_what_comes_later_is() {
        let folder = tempfile::tempdir().unwrap();
        let random = Arc::new(SystemRandomness);
        let cache = DiskCache::open(folder.path(), MIN_DISK_CACHE, random);
        let cache = cache.await.unwrap();
        let key = |offset| FrameKey {
            pack: forebay_types::PackId(1),
            offset,
        };
        let frame = Bytes::from(vec![7; 1000]);
        // As if the disk still had this much to write.
        let shared = Arc::clone(&cache.shared);
        shared.waiting.store(MAX_WAITING - 999, Ordering::Relaxed);
        cache.put(key(1), frame.clone());
        assert_eq!(shared.waiting.load(Ordering::Relaxed), MAX_WAITING - 999);
        shared.waiting.store(MAX_WAITING - 1000, Ordering::Relaxed);
        cache.put(key(2), frame.clone());
        cache.close().await;
        assert_eq!(shared.waiting.load(Ordering::Relaxed), MAX_WAITING - 1000);
        assert!(cache.get(key(1)).await.is_none());
        assert_eq!(cache.get(key(2)).await, Some(frame));
    }
}
