//! The header of a sealed frame.
//!
//! ```text
//!   0  [u8; 4]   magic         "FBfr"
//!   4  u16       version       2
//!   6  u8        reserved      0
//!   7  u8        seal          1 AES-256-GCM
//!   8  u32       key_id        which data key of the volume
//!  12  u32       payload_len   at most raw_len
//!  16  u64       number        of the frame in its pack, from 0: its nonce
//!  24  [u8; 16]  salt          of the pack: with data key, volume and pack it makes the key
//!  40  [u8; 16]  tag           authenticates bytes 0 to 40, and all that is sealed
//!  56  u32       crc32         of bytes 0 to 56, and of all that is sealed
//!  60            sealed from here to the end of the frame:
//!  60  u8        codec         0 raw, 1 zstd
//!  61  [u8; 3]   reserved      0
//!  64  u64       inode        \
//!  72  u64       block         |
//!  80  u32       start         |  identity, together with the volume and the pack,
//!  84  u32       raw_len       |  which are in the key and not stored
//!  88  u32       offset       /   of the frame in its pack
//!  92  u32       reserved      0
//!  96  [u8; 32]  hash          keyed BLAKE3 of the raw bytes; 0 if the codec is raw: the tag covers them
//! 128            payload
//! ```
//!
//! It has the length of the header of version 1, so that the length of a frame does not depend on its
//! version, and references to frames have one form. The sealed bytes are one piece, which is opened in place.

use forebay_seal::{
    ALGORITHM_AES_256_GCM, DataKeyId, DataKeys, Forged, Part, Purpose, SALT_LEN, Salt, Sealer,
    TAG_LEN, Tag, UnknownDataKey,
};
use forebay_types::{BlockIndex, BlockKey, Inode, PackId, VolumeId, bounded_u32};

use super::{
    FRAME_HEADER_LEN, FRAME_VERSION, FrameHeader, HeaderFault, MAGIC, SEALED_FRAME_VERSION,
    stored_crc32, verified_crc32, verify_crc32, version,
};
use crate::codec::Codec;
use crate::fields::{put, take, take_u32, take_u64};

const MAGIC_AT: usize = 0;
const VERSION_AT: usize = MAGIC_AT + 4;
const RESERVED_AT: usize = VERSION_AT + 2;
const SEAL_AT: usize = RESERVED_AT + 1;
const KEY_ID_AT: usize = SEAL_AT + 1;
pub(super) const PAYLOAD_LEN_AT: usize = KEY_ID_AT + 4;
const NUMBER_AT: usize = PAYLOAD_LEN_AT + 4;
const SALT_AT: usize = NUMBER_AT + 8;
const TAG_AT: usize = SALT_AT + SALT_LEN;
pub(super) const CRC32_AT: usize = TAG_AT + TAG_LEN;

/// Offset of the sealed bytes in a frame.
pub(crate) const SEALED_AT: usize = CRC32_AT + 4;

/// Offsets in the sealed bytes.
mod sealed_at {
    pub(super) const CODEC: usize = 0;
    pub(super) const RESERVED: usize = CODEC + 1;
    pub(super) const INODE: usize = RESERVED + 3;
    pub(super) const BLOCK: usize = INODE + 8;
    pub(super) const START: usize = BLOCK + 8;
    pub(super) const RAW_LEN: usize = START + 4;
    pub(super) const OFFSET: usize = RAW_LEN + 4;
    pub(super) const RESERVED_TOO: usize = OFFSET + 4;
    pub(super) const HASH: usize = RESERVED_TOO + 4;
    pub(super) const END: usize = HASH + 32;
}

/// Offset of the payload in the sealed bytes.
pub(crate) const SEALED_PAYLOAD_AT: usize = sealed_at::END;
const _: () = assert!(SEALED_AT + SEALED_PAYLOAD_AT == FRAME_HEADER_LEN);

impl FrameHeader {
    /// Writes the header into the first bytes of `stored`, in front of the payload that is already there, seals all of
    /// it, and returns the CRC32. `offset` is the offset of `stored` in the pack.
    pub(crate) fn seal_into(&self, stored: &mut [u8], offset: u32, sealer: &mut Sealer) -> u32 {
        put(stored, MAGIC_AT, MAGIC);
        put(stored, VERSION_AT, SEALED_FRAME_VERSION.to_le_bytes());
        put(stored, RESERVED_AT, [0]);
        put(stored, SEAL_AT, [ALGORITHM_AES_256_GCM]);
        put(stored, KEY_ID_AT, sealer.key_id().0.to_le_bytes());
        put(stored, PAYLOAD_LEN_AT, self.payload_len.to_le_bytes());
        put(stored, NUMBER_AT, sealer.next().to_le_bytes());
        put(stored, SALT_AT, *sealer.salt());
        let (clear, sealed) = stored.split_at_mut(SEALED_AT);
        put(sealed, sealed_at::CODEC, [self.codec.id()]);
        put(sealed, sealed_at::RESERVED, [0; 3]);
        put(sealed, sealed_at::INODE, self.block.inode.0.to_le_bytes());
        put(sealed, sealed_at::BLOCK, self.block.block.0.to_le_bytes());
        put(sealed, sealed_at::START, self.start.to_le_bytes());
        put(sealed, sealed_at::RAW_LEN, self.raw_len.to_le_bytes());
        put(sealed, sealed_at::OFFSET, offset.to_le_bytes());
        put(sealed, sealed_at::RESERVED_TOO, [0; 4]);
        put(sealed, sealed_at::HASH, self.hash.unwrap_or_default());
        let tag = sealer.seal(&clear[..TAG_AT], sealed);
        put(clear, TAG_AT, tag);
        let crc32 = stored_crc32(stored, CRC32_AT);
        put(stored, CRC32_AT, crc32.to_le_bytes());
        crc32
    }

    /// Reads the opened bytes: the header of a frame of this volume and pack, which its key has proven, and the offset
    /// in the pack at which it was written. `None` if bytes are missing.
    pub(crate) fn unsealed(
        sealed: &[u8],
        volume: VolumeId,
        pack: PackId,
    ) -> Option<Result<(FrameHeader, u32), HeaderFault>> {
        let [codec] = take(sealed, sealed_at::CODEC)?;
        let Some(codec) = Codec::from_id(codec) else {
            return Some(Err(HeaderFault::Codec(codec)));
        };
        let hash: [u8; 32] = take(sealed, sealed_at::HASH)?;
        let unused = take(sealed, sealed_at::RESERVED)? == [0; 3]
            && take(sealed, sealed_at::RESERVED_TOO)? == [0; 4]
            && (codec != Codec::Raw || hash == [0; 32]);
        if !unused {
            return Some(Err(HeaderFault::Damaged(
                "a field that must be zero is not",
            )));
        }
        // The bytes of a frame in a pack, which ends at 4 GiB.
        let payload_len = bounded_u32(sealed.len().checked_sub(SEALED_PAYLOAD_AT)?);
        let header = FrameHeader {
            codec,
            volume,
            pack,
            block: BlockKey {
                inode: Inode(take_u64(sealed, sealed_at::INODE)?),
                block: BlockIndex(take_u64(sealed, sealed_at::BLOCK)?),
            },
            start: take_u32(sealed, sealed_at::START)?,
            raw_len: take_u32(sealed, sealed_at::RAW_LEN)?,
            payload_len,
            hash: (codec != Codec::Raw).then_some(hash),
        };
        Some(Ok((header, take_u32(sealed, sealed_at::OFFSET)?)))
    }
}

/// The unencrypted part of a sealed frame's header.
pub(crate) struct SealedHeader {
    pub(crate) key_id: DataKeyId,
    pub(crate) crc32: u32,
    number: u64,
    salt: Salt,
    tag: Tag,
    /// All bytes before the tag, which are authenticated.
    also: [u8; TAG_AT],
}

impl SealedHeader {
    /// Reads the header at the start of `stored`, and verifies the CRC32 over the whole frame and that it has the
    /// length that it claims. Nothing of it is authenticated yet.
    pub(crate) fn open(stored: &[u8]) -> Result<SealedHeader, HeaderFault> {
        match version(stored)? {
            SEALED_FRAME_VERSION => {}
            // Unless its checksum is right, this may be a sealed frame whose version field is damaged.
            FRAME_VERSION => {
                return Err(verify_crc32(stored).err().unwrap_or(HeaderFault::NotSealed));
            }
            other => return Err(HeaderFault::Version(other)),
        }
        let short = HeaderFault::Damaged("it ends within its header");
        let crc32 = verified_crc32(stored, CRC32_AT)?;
        SealedHeader::fields(stored, crc32).ok_or(short).flatten()
    }

    /// The fields of a header whose checksum was right; `None` if bytes are missing.
    fn fields(stored: &[u8], crc32: u32) -> Option<Result<SealedHeader, HeaderFault>> {
        let [reserved, algorithm] = take(stored, RESERVED_AT)?;
        let key_id = take_u32(stored, KEY_ID_AT)?;
        if algorithm != ALGORITHM_AES_256_GCM {
            return Some(Err(HeaderFault::Sealed { algorithm, key_id }));
        }
        if reserved != 0 {
            return Some(Err(HeaderFault::Damaged(
                "a field that must be zero is not",
            )));
        }
        let payload_len = stored.len().checked_sub(FRAME_HEADER_LEN)?;
        if take_u32(stored, PAYLOAD_LEN_AT)? as usize != payload_len {
            return Some(Err(HeaderFault::Damaged(
                "its payload has another length than its header says",
            )));
        }
        Some(Ok(SealedHeader {
            key_id: DataKeyId(key_id),
            crc32,
            number: take_u64(stored, NUMBER_AT)?,
            salt: take(stored, SALT_AT)?,
            tag: take(stored, TAG_AT)?,
            also: take(stored, 0)?,
        }))
    }

    /// Opens the sealed bytes in place, all from [`SEALED_AT`] on, as a frame of `pack`.
    pub(crate) fn unseal(
        &self,
        sealed: &mut [u8],
        pack: PackId,
        keys: &DataKeys,
    ) -> Result<(), Unsealable> {
        let opener = keys.opener(Purpose::Pack, pack.0, self.key_id, &self.salt);
        let opener = opener.map_err(Unsealable::UnknownKey)?;
        let opened = opener.open(Part::Counted(self.number), &self.also, sealed, &self.tag);
        opened.map_err(|Forged| Unsealable::Forged)
    }
}

/// Why sealed bytes cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsealable {
    /// There is no such data key.
    UnknownKey(UnknownDataKey),
    /// They were not sealed there with this key.
    Forged,
}
