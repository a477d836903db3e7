//! Decides which frames are read, and which of them by one GET.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_meta::BlockMap;
use forebay_pack::FrameRef;
use forebay_types::{BlockKey, ByteRange, PackId};

use crate::judge::maps::frame_ref;
use crate::judge::snapshots::Kept;

/// Most bytes that one GET asks for, except for a single frame that is longer.
pub(super) const MAX_GET: u64 = 8 << 20;

/// A frame that something refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) block: BlockKey,
    /// The block that the frame was written for: another one, if it is shared.
    pub(super) of: BlockKey,
    pub(super) frame: FrameRef,
    /// Range of the block's bytes that the block map takes from this frame: first byte, and one past the last.
    pub(super) from: u32,
    pub(super) to: u32,
    /// The newest snapshot whose map this is; `None` for the newest state.
    pub(super) snapshot: Option<Arc<Kept>>,
}

impl Wanted {
    /// Where the frame lies.
    pub(super) fn place(&self) -> (PackId, u32) {
        (self.frame.pack, self.frame.offset)
    }
}

/// Frames that are read by one GET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) pack: PackId,
    pub(super) range: ByteRange,
    pub(super) frames: Vec<Wanted>,
}

/// The frames of a block map, each once. Leaves out impossible frames, which were reported before.
pub(super) fn frames(block: BlockKey, map: &BlockMap) -> impl Iterator<Item = Wanted> {
    let mut frames: BTreeMap<(PackId, u32, u32), Wanted> = BTreeMap::new();
    for extent in map.extents() {
        let frame = frame_ref(&extent.frame);
        if !frame.is_possible() {
            continue;
        }
        // Extents lie within a block.
        let bound = |at: u64| u32::try_from(at).unwrap_or(u32::MAX);
        let (from, to) = (bound(extent.range.start), bound(extent.range.end));
        let key = (frame.pack, frame.offset, frame.crc32);
        let wanted = frames.entry(key).or_insert(Wanted {
            block,
            of: extent.frame.origin_in(block).block,
            frame,
            from,
            to,
            snapshot: None,
        });
        wanted.from = wanted.from.min(from);
        wanted.to = wanted.to.max(to);
    }
    frames.into_values()
}

/// Groups frames that adjoin in their pack.
pub(super) fn reads(mut wanted: Vec<Wanted>) -> Vec<Read> {
    wanted.sort_unstable_by_key(|one| (one.frame.pack, one.frame.offset));
    let mut reads: Vec<Read> = Vec::new();
    for one in wanted {
        let (pack, stored) = (one.frame.pack, one.frame.stored_range());
        match reads.last_mut() {
            // Other blocks share this frame.
            Some(read)
                if read
                    .frames
                    .last()
                    .is_some_and(|last| last.frame == one.frame) =>
            {
                read.frames.push(one);
            }
            Some(read)
                if read.pack == pack
                    && read.range.end == stored.start
                    && stored.end - read.range.start <= MAX_GET =>
            {
                read.range.end = stored.end;
                read.frames.push(one);
            }
            _ => reads.push(Read {
                pack,
                range: stored,
                frames: vec![one],
            }),
        }
    }
    reads
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_meta::FrameAddress;
    use forebay_types::{BlockIndex, Inode};

    fn block(inode: u64) -> BlockKey {
        BlockKey {
            inode: Inode(inode),
            block: BlockIndex(0),
        }
    }

    fn address(pack: u64, offset: u32, raw_start: u32, raw_len: u32) -> FrameAddress {
        FrameAddress {
            pack: PackId(pack),
            offset,
            stored_len: 128 + raw_len,
            raw_len,
            raw_start,
            crc32: 0,
            origin: None,
        }
    }

    fn map(extents: &[(u64, u64, FrameAddress)]) -> BlockMap {
        let mut map = BlockMap::new();
        for (start, end, frame) in extents {
            map.insert(ByteRange::new(*start, *end), *frame).unwrap();
        }
        map
    }

    #[test]
    fn a_frame_that_two_extents_refer_to_is_read_once() {
        let frame = address(1, 40, 0, 100);
        let map = map(&[
            (0, 10, frame),
            (50, 60, frame),
            (100, 110, address(1, 268, 100, 10)),
        ]);
        let found: Vec<_> = frames(block(5), &map).collect();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].from, found[0].to), (0, 60));
    }

    #[test]
    fn frames_that_adjoin_are_read_together_and_others_are_not() {
        let wanted = |inode, pack, offset, len| {
            frames(
                block(inode),
                &map(&[(0, len, address(pack, offset, 0, len as u32))]),
            )
            .next()
            .unwrap()
        };
        let reads = reads(vec![
            wanted(9, 2, 40, 10),
            wanted(7, 1, 178, 10),
            wanted(5, 1, 40, 10),
            wanted(8, 1, 400, 10),
        ]);
        let shape: Vec<_> = reads
            .iter()
            .map(|read| {
                (
                    read.pack.0,
                    read.range.start,
                    read.range.end,
                    read.frames.len(),
                )
            })
            .collect();
        assert_eq!(shape, [(1, 40, 316, 2), (1, 400, 538, 1), (2, 40, 178, 1)]);
    }

    #[test]
    fn no_get_asks_for_more_than_its_limit() {
        let len = 4 << 20;
        let mut wanted = Vec::new();
        for n in 0..5_u32 {
            let frame = address(1, 40 + n * (128 + len), 0, len);
            wanted.extend(frames(
                block(u64::from(n)),
                &map(&[(0, u64::from(len), frame)]),
            ));
        }
        for read in reads(wanted) {
            assert!(read.range.len() <= MAX_GET.max(u64::from(len) + 128));
        }
    }
}
