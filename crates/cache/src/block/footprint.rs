//! The memory of a block, and what is dirty of it: its part of the accounts.

use super::{Block, Closed};
use crate::bitmap::RangeBitmap;
use crate::piece::Pieces;

/// Memory of a block beside its counted heap memory: the block itself, its entry in the file's map and its place in
/// the order of use.
const BASE_BYTES: u64 = size_of::<Block>() as u64 + 128;

/// A block's contribution to the accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footprint {
    /// Memory beside the buffers of its pieces.
    pub(crate) overhead_bytes: u64,
    /// Dirty bytes, counted for each checkpoint.
    pub(crate) dirty_bytes: u64,
    /// The part of them that is in the log alone.
    pub(crate) spilled_bytes: u64,
    /// The part of the overhead that log maps take.
    pub(crate) index_bytes: u64,
}

impl Block {
    pub(crate) fn footprint(&self) -> Footprint {
        let index = self.dirty.log.heap_bytes();
        let mut footprint = Footprint {
            overhead_bytes: BASE_BYTES
                + self.pieces.heap_bytes()
                + self.coverage.heap_bytes()
                + self.dirty.ranges.heap_bytes()
                + index,
            dirty_bytes: self.dirty.ranges.len(),
            spilled_bytes: 0,
            index_bytes: index,
        };
        if self.closed.capacity() > 0 || self.spilled.is_some() {
            self.add_closed_and_spilled(&mut footprint);
        }
        footprint
    }

    /// The parts that most blocks do not have.
    #[cold]
    fn add_closed_and_spilled(&self, footprint: &mut Footprint) {
        let mut overhead = boxed_bytes(self.spilled.as_deref())
            + (self.closed.capacity() * size_of::<Closed>()) as u64;
        for closed in &self.closed {
            let index = closed.log.heap_bytes();
            overhead += closed.ranges.heap_bytes() + index;
            overhead += closed.pieces.as_ref().map_or(0, Pieces::heap_bytes);
            overhead += boxed_bytes(closed.held.as_deref()) + boxed_bytes(closed.stale.as_deref());
            footprint.dirty_bytes += closed.ranges.len();
            footprint.index_bytes += index;
        }
        footprint.overhead_bytes += overhead;
        footprint.spilled_bytes = self.spilled_bytes();
    }

    /// Memory of its newest state: pieces and overhead.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.pieces.buffer_bytes() + self.footprint().overhead_bytes
    }
}

/// Memory of a boxed set.
fn boxed_bytes(set: Option<&RangeBitmap>) -> u64 {
    set.map_or(0, |set| size_of::<RangeBitmap>() as u64 + set.heap_bytes())
}
