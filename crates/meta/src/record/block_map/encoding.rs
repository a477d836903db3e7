//! Encoding of block maps. A large write leaves a row of frames that lie one behind the other, so an extent is encoded
//! as its difference from the expected successor of the one before it: five bytes for each frame of a row, where all
//! fields take 36.
//!
//! ```text
//! version: 3 (1) if a frame is shared, else 2   number of extents: varint
//! each extent:
//!   flags: 1
//!   start: varint      from the end of the extent before      unless 01: there
//!   length: varint                                            unless 02: as long as the one before
//!   its frame,                                                unless 04: that of the extent before
//!     pack: 8                                                 unless 08: the same
//!     offset: varint                                          unless 10: the end of the frame before
//!     raw start: varint   raw length: varint                  unless 20: the extent's start and length
//!     stored length less raw length: varint, as i32           unless 40: the same
//!     CRC32 of the stored bytes: 4
//!     its origin, where it is shared,                         if 80
//!       how: 1                  0: as follows; 1: the block of the origin before, as far from there as that one
//!       inode: varint   block: varint   start: varint         unless how is 1
//! ```
//!
//! Varints are those of [`crate::codec`]. The first extent follows one of nothing but zeros. Every flag that can be set
//! is set, and no flag that describes an omitted field: a map has exactly one encoding.

use forebay_types::{BlockIndex, BlockKey, ByteRange, Inode, PackId, to_usize};

use super::{BlockMap, Extent, FrameAddress, MAX_EXTENTS, Origin};
use crate::codec::{Reader, put_varint};
use crate::error::Corrupt;

/// The version in which every extent has all of its fields; only read.
const ALL_FIELDS: u8 = 1;
const VERSION: u8 = 2;
/// The version of a map with a shared frame.
const SHARED_VERSION: u8 = 3;

const ADJOINS: u8 = 0x01;
const SAME_LENGTH: u8 = 0x02;
const SAME_FRAME: u8 = 0x04;
const SAME_PACK: u8 = 0x08;
const FOLLOWS: u8 = 0x10;
const WHOLE: u8 = 0x20;
const SAME_OVERHEAD: u8 = 0x40;
const SHARED: u8 = 0x80;

/// How an origin is encoded.
const IN_FULL: u8 = 0;
const GOES_ON: u8 = 1;

/// The extent that the first one is compared with.
const NOTHING: Extent = Extent {
    range: ByteRange { start: 0, end: 0 },
    frame: FrameAddress {
        pack: PackId(0),
        offset: 0,
        stored_len: 0,
        raw_len: 0,
        raw_start: 0,
        crc32: 0,
        origin: None,
    },
};

/// The stored bytes less the raw ones; negative if the frame is compressed.
fn overhead(frame: &FrameAddress) -> u32 {
    frame.stored_len.wrapping_sub(frame.raw_len)
}

/// The flags of the fields of `extent` that follow from `before`.
fn flags(before: &Extent, extent: &Extent) -> u8 {
    let set = |flag, so| if so { flag } else { 0 };
    let (last, frame) = (&before.frame, &extent.frame);
    let of_range = set(ADJOINS, extent.range.start == before.range.end)
        | set(SAME_LENGTH, extent.range.len() == before.range.len());
    if frame == last {
        return of_range | SAME_FRAME;
    }
    of_range
        | set(SAME_PACK, frame.pack == last.pack)
        | set(
            FOLLOWS,
            last.offset.checked_add(last.stored_len) == Some(frame.offset),
        )
        | set(WHOLE, frame.raw_range() == extent.range)
        | set(SAME_OVERHEAD, overhead(frame) == overhead(last))
        | set(SHARED, frame.origin.is_some())
}

/// The origin of a frame at `raw_start` if it continues the origin of `last`, as in copies of files.
fn goes_on(last: &FrameAddress, raw_start: u32) -> Option<Origin> {
    let origin = last.origin?;
    let start = origin.start.wrapping_sub(last.raw_start);
    Some(Origin {
        start: start.wrapping_add(raw_start),
        ..origin
    })
}

pub(super) fn encode(map: &BlockMap) -> Vec<u8> {
    // Most maps are rows of frames, or a single frame.
    let mut out = Vec::with_capacity(32 + 8 * map.extents.len());
    let is_shared = map
        .extents
        .iter()
        .any(|extent| extent.frame.origin.is_some());
    out.push(if is_shared { SHARED_VERSION } else { VERSION });
    put_varint(&mut out, map.extents.len() as u64);
    let mut before = &NOTHING;
    for extent in &map.extents {
        encode_behind(before, extent, &mut out);
        before = extent;
    }
    out
}

fn encode_behind(before: &Extent, extent: &Extent, out: &mut Vec<u8>) {
    let flags = flags(before, extent);
    let frame = &extent.frame;
    out.push(flags);
    if flags & ADJOINS == 0 {
        // Extents are sorted and do not overlap.
        put_varint(out, extent.range.start - before.range.end);
    }
    if flags & SAME_LENGTH == 0 {
        put_varint(out, extent.range.len());
    }
    if flags & SAME_FRAME != 0 {
        return;
    }
    if flags & SAME_PACK == 0 {
        out.extend(frame.pack.0.to_le_bytes());
    }
    if flags & FOLLOWS == 0 {
        put_varint(out, u64::from(frame.offset));
    }
    if flags & WHOLE == 0 {
        put_varint(out, u64::from(frame.raw_start));
        put_varint(out, u64::from(frame.raw_len));
    }
    if flags & SAME_OVERHEAD == 0 {
        // The sign in the lowest bit: small negative numbers are as short as small positive ones.
        let signed = overhead(frame).cast_signed();
        let folded = (signed << 1) ^ (signed >> 31);
        put_varint(out, u64::from(folded.cast_unsigned()));
    }
    out.extend(frame.crc32.to_le_bytes());
    let Some(origin) = frame.origin else { return };
    if goes_on(&before.frame, frame.raw_start) == Some(origin) {
        out.push(GOES_ON);
        return;
    }
    out.push(IN_FULL);
    put_varint(out, origin.block.inode.0);
    put_varint(out, origin.block.block.0);
    put_varint(out, u64::from(origin.start));
}

/// Reads the map in `fields`; no bytes may be left behind it.
pub(super) fn read(fields: &mut Reader<'_>) -> Result<BlockMap, Corrupt> {
    let version = fields.version_of(&[ALL_FIELDS, VERSION, SHARED_VERSION])?;
    let all_fields = version == ALL_FIELDS;
    let count = match all_fields {
        true => u64::from(fields.u32()?),
        false => fields.varint()?,
    };
    // Each extent takes at least a byte: a wrong count reserves little memory.
    if count > MAX_EXTENTS as u64 || count > fields.rest().len() as u64 {
        return Err(fields.corrupt("has another number of extents than it says"));
    }
    let mut extents: Vec<Extent> = Vec::with_capacity(to_usize(count));
    for _ in 0..count {
        let before = extents.last().unwrap_or(&NOTHING);
        let extent = match all_fields {
            true => read_all_fields(fields)?,
            false => read_behind(before, fields)?,
        };
        if !extent.is_sound() {
            return Err(fields.corrupt("has an extent that its frame does not hold"));
        }
        if before.range.end > extent.range.start {
            return Err(fields.corrupt("has extents that overlap"));
        }
        extents.push(extent);
    }
    let is_shared = extents.iter().any(|extent| extent.frame.origin.is_some());
    if is_shared != (version == SHARED_VERSION) {
        return Err(fields.corrupt(
            "has shared frames in the version without them, or none in the version with them",
        ));
    }
    Ok(BlockMap { extents })
}

fn read_behind(before: &Extent, fields: &mut Reader<'_>) -> Result<Extent, Corrupt> {
    let said = fields.u8()?;
    let start = match said & ADJOINS {
        0 => before.range.end.saturating_add(fields.varint()?),
        _ => before.range.end,
    };
    let len = match said & SAME_LENGTH {
        0 => fields.varint()?,
        _ => before.range.len(),
    };
    let range = ByteRange::new(start, start.saturating_add(len));
    let last = &before.frame;
    if said & SAME_FRAME != 0 {
        let extent = Extent {
            range,
            frame: *last,
        };
        return one_encoding(said, before, extent, fields);
    }
    let pack = match said & SAME_PACK {
        0 => PackId(fields.u64()?),
        _ => last.pack,
    };
    let offset = match said & FOLLOWS {
        0 => fields.varint_u32()?,
        _ => last.offset.wrapping_add(last.stored_len),
    };
    let (raw_start, raw_len) = match said & WHOLE {
        0 => (fields.varint_u32()?, fields.varint_u32()?),
        // A field that does not fit makes the extent unsound.
        _ => (
            u32::try_from(start).unwrap_or(u32::MAX),
            u32::try_from(len).unwrap_or(0),
        ),
    };
    let overhead = match said & SAME_OVERHEAD {
        0 => {
            let folded = fields.varint_u32()?;
            (folded >> 1) ^ (folded & 1).wrapping_neg()
        }
        _ => overhead(last),
    };
    let frame = FrameAddress {
        pack,
        offset,
        stored_len: raw_len.wrapping_add(overhead),
        raw_len,
        raw_start,
        crc32: fields.u32()?,
        origin: None,
    };
    let frame = match said & SHARED {
        0 => frame,
        _ => FrameAddress {
            origin: Some(read_origin(last, raw_start, fields)?),
            ..frame
        },
    };
    one_encoding(said, before, Extent { range, frame }, fields)
}

fn read_origin(
    last: &FrameAddress,
    raw_start: u32,
    fields: &mut Reader<'_>,
) -> Result<Origin, Corrupt> {
    let expected = goes_on(last, raw_start);
    match (fields.u8()?, expected) {
        (GOES_ON, Some(origin)) => Ok(origin),
        (IN_FULL, _) => {
            let origin = Origin {
                block: BlockKey {
                    inode: Inode(fields.varint()?),
                    block: BlockIndex(fields.varint()?),
                },
                start: fields.varint_u32()?,
            };
            match expected == Some(origin) {
                true => Err(fields.corrupt("has a full origin where a continued one is expected")),
                false => Ok(origin),
            }
        }
        _ => Err(fields.corrupt("has a continued origin without one before it")),
    }
}

/// Returns the extent if the flags are the ones that the encoder would set today.
fn one_encoding(
    said: u8,
    before: &Extent,
    extent: Extent,
    fields: &Reader<'_>,
) -> Result<Extent, Corrupt> {
    match said == flags(before, &extent) {
        true => Ok(extent),
        false => Err(fields.corrupt("has an extent in an encoding that no version writes")),
    }
}

fn read_all_fields(fields: &mut Reader<'_>) -> Result<Extent, Corrupt> {
    let (start, len) = (fields.u32()?, fields.u32()?);
    Ok(Extent {
        range: ByteRange::at(u64::from(start), u64::from(len)),
        frame: FrameAddress {
            pack: PackId(fields.u64()?),
            offset: fields.u32()?,
            stored_len: fields.u32()?,
            raw_len: fields.u32()?,
            raw_start: fields.u32()?,
            crc32: fields.u32()?,
            origin: None,
        },
    })
}
