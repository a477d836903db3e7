//! Which blocks share a pack, and where its frames end.

use forebay_pack::PackWriter;
use forebay_types::{BLOCK_SIZE, ByteRange};

/// The most raw bytes of a frame: a read of a few cold bytes fetches and verifies that much. Frames of a block lie
/// one behind the other, so one GET fetches as many of them as are wanted; in a block map, each frame of such a row
/// takes five bytes.
pub(crate) const FRAME_BYTES: u64 = 256 << 10;

/// The frames of `range`, counted within a block. They end at multiples of [`FRAME_BYTES`].
pub(crate) fn frames(range: ByteRange) -> impl Iterator<Item = ByteRange> + Clone {
    let first = range.start / FRAME_BYTES;
    let behind = match range.is_empty() {
        true => first,
        false => range.end.div_ceil(FRAME_BYTES),
    };
    (first..behind)
        .map(move |number| ByteRange::at(number * FRAME_BYTES, FRAME_BYTES).intersect(range))
}

/// The most bytes of memory that a pack of this many frames takes, whose raw bytes sum up to `raw_bytes`. A frame of
/// one byte has a header and an entry in the index like all others: they count.
pub(crate) fn pack_memory(frames: usize, raw_bytes: u64) -> u64 {
    raw_bytes + PackWriter::most_bytes(frames, 0) as u64
}

/// The same for a pack of this many whole blocks.
pub(crate) fn whole_blocks(blocks: usize) -> u64 {
    let raw_bytes = blocks as u64 * BLOCK_SIZE;
    pack_memory((raw_bytes / FRAME_BYTES) as usize, raw_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_end_where_a_reader_can_know_and_leave_nothing_out() {
        let whole: Vec<_> = frames(ByteRange::new(0, BLOCK_SIZE)).collect();
        assert_eq!(whole.len() as u64, BLOCK_SIZE / FRAME_BYTES);
        assert!(whole.iter().all(|frame| frame.len() == FRAME_BYTES));
        let ragged = ByteRange::new(FRAME_BYTES - 1, 2 * FRAME_BYTES + 1);
        let parts = [
            ByteRange::at(FRAME_BYTES - 1, 1),
            ByteRange::at(FRAME_BYTES, FRAME_BYTES),
            ByteRange::at(2 * FRAME_BYTES, 1),
        ];
        assert!(frames(ragged).eq(parts));
        assert!(frames(ByteRange::new(5, 5)).eq([]));
        let small = ByteRange::new(5, 4101);
        assert!(frames(small).eq([small]));
    }

    #[test]
    fn headers_of_the_smallest_frames_count() {
        assert!(pack_memory(1000, 1000) >= 1000 * (1 + 172));
        let blocks = whole_blocks(2);
        assert_eq!(blocks, pack_memory(32, 2 * BLOCK_SIZE));
        assert_eq!(blocks, PackWriter::most_bytes(32, 8 << 20) as u64);
    }
}
