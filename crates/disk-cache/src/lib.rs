//! Forebay: the local disk cache, which keeps frames of the bucket on the gateway's own disk.
//!
//! ```text
//!  FrameCache ---- all of it: get, put, forget, close
//!    |
//!    +-- table ------- in memory: the place of each frame, the region that is reused next
//!    |
//!    +-- region ------ one of up to 256 files of the same size, preallocated
//!          |
//!          +-- recovery --- finds the entries that an earlier run has left
//!          +-- layout ----- its file format
//! ```
//!
//! Frames are appended to one region after the other. When the last one is full, the region that comes next in turn
//! is reused, and all its frames are dropped. That is the oldest region, except that a region of which much was read
//! since its last turn is skipped once.
//!
//! A frame is identified by its place in the bucket, whose bytes never change. So the cache never becomes stale, and
//! needs no invalidation.
//!
//! # Durability
//! Nothing is ever flushed. After kill -9, everything that was written is found again; after [`FrameCache::close`]
//! without a search. After a power cut, anything may be missing, or differ from the written bytes: **the result of
//! [`get`](FrameCache::get) is not verified**, and the reader must verify it like bytes from the bucket. The same is
//! true of a disk that something else has written to.
//!
//! Plain synchronous code: reads and writes wait for the disk. One thread may put while others get; two threads that
//! put wait for one another.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod layout;
mod recovery;
mod region;
mod table;

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use forebay_metrics::{Counter, Samples, Source, table as families};
use forebay_types::PackId;
use parking_lot::Mutex;

use layout::{ENTRY_HEADER, REGION_HEADER, index_bytes};
use region::RegionFile;
use table::Table;

/// Minimum size of a disk cache, in bytes: a few dozen of the largest frames.
pub const MIN_DISK_CACHE: u64 = 256 << 20;
/// Maximum size of a disk cache, in bytes.
pub const MAX_DISK_CACHE: u64 = 512 << 30;

/// Minimum size of a region, in bytes: large enough for several of the largest frames. A region is reused as a whole,
/// and is one file.
const MIN_REGION: u64 = 16 << 20;
/// Maximum number of regions; the file of each is kept open.
const MAX_REGIONS: u64 = 256;

const _: () = {
    assert!(MAX_DISK_CACHE / MAX_REGIONS < u32::MAX as u64);
    assert!(MAX_REGIONS <= u16::MAX as u64);
    // So that an empty region has room for any frame.
    assert!((REGION_HEADER + ENTRY_HEADER + MAX_FRAME + index_bytes(1)) as u64 <= MIN_REGION);
};

/// Maximum size of a frame, in bytes.
pub const MAX_FRAME: usize = 8 << 20;

/// The place of a frame in the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameKey {
    /// The pack that contains it.
    pub pack: PackId,
    /// Offset of its first byte in the pack.
    pub offset: u32,
}

/// The size of a cache, and the number of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    regions: u64,
    region_bytes: u64,
}

impl Shape {
    /// The shape of a cache of up to `limit` bytes, from [`MIN_DISK_CACHE`] to [`MAX_DISK_CACHE`].
    pub fn of(limit: u64) -> Shape {
        let limit = limit.clamp(MIN_DISK_CACHE, MAX_DISK_CACHE);
        let region = (limit / MAX_REGIONS).max(MIN_REGION);
        let region_bytes = region.next_multiple_of(4096);
        Shape {
            regions: limit / region_bytes,
            region_bytes,
        }
    }

    /// Bytes of disk space, all of them allocated from the start.
    pub fn bytes(&self) -> u64 {
        self.regions * self.region_bytes
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.regions, self.region_bytes)
    }
}

/// See the [crate's documentation](crate).
#[derive(Debug)]
pub struct FrameCache {
    files: Vec<RegionFile>,
    /// Never held during reads and writes.
    table: Mutex<Table>,
    /// Held by the thread that puts. Taken before the table.
    writing: Mutex<()>,
    /// Frames that were dropped to make room, and their bytes.
    evictions: Counter,
    evicted_bytes: Counter,
    /// As the table had it after the last change.
    used: AtomicU64,
}

impl FrameCache {
    /// Opens the cache in `folder`, with its previous content. The folder exists, and all earlier caches in it had
    /// this shape.
    ///
    /// # Errors
    /// When the disk has no room for all of it, or cannot be read or written.
    pub fn open(folder: &Path, shape: Shape) -> io::Result<FrameCache> {
        let mut files = Vec::new();
        let mut found = Vec::new();
        for number in 0..shape.regions {
            let path = folder.join(format!("region-{number:03}"));
            let file = RegionFile::open(&path, shape.region_bytes)?;
            found.push(file.find()?);
            files.push(file);
        }
        let table = Table::new(shape.region_bytes, found);
        Ok(FrameCache {
            files,
            used: table.used_bytes().into(),
            table: Mutex::new(table),
            writing: Mutex::default(),
            evictions: Counter::default(),
            evicted_bytes: Counter::default(),
        })
    }

    /// Bytes of disk with frames that were written and not replaced yet. Takes no lock.
    pub fn used_bytes(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Whether the frame is cached. Does not wait for the disk.
    pub fn has(&self, key: FrameKey) -> bool {
        self.table.lock().has(&key)
    }

    /// Reads the frame; `None` if it is not cached. The bytes are not verified.
    ///
    /// # Errors
    /// When the disk cannot be read.
    pub fn get(&self, key: FrameKey) -> io::Result<Option<Bytes>> {
        let Some(place) = self.table.lock().find(&key) else {
            return Ok(None);
        };
        let file = self.files.get(place.region);
        let file = file.ok_or(io::ErrorKind::NotFound)?;
        let bytes = file.read(u64::from(place.at), place.len as usize)?;
        // Another thread may have reused the region meanwhile.
        let still = self.table.lock().is_still(&place);
        Ok(still.then(|| bytes.into()))
    }

    /// Caches frames, except those that are already cached or longer than [`MAX_FRAME`]. `random` returns a number
    /// that cannot be guessed.
    ///
    /// # Errors
    /// When the disk cannot be written. The frames of that write are not cached then; later frames may be put.
    pub fn put(
        &self,
        frames: impl IntoIterator<Item = (FrameKey, Bytes)>,
        mut random: impl FnMut() -> u64,
    ) -> io::Result<()> {
        let _alone = self.writing.lock();
        let frames = frames.into_iter();
        let wanted = frames.filter(|(key, frame)| frame.len() <= MAX_FRAME && !self.has(*key));
        let mut wanted: VecDeque<_> = wanted.collect();
        while !wanted.is_empty() {
            let placed = self.table.lock().place(&mut wanted);
            let Some((region, salt, entries)) = placed else {
                self.begin(&mut random)?;
                continue;
            };
            let file = self.files.get(region).ok_or(io::ErrorKind::NotFound)?;
            let appended = file.append(&entries, salt);
            let mut table = self.table.lock();
            match appended {
                Ok(()) => {
                    table.add(&entries);
                    self.used.store(table.used_bytes(), Relaxed);
                }
                Err(error) => {
                    table.take_back(&entries);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Removes a frame whose bytes turned out to be wrong. Returns `true` if it was written before this start, so
    /// that a power cut may be the reason.
    pub fn forget(&self, key: FrameKey) -> bool {
        self.table.lock().forget(&key)
    }

    /// Makes the next opening fast. Frames that are put afterwards are found as well.
    ///
    /// # Errors
    /// When the disk cannot be written; no frame is lost by that.
    pub fn close(&self) -> io::Result<()> {
        let _alone = self.writing.lock();
        self.finish()
    }

    /// Writes the index of the region that is being filled.
    fn finish(&self) -> io::Result<()> {
        let (region, salt, entries) = {
            let table = self.table.lock();
            let Some((region, salt, entries)) = table.filled() else {
                return Ok(());
            };
            (region, salt, entries.to_vec())
        };
        match self.files.get(region) {
            Some(file) => file.finish(&entries, salt),
            None => Ok(()),
        }
    }

    fn begin(&self, random: &mut impl FnMut() -> u64) -> io::Result<()> {
        self.finish()?;
        let begun = self.table.lock().begin(random());
        let begun = begun.ok_or(io::ErrorKind::NotFound)?;
        self.evictions.add(begun.dropped);
        self.evicted_bytes.add(begun.dropped_bytes);
        let file = self.files.get(begun.region);
        file.ok_or(io::ErrorKind::NotFound)?.begin(begun.life)
    }
}

impl Source for FrameCache {
    fn collect(&self, samples: &mut Samples) {
        samples.counter_of(&families::EVICTIONS, "disk_cache", &self.evictions);
        samples.counter_of(&families::EVICTED, "disk_cache", &self.evicted_bytes);
    }
}
