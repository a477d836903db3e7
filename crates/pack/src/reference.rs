//! References to frames: location, and properties to verify.

use forebay_types::{BLOCK_SIZE, ByteRange, PackId, bounded_u32};

use crate::fields::{put, take_u32, take_u64};
use crate::header::FRAME_HEADER_LEN;

/// The reference to a frame in a block map: its location, and enough to decide whether fetched
/// bytes are that frame, without the pack's index. It does not contain the block that the frame
/// belongs to, because that is the key of the block map.
///
/// Its encoding has a fixed size and is part of the format of block maps:
///
/// ```text
///  0  u64  pack
///  8  u32  offset       of the frame header in the pack
/// 12  u32  stored_len   frame header and payload
/// 16  u32  start        of the frame's range within its block
/// 20  u32  raw_len
/// 24  u32  crc32        of everything stored but the CRC itself
/// 28
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameRef {
    /// The pack that holds it.
    pub pack: PackId,
    /// Offset of its header in the pack, in bytes.
    pub offset: u32,
    /// Length of header and payload together, in bytes: the length of a ranged GET.
    pub stored_len: u32,
    /// Offset of its range in its block, in bytes.
    pub start: u32,
    /// Length of its range, in bytes: 1 to 4 MiB.
    pub raw_len: u32,
    /// CRC32 (IEEE) of header and payload, without the four bytes of the header that hold it.
    pub crc32: u32,
}

const PACK_AT: usize = 0;
const OFFSET_AT: usize = PACK_AT + 8;
const STORED_LEN_AT: usize = OFFSET_AT + 4;
const START_AT: usize = STORED_LEN_AT + 4;
const RAW_LEN_AT: usize = START_AT + 4;
const CRC32_AT: usize = RAW_LEN_AT + 4;
const FRAME_REF_LEN: usize = CRC32_AT + 4;
const _: () = assert!(FRAME_REF_LEN == 28);

impl FrameRef {
    /// Length of an encoded reference, in bytes.
    pub const LEN: usize = FRAME_REF_LEN;

    /// The range of its block that the frame holds.
    pub fn range(&self) -> ByteRange {
        ByteRange::at(u64::from(self.start), u64::from(self.raw_len))
    }

    /// The range of the pack that holds the frame, for a ranged GET.
    pub fn stored_range(&self) -> ByteRange {
        ByteRange::at(u64::from(self.offset), u64::from(self.stored_len))
    }

    /// Encodes the reference.
    pub fn encode(&self) -> [u8; FrameRef::LEN] {
        let mut bytes = [0; FrameRef::LEN];
        put(&mut bytes, PACK_AT, self.pack.0.to_le_bytes());
        put(&mut bytes, OFFSET_AT, self.offset.to_le_bytes());
        put(&mut bytes, STORED_LEN_AT, self.stored_len.to_le_bytes());
        put(&mut bytes, START_AT, self.start.to_le_bytes());
        put(&mut bytes, RAW_LEN_AT, self.raw_len.to_le_bytes());
        put(&mut bytes, CRC32_AT, self.crc32.to_le_bytes());
        bytes
    }

    /// Decodes the output of [`FrameRef::encode`]. Refuses numbers that no frame can have; the
    /// encoding itself has no checksum and relies on that of the block map around it.
    pub fn decode(bytes: &[u8; FrameRef::LEN]) -> Result<FrameRef, InvalidFrameRef> {
        FrameRef::parse(bytes).ok_or(InvalidFrameRef)
    }

    fn parse(bytes: &[u8]) -> Option<FrameRef> {
        let reference = FrameRef {
            pack: PackId(take_u64(bytes, PACK_AT)?),
            offset: take_u32(bytes, OFFSET_AT)?,
            stored_len: take_u32(bytes, STORED_LEN_AT)?,
            start: take_u32(bytes, START_AT)?,
            raw_len: take_u32(bytes, RAW_LEN_AT)?,
            crc32: take_u32(bytes, CRC32_AT)?,
        };
        reference.is_possible().then_some(reference)
    }

    /// Whether a frame can have these numbers: its range lies in a block, its payload is neither empty nor longer than
    /// the raw bytes, and it ends within the limit of a pack's offsets.
    pub fn is_possible(&self) -> bool {
        let payload = self.stored_len.checked_sub(bounded_u32(FRAME_HEADER_LEN));
        payload.is_some_and(|len| 0 < len && len <= self.raw_len)
            && self.range().end <= BLOCK_SIZE
            && self.stored_range().end <= u64::from(u32::MAX)
    }
}

/// The bytes are not the encoding of a frame reference: the block map that holds them is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("frame reference with impossible numbers: the block map that holds it is damaged")]
pub struct InvalidFrameRef;

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: FrameRef = FrameRef {
        pack: PackId(0x0102_0304_0506_0708),
        offset: 40,
        stored_len: FRAME_HEADER_LEN as u32 + 100,
        start: 4096,
        raw_len: 200,
        crc32: 0xdead_beef,
    };

    #[test]
    fn the_encoding_is_the_documented_one() {
        let bytes = SAMPLE.encode();
        assert_eq!(bytes[..8], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(bytes[8..16], [40, 0, 0, 0, 228, 0, 0, 0]);
        assert_eq!(bytes[16..24], [0, 16, 0, 0, 200, 0, 0, 0]);
        assert_eq!(bytes[24..], [0xef, 0xbe, 0xad, 0xde]);
        assert_eq!(FrameRef::decode(&bytes), Ok(SAMPLE));
    }

    #[test]
    fn numbers_that_no_frame_has_are_refused() {
        let broken: [fn(&mut FrameRef); 6] = [
            |r| r.raw_len = 0,
            |r| r.raw_len = 99,
            |r| r.stored_len = FRAME_HEADER_LEN as u32,
            |r| r.stored_len = 0,
            |r| r.start = BLOCK_SIZE as u32 - 199,
            |r| r.offset = u32::MAX - 227,
        ];
        for (case, breaks) in broken.iter().enumerate() {
            let mut reference = SAMPLE;
            breaks(&mut reference);
            let decoded = FrameRef::decode(&reference.encode());
            assert_eq!(decoded, Err(InvalidFrameRef), "case {case}");
        }
    }
}
