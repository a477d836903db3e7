//! The frames of packs by their content, so that repeated content is not uploaded again.

use bytes::Bytes;
use forebay_types::{BLOCK_SIZE, BlockIndex, BlockKey, Inode, to_usize};

use super::{Origin, Record, ValueReader};
use crate::codec::put_varint;
use crate::error::Corrupt;
use crate::key::tag;

/// Maximum number of frames in one part of a pack's [`PackFrames`]: about 60 KB.
pub const PART_FRAMES: usize = 1024;

const VERSION: u8 = 1;

/// Encoded bytes of the shortest frame.
const LEAST: usize = 32 + 4 + 4 + 4 + 6;

/// A frame of a pack, and the hashes that identify its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownFrame {
    /// Keyed BLAKE3 of its raw bytes; `None` if it was not computed.
    pub hash: Option<[u8; 32]>,
    /// CRC32 of the first 4 KiB of its raw bytes.
    pub head_crc32: u32,
    /// CRC32 of all of its raw bytes.
    pub raw_crc32: u32,
    /// Where its stored bytes begin in the pack.
    pub offset: u32,
    /// Number of its bytes in the pack.
    pub stored_len: u32,
    /// Number of its raw bytes.
    pub raw_len: u32,
    /// CRC32 of the stored bytes.
    pub crc32: u32,
    /// The place that it was written for.
    pub origin: Origin,
}

/// Some frames of a pack, in the order of their offsets.
///
/// ```text
/// version: 1 (1)   number of frames: varint (at most 1024)
/// each frame:
///   keyed BLAKE3 of the raw bytes: 32 (zeros: not known)
///   CRC32 of the first 4 KiB of the raw bytes: 4   CRC32 of the raw bytes: 4   CRC32 of the stored bytes: 4
///   offset: varint   stored length: varint   raw length: varint
///   inode: varint    block: varint           start: varint
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackFrames(pub Vec<KnownFrame>);

impl Record for PackFrames {
    const TAG: u8 = tag::PACK_FRAMES;

    fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(4 + 72 * self.0.len());
        out.push(VERSION);
        put_varint(&mut out, self.0.len() as u64);
        for frame in &self.0 {
            out.extend(frame.hash.unwrap_or_default());
            out.extend(frame.head_crc32.to_le_bytes());
            out.extend(frame.raw_crc32.to_le_bytes());
            out.extend(frame.crc32.to_le_bytes());
            put_varint(&mut out, u64::from(frame.offset));
            put_varint(&mut out, u64::from(frame.stored_len));
            put_varint(&mut out, u64::from(frame.raw_len));
            put_varint(&mut out, frame.origin.block.inode.0);
            put_varint(&mut out, frame.origin.block.block.0);
            put_varint(&mut out, u64::from(frame.origin.start));
        }
        out.into()
    }

    fn read(ValueReader(fields): &mut ValueReader<'_>) -> Result<Self, Corrupt> {
        fields.version(VERSION)?;
        let count = fields.varint()?;
        let most = PART_FRAMES.min(fields.rest().len() / LEAST) as u64;
        if count > most {
            return Err(fields.corrupt("has another number of frames than it says"));
        }
        let mut frames: Vec<KnownFrame> = Vec::with_capacity(to_usize(count));
        for _ in 0..count {
            let hash: [u8; 32] = fields.array()?;
            let frame = KnownFrame {
                hash: (hash != [0; 32]).then_some(hash),
                head_crc32: fields.u32()?,
                raw_crc32: fields.u32()?,
                crc32: fields.u32()?,
                offset: fields.varint_u32()?,
                stored_len: fields.varint_u32()?,
                raw_len: fields.varint_u32()?,
                origin: Origin {
                    block: BlockKey {
                        inode: Inode(fields.varint()?),
                        block: BlockIndex(fields.varint()?),
                    },
                    start: fields.varint_u32()?,
                },
            };
            let end = u64::from(frame.origin.start) + u64::from(frame.raw_len);
            if frame.raw_len == 0 || end > BLOCK_SIZE {
                return Err(fields.corrupt("has a frame that is in no block"));
            }
            if frames
                .last()
                .is_some_and(|last| last.offset >= frame.offset)
            {
                return Err(fields.corrupt("has frames out of order"));
            }
            frames.push(frame);
        }
        Ok(PackFrames(frames))
    }
}

/// A note that a block received frames of a pack that were written for another block, and may still have them.
///
/// ```text
/// version: 1 (1)
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Referrer;

impl Record for Referrer {
    const TAG: u8 = tag::REFERRER;

    fn encode(&self) -> Bytes {
        Bytes::from_static(&[VERSION])
    }

    fn read(ValueReader(fields): &mut ValueReader<'_>) -> Result<Self, Corrupt> {
        fields.version(VERSION)?;
        Ok(Referrer)
    }
}
