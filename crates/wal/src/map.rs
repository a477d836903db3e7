//! The mapped memory of a segment that is being written, divided into slots that never overlap.

use std::io;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::storage::SegmentMemory;

/// Distance in bytes between a record and the memory that is prefetched when it is written: memory takes about as
/// long to arrive as this many bytes take to write.
#[cfg(target_arch = "x86_64")]
const FETCHED_AHEAD: usize = 512;
/// Bytes per prefetch.
#[cfg(target_arch = "x86_64")]
const CACHE_LINE: usize = 64;

/// A mapped segment, shared by all threads that write or flush parts of it.
pub(crate) struct SegmentMap {
    memory: Box<dyn SegmentMemory>,
}

/// The part of a segment that is not yet handed out. There is one per map, so that each byte is handed out once.
pub(crate) struct Unwritten {
    map: Arc<SegmentMap>,
    /// Bytes of the memory.
    limit: usize,
    /// Bytes that have been handed out, from the front.
    reserved: usize,
}

/// Some bytes of a segment that nothing else can write. A slot that outlives the call shares the map; one that is
/// filled at once borrows it.
pub(crate) struct Slot<M = Arc<SegmentMap>> {
    map: M,
    range: Range<usize>,
}

impl SegmentMap {
    /// Flushes a range to stable storage. The range must not be written to meanwhile.
    pub(crate) fn flush(&self, range: Range<usize>) -> io::Result<()> {
        self.memory.flush(range)
    }

    /// Begins to write a range to the disk, as [`SegmentMemory::write_back`] does. The range must not be written to
    /// meanwhile.
    pub(crate) fn write_back(&self, range: Range<usize>) -> io::Result<()> {
        self.memory.write_back(range)
    }

    /// Whether it stays mapped when it is flushed and full.
    pub(crate) fn stays(&self) -> bool {
        self.memory.is_in_memory()
    }

    /// Returns the memory, for another life of the segment. No slots are left then, since each of them shares the
    /// ownership that is given up here.
    pub(crate) fn into_memory(self) -> Box<dyn SegmentMemory> {
        self.memory
    }
}

impl Unwritten {
    /// A whole segment, of which nothing is handed out yet.
    pub(crate) fn new(memory: Box<dyn SegmentMemory>) -> Unwritten {
        Unwritten {
            limit: memory.memory().len(),
            map: Arc::new(SegmentMap { memory }),
            reserved: 0,
        }
    }

    /// Reserves the next `bytes` bytes; `None` when fewer are left.
    #[inline]
    pub(crate) fn reserve(&mut self, bytes: usize) -> Option<Slot<&SegmentMap>> {
        let range = self.hand_out(bytes)?;
        Some(Slot {
            map: &self.map,
            range,
        })
    }

    /// Like [`reserve`](Self::reserve), for a slot that outlives the call.
    pub(crate) fn reserve_shared(&mut self, bytes: usize) -> Option<Slot> {
        let range = self.hand_out(bytes)?;
        let map = Arc::clone(&self.map);
        Some(Slot { map, range })
    }

    #[inline]
    fn hand_out(&mut self, bytes: usize) -> Option<Range<usize>> {
        let start = self.reserved;
        let end = start.checked_add(bytes).filter(|end| *end <= self.limit)?;
        self.reserved = end;
        Some(start..end)
    }

    /// Bytes that have been handed out.
    pub(crate) fn reserved(&self) -> usize {
        self.reserved
    }

    /// Bytes that are left.
    #[inline]
    pub(crate) fn left(&self) -> usize {
        self.limit - self.reserved
    }

    /// The map, for a flush.
    pub(crate) fn share(&self) -> Arc<SegmentMap> {
        Arc::clone(&self.map)
    }

    /// Whether the map stays when it is flushed and full.
    pub(crate) fn stays(&self) -> bool {
        self.map.stays()
    }

    /// The map, when nothing more will be handed out.
    pub(crate) fn into_map(self) -> Arc<SegmentMap> {
        self.map
    }

    /// Prepares the memory so that writes to it do not fault.
    pub(crate) fn prefault(&self) {
        self.map.memory.prefault();
    }
}

impl<M: Deref<Target = SegmentMap>> Slot<M> {
    /// Has the processor fetch the memory of the next records, as many bytes as this slot has. The log's lock keeps
    /// stores from overlapping with the next append, so that each append would otherwise wait for memory of its own.
    #[inline]
    pub(crate) fn fetch_ahead(&self) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let memory = self.map.memory.memory().cast::<u8>().as_ptr();
            let ahead = memory.wrapping_add(self.range.end + FETCHED_AHEAD);
            for at in (0..self.range.len()).step_by(CACHE_LINE) {
                // SAFETY: a hint, which never faults, whatever the address; nothing is read.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(at).cast()) }
            }
        }
    }

    #[inline]
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let memory = self.map.memory.memory();
        // SAFETY: the range lies within the memory (checked by `hand_out`), which stays mapped at the same place
        // while `map` lives (promise of `SegmentMemory`); `map` is a borrow or an `Arc`, and always leads to the same
        // `SegmentMap`. `hand_out` hands out each byte once, as there is one `Unwritten` for a map, and `&mut self`
        // excludes a second slice of this slot. The log maps a file only once at a time (promise of the callers of
        // `Storage::open`), and the storage belongs to one process.
        unsafe {
            std::slice::from_raw_parts_mut(
                memory.cast::<u8>().as_ptr().add(self.range.start),
                self.range.len(),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{MemoryStorage, Storage};

    #[test]
    fn slots_do_not_overlap_and_end_with_the_memory() {
        let memory = MemoryStorage::new().create("a", 4096).expect("created");
        let mut map = Unwritten::new(memory);
        let mut first = map.reserve_shared(4000).expect("room");
        assert!(map.reserve(97).is_none());
        let mut second = map.reserve_shared(96).expect("room");
        first.bytes().fill(1);
        second.bytes().fill(2);
        assert!(first.bytes().iter().all(|byte| *byte == 1));
        assert_eq!(
            (first.bytes().len(), second.bytes().len(), map.left()),
            (4000, 96, 0)
        );
        assert!(map.reserve(usize::MAX).is_none());
    }
}
