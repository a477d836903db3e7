//! The bytes of a block that go into a pack.

use std::sync::Arc;

use forebay_cache::LoadedImage;
use forebay_meta::record::Origin;
use forebay_types::{BlockKey, ByteRange, bounded_u32, to_usize};

use super::loading::Lost;
use super::pack_plan;
use crate::state::Node;

/// A range of a block that becomes a frame.
pub(super) struct NewFrame {
    pub(super) range: ByteRange,
    /// Why its bytes are lost, if they are: then the frame has none.
    pub(super) lost: Option<Arc<str>>,
}

/// The bytes of a block that go into a pack.
pub(super) struct Content {
    pub(super) key: BlockKey,
    pub(super) node: Arc<Node>,
    image: LoadedImage,
    /// All bytes of the block, if it is defragmented.
    rewritten: Option<Vec<u8>>,
    /// Ascending.
    pub(super) frames: Vec<NewFrame>,
}

impl Content {
    /// The content of an image, or of the whole block if it was `rewritten`. The bytes in `lost`, which ascends, are not
    /// in the image, and what the block has in their place is out of date.
    pub(super) fn new(
        key: BlockKey,
        node: Arc<Node>,
        image: LoadedImage,
        rewritten: Option<Vec<u8>>,
        lost: Vec<Lost>,
    ) -> Content {
        let good = match &rewritten {
            Some(whole) => between(whole.len() as u64, &lost),
            None => image.ranges().collect(),
        };
        let good = good.into_iter().flat_map(pack_plan::frames);
        let mut frames: Vec<NewFrame> = good.map(|range| NewFrame { range, lost: None }).collect();
        for Lost { range, why } in lost {
            frames.extend(pack_plan::frames(range).map(|range| NewFrame {
                range,
                lost: Some(why.clone()),
            }));
        }
        frames.sort_by_key(|frame| frame.range.start);
        Content {
            key,
            node,
            image,
            rewritten,
            frames,
        }
    }

    /// The origins of its frames.
    pub(super) fn origins(&self) -> impl Iterator<Item = Origin> {
        let origin = |frame: &NewFrame| Origin {
            block: self.key,
            // Blocks have 4 MiB.
            start: bounded_u32(to_usize(frame.range.start)),
        };
        self.frames.iter().map(origin)
    }

    /// The bytes of one of its frames, which is not lost.
    pub(super) fn pieces(&self, frame: ByteRange) -> Vec<&[u8]> {
        match &self.rewritten {
            Some(whole) => vec![&whole[std::ops::Range::<usize>::from(frame)]],
            None => self.image.slices(frame).collect(),
        }
    }
}

/// The ranges before, between and behind the lost ones, below `end`.
fn between(end: u64, lost: &[Lost]) -> Vec<ByteRange> {
    let mut at = 0;
    let mut ranges = Vec::with_capacity(lost.len() + 1);
    for lost in lost {
        ranges.push(ByteRange::new(at, lost.range.start.min(end).max(at)));
        at = lost.range.end.min(end);
    }
    ranges.push(ByteRange::new(at, end));
    ranges.retain(|range| !range.is_empty());
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_lost_ranges_is_not_lost() {
        let between = |end, lost: &[(u64, u64)]| {
            let lost = lost.iter().map(|(start, end)| Lost {
                range: ByteRange::new(*start, *end),
                why: "".into(),
            });
            let found = between(end, &lost.collect::<Vec<_>>()).into_iter();
            found
                .map(|range| (range.start, range.end))
                .collect::<Vec<_>>()
        };
        assert_eq!(between(9, &[]), [(0, 9)]);
        assert_eq!(between(9, &[(2, 3), (3, 5)]), [(0, 2), (5, 9)]);
        assert_eq!(between(9, &[(0, 9)]), []);
        assert_eq!(between(9, &[(0, 1), (8, 12)]), [(1, 8)]);
        assert_eq!(between(9, &[(12, 15)]), [(0, 9)]);
        assert_eq!(between(0, &[(0, 4), (7, 9)]), []);
    }
}
