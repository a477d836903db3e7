//! Which bytes of a block move to another pack, and the block's map afterwards. It has no clock and does no I/O.

use std::ops::Range;

use forebay_meta::record::{BlockMap, Displaced, Extent, FrameAddress, MapError};
use forebay_types::{BLOCK_SIZE, BlockKey, ByteRange, PackId};

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

/// The most bytes of a pack that one GET fetches.
pub(super) const MOST_SPAN: u64 = BLOCK_SIZE + (64 << 10);
/// Gaps between two frames up to this size are fetched with them: a request costs more.
const MOST_BETWEEN: u64 = 64 << 10;

/// Frames of a pack that one GET fetches, each with the index of its block among those that are copied.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) pack: PackId,
    pub(super) range: Range<u64>,
    pub(super) frames: Vec<(FrameAddress, usize)>,
}

/// Groups frames into few GETs that fetch each offset once.
pub(super) fn spans(mut frames: Vec<(FrameAddress, usize)>) -> Vec<Span> {
    frames.sort_unstable_by_key(|(frame, _)| (frame.pack, frame.offset));
    let mut spans: Vec<Span> = Vec::new();
    for (frame, block) in frames {
        let start = u64::from(frame.offset);
        let end = start + u64::from(frame.stored_len);
        match spans.last_mut() {
            Some(span)
                if span.pack == frame.pack
                    && start <= span.range.end + MOST_BETWEEN
                    && end <= span.range.start + MOST_SPAN =>
            {
                span.range.end = span.range.end.max(end);
                span.frames.push((frame, block));
            }
            _ => spans.push(Span {
                pack: frame.pack,
                range: start..end,
                frames: vec![(frame, block)],
            }),
        }
    }
    spans
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
    const MIB: u64 = 1 << 20;
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
            [(0, 100, 9), (100, 150, 9), (150, 160, 2), (160, 200, 9)]
        );
        assert_eq!(moved.map.extents()[0].frame, moved.map.extents()[1].frame);
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

    #[test]
    fn frames_that_lie_near_one_another_come_with_one_get() {
        let at = |pack, start: u64, len| frame(pack, start, start + len);
        let near = 1000 + 128 + MOST_BETWEEN;
        let far = near + 1000 + 128 + MOST_BETWEEN + 1;
        let frames = vec![
            (at(2, 0, 1000), 4),
            (at(1, far, 1000), 3),
            (at(1, near, 1000), 2),
            (at(1, 0, 1000), 1),
            (at(1, 0, 1000), 0),
        ];
        let spans = spans(frames);
        let shown: Vec<_> = spans
            .iter()
            .map(|span| (span.pack.0, span.range.clone(), span.frames.len()))
            .collect();
        let first = (1, 0..near + 1128, 3);
        assert_eq!(shown, [first, (1, far..far + 1128, 1), (2, 0..1128, 1)]);
    }

    #[test]
    fn one_get_brings_no_more_than_memory_was_taken_for() {
        let frames = (0..8).map(|at| (frame(1, at * MIB, (at + 1) * MIB - 128), 0));
        let spans = spans(frames.collect());
        assert_eq!(spans.len(), 2);
        let longest = spans.iter().map(|span| span.range.end - span.range.start);
        assert!(longest.max().unwrap() <= MOST_SPAN);
    }
}
