//! Storage of segments: a small I/O trait, its real implementation, and one in memory that can lose power.

mod file;
mod memory;

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

/// The smallest page of any system: the unit in which bytes become dirty.
const PAGE: usize = 4096;

/// Bytes per write call into a new file, which the page cache keeps as one folio if the file system supports large
/// folios (ext4 from Linux 6.16 on, XFS). A folio is made present, write-protected and flushed as a whole: larger
/// ones cost less, but make a short record write more to the disk
/// (`docs/decisions/0032-what-a-flush-costs-the-kernel.md`).
pub(crate) const PIECE: usize = 32 << 10;

pub use file::FileStorage;
pub(crate) use file::open_for_reading;
pub use memory::{MemoryStorage, WriteBacks};

/// A flat folder of segments that belongs to one process.
///
/// Every change of the folder (`create`, `rename`, `rename_all`, `remove`) is on stable storage when the call
/// returns.
pub trait Storage: Send + Sync {
    /// The names of all files, in any order, foreign ones included.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes a file of `bytes` zeros with all its space reserved: a full disk is an error here, never later. On
    /// failure, no file is left behind.
    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn SegmentMemory>>;

    /// Maps an existing file for writing.
    fn open(&self, name: &str) -> io::Result<Box<dyn SegmentMemory>>;

    /// Opens an existing file for reading. A bad disk is an error here; a read of mapped memory would end the
    /// process.
    fn read(&self, name: &str) -> io::Result<Box<dyn SegmentReader>>;

    /// Renames a file, replacing an existing file with the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Renames several files, each like [`rename`](Self::rename), and as cheaply as one if the storage can do that.
    /// After an error each of them may have either name.
    fn rename_all(&self, names: &[(String, String)]) -> io::Result<()> {
        names
            .iter()
            .try_for_each(|(from, to)| self.rename(from, to))
    }

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// A random number: the salt of a segment's next life.
    fn salt(&self) -> u64;

    /// Maps the file with the position of the log (the format is in `docs/format.md`), and creates it if it does not
    /// exist. It is never flushed.
    ///
    /// # Errors
    /// `Unsupported` if the storage has no such file; the log works without it.
    fn position(&self) -> io::Result<Box<dyn SegmentMemory>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Cuts a file that is not mapped to `bytes` bytes, and frees the rest of its space.
    ///
    /// # Errors
    /// `Unsupported` if the storage cannot do that; the file stays as it is.
    fn shorten(&self, _name: &str, _bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A segment in memory, shared with its file.
///
/// # Safety
/// `memory` must always return the same, page-aligned, writable memory, which stays mapped as long as the value
/// lives. `flush` and `write_back` must not read bytes outside their range (a kernel may: it is not bound by Rust's rules).
pub unsafe trait SegmentMemory: Send + Sync {
    /// The bytes of the whole file.
    fn memory(&self) -> NonNull<[u8]>;

    /// Flushes these bytes to stable storage. After a failure nothing is known about any byte that was not flushed
    /// before, and a later success proves nothing about them.
    fn flush(&self, range: Range<usize>) -> io::Result<()>;

    /// Asks the system to begin to write these bytes to the disk, without waiting for it. Afterwards nothing is more
    /// durable than before: only [`flush`](Self::flush) makes bytes durable. The bytes must not be written to
    /// meanwhile, and should not be afterwards: the pages that they lie in would be written twice.
    ///
    /// # Errors
    /// `Unsupported` if the storage cannot do that, or if it would be of no use; nothing has happened then. Any other
    /// error counts as a failed flush of these bytes.
    fn write_back(&self, _range: Range<usize>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Makes the next flush write these bytes, even if the system believes that they are on the disk, as it does
    /// after a failed flush (Linux marks the pages clean). Nothing else may use the memory meanwhile.
    fn rewrite(&self, range: Range<usize>) {
        let memory = self.memory();
        for at in range.step_by(PAGE).filter(|at| *at < memory.len()) {
            // SAFETY: within the memory, which stays mapped while `self` lives; the caller excludes other users.
            unsafe {
                let byte = memory.cast::<u8>().as_ptr().add(at);
                byte.write_volatile(byte.read_volatile());
            }
        }
    }

    /// Zeroes these bytes, as far as the file has them. Nothing else may use the memory meanwhile.
    fn clear(&self, range: Range<usize>) {
        let memory = self.memory();
        let end = range.end.min(memory.len());
        let start = range.start.min(end);
        // SAFETY: within the memory (both ends are limited to its length), which stays mapped while `self` lives; the
        // caller excludes other users.
        unsafe {
            let first = memory.cast::<u8>().as_ptr().add(start);
            first.write_bytes(0, end - start);
        }
    }

    /// Makes every page present and writable, so that later stores do not fault. A hint: does nothing if it is not
    /// supported.
    fn prefault(&self);

    /// Whether no disk is behind the file, so that a flush leaves its pages as they were. Such a file is best mapped
    /// as long as it exists.
    fn is_in_memory(&self) -> bool {
        false
    }
}

/// A segment's bytes, read at recovery and by readers of single records.
pub trait SegmentReader: Send + Sync {
    /// Bytes of the file.
    fn size(&self) -> io::Result<u64>;

    /// Fills `buffer` from `offset` on and returns the number of bytes read; fewer than requested only at the end of
    /// the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Asks the system to forget its copy of these bytes, so that the next read comes from the disk. A hint: does
    /// nothing if it is not supported, and to bytes that are not on the disk yet.
    fn drop_cached(&self, _range: Range<u64>) {}
}
