//! Which frames of a block a fetch needs.

use std::collections::HashMap;

use forebay_cache::FileBlocks;
use forebay_meta::FrameAddress;
use forebay_meta::record::BlockMap;
use forebay_pack_store::{PackStore, most_gap_bytes};
use forebay_types::{BLOCK_SIZE, BlockIndex, ByteRange};

/// A frame to fetch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WantedFrame<'a> {
    /// A missing part of the block that it holds.
    pub(super) part: ByteRange,
    pub(super) address: &'a FrameAddress,
    /// All valid ranges of the block that it holds.
    pub(super) live: Vec<ByteRange>,
}

impl WantedFrame<'_> {
    /// Whether some byte of the gaps that it holds is neither in memory nor in the log.
    pub(super) fn is_needed(
        &self,
        blocks: &FileBlocks,
        block: BlockIndex,
        gaps: &[ByteRange],
    ) -> bool {
        let mut parts = self.live.iter().flat_map(|range| inside(gaps, *range));
        parts.any(|part| {
            let part = ByteRange::at(block.start() + part.start, part.len());
            !blocks.is_known(part)
        })
    }
}

/// The parts of `range` that lie in one of the gaps; the gaps are in ascending order.
pub(super) fn inside(gaps: &[ByteRange], range: ByteRange) -> impl Iterator<Item = ByteRange> {
    let first = gaps.partition_point(|gap| gap.end <= range.start);
    let reached = gaps.iter().skip(first);
    reached
        .take_while(move |gap| gap.start < range.end)
        .map(move |gap| gap.intersect(range))
}

/// The frames that hold bytes of the gaps, each once, though small writes may have cut it into many extents.
pub(super) fn wanted_frames<'a>(map: &'a BlockMap, gaps: &[ByteRange]) -> Vec<WantedFrame<'a>> {
    let mut frames: Vec<(Option<ByteRange>, &FrameAddress, Vec<ByteRange>)> = Vec::new();
    let mut places = HashMap::new();
    for extent in map.extents() {
        let place = *places.entry(&extent.frame).or_insert_with(|| {
            frames.push((None, &extent.frame, Vec::new()));
            frames.len() - 1
        });
        // Always found: it was added above.
        let Some((part, _, live)) = frames.get_mut(place) else {
            continue;
        };
        live.push(extent.range);
        if part.is_none() {
            *part = inside(gaps, extent.range).next();
        }
    }
    let wanted = frames.into_iter().filter_map(|(part, address, live)| {
        let part = part?;
        Some(WantedFrame {
            part,
            address,
            live,
        })
    });
    wanted.collect()
}

/// Removes the first and the last ones that are not needed.
pub(super) fn trim<T>(wanted: &mut Vec<T>, is_needed: impl Fn(&T) -> bool) {
    let end = wanted
        .iter()
        .rposition(&is_needed)
        .map_or(0, |last| last + 1);
    wanted.truncate(end);
    let first = wanted.iter().position(&is_needed).unwrap_or(end);
    wanted.drain(..first);
}

/// Memory for the frames of one block, which may all come with one GET, with the gaps between them, and for the block
/// buffer that takes them.
pub(super) fn memory_ahead<'a>(
    packs: &PackStore,
    addresses: impl Iterator<Item = &'a FrameAddress> + Clone,
) -> u64 {
    let frames = addresses.clone().map(|address| packs.memory_of(address));
    let frames: u64 = frames.sum();
    let gaps = most_gap_bytes(addresses.clone());
    let raw: u64 = addresses.map(|address| u64::from(address.raw_len)).sum();
    frames + gaps + raw.min(BLOCK_SIZE)
}

/// All bytes of a block, by their offsets in the file.
pub(super) fn whole(block: BlockIndex) -> ByteRange {
    ByteRange::at(block.start(), BLOCK_SIZE)
}

#[cfg(test)]
mod tests {
    use forebay_types::PackId;

    use super::*;
    use crate::state::by_block;

    fn frame(pack: u64, start: u32, len: u32) -> FrameAddress {
        FrameAddress {
            pack: PackId(pack),
            offset: 0,
            stored_len: len,
            raw_len: len,
            raw_start: start,
            crc32: 0,
            origin: None,
        }
    }

    #[test]
    fn gaps_are_sorted_by_blocks() {
        let range = |start, end| ByteRange::new(start, end);
        let size = BLOCK_SIZE;
        let gaps = [range(1, 2), range(5, 7), range(size - 1, 2 * size + 3)];
        assert_eq!(
            by_block(&gaps),
            [
                (
                    BlockIndex(0),
                    vec![range(1, 2), range(5, 7), range(size - 1, size)]
                ),
                (BlockIndex(1), vec![range(0, size)]),
                (BlockIndex(2), vec![range(0, 3)]),
            ]
        );
        assert_eq!(by_block(&[]), []);
    }

    #[test]
    fn each_frame_that_holds_something_of_the_gaps_is_wanted_once() {
        let range = |start, end| ByteRange::new(start, end);
        let (old, new, other) = (frame(1, 0, 100), frame(2, 10, 1), frame(3, 100, 50));
        let mut map = BlockMap::new();
        for frame in [old, new, other] {
            map.insert(frame.raw_range(), frame).unwrap();
        }
        let gaps: Vec<_> = (0..50).map(|at| range(2 * at, 2 * at + 1)).collect();
        let wanted = wanted_frames(&map, &gaps);
        let of = |address, part, live| WantedFrame {
            part,
            address,
            live,
        };
        assert_eq!(
            wanted,
            [
                of(&old, range(0, 1), vec![range(0, 10), range(11, 100)]),
                of(&new, range(10, 11), vec![range(10, 11)]),
            ]
        );
        assert_eq!(wanted_frames(&map, &[range(200, 300)]), []);
        let parts: Vec<_> = inside(&gaps, range(3, 8)).collect();
        assert_eq!(parts, [range(4, 5), range(6, 7)]);
    }

    #[test]
    fn what_is_not_needed_between_two_that_are_stays() {
        for (before, after) in [
            (vec![], vec![]),
            (vec![0, 0], vec![]),
            (vec![0, 2, 0, 0, 5, 0], vec![2, 0, 0, 5]),
            (vec![1, 0], vec![1]),
            (vec![1, 2], vec![1, 2]),
        ] {
            let mut wanted = before;
            trim(&mut wanted, |one| *one > 0);
            assert_eq!(wanted, after);
        }
    }
}
