//! Blocks of a truncated file whose block maps still have to be collected.

use std::ops::Range;

use bytes::Bytes;
use forebay_types::BlockIndex;

use super::{Record, ValueReader};
use crate::codec::{Reader, put_varint};
use crate::error::Corrupt;
use crate::key::tag;

const VERSION: u8 = 1;

/// Blocks of a file whose block maps do not count: a truncation removed their bytes, and the maps wait for collection.
/// A later write to a block of the set gives it a map that counts, and the block leaves the set.
///
/// ```text
/// number of ranges: varint (1 or more)
/// each range, ascending, none touching the next:
///   first block: varint, from the end of the range before
///   blocks: varint                                         0: all from there on, in the last range
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TruncatedBlocks(Option<Box<Ranges>>);

/// Sorted; none is empty, and none touches the next. `u64::MAX` as an end stands for all blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ranges {
    ranges: Vec<Range<u64>>,
}

impl TruncatedBlocks {
    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether the map of this block does not count.
    pub fn contains(&self, block: BlockIndex) -> bool {
        let ranges = self.ranges();
        let at = ranges.partition_point(|range| range.end <= block.0);
        ranges.get(at).is_some_and(|range| range.start <= block.0)
    }

    /// Whether this block and all behind it are in the set.
    pub fn contains_from(&self, block: BlockIndex) -> bool {
        let last = self.ranges().last();
        last.is_some_and(|last| last.end == u64::MAX && last.start <= block.0)
    }

    /// The first contiguous blocks: the first one, and the one behind the last; `u64::MAX` for all blocks behind the
    /// first.
    pub fn first(&self) -> Option<Range<BlockIndex>> {
        let first = self.ranges().first()?;
        Some(BlockIndex(first.start)..BlockIndex(first.end))
    }

    /// Adds all blocks from `from` on.
    pub fn add_from(&mut self, from: BlockIndex) {
        self.change(|ranges| {
            let kept = ranges.partition_point(|range| range.end < from.0);
            let touched = ranges.get(kept).map_or(from.0, |range| range.start);
            ranges.truncate(kept);
            ranges.push(touched.min(from.0)..u64::MAX);
        });
    }

    /// Removes a block, which has a map that counts from now on. Returns whether it was in the set.
    pub fn remove(&mut self, block: BlockIndex) -> bool {
        if !self.contains(block) {
            return false;
        }
        self.change(|ranges| {
            let at = ranges.partition_point(|range| range.end <= block.0);
            let Some(Range { start, end }) = ranges.get(at).cloned() else {
                return;
            };
            let parts = [start..block.0, block.0 + 1..end];
            let parts = parts.into_iter().filter(|part| !part.is_empty());
            ranges.splice(at..=at, parts);
        });
        true
    }

    /// Removes the blocks before this one, whose maps have been collected.
    pub fn collected(&mut self, before: BlockIndex) {
        self.change(|ranges| {
            let gone = ranges.partition_point(|range| range.end <= before.0);
            ranges.drain(..gone);
            if let Some(first) = ranges.first_mut() {
                first.start = first.start.max(before.0);
            }
        });
    }

    fn ranges(&self) -> &[Range<u64>] {
        self.0.as_ref().map_or(&[], |own| &own.ranges)
    }

    fn change(&mut self, change: impl FnOnce(&mut Vec<Range<u64>>)) {
        let mut own = self.0.take().unwrap_or_default();
        change(&mut own.ranges);
        self.0 = (!own.ranges.is_empty()).then_some(own);
    }

    pub(super) fn encode_into(&self, out: &mut Vec<u8>) {
        let ranges = self.ranges();
        put_varint(out, ranges.len() as u64);
        let mut at = 0;
        for range in ranges {
            put_varint(out, range.start - at);
            let blocks = match range.end {
                u64::MAX => 0,
                end => end - range.start,
            };
            put_varint(out, blocks);
            at = range.end;
        }
    }

    pub(super) fn read(fields: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let wrong = "has truncated blocks that are not sorted or are too many";
        let count = fields.varint()?;
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut at = 0;
        for number in 0..count {
            let (gap, blocks) = (fields.varint()?, fields.varint()?);
            let start = u64::checked_add(at, gap).filter(|start| *start < u64::MAX);
            let start = start.ok_or_else(|| fields.corrupt(wrong))?;
            let end = match blocks {
                0 => u64::MAX,
                blocks => match start.checked_add(blocks) {
                    Some(end) if end < u64::MAX => end,
                    _ => return Err(fields.corrupt(wrong)),
                },
            };
            if gap == 0 && number > 0 {
                return Err(fields.corrupt(wrong));
            }
            ranges.push(start..end);
            at = end;
        }
        if ranges.is_empty() {
            return Err(fields.corrupt("has an empty list of truncated blocks"));
        }
        Ok(TruncatedBlocks(Some(Box::new(Ranges { ranges }))))
    }
}

/// A note that a file has [`TruncatedBlocks`].
///
/// ```text
/// version: 1 (1)
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Truncated;

impl Record for Truncated {
    const TAG: u8 = tag::TRUNCATED;

    fn encode(&self) -> Bytes {
        Bytes::from_static(&[VERSION])
    }

    fn read(ValueReader(fields): &mut ValueReader<'_>) -> Result<Self, Corrupt> {
        fields.version(VERSION)?;
        Ok(Truncated)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Change {
        AddFrom(u64),
        Remove(u64),
        Collected(u64),
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            1 => (0..30u64).prop_map(Change::AddFrom),
            4 => (0..30u64).prop_map(Change::Remove),
            2 => (0..30u64).prop_map(Change::Collected),
        ]
    }

    fn encoded(blocks: &TruncatedBlocks) -> Vec<u8> {
        let mut out = Vec::new();
        blocks.encode_into(&mut out);
        out
    }

    fn decode(bytes: &[u8]) -> Result<TruncatedBlocks, Corrupt> {
        let mut fields = Reader::new(b"i", bytes);
        let blocks = TruncatedBlocks::read(&mut fields)?;
        fields.end()?;
        Ok(blocks)
    }

    proptest! {
        /// Compared with a set of the first 40 blocks.
        #[test]
        fn they_are_a_set_of_blocks(changes in proptest::collection::vec(change(), 0..40)) {
            let (mut blocks, mut model) = (TruncatedBlocks::default(), BTreeSet::new());
            for change in changes {
                match change {
                    Change::AddFrom(from) => {
                        blocks.add_from(BlockIndex(from));
                        model.extend(from..40);
                    }
                    Change::Remove(block) => {
                        prop_assert_eq!(blocks.remove(BlockIndex(block)), model.remove(&block));
                    }
                    Change::Collected(before) => {
                        blocks.collected(BlockIndex(before));
                        model.retain(|block| *block >= before);
                    }
                }
                for block in 0..40 {
                    prop_assert_eq!(blocks.contains(BlockIndex(block)), model.contains(&block));
                }
                prop_assert_eq!(blocks.is_empty(), model.is_empty());
                let first = blocks.first().map(|first| first.start.0);
                prop_assert_eq!(first, model.first().copied());
                for from in 0..40 {
                    let all = (from..40).all(|block| model.contains(&block));
                    prop_assert_eq!(blocks.contains_from(BlockIndex(from)), all);
                }
                for pair in blocks.ranges().windows(2) {
                    prop_assert!(pair[0].end < pair[1].start);
                }
                if !blocks.is_empty() {
                    prop_assert_eq!(decode(&encoded(&blocks)), Ok(blocks.clone()));
                }
            }
        }

        #[test]
        fn what_is_read_is_what_was_written(bytes in proptest::collection::vec(0..5u8, 0..12)) {
            if let Ok(blocks) = decode(&bytes) {
                prop_assert_eq!(encoded(&blocks), bytes);
            }
        }
    }

    #[test]
    fn collecting_to_the_end_leaves_none() {
        let mut blocks = TruncatedBlocks::default();
        blocks.add_from(BlockIndex(3));
        blocks.collected(BlockIndex(u64::MAX));
        assert!(blocks.is_empty());
    }
}
