//! The header in front of every frame's payload.
//!
//! ```text
//!   0  [u8; 4]   magic         "FBfr"
//!   4  u16       version       1
//!   6  u8        codec         0 raw, 1 zstd
//!   7  u8        seal          0 not sealed
//!   8  [u8; 16]  volume        \
//!  24  u64       pack           |
//!  32  u64       inode          |  identity: a frame that was moved or swapped is noticed
//!  40  u64       block          |
//!  48  u32       start          |  in bytes from the start of the block
//!  52  u32       raw_len       /   1 to 4 MiB
//!  56  u32       payload_len       at most raw_len
//!  60  u32       key_id            0 while seal is 0
//!  64  u64       nonce_counter     0 while seal is 0
//!  72  [u8; 32]  hash              keyed BLAKE3 of the raw bytes
//! 104  [u8; 16]  tag               0 while seal is 0
//! 120  u32       reserved          0
//! 124  u32       crc32             of bytes 0 to 124 and of the payload
//! 128            payload
//! ```
//!
//! A frame that stands for bytes which were lost before they reached the bucket has the inverted CRC32, one byte of
//! payload, and the length of the lost range as `raw_len`. Every reader takes it for damaged.
//!
//! That is version 1. Its fields for sealing were never used: sealed frames have version 2, whose header has the same
//! length and hides the identity of the frame ([`mod@sealed`]).

pub mod sealed;

use forebay_seal::ALGORITHM_AES_256_GCM;
use forebay_types::{BlockIndex, BlockKey, Inode, PackId, VolumeId};

use crate::codec::Codec;
use crate::fields::{put, take, take_u16, take_u32, take_u64};

pub(crate) const MAGIC: [u8; 4] = *b"FBfr";

/// The version of frames that are not sealed.
pub const FRAME_VERSION: u16 = 1;

/// The version of sealed frames.
pub const SEALED_FRAME_VERSION: u16 = 2;

/// The seal of a frame that is not sealed.
pub(crate) const SEAL_NONE: u8 = 0;

const MAGIC_AT: usize = 0;
const VERSION_AT: usize = MAGIC_AT + 4;
const CODEC_AT: usize = VERSION_AT + 2;
const SEAL_AT: usize = CODEC_AT + 1;
const VOLUME_AT: usize = SEAL_AT + 1;
const PACK_AT: usize = VOLUME_AT + 16;
const INODE_AT: usize = PACK_AT + 8;
const BLOCK_AT: usize = INODE_AT + 8;
const START_AT: usize = BLOCK_AT + 8;
const RAW_LEN_AT: usize = START_AT + 4;
const PAYLOAD_LEN_AT: usize = RAW_LEN_AT + 4;
const KEY_ID_AT: usize = PAYLOAD_LEN_AT + 4;
const NONCE_COUNTER_AT: usize = KEY_ID_AT + 4;
const HASH_AT: usize = NONCE_COUNTER_AT + 8;
const TAG_AT: usize = HASH_AT + 32;
const RESERVED_AT: usize = TAG_AT + 16;
const CRC32_AT: usize = RESERVED_AT + 4;

/// Bytes of a frame header.
pub const FRAME_HEADER_LEN: usize = CRC32_AT + 4;
const _: () = assert!(FRAME_HEADER_LEN == 128);

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) codec: Codec,
    pub(crate) volume: VolumeId,
    pub(crate) pack: PackId,
    pub(crate) block: BlockKey,
    pub(crate) start: u32,
    pub(crate) raw_len: u32,
    pub(crate) payload_len: u32,
    /// Of the raw bytes. `None` if a tag covers the same bytes.
    pub(crate) hash: Option<[u8; 32]>,
}

/// Why bytes are not the header of a frame that this program can open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    /// The magic, a reserved field or the checksum is wrong, or bytes are missing.
    Damaged(&'static str),
    /// The checksum is inverted: the frame stands for bytes that were lost.
    Lost,
    /// A version of the layout that this program does not know.
    Version(u16),
    /// Not sealed, in a volume in which all frames are.
    NotSealed,
    /// Sealed, by this algorithm and key.
    Sealed { algorithm: u8, key_id: u32 },
    /// A codec that this version does not support.
    Codec(u8),
}

impl FrameHeader {
    /// Writes the header into the first bytes of `stored`, in front of the payload that is already
    /// there, and returns the CRC32.
    pub(crate) fn write_into(&self, stored: &mut [u8]) -> u32 {
        self.write_fields(stored);
        let crc32 = stored_crc32(stored, CRC32_AT);
        put(stored, CRC32_AT, crc32.to_le_bytes());
        crc32
    }

    /// The same, given the CRC state of the payload: `header` holds only the bytes of the header.
    pub(crate) fn write_before(&self, header: &mut [u8], payload: &crc32fast::Hasher) -> u32 {
        self.write_fields(header);
        let mut crc32 = crc32fast::Hasher::new();
        crc32.update(header.get(..CRC32_AT).unwrap_or_default());
        crc32.combine(payload);
        let crc32 = crc32.finalize();
        put(header, CRC32_AT, crc32.to_le_bytes());
        crc32
    }

    /// Writes all fields but the CRC32.
    fn write_fields(&self, stored: &mut [u8]) {
        put(stored, MAGIC_AT, MAGIC);
        put(stored, VERSION_AT, FRAME_VERSION.to_le_bytes());
        put(stored, CODEC_AT, [self.codec.id()]);
        put(stored, SEAL_AT, [SEAL_NONE]);
        put(stored, VOLUME_AT, self.volume.0);
        put(stored, PACK_AT, self.pack.0.to_le_bytes());
        put(stored, INODE_AT, self.block.inode.0.to_le_bytes());
        put(stored, BLOCK_AT, self.block.block.0.to_le_bytes());
        put(stored, START_AT, self.start.to_le_bytes());
        put(stored, RAW_LEN_AT, self.raw_len.to_le_bytes());
        put(stored, PAYLOAD_LEN_AT, self.payload_len.to_le_bytes());
        put(stored, KEY_ID_AT, [0; 4]);
        put(stored, NONCE_COUNTER_AT, [0; 8]);
        put(stored, HASH_AT, self.hash.unwrap_or_default());
        put(stored, TAG_AT, [0; 16]);
        put(stored, RESERVED_AT, [0; 4]);
    }

    /// Reads the header of a frame that is not sealed at the start of `stored`, and verifies the CRC32 over all of it,
    /// which it also returns.
    pub(crate) fn open(stored: &[u8]) -> Result<(FrameHeader, u32), HeaderFault> {
        let short = HeaderFault::Damaged("it ends within its header");
        match version(stored)? {
            FRAME_VERSION => {}
            SEALED_FRAME_VERSION => {
                let sealed = sealed::SealedHeader::open(stored)?;
                return Err(HeaderFault::Sealed {
                    algorithm: ALGORITHM_AES_256_GCM,
                    key_id: sealed.key_id.0,
                });
            }
            other => return Err(HeaderFault::Version(other)),
        }
        let crc32 = verified_crc32(stored, CRC32_AT)?;
        FrameHeader::fields(stored)
            .ok_or(short)
            .flatten()
            .map(|header| (header, crc32))
    }

    /// The fields of a header whose checksum was right; `None` if bytes are missing.
    fn fields(stored: &[u8]) -> Option<Result<FrameHeader, HeaderFault>> {
        let [codec, algorithm] = take(stored, CODEC_AT)?;
        let key_id = take_u32(stored, KEY_ID_AT)?;
        if algorithm != SEAL_NONE {
            return Some(Err(HeaderFault::Sealed { algorithm, key_id }));
        }
        let Some(codec) = Codec::from_id(codec) else {
            return Some(Err(HeaderFault::Codec(codec)));
        };
        let unused = key_id == 0
            && take(stored, NONCE_COUNTER_AT)? == [0; 8]
            && take(stored, TAG_AT)? == [0; 16]
            && take(stored, RESERVED_AT)? == [0; 4];
        if !unused {
            return Some(Err(HeaderFault::Damaged(
                "a field that must be zero is not",
            )));
        }
        Some(Ok(FrameHeader {
            codec,
            volume: VolumeId(take(stored, VOLUME_AT)?),
            pack: PackId(take_u64(stored, PACK_AT)?),
            block: BlockKey {
                inode: Inode(take_u64(stored, INODE_AT)?),
                block: BlockIndex(take_u64(stored, BLOCK_AT)?),
            },
            start: take_u32(stored, START_AT)?,
            raw_len: take_u32(stored, RAW_LEN_AT)?,
            payload_len: take_u32(stored, PAYLOAD_LEN_AT)?,
            hash: Some(take(stored, HASH_AT)?),
        }))
    }
}

/// The version of the frame at the start of `stored`.
pub(crate) fn version(stored: &[u8]) -> Result<u16, HeaderFault> {
    let short = HeaderFault::Damaged("it ends within its header");
    let magic: [u8; 4] = take(stored, MAGIC_AT).ok_or(short)?;
    if magic != MAGIC {
        return Err(HeaderFault::Damaged(
            "it does not begin with the magic of a frame",
        ));
    }
    take_u16(stored, VERSION_AT).ok_or(short)
}

/// Length of the frame at the start of `stored`, of either version, after verifying its checksum; needs no keys.
pub(crate) fn verify_crc32(stored: &[u8]) -> Result<usize, HeaderFault> {
    let (payload_len_at, crc32_at) = places(stored)?;
    let short = HeaderFault::Damaged("it is cut off");
    let payload_len = take_u32(stored, payload_len_at).ok_or(short)? as usize;
    let len = FRAME_HEADER_LEN + payload_len;
    let stored = stored.get(..len).ok_or(short)?;
    verified_crc32(stored, crc32_at).map(|_| len)
}

/// Inverts the CRC32 of a frame of either version, and returns it: from then on it stands for bytes that were lost.
pub(crate) fn invert_crc32(stored: &mut [u8], crc32: u32) -> u32 {
    if let Ok((_, crc32_at)) = places(stored) {
        put(stored, crc32_at, (!crc32).to_le_bytes());
    }
    !crc32
}

/// The CRC32 of a frame, if it is right.
fn verified_crc32(stored: &[u8], crc32_at: usize) -> Result<u32, HeaderFault> {
    let short = HeaderFault::Damaged("it ends within its header");
    let claimed = take_u32(stored, crc32_at).ok_or(short)?;
    match stored_crc32(stored, crc32_at) {
        right if right == claimed => Ok(claimed),
        right if right == !claimed => Err(HeaderFault::Lost),
        _ => Err(HeaderFault::Damaged("its bytes do not match its CRC32")),
    }
}

/// Offsets of the payload's length and of the CRC32 in the frame at the start of `stored`.
fn places(stored: &[u8]) -> Result<(usize, usize), HeaderFault> {
    match version(stored)? {
        FRAME_VERSION => Ok((PAYLOAD_LEN_AT, CRC32_AT)),
        SEALED_FRAME_VERSION => Ok((sealed::PAYLOAD_LEN_AT, sealed::CRC32_AT)),
        other => Err(HeaderFault::Version(other)),
    }
}

/// Length of the payload, as the frame at the start of `stored` claims, which is not verified; `None` if it has no such
/// field.
pub(crate) fn payload_len(stored: &[u8]) -> Option<usize> {
    let (payload_len_at, _) = places(stored).ok()?;
    Some(take_u32(stored, payload_len_at)? as usize)
}

/// CRC32 of a frame: all of it but the field that holds the CRC32.
fn stored_crc32(stored: &[u8], crc32_at: usize) -> u32 {
    let mut crc32 = crc32fast::Hasher::new();
    crc32.update(stored.get(..crc32_at).unwrap_or_default());
    crc32.update(stored.get(crc32_at + 4..).unwrap_or_default());
    crc32.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> Vec<u8> {
        let mut stored = vec![0; FRAME_HEADER_LEN];
        stored.extend_from_slice(b"payload");
        let header = FrameHeader {
            codec: Codec::Raw,
            volume: VolumeId([3; 16]),
            pack: PackId(5),
            block: BlockKey {
                inode: Inode(8),
                block: BlockIndex(9),
            },
            start: 10,
            raw_len: 7,
            payload_len: 7,
            hash: Some([4; 32]),
        };
        let crc32 = header.write_into(&mut stored);
        let mut payload = crc32fast::Hasher::new();
        payload.update(b"payload");
        let mut apart = [0xee; FRAME_HEADER_LEN];
        assert_eq!(header.write_before(&mut apart, &payload), crc32);
        assert_eq!(apart, stored[..FRAME_HEADER_LEN]);
        assert_eq!(FrameHeader::open(&stored), Ok((header, crc32)));
        stored
    }

    /// A frame as a program of another version would write it: right checksum, other field.
    fn with_byte(at: usize, byte: u8) -> Result<(FrameHeader, u32), HeaderFault> {
        let mut stored = stored();
        stored[at] = byte;
        let crc32 = stored_crc32(&stored, CRC32_AT);
        put(&mut stored, CRC32_AT, crc32.to_le_bytes());
        FrameHeader::open(&stored)
    }

    #[test]
    fn a_sealed_frame_is_refused_by_algorithm_and_key() {
        let fault = HeaderFault::Sealed {
            algorithm: 1,
            key_id: 0,
        };
        assert_eq!(with_byte(SEAL_AT, 1), Err(fault));
    }

    #[test]
    fn an_unknown_codec_and_another_version_are_named() {
        assert_eq!(with_byte(CODEC_AT, 2), Err(HeaderFault::Codec(2)));
        assert_eq!(with_byte(VERSION_AT, 3), Err(HeaderFault::Version(3)));
    }

    #[test]
    fn fields_kept_for_later_must_be_zero() {
        for at in [
            KEY_ID_AT,
            NONCE_COUNTER_AT,
            TAG_AT,
            TAG_AT + 15,
            RESERVED_AT,
        ] {
            let fault = HeaderFault::Damaged("a field that must be zero is not");
            assert_eq!(with_byte(at, 1), Err(fault), "{at}");
        }
    }

    #[test]
    fn a_header_cut_anywhere_is_an_error() {
        let stored = stored();
        for len in 0..stored.len() {
            assert!(FrameHeader::open(&stored[..len]).is_err(), "{len}");
        }
    }
}
