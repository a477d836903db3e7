//! Where segments live: a tiny I/O trait, its real implementation and one in memory that can lose
//! power.

mod file;
mod memory;

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

/// The smallest page of any system: bytes that become dirty together.
const PAGE: usize = 4096;

pub use file::FileStorage;
pub(crate) use file::open_for_reading;
pub use memory::MemoryStorage;

/// A flat folder of segments that belongs to one process.
///
/// Every change of the folder (`create`, `rename`, `rename_all`, `remove`) is on stable storage when the call
/// returns.
pub trait Storage: Send + Sync {
    /// The names of all files, in any order, foreign ones included.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes a file of `bytes` zeros with all its space reserved: a full disk is an error here,
    /// never later. Nothing is left behind on failure.
    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn SegmentMemory>>;

    /// Maps an existing file for writing.
    fn open(&self, name: &str) -> io::Result<Box<dyn SegmentMemory>>;

    /// Opens an existing file for reading. A bad disk gives an error here, where reading
    /// mapped memory would end the process.
    fn read(&self, name: &str) -> io::Result<Box<dyn SegmentReader>>;

    /// Gives a file another name, replacing a file of that name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Gives several files other names, each as [`rename`](Self::rename) does, and as cheaply as one where the
    /// storage can. After an error each of them may have the one name or the other.
    fn rename_all(&self, names: &[(String, String)]) -> io::Result<()> {
        names
            .iter()
            .try_for_each(|(from, to)| self.rename(from, to))
    }

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// A random number: the salt of a segment's next life.
    fn salt(&self) -> u64;

    /// Maps the file with the position of the log (the format is in `docs/format.md`), and makes it if there is
    /// none. It is never flushed.
    ///
    /// # Errors
    /// `Unsupported` where there is no such file; the log does without.
    fn position(&self) -> io::Result<Box<dyn SegmentMemory>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Cuts a file that is not mapped to `bytes` bytes, and frees the rest of its space.
    ///
    /// # Errors
    /// `Unsupported` where that cannot be done; the file stays as it is.
    fn shorten(&self, _name: &str, _bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A segment in memory, shared with its file.
///
/// # Safety
/// `memory` must always return the same, page-aligned, writable memory, which stays mapped as long
/// as the value lives. `flush` must not read bytes outside its range (a kernel may, it is no party
/// to Rust's rules).
pub unsafe trait SegmentMemory: Send + Sync {
    /// The bytes of the whole file.
    fn memory(&self) -> NonNull<[u8]>;

    /// Puts these bytes on stable storage. After a failure nothing is known about any byte that was
    /// not flushed before, and a later success says nothing about them.
    fn flush(&self, range: Range<usize>) -> io::Result<()>;

    /// Has the next flush write these bytes, though the system may believe that they are on the disk:
    /// after a flush that failed it does (Linux marks the pages clean). Nobody else may use the
    /// memory meanwhile.
    fn rewrite(&self, range: Range<usize>) {
        let memory = self.memory();
        for at in range.step_by(PAGE).filter(|at| *at < memory.len()) {
            // SAFETY: within the memory, which stays mapped while `self` lives; the caller keeps
            // others away.
            unsafe {
                let byte = memory.cast::<u8>().as_ptr().add(at);
                byte.write_volatile(byte.read_volatile());
            }
        }
    }

    /// Makes these bytes zeros, as far as there are any. Nobody else may use the memory meanwhile.
    fn clear(&self, range: Range<usize>) {
        let memory = self.memory();
        let end = range.end.min(memory.len());
        let start = range.start.min(end);
        // SAFETY: within the memory (both ends are limited to its length), which stays mapped while
        // `self` lives; the caller keeps others away.
        unsafe {
            let first = memory.cast::<u8>().as_ptr().add(start);
            first.write_bytes(0, end - start);
        }
    }

    /// Makes every page present and writable, so that later stores do not fault. Advice: does
    /// nothing where it is not supported.
    fn prefault(&self);

    /// Whether there is no disk behind the file, so that a flush leaves its pages as they were: it is best mapped as long as there
    /// is the file.
    fn is_in_memory(&self) -> bool {
        false
    }
}

/// A segment's bytes, read at recovery.
pub trait SegmentReader: Send + Sync {
    /// Bytes of the file.
    fn size(&self) -> io::Result<u64>;

    /// Fills `buffer` from `offset` on and returns how many bytes there were; fewer than asked for
    /// only at the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
}
