//! A prefaulted file in memory that is overwritten cyclically.

use forebay_wal::{FileStorage, SegmentMemory, Storage};

use crate::Failure;

/// More than the processor's caches hold, and as much as a log uses.
const BYTES: usize = 128 << 20;

pub(crate) struct Region {
    memory: Box<dyn SegmentMemory>,
    at: usize,
    _folder: tempfile::TempDir,
}

impl Region {
    pub(crate) fn new() -> Result<Region, Failure> {
        let folder = tempfile::tempdir()?;
        let memory = FileStorage::open(folder.path())?.create("region", BYTES as u64)?;
        memory.prefault();
        Ok(Region {
            memory,
            at: 0,
            _folder: folder,
        })
    }

    /// Makes all pages present and writable.
    pub(crate) fn prefault(&self) {
        self.memory.prefault();
    }

    /// Flushes all of it to the disk.
    pub(crate) fn flush(&self) -> Result<(), Failure> {
        Ok(self.memory.flush(0..BYTES)?)
    }

    /// Flushes the last bytes that [`Region::next`] returned.
    pub(crate) fn flush_last(&self, bytes: usize) -> Result<(), Failure> {
        Ok(self.memory.flush(self.at - bytes..self.at)?)
    }

    /// The next `bytes` bytes, at most [`BYTES`].
    #[inline]
    pub(crate) fn next(&mut self, bytes: usize) -> &mut [u8] {
        assert!(bytes <= BYTES);
        if bytes > BYTES - self.at {
            self.at = 0;
        }
        let start = self.at;
        self.at += bytes;
        // SAFETY: within the memory (checked above), which stays mapped while `self` lives; nothing else uses it, and
        // `&mut self` excludes a second slice.
        unsafe {
            let first = self.memory.memory().cast::<u8>().as_ptr().add(start);
            std::slice::from_raw_parts_mut(first, bytes)
        }
    }
}
