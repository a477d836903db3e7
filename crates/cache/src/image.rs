//! The bytes of one block that a checkpoint has to upload.

use crate::BlockVersion;
use crate::bitmap::RangeBitmap;
use crate::piece::Pieces;
use forebay_types::{BLOCK_SIZE, BlockIndex, ByteRange, CheckpointId};

/// The dirty ranges of one block in one checkpoint, and their bytes at the time of the image (or, if writers of a
/// newer checkpoint came first, at the close of the checkpoint).
///
/// Shares memory with the block and costs no copy: later writers copy the pieces that they change. Its pieces count
/// as allocated until it is dropped. Reading it needs no lock.
#[derive(Debug)]
pub struct BlockImage {
    pub(crate) block: BlockIndex,
    pub(crate) checkpoint: CheckpointId,
    pub(crate) version: BlockVersion,
    pub(crate) ranges: RangeBitmap,
    pub(crate) pieces: Pieces,
}

impl BlockImage {
    /// The index of the block in its file.
    pub fn block(&self) -> BlockIndex {
        self.block
    }

    /// The checkpoint of these dirty ranges.
    pub fn checkpoint(&self) -> CheckpointId {
        self.checkpoint
    }

    /// The version of the block in this image: as long as [`FileBlocks::version`] returns the same for this block
    /// and checkpoint, an upload of this image is complete.
    ///
    /// [`FileBlocks::version`]: crate::FileBlocks::version
    pub fn version(&self) -> BlockVersion {
        self.version
    }

    /// Number of bytes in it; at least one.
    pub fn dirty_bytes(&self) -> u64 {
        self.ranges.len()
    }

    /// The dirty ranges, as offsets within the block: merged, ascending.
    pub fn ranges(&self) -> impl Iterator<Item = ByteRange> + '_ {
        self.ranges.ranges()
    }

    /// The bytes of `range` (offsets within the block) in order, in one slice for each piece of 64 KiB that it
    /// touches. Returns exactly `range` if it lies in one of [`ranges`](Self::ranges); bytes that are not in the
    /// image are left out.
    pub fn slices(&self, range: ByteRange) -> impl Iterator<Item = &[u8]> + '_ {
        let known = self.ranges.set_ranges(range);
        known.flat_map(|range| self.pieces.slices(range))
    }

    /// Whether it is the whole block.
    pub fn is_whole_block(&self) -> bool {
        self.ranges.len() == BLOCK_SIZE
    }
}
