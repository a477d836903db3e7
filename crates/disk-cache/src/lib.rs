//! Forebay: the local disk cache, which keeps frames of the bucket on the gateway's own disk.
//!
//! ```text
//!  FrameCache ---- all of it: get, put, forget, close
//!    |
//!    +-- table ------- in memory: which frame lies where, which region is given up next
//!    |
//!    +-- region ------ one of up to 256 files of the same size, preallocated
//!          |
//!          +-- recovery --- what an earlier run has left in it
//!          +-- layout ----- what lies where in it
//! ```
//!
//! Frames are appended to one region after the other. When the last one is full, the one whose turn it is is begun
//! anew, and all that it had is forgotten: the oldest, but for those of which much was read since their turn
//! last came, which are passed over once.
//!
//! A frame is known by the place that it has in the bucket, and that never gets other bytes. So nothing here
//! becomes wrong, and nothing has to be told of changes.
//!
//! # What survives what
//! Nothing is ever flushed. After kill -9 all is found again that was written; after [`FrameCache::close`] without looking
//! for it. After a power cut, anything may be missing, or something else than was written: **what
//! [`get`](FrameCache::get) gives was not verified**, and who reads it has to, as if it came from the bucket. On a disk
//! that somebody else has written to it is the same.
//!
//! Plain synchronous code: reads and writes wait for the disk. One may put while others get; two who put wait for one
//! another.

#![forbid(unsafe_code)]

#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod layout;
mod recovery;
mod region;
mod table;

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use bytes::Bytes;
use forebay_types::PackId;
use parking_lot::Mutex;

use layout::{ENTRY_HEADER, REGION_HEADER, index_bytes};
use region::RegionFile;
use table::Table;

/// Least bytes of a disk cache: a few dozen of the largest frames.
pub const MIN_DISK_CACHE: u64 = 256 << 20;
/// Most bytes of one.
pub const MAX_DISK_CACHE: u64 = 512 << 30;

/// What is given up at once, and so the size of a file: large enough for several of the largest frames.
const MIN_REGION: u64 = 16 << 20;
/// At most so many files, each of which is kept open.
const MAX_REGIONS: u64 = 256;

const _: () = {
    assert!(MAX_DISK_CACHE / MAX_REGIONS < u32::MAX as u64);
    assert!(MAX_REGIONS <= u16::MAX as u64);
    // So that an empty region has room for any frame.
    assert!((REGION_HEADER + ENTRY_HEADER + MAX_FRAME + index_bytes(1)) as u64 <= MIN_REGION);
};

/// Most bytes that a frame may have.
pub const MAX_FRAME: usize = 8 << 20;

/// Where a frame lies in the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameKey {
    /// The pack that has it.
    pub pack: PackId,
    /// Place of its first byte in the pack.
    pub offset: u32,
}

/// How large a cache is, and in how many files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    regions: u64,
    region_bytes: u64,
}

impl Shape {
    /// For a cache of up to `limit` bytes, from [`MIN_DISK_CACHE`] to [`MAX_DISK_CACHE`].
    pub fn of(limit: u64) -> Shape {
        let limit = limit.clamp(MIN_DISK_CACHE, MAX_DISK_CACHE);
        let region = (limit / MAX_REGIONS).max(MIN_REGION);
        let region_bytes = region.next_multiple_of(4096);
        Shape {
            regions: limit / region_bytes,
            region_bytes,
        }
    }

    /// Bytes of disk that it takes, all of them from the start.
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
    /// Never held while anything is read or written.
    table: Mutex<Table>,
    /// Of who puts. Taken before the table.
    writing: Mutex<()>,
}

impl FrameCache {
    /// Opens the cache in `folder`, which exists and where all caches had this shape; with what it held before.
    ///
    /// # Errors
    /// The disk has no room for all of it, or cannot be read or written.
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
            table: Mutex::new(table),
            writing: Mutex::default(),
        })
    }

    /// Whether the frame is here. Does not wait for the disk.
    pub fn has(&self, key: FrameKey) -> bool {
        self.table.lock().has(&key)
    }

    /// What lies where the frame is; `None` if it is not here. Not verified.
    ///
    /// # Errors
    /// The disk could not be read.
    pub fn get(&self, key: FrameKey) -> io::Result<Option<Bytes>> {
        let Some(place) = self.table.lock().find(&key) else {
            return Ok(None);
        };
        let file = self.files.get(place.region);
        let file = file.ok_or(io::ErrorKind::NotFound)?;
        let bytes = file.read(u64::from(place.at), place.len as usize)?;
        // Others may have begun the region anew meanwhile.
        let still = self.table.lock().is_still(&place);
        Ok(still.then(|| bytes.into()))
    }

    /// Keeps frames. One that is here already, or longer than [`MAX_FRAME`], is left out. `random` draws a number that nobody
    /// can guess.
    ///
    /// # Errors
    /// The disk could not be written. What was put is not here then; later frames may be put.
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
                Ok(()) => table.add(&entries),
                Err(error) => {
                    table.take_back(&entries);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Forgets the frame: it turned out to be something else. `true` if it was written before this start, so that a
    /// power cut may be the reason.
    pub fn forget(&self, key: FrameKey) -> bool {
        self.table.lock().forget(&key)
    }

    /// Makes the next opening quick. What is put after it is found all the same.
    ///
    /// # Errors
    /// The disk could not be written; nothing is lost by that.
    pub fn close(&self) -> io::Result<()> {
        let _alone = self.writing.lock();
        self.finish()
    }

    /// Gives the region that is being filled its index.
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
        let (region, life) = begun.ok_or(io::ErrorKind::NotFound)?;
        let file = self.files.get(region).ok_or(io::ErrorKind::NotFound)?;
        file.begin(life)
    }
}
