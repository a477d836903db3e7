//! The mapped memory of a segment that is being written, cut into slots that never overlap.

use std::io;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::storage::SegmentMemory;

/// Hands out every byte of a mapped segment once.
pub(crate) struct SegmentMap {
    memory: Box<dyn SegmentMemory>,
    /// Bytes of the memory.
    limit: usize,
    /// Bytes that have been handed out, from the front.
    reserved: AtomicUsize,
}

/// Some bytes of a segment that nobody else can write. Whoever takes it along shares the map; whoever fills
/// it on the spot borrows it.
pub(crate) struct Slot<M = Arc<SegmentMap>> {
    map: M,
    range: Range<usize>,
}

impl SegmentMap {
    pub(crate) fn new(memory: Box<dyn SegmentMemory>) -> SegmentMap {
        SegmentMap {
            limit: memory.memory().len(),
            memory,
            reserved: AtomicUsize::new(0),
        }
    }

    /// The next `bytes` bytes, or `None` when so many are not left.
    pub(crate) fn reserve(&self, bytes: usize) -> Option<Slot<&SegmentMap>> {
        let range = self.hand_out(bytes)?;
        Some(Slot { map: self, range })
    }

    /// The same, to take along.
    pub(crate) fn reserve_shared(self: &Arc<Self>, bytes: usize) -> Option<Slot> {
        let range = self.hand_out(bytes)?;
        let map = Arc::clone(self);
        Some(Slot { map, range })
    }

    fn hand_out(&self, bytes: usize) -> Option<Range<usize>> {
        let grown = |at: usize| at.checked_add(bytes).filter(|end| *end <= self.limit);
        let start = self
            .reserved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown)
            .ok()?;
        Some(start..start + bytes)
    }

    /// Bytes that have been handed out.
    pub(crate) fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Bytes that are left.
    pub(crate) fn left(&self) -> usize {
        self.limit - self.reserved()
    }

    /// Puts a range on stable storage that is not being written to.
    pub(crate) fn flush(&self, range: Range<usize>) -> io::Result<()> {
        self.memory.flush(range)
    }

    /// Makes the memory ready to be written without faults.
    pub(crate) fn prefault(&self) {
        self.memory.prefault();
    }

    /// Gives the memory back, for another life of the segment. There are no slots any more, since
    /// each of them shares the ownership that is given up here.
    pub(crate) fn into_memory(self) -> Box<dyn SegmentMemory> {
        self.memory
    }
}

impl<M: Deref<Target = SegmentMap>> Slot<M> {
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let memory = self.map.memory.memory();
        // SAFETY: the range lies within the memory (checked by `hand_out`), which stays mapped at
        // the same place while `map` lives (promise of `SegmentMemory`); `map` is a reference of one
        // kind or the other, and always leads to the same. `hand_out` gives each byte away once, and `&mut self` excludes a second slice of this slot. The log maps a file only
        // once at a time (promise of the callers of `Storage::open`), and the storage belongs to
        // one process.
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
        let map = SegmentMap::new(memory);
        let mut first = map.reserve(4000).expect("room");
        assert!(map.reserve(97).is_none());
        let mut second = map.reserve(96).expect("room");
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
