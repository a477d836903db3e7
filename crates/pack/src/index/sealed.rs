//! The index of a sealed pack.
//!
//! ```text
//! pack header     as in version 1, except for the version, which is 2
//!
//! index entries   as in version 1, sealed as one piece: the closing part of the pack
//!
//! index footer, at the end of the pack
//!   0  [u8; 8]   magic         "FBINDEX\n"
//!   8  u16       version       2
//!  10  u8        seal          1 AES-256-GCM
//!  11  u8        reserved      0
//!  12  u32       key_id        which data key of the volume
//!  16  u64       reserved      0
//!  24  [u8; 16]  tag           authenticates bytes 0 to 24 and 40 to 72, and the index entries
//!  40  [u8; 16]  salt          as in each frame of the pack
//!  56  u64       pack
//!  64  u32       frames        number of index entries
//!  68  u32       index_offset  of the first index entry in the pack
//!  72  u32       index_crc32   of all index entries, as they are stored
//!  76  u32       crc32         of bytes 0 to 76 of the footer
//!  80
//! ```
//!
//! The volume is part of the key and of the pack header, and not of the footer.

use forebay_seal::{
    ALGORITHM_AES_256_GCM, DataKeyId, DataKeys, Forged, Part, Purpose, SALT_LEN, Salt, Sealer,
    TAG_LEN, Tag,
};
use forebay_types::{PackId, VolumeId, bounded_u32};

use super::{
    FOOTER_MAGIC, INDEX_FOOTER_LEN, IndexEntry, IndexLocation, PACK_VERSION, PackError, PackIndex,
    SEALED_PACK_VERSION, decode_entries, encode_pack_header,
};
use crate::fields::{put, take, take_u16, take_u32, take_u64};

/// Offsets in the index footer.
mod footer_at {
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = MAGIC + 8;
    pub(super) const SEAL: usize = VERSION + 2;
    pub(super) const RESERVED: usize = SEAL + 1;
    pub(super) const KEY_ID: usize = RESERVED + 1;
    pub(super) const RESERVED_TOO: usize = KEY_ID + 4;
    pub(super) const TAG: usize = RESERVED_TOO + 8;
    pub(super) const SALT: usize = TAG + super::TAG_LEN;
    pub(super) const PACK: usize = SALT + super::SALT_LEN;
    pub(super) const FRAMES: usize = PACK + 8;
    pub(super) const INDEX_OFFSET: usize = FRAMES + 4;
    pub(super) const INDEX_CRC32: usize = INDEX_OFFSET + 4;
    pub(super) const CRC32: usize = INDEX_CRC32 + 4;
    pub(super) const END: usize = CRC32 + 4;
}
const _: () = assert!(
    footer_at::END == INDEX_FOOTER_LEN,
    "readers fetch as many bytes before they know the version"
);

/// Authenticated bytes of the footer: all before the tag, and from the salt to the checksums.
const ALSO_LEN: usize = footer_at::TAG + footer_at::INDEX_CRC32 - footer_at::SALT;

/// Index entries, sealed, and footer of a pack whose frames end at `index_offset`.
pub(crate) fn encode_index(
    pack: PackId,
    index_offset: u32,
    entries: &[IndexEntry],
    sealer: Sealer,
) -> Vec<u8> {
    let mut bytes: Vec<u8> = entries.iter().flat_map(IndexEntry::encode).collect();
    let mut footer = Footer {
        key_id: sealer.key_id(),
        tag: [0; TAG_LEN],
        salt: *sealer.salt(),
        pack,
        frames: bounded_u32(entries.len()),
        index_offset,
        index_crc32: 0,
    };
    footer.tag = sealer.seal_closing(&footer.also(), &mut bytes);
    footer.index_crc32 = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&footer.encode());
    bytes
}

/// Reads and opens the index at the end of a pack; see [`super::read_index`].
pub(super) fn open_index(tail: &[u8], keys: &DataKeys) -> Result<PackIndex, PackError> {
    let Some((before, footer)) = tail.split_last_chunk::<INDEX_FOOTER_LEN>() else {
        return Err(PackError::Damaged("it is shorter than an index footer"));
    };
    let footer = Footer::decode(footer)?;
    let header = encode_pack_header(SEALED_PACK_VERSION, keys.content(), footer.pack);
    let (index, pack_len) = footer.place().find(before, &header)?;
    let opener = keys.opener(Purpose::Pack, footer.pack.0, footer.key_id, &footer.salt);
    let opener = opener.map_err(PackError::UnknownKey)?;
    let mut index = index.to_vec();
    let opened = opener.open(Part::Closing, &footer.also(), &mut index, &footer.tag);
    opened.map_err(|Forged| PackError::Forged)?;
    Ok(PackIndex {
        volume: keys.content(),
        pack: footer.pack,
        pack_len,
        entries: decode_entries(&index, footer.pack, footer.index_offset)?,
    })
}

/// The error for a footer of this version without keys.
pub(super) fn sealed_by(footer: &[u8; INDEX_FOOTER_LEN]) -> PackError {
    match Footer::decode(footer) {
        Ok(footer) => PackError::Sealed {
            algorithm: ALGORITHM_AES_256_GCM,
            key_id: footer.key_id.0,
        },
        Err(error) => error,
    }
}

/// Number of frames of a whole pack and the offset of its index, after verifying header, footer and
/// checksum of the index; needs no keys.
pub(crate) fn verify_crc32(pack: &[u8], volume: VolumeId) -> Result<(u32, u32), PackError> {
    let Some((before, footer)) = pack.split_last_chunk::<INDEX_FOOTER_LEN>() else {
        return Err(PackError::Damaged("it is shorter than an index footer"));
    };
    let footer = Footer::decode(footer)?;
    let header = encode_pack_header(SEALED_PACK_VERSION, volume, footer.pack);
    let (_, pack_len) = footer.place().find(before, &header)?;
    match pack.len() == pack_len as usize {
        true => Ok((footer.frames, footer.index_offset)),
        false => Err(PackError::Damaged("it is shorter than its index says")),
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Footer {
    key_id: DataKeyId,
    tag: Tag,
    salt: Salt,
    pack: PackId,
    frames: u32,
    index_offset: u32,
    index_crc32: u32,
}

impl Footer {
    fn place(&self) -> IndexLocation {
        IndexLocation {
            frames: self.frames,
            index_offset: self.index_offset,
            index_crc32: self.index_crc32,
        }
    }

    /// The authenticated bytes of the footer.
    fn also(&self) -> [u8; ALSO_LEN] {
        let encoded = self.encode();
        let mut also = [0; ALSO_LEN];
        let (before, behind) = also.split_at_mut(footer_at::TAG);
        before.copy_from_slice(&encoded[..footer_at::TAG]);
        behind.copy_from_slice(&encoded[footer_at::SALT..footer_at::INDEX_CRC32]);
        also
    }

    fn encode(&self) -> [u8; INDEX_FOOTER_LEN] {
        let mut bytes = [0; INDEX_FOOTER_LEN];
        let to = &mut bytes;
        put(to, footer_at::MAGIC, FOOTER_MAGIC);
        put(to, footer_at::VERSION, SEALED_PACK_VERSION.to_le_bytes());
        put(to, footer_at::SEAL, [ALGORITHM_AES_256_GCM]);
        put(to, footer_at::RESERVED, [0; 1]);
        put(to, footer_at::KEY_ID, self.key_id.0.to_le_bytes());
        put(to, footer_at::RESERVED_TOO, [0; 8]);
        put(to, footer_at::TAG, self.tag);
        put(to, footer_at::SALT, self.salt);
        put(to, footer_at::PACK, self.pack.0.to_le_bytes());
        put(to, footer_at::FRAMES, self.frames.to_le_bytes());
        put(to, footer_at::INDEX_OFFSET, self.index_offset.to_le_bytes());
        put(to, footer_at::INDEX_CRC32, self.index_crc32.to_le_bytes());
        let crc32 = crc32fast::hash(&to[..footer_at::CRC32]);
        put(to, footer_at::CRC32, crc32.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; INDEX_FOOTER_LEN]) -> Result<Footer, PackError> {
        let short = PackError::Damaged("it is shorter than an index footer");
        if take(bytes, footer_at::MAGIC) != Some(FOOTER_MAGIC) {
            return Err(PackError::Damaged("it does not end in an index footer"));
        }
        match take_u16(bytes, footer_at::VERSION).ok_or(short.clone())? {
            SEALED_PACK_VERSION => {}
            PACK_VERSION => return Err(PackError::NotSealed),
            other => return Err(PackError::Version(other)),
        }
        if take_u32(bytes, footer_at::CRC32) != Some(crc32fast::hash(&bytes[..footer_at::CRC32])) {
            return Err(PackError::Damaged(
                "its index footer does not match its CRC32",
            ));
        }
        Footer::fields(bytes).ok_or(short).flatten()
    }

    /// The fields of a footer whose checksum was right.
    fn fields(bytes: &[u8]) -> Option<Result<Footer, PackError>> {
        let [algorithm, reserved] = take(bytes, footer_at::SEAL)?;
        let key_id = take_u32(bytes, footer_at::KEY_ID)?;
        if algorithm != ALGORITHM_AES_256_GCM {
            return Some(Err(PackError::Sealed { algorithm, key_id }));
        }
        if reserved != 0 || take(bytes, footer_at::RESERVED_TOO)? != [0; 8] {
            return Some(Err(PackError::Damaged("a field that must be zero is not")));
        }
        Some(Ok(Footer {
            key_id: DataKeyId(key_id),
            tag: take(bytes, footer_at::TAG)?,
            salt: take(bytes, footer_at::SALT)?,
            pack: PackId(take_u64(bytes, footer_at::PACK)?),
            frames: take_u32(bytes, footer_at::FRAMES)?,
            index_offset: take_u32(bytes, footer_at::INDEX_OFFSET)?,
            index_crc32: take_u32(bytes, footer_at::INDEX_CRC32)?,
        }))
    }
}
