//! Which bytes of a block move to another pack, and the block's map afterwards. It has no clock and does no I/O.

use std::ops::Range;

use forebay_meta::record::{BlockMap, Displaced, Extent, FrameAddress, MapError};
use forebay_pack_store::{Gaps, Span, spans};
use forebay_types::{BlockKey, ByteRange, PackId};

use crate::publisher::pack_plan;

/// The bytes of one block that move.
#[derive(Debug)]
pub(super) struct Move {
    pub(super) block: BlockKey,
    /// The ranges, and the frame of each when it was copied.
    pub(super) from: Vec<Extent>,
    /// The frames that hold all of them.
    pub(super) to: Vec<FrameAddress>,
}

/// A block map after a move.
pub(super) struct Moved {
    pub(super) map: BlockMap,
    pub(super) displaced: Displaced,
    /// Bytes that are in the new pack now.
    pub(super) bytes: u64,
}

impl Move {
    /// The map with the new addresses of those bytes that are still where they were copied from; nothing else
    /// changes: a range that was written again or cut off meanwhile stays as it is. `None` if nothing is left to
    /// move.
    pub(super) fn apply(&self, map: &BlockMap) -> Result<Option<Moved>, MapError> {
        let mut moved = Moved {
            map: map.clone(),
            displaced: Displaced::new(),
            bytes: 0,
        };
        for copied in &self.from {
            for now in map.extents() {
                let still = now.range.intersect(copied.range);
                if now.frame != copied.frame || still.is_empty() {
                    continue;
                }
                for frame in &self.to {
                    let part = still.intersect(frame.raw_range());
                    if part.is_empty() {
                        continue;
                    }
                    for (pack, lost) in moved.map.insert(part, *frame)? {
                        *moved.displaced.entry(pack).or_default() += lost;
                    }
                    moved.bytes += part.len();
                }
            }
        }
        Ok((moved.bytes > 0).then_some(moved))
    }
}

/// The ranges of a block that are in one of these packs.
pub(super) fn extents_in(map: &BlockMap, packs: &[PackId]) -> Vec<Extent> {
    let extents = map.extents().iter();
    let within = extents.filter(|extent| packs.contains(&extent.frame.pack));
    within.copied().collect()
}

/// The sources of a range of a block: frames by pack and offset, and which of their bytes.
pub(super) type Sources = Vec<(PackId, u32, Range<u64>)>;

/// The sources of `range` among the copied extents: two ranges of the same sources have the same bytes.
pub(super) fn sources_of(extents: &[Extent], range: ByteRange) -> Sources {
    let parts = extents
        .iter()
        .map(|extent| (extent, extent.range.intersect(range)));
    let parts = parts.filter(|(_, part)| !part.is_empty());
    let source = |(extent, part): (&Extent, ByteRange)| {
        let frame = &extent.frame;
        let first = u64::from(frame.raw_start);
        (
            frame.pack,
            frame.offset,
            part.start - first..part.end - first,
        )
    };
    parts.map(source).collect()
}

/// Groups frames into few GETs that fetch each offset once. Each frame has the index of its block among those that are
/// copied.
pub(super) fn spans_of(
    frames: Vec<(FrameAddress, usize)>,
    gaps: Gaps,
) -> Vec<Span<(FrameAddress, usize)>> {
    let place = |(frame, _): &(FrameAddress, usize)| {
        let start = u64::from(frame.offset);
        (frame.pack, start..start + u64::from(frame.stored_len))
    };
    spans(frames, place, gaps)
}

/// The frames of these ranges: adjoining ranges become one.
pub(super) fn frames_of(extents: &[Extent]) -> Vec<ByteRange> {
    let mut runs: Vec<ByteRange> = Vec::new();
    for extent in extents {
        match runs.last_mut() {
            Some(run) if run.end == extent.range.start => run.end = extent.range.end,
            _ => runs.push(extent.range),
        }
    }
    runs.into_iter().flat_map(pack_plan::frames).collect()
}

#[cfg(test)]
mod tests {
    use forebay_types::{BlockIndex, Inode};

    use super::*;

    const KIB: u64 = 1 << 10;
    const BLOCK: BlockKey = BlockKey {
        inode: Inode(2),
        block: BlockIndex(0),
    };

    fn frame(pack: u64, start: u64, end: u64) -> FrameAddress {
        FrameAddress {
            pack: PackId(pack),
            offset: start as u32,
            stored_len: (end - start) as u32 + 128,
            raw_len: (end - start) as u32,
            raw_start: start as u32,
            crc32: 0,
            origin: None,
        }
    }

    fn insert(map: &mut BlockMap, pack: u64, start: u64, end: u64) {
        let range = ByteRange::new(start, end);
        map.insert(range, frame(pack, start, end)).unwrap();
    }

    /// Moves the extents in pack 1, copied from `then`, in the map `now`.
    fn moved(then: &BlockMap, now: &BlockMap) -> Option<Moved> {
        let from = extents_in(then, &[PackId(1)]);
        let ranges = frames_of(&from).into_iter();
        let to = ranges.map(|range| frame(9, range.start, range.end));
        let to = to.collect();
        let moving = Move {
            block: BLOCK,
            from,
            to,
        };
        moving.apply(now).unwrap()
    }

    fn places(map: &BlockMap) -> Vec<(u64, u64, u64)> {
        let extents = map.extents().iter();
        let places = extents.map(|extent| {
            let (range, pack) = (extent.range, extent.frame.pack.0);
            (range.start, range.end, pack)
        });
        places.collect()
    }

    #[test]
    fn what_lies_in_the_pack_moves_and_all_else_stays() {
        let mut map = BlockMap::new();
        insert(&mut map, 1, 0, 100);
        insert(&mut map, 1, 100, 200);
        insert(&mut map, 2, 150, 160);
        let moved = moved(&map, &map).unwrap();
        // Adjoining ranges share a frame.
        assert_eq!(
            places(&moved.map),
            [(0, 150, 9), (150, 160, 2), (160, 200, 9)]
        );
        assert_eq!(moved.bytes, 190);
        assert_eq!(moved.displaced, Displaced::from([(PackId(1), 190)]));
    }

    #[test]
    fn what_was_written_or_cut_off_meanwhile_is_not_brought_back() {
        let mut then = BlockMap::new();
        insert(&mut then, 1, 0, 100);
        let mut now = then.clone();
        insert(&mut now, 5, 20, 40);
        now.truncate(60);
        let after = moved(&then, &now).unwrap();
        assert_eq!(places(&after.map), [(0, 20, 9), (20, 40, 5), (40, 60, 9)]);
        assert_eq!(after.bytes, 40);
        now.truncate(0);
        assert!(moved(&then, &now).is_none());
        insert(&mut now, 5, 0, 100);
        assert!(moved(&then, &now).is_none());
    }

    #[test]
    fn a_range_that_another_frame_had_when_it_was_copied_is_left_where_it_is() {
        // Bytes 0 to 50 were copied from one frame, 50 to 100 from another one.
        let mut then = BlockMap::new();
        insert(&mut then, 1, 0, 100);
        insert(&mut then, 1, 50, 100);
        // Now the first frame has all of them again.
        let mut now = BlockMap::new();
        insert(&mut now, 1, 0, 100);
        let after = moved(&then, &now).unwrap();
        assert_eq!(places(&after.map), [(0, 50, 9), (50, 100, 1)]);
    }

    #[test]
    fn long_runs_become_frames_of_the_usual_length() {
        let mut map = BlockMap::new();
        insert(&mut map, 1, 0, 600 * KIB);
        let after = moved(&map, &map).unwrap();
        let (quarter, half) = (256 * KIB, 512 * KIB);
        let frames = [(0, quarter, 9), (quarter, half, 9), (half, 600 * KIB, 9)];
        assert_eq!(places(&after.map), frames);
    }

    /// Of each 64 KiB of a pack 4 KiB are left, for two blocks that share some of them.
    #[test]
    fn what_is_left_of_a_dead_pack_comes_with_few_gets() {
        let frames = (0..64).flat_map(|at| {
            let start = at * 64 * KIB;
            let frame = frame(1, start, start + 4 * KIB);
            let shared = (at % 8 == 0).then_some((frame, 1));
            std::iter::once((frame, 0)).chain(shared)
        });
        let spans = spans_of(frames.rev().collect(), Gaps::Unlimited);
        let shown: Vec<_> = spans
            .iter()
            .map(|span| (span.range.clone(), span.frames.len()))
            .collect();
        let end = 63 * 64 * KIB + 4 * KIB + 128;
        assert_eq!(shown, [(0..end, 64 + 8)]);
    }
}
