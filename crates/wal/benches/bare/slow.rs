//! A disk that takes 4 ms for each flush, like the disks for which the goals were set: writes go to the actual disk,
//! and the flush then takes that long in total.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use forebay_wal::{FileStorage, SegmentMemory, SegmentReader, Storage};

pub(crate) const FLUSH: Duration = Duration::from_millis(4);

/// Runs `work`, and takes at least the time of a flush.
pub(crate) fn flush<T>(work: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let done = work();
    std::thread::sleep(FLUSH.saturating_sub(began.elapsed()));
    done
}

/// Files on such a disk.
pub(crate) struct SlowStorage(pub(crate) FileStorage);

struct SlowMemory(Box<dyn SegmentMemory>);

impl Storage for SlowStorage {
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn SegmentMemory>> {
        Ok(Box::new(SlowMemory(self.0.create(name, bytes)?)))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn SegmentMemory>> {
        Ok(Box::new(SlowMemory(self.0.open(name)?)))
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn SegmentReader>> {
        self.0.read(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn rename_all(&self, names: &[(String, String)]) -> io::Result<()> {
        self.0.rename_all(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn salt(&self) -> u64 {
        self.0.salt()
    }
}

// SAFETY: every call is passed on to the wrapped memory, which keeps the promises.
unsafe impl SegmentMemory for SlowMemory {
    fn memory(&self) -> NonNull<[u8]> {
        self.0.memory()
    }

    fn flush(&self, range: Range<usize>) -> io::Result<()> {
        flush(|| self.0.flush(range))
    }

    fn write_back(&self, range: Range<usize>) -> io::Result<()> {
        self.0.write_back(range)
    }

    fn rewrite(&self, range: Range<usize>) {
        self.0.rewrite(range);
    }

    fn clear(&self, range: Range<usize>) {
        self.0.clear(range);
    }

    fn prefault(&self) {
        self.0.prefault();
    }
}
