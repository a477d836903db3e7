//! The bytes of one block that a checkpoint has to upload.

use crate::BlockVersion;
use crate::bitmap::RangeBitmap;
use crate::log_map::LogMap;
use crate::piece::Pieces;
use crate::pool::Pool;
use forebay_types::{BLOCK_SIZE, BlockIndex, ByteRange, CheckpointId, Lsn, to_usize};
use std::sync::Arc;

/// The dirty ranges of one block in one checkpoint, and their bytes at the time of the image (or, if writers of a
/// newer checkpoint came first, at the close of the checkpoint).
///
/// Shares memory with the block and costs no copy: later writers copy the pieces that they change. Its pieces count
/// as allocated until it is dropped.
///
/// Of bytes that are in the log alone it knows the records, which do not change. They have to be [loaded](Self::logged)
/// before the bytes of the image can be read, as a [`LoadedImage`].
#[derive(Debug)]
pub struct BlockImage {
    pub(crate) block: BlockIndex,
    pub(crate) checkpoint: CheckpointId,
    pub(crate) version: BlockVersion,
    pub(crate) ranges: RangeBitmap,
    pub(crate) pieces: Pieces,
    /// The ranges that `pieces` does not have.
    pub(crate) logged: LogMap,
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

    /// Number of bytes in it; at least one, unless some were [left out](Self::leave_out).
    pub fn dirty_bytes(&self) -> u64 {
        self.ranges.len()
    }

    /// The dirty ranges, as offsets within the block: merged, ascending.
    pub fn ranges(&self) -> impl Iterator<Item = ByteRange> + '_ {
        self.ranges.ranges()
    }

    /// Whether it is the whole block.
    pub fn is_whole_block(&self) -> bool {
        self.ranges.len() == BLOCK_SIZE
    }

    /// The ranges, as offsets within the block, whose bytes the image does not have yet, and the record that has them:
    /// ascending. [`Cache::load`](crate::Cache::load) takes the bytes.
    pub fn logged(&self) -> impl Iterator<Item = (ByteRange, Lsn)> + '_ {
        self.logged.all()
    }

    /// Takes the bytes of this record that were not loaded out of the image, because the log cannot return them, and
    /// returns their ranges, as offsets within the block: ascending. From then on they are not of its
    /// [ranges](Self::ranges), which may be none. The block does not change.
    pub fn leave_out(&mut self, lsn: Lsn) -> Vec<ByteRange> {
        let of_record = self.logged.all().filter(|(_, record)| *record == lsn);
        let left_out: Vec<ByteRange> = of_record.map(|(range, _)| range).collect();
        for range in &left_out {
            self.logged.carve(*range);
            self.ranges.clear(*range);
        }
        left_out
    }

    /// The image, if it has all of its bytes; otherwise unchanged, as an error.
    pub fn loaded(self) -> Result<LoadedImage, Box<BlockImage>> {
        if self.logged.is_empty() {
            Ok(LoadedImage(self))
        } else {
            Err(Box::new(self))
        }
    }

    /// The part of its ranges that its pieces have, if it is not all of them.
    pub(crate) fn held(&self) -> Option<Box<RangeBitmap>> {
        if self.logged.is_empty() {
            return None;
        }
        let mut held = Box::new(self.ranges.clone());
        self.logged.all().for_each(|(range, _)| held.clear(range));
        Some(held)
    }

    /// See [`Cache::load`](crate::Cache::load).
    pub(crate) fn load(&mut self, lsn: Lsn, offset: u64, data: &[u8], pool: &Arc<Pool>) -> u64 {
        let start = self.block.start();
        let came = ByteRange::at(offset, data.len() as u64);
        let wanted = self.logged.all().filter(|(_, record)| *record == lsn);
        let wanted = wanted.map(|(range, _)| ByteRange::at(start + range.start, range.len()));
        let wanted = wanted.map(|range| range.intersect(came));
        let wanted: Vec<ByteRange> = wanted.filter(|range| !range.is_empty()).collect();
        for range in &wanted {
            let part = &data[to_usize(range.start - offset)..to_usize(range.end - offset)];
            let at = range.start - start;
            self.pieces.write(at, part, false, pool);
            self.logged.carve(ByteRange::at(at, range.len()));
        }
        wanted.iter().map(|range| range.len()).sum()
    }
}

/// An image that has all of its bytes: nothing of it is in the log alone. Reading it needs no lock.
#[derive(Debug)]
pub struct LoadedImage(BlockImage);

impl LoadedImage {
    /// The image itself.
    pub fn image(&self) -> &BlockImage {
        &self.0
    }

    /// The image, for another try or to be [put back](crate::FileBlocks::put_back).
    pub fn into_image(self) -> BlockImage {
        self.0
    }

    /// The dirty ranges, like [`BlockImage::ranges`].
    pub fn ranges(&self) -> impl Iterator<Item = ByteRange> + '_ {
        self.0.ranges()
    }

    /// The bytes of `range` (offsets within the block) in order, in one slice for each piece of 64 KiB that it
    /// touches. Returns exactly `range` if it lies in one of [`ranges`](Self::ranges); bytes that are not in the
    /// image are left out.
    pub fn slices(&self, range: ByteRange) -> impl Iterator<Item = &[u8]> + '_ {
        let known = self.0.ranges.set_ranges(range);
        known.flat_map(|range| self.0.pieces.slices(range))
    }
}

#[cfg(test)]
mod tests {
    use forebay_types::Inode;

    use super::*;
    use crate::{Cache, FileBlocks, Spilled};

    const FIRST: CheckpointId = CheckpointId(1);
    const BLOCK: BlockIndex = BlockIndex(0);
    const PIECE: u64 = 64 << 10;

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start, end)
    }

    #[test]
    fn it_is_loaded_without_what_the_log_cannot_return() {
        let cache = Cache::new(64 << 20);
        let mut file = FileBlocks::new(Inode(7), Arc::clone(&cache));
        let writes = [
            (range(0, PIECE), 1),
            (range(10, 20), 2),
            (range(PIECE - 5, 2 * PIECE), 2),
            (range(40, 50), 3),
        ];
        for (range, lsn) in writes {
            let data = vec![lsn as u8; to_usize(range.len())];
            file.write(range.start, &data, FIRST, Some(Lsn(lsn)));
        }
        let mut spilled = file.spill(BLOCK, Lsn(9));
        if spilled == Spilled::Touched {
            spilled = file.spill(BLOCK, Lsn(9));
        }
        assert!(matches!(spilled, Spilled::Freed(_)), "{spilled:?}");
        let mut image = file.image(BLOCK, FIRST).unwrap();
        let came = cache.load(&mut image, Lsn(1), 0, &[1; PIECE as usize]);
        assert_eq!(came, PIECE - 25);
        assert!(image.leave_out(Lsn(1)).is_empty(), "it has them");
        assert!(image.leave_out(Lsn(9)).is_empty());
        let lost = [range(10, 20), range(PIECE - 5, 2 * PIECE)];
        assert_eq!(image.leave_out(Lsn(2)), lost);
        assert!(image.logged().eq([(range(40, 50), Lsn(3))]));
        let mut image = image.loaded().unwrap_err();
        assert_eq!(cache.load(&mut image, Lsn(3), 40, &[3; 10]), 10);
        let image = image.loaded().unwrap();
        let rest = [range(0, 10), range(20, PIECE - 5)];
        assert!(image.ranges().eq(rest));
        let bytes = |range| image.slices(range).collect::<Vec<_>>().concat();
        assert_eq!(bytes(rest[0]), [1; 10]);
        assert_eq!(bytes(range(39, 51)), [1, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 1]);
        assert!(lost.iter().all(|lost| bytes(*lost).is_empty()));
        drop(image);
        // The block still has all records.
        let mut again = file.image(BLOCK, FIRST).unwrap();
        for lsn in 1..=3 {
            assert!(!again.leave_out(Lsn(lsn)).is_empty());
        }
        assert_eq!(again.dirty_bytes(), 0);
        assert_eq!(again.loaded().unwrap().ranges().count(), 0);
    }
}
