//! Blocks: 4 MiB-aligned pieces of files.

use crate::{ByteRange, Inode};

/// Bytes in a block.
pub const BLOCK_SIZE: u64 = 4 << 20;

/// Index of a block in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockIndex(pub u64);

impl BlockIndex {
    /// The block that holds the file's byte at `offset`.
    pub fn of(offset: u64) -> BlockIndex {
        BlockIndex(offset / BLOCK_SIZE)
    }

    /// Offset of the block in its file; `u64::MAX` from 2^42 blocks on, which no file has but which damaged metadata
    /// may name.
    pub fn start(self) -> u64 {
        self.0.saturating_mul(BLOCK_SIZE)
    }

    /// Splits a byte range of a file at block boundaries. Each item is a block and the range within that block (0 to
    /// [`BLOCK_SIZE`]), in order.
    pub fn split(range: ByteRange) -> impl Iterator<Item = (BlockIndex, ByteRange)> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let block = BlockIndex::of(at);
            let end = range.end.min(block.start().saturating_add(BLOCK_SIZE));
            let inside = ByteRange::new(at - block.start(), end - block.start());
            at = end;
            Some((block, inside))
        })
    }
}

/// Name of a block: its file and its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey {
    /// The file.
    pub inode: Inode,
    /// The block within it.
    pub block: BlockIndex,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_cuts_at_block_borders() {
        let parts: Vec<_> =
            BlockIndex::split(ByteRange::new(BLOCK_SIZE - 1, 2 * BLOCK_SIZE + 5)).collect();
        assert_eq!(
            parts,
            [
                (BlockIndex(0), ByteRange::new(BLOCK_SIZE - 1, BLOCK_SIZE)),
                (BlockIndex(1), ByteRange::new(0, BLOCK_SIZE)),
                (BlockIndex(2), ByteRange::new(0, 5)),
            ]
        );
        assert_eq!(BlockIndex::split(ByteRange::new(7, 7)).count(), 0);
    }
}
