//! The parts of a pack around its frames: pack header, index entries and index footer.
//!
//! ```text
//! pack header, at the start of the pack
//!   0  [u8; 8]   magic         "FBPACK\r\n"
//!   8  u16       version       1
//!  10  u16       reserved      0
//!  12  [u8; 16]  volume
//!  28  u64       pack
//!  36  u32       crc32         of bytes 0 to 36
//!  40            frames, without gaps
//!
//! index entry, one a frame in the order of the frames
//!   0  u64       inode
//!   8  u64       block
//!  16  [u8; 28]  frame         the encoding of its FrameRef
//!  44
//!
//! index footer, at the end of the pack
//!   0  [u8; 8]   magic         "FBINDEX\n"
//!   8  u16       version       1
//!  10  u8        seal          0 not sealed
//!  11  u8        reserved      0
//!  12  u32       key_id            0 while seal is 0
//!  16  u64       nonce_counter     0 while seal is 0
//!  24  [u8; 16]  tag               0 while seal is 0
//!  40  [u8; 16]  volume
//!  56  u64       pack
//!  64  u32       frames            number of index entries
//!  68  u32       index_offset      of the first index entry in the pack
//!  72  u32       index_crc32       of all index entries
//!  76  u32       crc32             of bytes 0 to 76 of the footer
//!  80
//! ```
//!
//! The footer has a checksum of its own so that the length of the index can be trusted before the index is fetched.
//!
//! That is version 1. In a sealed pack header and footer have version 2, and the index entries are
//! sealed ([`mod@sealed`]).

pub mod sealed;

use forebay_seal::UnknownDataKey;
use forebay_types::{BlockIndex, BlockKey, Inode, PackId, VolumeId, bounded_u32};

use crate::fields::{put, take, take_u16, take_u32, take_u64};
use crate::header::SEAL_NONE;
use crate::{FrameError, FrameRef, PackKeys};

const PACK_MAGIC: [u8; 8] = *b"FBPACK\r\n";
const FOOTER_MAGIC: [u8; 8] = *b"FBINDEX\n";

/// The version of packs that are not sealed.
pub const PACK_VERSION: u16 = 1;

/// The version of sealed packs.
pub const SEALED_PACK_VERSION: u16 = 2;

/// Offsets in the pack header.
mod header_at {
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = MAGIC + 8;
    pub(super) const RESERVED: usize = VERSION + 2;
    pub(super) const VOLUME: usize = RESERVED + 2;
    pub(super) const PACK: usize = VOLUME + 16;
    pub(super) const CRC32: usize = PACK + 8;
    pub(super) const END: usize = CRC32 + 4;
}

/// Offsets in an index entry.
mod entry_at {
    pub(super) const INODE: usize = 0;
    pub(super) const BLOCK: usize = INODE + 8;
    pub(super) const FRAME: usize = BLOCK + 8;
    pub(super) const END: usize = FRAME + crate::FrameRef::LEN;
}

/// Offsets in the index footer.
mod footer_at {
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = MAGIC + 8;
    pub(super) const SEAL: usize = VERSION + 2;
    pub(super) const RESERVED: usize = SEAL + 1;
    pub(super) const KEY_ID: usize = RESERVED + 1;
    pub(super) const NONCE_COUNTER: usize = KEY_ID + 4;
    pub(super) const TAG: usize = NONCE_COUNTER + 8;
    pub(super) const VOLUME: usize = TAG + 16;
    pub(super) const PACK: usize = VOLUME + 16;
    pub(super) const FRAMES: usize = PACK + 8;
    pub(super) const INDEX_OFFSET: usize = FRAMES + 4;
    pub(super) const INDEX_CRC32: usize = INDEX_OFFSET + 4;
    pub(super) const CRC32: usize = INDEX_CRC32 + 4;
    pub(super) const END: usize = CRC32 + 4;
}

/// Length of the pack header, in bytes: the offset of the first frame.
pub const PACK_HEADER_LEN: usize = header_at::END;
/// Length of a frame's index entry, in bytes.
pub const INDEX_ENTRY_LEN: usize = entry_at::END;
/// Length of the index footer, in bytes.
pub const INDEX_FOOTER_LEN: usize = footer_at::END;
const _: () = assert!(PACK_HEADER_LEN == 40 && INDEX_ENTRY_LEN == 44 && INDEX_FOOTER_LEN == 80);

/// A frame as described by its pack's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The block of which the frame holds a range.
    pub block: BlockKey,
    /// The location of the frame, and the range of the block that it holds.
    pub frame: FrameRef,
}

impl IndexEntry {
    fn encode(&self) -> [u8; INDEX_ENTRY_LEN] {
        let mut bytes = [0; INDEX_ENTRY_LEN];
        put(
            &mut bytes,
            entry_at::INODE,
            self.block.inode.0.to_le_bytes(),
        );
        put(
            &mut bytes,
            entry_at::BLOCK,
            self.block.block.0.to_le_bytes(),
        );
        put(&mut bytes, entry_at::FRAME, self.frame.encode());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<IndexEntry> {
        Some(IndexEntry {
            block: BlockKey {
                inode: Inode(take_u64(bytes, entry_at::INODE)?),
                block: BlockIndex(take_u64(bytes, entry_at::BLOCK)?),
            },
            frame: FrameRef::decode(&take(bytes, entry_at::FRAME)?).ok()?,
        })
    }
}

/// The contents of a pack, as its index describes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackIndex {
    /// The volume that the pack was written for.
    pub volume: VolumeId,
    /// The number that the pack was written under.
    pub pack: PackId,
    /// Bytes of the whole pack.
    pub pack_len: u32,
    /// The frames in their order in the pack, without gaps.
    pub entries: Vec<IndexEntry>,
}

/// Why the index of a pack could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    /// The pack is sound so far, but its index begins before the bytes given.
    #[error("the index takes the last {needed} bytes of the pack: read that many from its end")]
    TailTooShort {
        /// Number of bytes at the end of the pack that [`read_index`] needs.
        needed: usize,
    },
    /// Not a pack, truncated, or damaged.
    #[error("damaged pack: {0}")]
    Damaged(&'static str),
    /// The pack has another version of the layout.
    #[error(
        "the layout of the pack has version {0} and this program reads versions up to \
         {SEALED_PACK_VERSION}: use the program that wrote it, or a newer one"
    )]
    Version(u16),
    /// The index is sealed, and its keys are not available; or it is sealed in a way that this version does not
    /// support.
    #[error(
        "the index of the pack is sealed (algorithm {algorithm}, key {key_id}) and this program has no \
         keys for it: open the volume with its key ring, by the program that wrote it or a newer one"
    )]
    Sealed {
        /// The algorithm's number.
        algorithm: u8,
        /// The data key of the volume that it was sealed with.
        key_id: u32,
    },
    /// The pack is not sealed, in a volume in which all packs are.
    #[error("the pack is not sealed, so it was not written with the volume's keys")]
    NotSealed,
    /// The index was sealed with a data key that was not in the key ring when that was read.
    #[error(transparent)]
    UnknownKey(UnknownDataKey),
    /// The index was not sealed with these keys for this pack.
    #[error(
        "the index of the pack does not authenticate: somebody without the keys has changed it or put it \
         there, or these are not its keys"
    )]
    Forged,
    /// One of its frames is damaged.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

/// Reads the index at the end of a pack of the volume that the keys belong to. Like [`read_index`],
/// but opens sealed packs: with the keys of a sealed volume only those.
pub fn open_index(tail: &[u8], keys: &PackKeys) -> Result<PackIndex, PackError> {
    match keys.data_keys() {
        None => read_index(tail),
        Some(data_keys) => sealed::open_index(tail, data_keys),
    }
}

/// Reads the index at the end of a pack that is not sealed. `tail` is the whole pack or its last bytes;
/// [`PackError::TailTooShort`] reports how many are needed. Given the whole pack it also verifies the pack header. It
/// does not verify the frames; [`crate::open_frame`] does.
pub fn read_index(tail: &[u8]) -> Result<PackIndex, PackError> {
    let Some((before, footer)) = tail.split_last_chunk::<INDEX_FOOTER_LEN>() else {
        return Err(PackError::Damaged("it is shorter than an index footer"));
    };
    let footer = Footer::decode(footer)?;
    let place = IndexLocation {
        frames: footer.frames,
        index_offset: footer.index_offset,
        index_crc32: footer.index_crc32,
    };
    let header = encode_pack_header(PACK_VERSION, footer.volume, footer.pack);
    let (index, pack_len) = place.find(before, &header)?;
    Ok(PackIndex {
        volume: footer.volume,
        pack: footer.pack,
        pack_len,
        entries: decode_entries(index, footer.pack, footer.index_offset)?,
    })
}

/// Location of the index according to a footer.
struct IndexLocation {
    frames: u32,
    index_offset: u32,
    index_crc32: u32,
}

impl IndexLocation {
    /// The bytes of the index, after verifying their checksum, and the length of the pack. `before` is the data read
    /// before the footer; if that is the whole pack, it has to begin with `header`: the footer determines every field
    /// of the header, so comparing is enough.
    fn find<'a>(
        &self,
        before: &'a [u8],
        header: &[u8; PACK_HEADER_LEN],
    ) -> Result<(&'a [u8], u32), PackError> {
        let index_len = (self.frames as usize).saturating_mul(INDEX_ENTRY_LEN);
        let pack_len = u32::try_from(self.index_offset as usize + index_len + INDEX_FOOTER_LEN)
            .map_err(|_| PackError::Damaged("its index does not fit a pack"))?;
        let tail_len = before.len() + INDEX_FOOTER_LEN;
        if tail_len > pack_len as usize {
            return Err(PackError::Damaged("it is longer than its index says"));
        }
        let Some(index_start) = before.len().checked_sub(index_len) else {
            return Err(PackError::TailTooShort {
                needed: index_len + INDEX_FOOTER_LEN,
            });
        };
        let (front, index) = before.split_at(index_start);
        if tail_len == pack_len as usize && !front.starts_with(header) {
            return Err(PackError::Damaged("its header is not the one of its index"));
        }
        if crc32fast::hash(index) != self.index_crc32 {
            return Err(PackError::Damaged("its index does not match its CRC32"));
        }
        Ok((index, pack_len))
    }
}

/// The entries of an index whose checksum was right. They must tile the pack from its header to its
/// index, so that every byte of a pack is accounted for.
fn decode_entries(
    index: &[u8],
    pack: PackId,
    index_offset: u32,
) -> Result<Vec<IndexEntry>, PackError> {
    let mut entries = Vec::with_capacity(index.len() / INDEX_ENTRY_LEN);
    let mut end = PACK_HEADER_LEN as u64;
    for bytes in index.chunks_exact(INDEX_ENTRY_LEN) {
        let entry = IndexEntry::decode(bytes)
            .filter(|entry| entry.frame.pack == pack)
            .ok_or(PackError::Damaged("its index has an impossible entry"))?;
        let stored = entry.frame.stored_range();
        if stored.start != end {
            return Err(PackError::Damaged(
                "its index has frames that do not adjoin",
            ));
        }
        end = stored.end;
        entries.push(entry);
    }
    if end != u64::from(index_offset) {
        return Err(PackError::Damaged(
            "its frames do not end where its index begins",
        ));
    }
    Ok(entries)
}

/// Whether `start`, the first bytes of an object, is the header of this pack, sealed or not.
pub fn is_header_of(start: &[u8], volume: VolumeId, pack: PackId) -> bool {
    [PACK_VERSION, SEALED_PACK_VERSION]
        .iter()
        .any(|version| start.starts_with(&encode_pack_header(*version, volume, pack)))
}

/// The header of a pack that is written with these keys.
pub fn header_of(keys: &PackKeys, pack: PackId) -> [u8; PACK_HEADER_LEN] {
    let version = match keys.is_sealed() {
        true => SEALED_PACK_VERSION,
        false => PACK_VERSION,
    };
    encode_pack_header(version, keys.volume(), pack)
}

/// `version` is that of the pack: [`PACK_VERSION`] or [`SEALED_PACK_VERSION`].
pub(crate) fn encode_pack_header(
    version: u16,
    volume: VolumeId,
    pack: PackId,
) -> [u8; PACK_HEADER_LEN] {
    let mut bytes = [0; PACK_HEADER_LEN];
    put(&mut bytes, header_at::MAGIC, PACK_MAGIC);
    put(&mut bytes, header_at::VERSION, version.to_le_bytes());
    put(&mut bytes, header_at::RESERVED, [0; 2]);
    put(&mut bytes, header_at::VOLUME, volume.0);
    put(&mut bytes, header_at::PACK, pack.0.to_le_bytes());
    let crc32 = crc32fast::hash(&bytes[..header_at::CRC32]);
    put(&mut bytes, header_at::CRC32, crc32.to_le_bytes());
    bytes
}

/// The volume and pack that a pack header names; `None` if the bytes are no pack header.
pub(crate) fn decode_pack_header(bytes: &[u8]) -> Option<(VolumeId, PackId)> {
    let version = take_u16(bytes, header_at::VERSION)?;
    let volume = VolumeId(take(bytes, header_at::VOLUME)?);
    let pack = PackId(take_u64(bytes, header_at::PACK)?);
    let header = encode_pack_header(version, volume, pack);
    bytes.starts_with(&header).then_some((volume, pack))
}

/// Index entries and footer of a pack whose frames end at `index_offset`.
pub(crate) fn encode_index(
    volume: VolumeId,
    pack: PackId,
    index_offset: u32,
    entries: &[IndexEntry],
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len() * INDEX_ENTRY_LEN + INDEX_FOOTER_LEN);
    for entry in entries {
        bytes.extend_from_slice(&entry.encode());
    }
    let footer = Footer {
        volume,
        pack,
        frames: bounded_u32(entries.len()),
        index_offset,
        index_crc32: crc32fast::hash(&bytes),
    };
    bytes.extend_from_slice(&footer.encode());
    bytes
}

#[derive(Debug, PartialEq, Eq)]
struct Footer {
    volume: VolumeId,
    pack: PackId,
    frames: u32,
    index_offset: u32,
    index_crc32: u32,
}

impl Footer {
    fn encode(&self) -> [u8; INDEX_FOOTER_LEN] {
        let mut bytes = [0; INDEX_FOOTER_LEN];
        put(&mut bytes, footer_at::MAGIC, FOOTER_MAGIC);
        put(&mut bytes, footer_at::VERSION, PACK_VERSION.to_le_bytes());
        put(&mut bytes, footer_at::SEAL, [SEAL_NONE]);
        put(&mut bytes, footer_at::RESERVED, [0; 1]);
        put(&mut bytes, footer_at::KEY_ID, [0; 4]);
        put(&mut bytes, footer_at::NONCE_COUNTER, [0; 8]);
        put(&mut bytes, footer_at::TAG, [0; 16]);
        put(&mut bytes, footer_at::VOLUME, self.volume.0);
        put(&mut bytes, footer_at::PACK, self.pack.0.to_le_bytes());
        put(&mut bytes, footer_at::FRAMES, self.frames.to_le_bytes());
        put(
            &mut bytes,
            footer_at::INDEX_OFFSET,
            self.index_offset.to_le_bytes(),
        );
        put(
            &mut bytes,
            footer_at::INDEX_CRC32,
            self.index_crc32.to_le_bytes(),
        );
        let crc32 = crc32fast::hash(&bytes[..footer_at::CRC32]);
        put(&mut bytes, footer_at::CRC32, crc32.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; INDEX_FOOTER_LEN]) -> Result<Footer, PackError> {
        let short = PackError::Damaged("it is shorter than an index footer");
        if take(bytes, footer_at::MAGIC) != Some(FOOTER_MAGIC) {
            return Err(PackError::Damaged("it does not end in an index footer"));
        }
        match take_u16(bytes, footer_at::VERSION).ok_or(short.clone())? {
            PACK_VERSION => {}
            SEALED_PACK_VERSION => return Err(sealed::sealed_by(bytes)),
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
        if algorithm != SEAL_NONE {
            return Some(Err(PackError::Sealed { algorithm, key_id }));
        }
        let unused = reserved == 0
            && key_id == 0
            && take(bytes, footer_at::NONCE_COUNTER)? == [0; 8]
            && take(bytes, footer_at::TAG)? == [0; 16];
        if !unused {
            return Some(Err(PackError::Damaged("a field that must be zero is not")));
        }
        Some(Ok(Footer {
            volume: VolumeId(take(bytes, footer_at::VOLUME)?),
            pack: PackId(take_u64(bytes, footer_at::PACK)?),
            frames: take_u32(bytes, footer_at::FRAMES)?,
            index_offset: take_u32(bytes, footer_at::INDEX_OFFSET)?,
            index_crc32: take_u32(bytes, footer_at::INDEX_CRC32)?,
        }))
    }
}

#[cfg(test)]
mod tests;
