//! The locations of a block's bytes: a list of extents over frames.

mod encoding;

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use forebay_types::{BLOCK_SIZE, BlockKey, ByteRange, PackId};

use super::{Record, ValueReader};
use crate::error::Corrupt;
use crate::key::tag;

/// Maximum number of extents in a block map. One for each 4 KiB page of a block, twice that for
/// pages with ragged edges, and doubled again: only a writer of tiny scattered pieces reaches it.
/// The value stays under 300 KiB, far below what a metadata store takes in one piece.
pub const MAX_EXTENTS: usize = 4096;

/// The largest offset in a block fits the encoding's four bytes.
const _: () = assert!(BLOCK_SIZE <= u32::MAX as u64);

/// The location of a frame, and the bytes of its block that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameAddress {
    /// The pack.
    pub pack: PackId,
    /// Where the frame's stored bytes begin in the pack.
    pub offset: u32,
    /// Number of its bytes in the pack.
    pub stored_len: u32,
    /// Number of its bytes before compression.
    pub raw_len: u32,
    /// Offset of its first byte in the block.
    pub raw_start: u32,
    /// CRC32 of the stored bytes.
    pub crc32: u32,
    /// The place that the frame was written for, if it is another one than this place of this block: its bytes are the
    /// same.
    pub origin: Option<Origin>,
}

/// The place that a shared frame was written for, and that its header names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The block.
    pub block: BlockKey,
    /// Offset of its first byte in that block.
    pub start: u32,
}

impl FrameAddress {
    /// The place that the header of the frame names, if the frame is in the map of `block`.
    pub fn origin_in(&self, block: BlockKey) -> Origin {
        self.origin.unwrap_or(Origin {
            block,
            start: self.raw_start,
        })
    }

    /// The bytes of the block that the frame holds.
    pub fn raw_range(&self) -> ByteRange {
        ByteRange::at(u64::from(self.raw_start), u64::from(self.raw_len))
    }
}

/// Maps `range` of the block to the bytes of `frame` that begin at `range.start - frame.raw_start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The bytes, counted from the start of the block. Never empty.
    pub range: ByteRange,
    /// The frame that holds them (and perhaps more).
    pub frame: FrameAddress,
}

/// The number of raw bytes of each pack that a block map no longer refers to after a change.
pub type Displaced = BTreeMap<PackId, u64>;

/// Why a block map refused a change. The map is then unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// The map would have more than [`MAX_EXTENTS`] extents: rewrite the block in one frame.
    #[error("a block cannot have more than {MAX_EXTENTS} extents; write it again in one piece")]
    TooManyExtents,
    /// The range is empty, outside the block, or not held by the frame: a fault in the caller.
    #[error("the range is not one of the block that the frame holds")]
    BadRange,
}

/// The extents of one block: sorted, none empty, none overlapping. A range without an extent is a
/// hole and reads as zeros. A change joins adjoining extents of one frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockMap {
    extents: Vec<Extent>,
}

impl BlockMap {
    /// A block that is one hole.
    pub fn new() -> BlockMap {
        BlockMap::default()
    }

    /// The extents in order.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Whether the block is one hole.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Number of bytes that are not in holes.
    pub fn mapped_bytes(&self) -> u64 {
        self.extents.iter().map(|extent| extent.range.len()).sum()
    }

    /// Raw bytes that the map refers to, by pack: what the packs lose when the block is deleted.
    pub fn bytes_by_pack(&self) -> Displaced {
        let mut bytes = Displaced::new();
        for extent in &self.extents {
            *bytes.entry(extent.frame.pack).or_default() += extent.range.len();
        }
        bytes
    }

    /// Maps `range` to bytes of `frame` and replaces earlier extents there. Returns the displaced bytes.
    pub fn insert(&mut self, range: ByteRange, frame: FrameAddress) -> Result<Displaced, MapError> {
        let extent = Extent { range, frame };
        if !extent.is_sound() {
            return Err(MapError::BadRange);
        }
        self.replace(range, Some(extent))
    }

    /// Makes `range` a hole. Returns the displaced bytes.
    pub fn cut(&mut self, range: ByteRange) -> Result<Displaced, MapError> {
        self.replace(range, None)
    }

    /// Makes everything from the byte `at` on a hole. Returns the displaced bytes.
    pub fn truncate(&mut self, at: u64) -> Displaced {
        let mut displaced = Displaced::new();
        self.extents.retain_mut(|extent| {
            let kept = extent.range.intersect(ByteRange::new(0, at));
            if kept.len() < extent.range.len() {
                *displaced.entry(extent.frame.pack).or_default() += extent.range.len() - kept.len();
            }
            extent.range = kept;
            !kept.is_empty()
        });
        displaced
    }

    /// The contents of `range`, in order and without gaps: each item is a part of it and the frame
    /// that holds that part, `None` for a hole.
    pub fn lookup(
        &self,
        range: ByteRange,
    ) -> impl Iterator<Item = (ByteRange, Option<&FrameAddress>)> {
        let first = self
            .extents
            .partition_point(|extent| extent.range.end <= range.start);
        let mut rest = self.extents.iter().skip(first).peekable();
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let (end, frame) = match rest.peek() {
                Some(extent) if extent.range.start <= at => (extent.range.end, Some(&extent.frame)),
                Some(extent) => (extent.range.start, None),
                None => (range.end, None),
            };
            if frame.is_some() {
                rest.next();
            }
            let part = ByteRange::new(at, end.min(range.end));
            at = part.end;
            Some((part, frame))
        })
    }

    /// Replaces the extents in `range` by `new`; shortens those that `range` covers in part.
    fn replace(&mut self, range: ByteRange, new: Option<Extent>) -> Result<Displaced, MapError> {
        let mut displaced = Displaced::new();
        if range.is_empty() {
            return Ok(displaced);
        }
        let first = self
            .extents
            .partition_point(|extent| extent.range.end <= range.start);
        let last = self
            .extents
            .partition_point(|extent| extent.range.start < range.end);
        let touched = self.extents.get(first..last).unwrap_or_default();
        for extent in touched {
            *displaced.entry(extent.frame.pack).or_default() += extent.range.intersect(range).len();
        }
        let part = |extent: Option<&Extent>, outside: ByteRange| {
            let extent = extent?;
            let range = extent.range.intersect(outside);
            (!range.is_empty()).then_some(Extent { range, ..*extent })
        };
        let before = part(touched.first(), ByteRange::new(0, range.start));
        let after = part(touched.last(), ByteRange::new(range.end, u64::MAX));
        let parts = [before, new, after];
        let added = parts.iter().flatten().count();
        if self.extents.len() - touched.len() + added > MAX_EXTENTS {
            return Err(MapError::TooManyExtents);
        }
        let replaced = first..first + touched.len();
        self.extents.splice(replaced, parts.into_iter().flatten());
        self.join_neighbours(first.saturating_sub(1)..first + added + 1);
        Ok(displaced)
    }

    /// Makes one of adjoining extents of the same frame, among those at these places.
    fn join_neighbours(&mut self, among: Range<usize>) {
        for at in among.rev() {
            if let Some([one, next]) = self.extents.get_mut(at..at + 2)
                && one.frame == next.frame
                && one.range.end == next.range.start
            {
                one.range.end = next.range.end;
                self.extents.remove(at + 1);
            }
        }
    }
}

impl Extent {
    /// Within the block, not empty, and held by the frame.
    fn is_sound(&self) -> bool {
        let frame = &self.frame;
        let lies_in_a_block =
            |origin: Origin| u64::from(origin.start) + u64::from(frame.raw_len) <= BLOCK_SIZE;
        !self.range.is_empty()
            && self.range.end <= BLOCK_SIZE
            && frame.raw_range().contains(self.range)
            && frame.origin.is_none_or(lies_in_a_block)
    }
}

impl Record for BlockMap {
    const TAG: u8 = tag::BLOCK;

    fn encode(&self) -> Bytes {
        encoding::encode(self).into()
    }

    fn read(ValueReader(fields): &mut ValueReader<'_>) -> Result<Self, Corrupt> {
        encoding::read(fields)
    }
}
