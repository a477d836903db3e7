//! From fetched bytes to verified bytes.

use bytes::{Bytes, BytesMut};
use forebay_seal::{DataKeys, UnknownDataKey};
use forebay_types::{BlockKey, ByteRange, PackId, VolumeId};

use crate::codec::{self, Codec};
use crate::header::sealed::{SEALED_AT, SEALED_PAYLOAD_AT, SealedHeader, Unsealable};
use crate::header::{FRAME_HEADER_LEN, FrameHeader, HeaderFault, SEALED_FRAME_VERSION};
use crate::{FrameRef, IndexEntry, PackKeys};

/// The raw bytes of a range of a block, verified: they are the bytes that
/// [`crate::PackWriter::push`] received for this block and range of this volume.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The block that the bytes belong to.
    pub block: BlockKey,
    /// The range of the block that they hold.
    pub range: ByteRange,
    /// The bytes; as many as `range` has.
    pub data: Bytes,
    /// Whether `data` lies in the memory of the fetched bytes, header included: it does if the frame
    /// is stored raw, and, for a sealed frame, if those bytes had no other holder when it was opened.
    pub is_in_stored: bool,
    reference: FrameRef,
    hash: Option<[u8; 32]>,
}

impl Frame {
    /// Compares the bytes with their keyed BLAKE3, for scrubbing and salvage. [`open_frame`] has already done so for
    /// compressed frames; for raw ones it adds certainty against damage that a CRC32 misses (one in four thousand
    /// million) at a fraction of the CRC's speed. A sealed frame that is stored raw has no hash, since the tag that
    /// opened it has covered the same bytes.
    pub fn verify_hash(&self, keys: &PackKeys) -> Result<(), FrameError> {
        // The comparison of `blake3::Hash` takes constant time.
        if self.hash.is_none_or(|hash| keys.hash(&self.data) == hash) {
            return Ok(());
        }
        Err(FrameError::new(&self.reference, FrameFault::Hash))
    }
}

/// A frame that could not be opened, and the reason. Its bytes must not be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("frame at byte {offset} of pack {pack}: {fault}")]
pub struct FrameError {
    /// The pack that should hold the frame.
    pub pack: PackId,
    /// Where the frame should begin in the pack.
    pub offset: u32,
    /// The defect.
    pub fault: FrameFault,
}

impl FrameError {
    fn new(expected: &FrameRef, fault: FrameFault) -> FrameError {
        FrameError {
            pack: expected.pack,
            offset: expected.offset,
            fault,
        }
    }

    /// Whether the bytes may have been damaged in transit, so that fetching them once more is worth
    /// a try. The cause of all other faults is the stored frame, the reference, or this program.
    pub fn is_worth_another_fetch(&self) -> bool {
        match self.fault {
            FrameFault::Length { .. } | FrameFault::Damaged(_) | FrameFault::Hash => true,
            FrameFault::Reference
            | FrameFault::Identity { .. }
            | FrameFault::Version(_)
            | FrameFault::Sealed { .. }
            | FrameFault::NotSealed
            | FrameFault::UnknownKey(_)
            | FrameFault::Forged
            | FrameFault::Lost
            | FrameFault::Codec(_) => false,
        }
    }
}

/// The defect of a frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameFault {
    /// The store returned more or fewer bytes than the frame has.
    #[error(
        "the read returned {got} bytes instead of {expected}; the pack is cut off or was replaced"
    )]
    Length {
        /// Bytes that the frame has.
        expected: u32,
        /// Bytes that arrived.
        got: usize,
    },
    /// The bytes differ from those that were written.
    #[error("damaged: {0}")]
    Damaged(&'static str),
    /// The frame stands for bytes that were lost ([`crate::PackWriter::push_lost`]).
    #[error("its bytes were lost before they reached the bucket")]
    Lost,
    /// The raw bytes do not match their keyed hash.
    #[error("damaged: its raw bytes do not match their keyed BLAKE3")]
    Hash,
    /// The reference has numbers that no frame can have: the block map is damaged.
    #[error("the reference to it has impossible numbers; the block map is damaged")]
    Reference,
    /// An undamaged frame, but not the requested one.
    #[error("the bucket holds another frame there ({what} is {found}, not {expected})")]
    Identity {
        /// The part of the identity that differs.
        what: &'static str,
        /// The value in the frame.
        found: String,
        /// The requested value.
        expected: String,
    },
    /// The frame has another version of the layout.
    #[error(
        "its layout has version {0} and this program reads versions up to {SEALED_FRAME_VERSION}: use \
         the program that wrote it, or a newer one"
    )]
    Version(u16),
    /// The frame is sealed, and its keys are not available; or it is sealed in a way that this
    /// version does not support.
    #[error(
        "it is sealed (algorithm {algorithm}, key {key_id}) and this program has no keys for it: \
         open the volume with its key ring, by the program that wrote it or a newer one"
    )]
    Sealed {
        /// The algorithm's number.
        algorithm: u8,
        /// The data key of the volume that it was sealed with.
        key_id: u32,
    },
    /// The frame is not sealed, in a volume in which all frames are.
    #[error("it is not sealed, so it was not written with the volume's keys")]
    NotSealed,
    /// The frame was sealed with a data key that was not in the key ring when that was read.
    #[error(transparent)]
    UnknownKey(UnknownDataKey),
    /// The frame was not sealed with these keys for this volume, pack and offset.
    #[error(
        "it does not authenticate: somebody without the keys has changed or moved it, or these are \
         not its keys"
    )]
    Forged,
    /// The frame is compressed in a way that this version does not support.
    #[error("its codec {0} is unknown here: use the program that wrote it, or a newer one")]
    Codec(u8),
}

impl From<HeaderFault> for FrameFault {
    fn from(fault: HeaderFault) -> Self {
        match fault {
            HeaderFault::Damaged(what) => FrameFault::Damaged(what),
            HeaderFault::Lost => FrameFault::Lost,
            HeaderFault::Version(version) => FrameFault::Version(version),
            HeaderFault::NotSealed => FrameFault::NotSealed,
            HeaderFault::Sealed { algorithm, key_id } => FrameFault::Sealed { algorithm, key_id },
            HeaderFault::Codec(codec) => FrameFault::Codec(codec),
        }
    }
}

impl From<Unsealable> for FrameFault {
    fn from(fault: Unsealable) -> Self {
        match fault {
            Unsealable::UnknownKey(unknown) => FrameFault::UnknownKey(unknown),
            Unsealable::Forged => FrameFault::Forged,
        }
    }
}

/// Opens the frame that `expected` refers to and that belongs to `block`. `stored` holds exactly
/// the bytes of the pack at [`FrameRef::stored_range`].
///
/// Verifies in this order: the length, the magic and version, the CRC32 of all stored bytes, the tag of a sealed frame,
/// then the identity (volume, pack, block, range, and the CRC32 in `expected`), and, after decompression, which never
/// yields more than 4 MiB, the raw length and the keyed BLAKE3. See the
/// [crate's documentation](crate) for why frames stored raw are not hashed here.
///
/// With the keys of a sealed volume only sealed frames are opened, and with those of a volume that is not sealed only
/// others. A sealed frame is opened in the memory of `stored` if that has no other holder, and in a copy otherwise.
pub fn open_frame(
    stored: Bytes,
    expected: &FrameRef,
    block: BlockKey,
    keys: &PackKeys,
) -> Result<Frame, FrameError> {
    open(stored, expected, block, keys).map_err(|fault| FrameError::new(expected, fault))
}

fn open(
    stored: Bytes,
    expected: &FrameRef,
    block: BlockKey,
    keys: &PackKeys,
) -> Result<Frame, FrameFault> {
    if !expected.is_possible() {
        return Err(FrameFault::Reference);
    }
    if stored.len() != expected.stored_len as usize {
        return Err(FrameFault::Length {
            expected: expected.stored_len,
            got: stored.len(),
        });
    }
    let Opened {
        header,
        offset,
        crc32,
        payload,
        is_in_stored,
    } = match keys.data_keys() {
        None => open_plain(stored)?,
        Some(data_keys) => open_sealed(stored, expected.pack, data_keys)?,
    };
    verify_identity(&header, expected, block, keys.volume())?;
    if let Some(offset) = offset.filter(|offset| *offset != expected.offset) {
        return Err(identity("offset", offset, expected.offset));
    }
    if crc32 != expected.crc32 {
        // Same place, same range, other bytes: the pack was written twice.
        return Err(identity(
            "CRC32",
            format_args!("{crc32:08x}"),
            format_args!("{:08x}", expected.crc32),
        ));
    }
    if header.payload_len as usize != payload.len() {
        return Err(FrameFault::Damaged(
            "its payload has another length than its header says",
        ));
    }
    let raw_len = header.raw_len as usize;
    let data = match header.codec {
        Codec::Raw if payload.len() == raw_len => payload,
        Codec::Raw => {
            return Err(FrameFault::Damaged(
                "its payload is not as long as its range",
            ));
        }
        Codec::Zstd => match codec::decompress(&payload, raw_len) {
            Some(raw) if header.hash.is_some_and(|hash| keys.hash(&raw) == hash) => {
                Bytes::from(raw)
            }
            Some(_) => return Err(FrameFault::Hash),
            None => return Err(FrameFault::Damaged("its payload cannot be decompressed")),
        },
    };
    Ok(Frame {
        block,
        range: expected.range(),
        data,
        is_in_stored: is_in_stored && header.codec == Codec::Raw,
        reference: *expected,
        hash: header.hash,
    })
}

/// The identity of the frame that lies at `offset` of `pack`, according to its header. Verifies its checksum, and its
/// tag if it is sealed; only for a sealed frame does this prove that it belongs to this pack.
pub(crate) fn describe(
    stored: Bytes,
    pack: PackId,
    offset: u32,
    keys: &PackKeys,
) -> Result<IndexEntry, FrameFault> {
    let too_long = FrameFault::Damaged("it is longer than a pack");
    let stored_len = u32::try_from(stored.len()).map_err(|_| too_long)?;
    let opened = match keys.data_keys() {
        None => open_plain(stored)?,
        Some(data_keys) => open_sealed(stored, pack, data_keys)?,
    };
    let FrameHeader {
        block,
        start,
        raw_len,
        ..
    } = opened.header;
    let crc32 = opened.crc32;
    let frame = FrameRef {
        pack,
        offset,
        stored_len,
        start,
        raw_len,
        crc32,
    };
    Ok(IndexEntry { block, frame })
}

/// A frame whose stored bytes are undamaged, whatever its identity.
struct Opened {
    header: FrameHeader,
    /// Offset at which the frame was written, if its header has that.
    offset: Option<u32>,
    crc32: u32,
    payload: Bytes,
    is_in_stored: bool,
}

fn open_plain(stored: Bytes) -> Result<Opened, FrameFault> {
    let (header, crc32) = FrameHeader::open(&stored)?;
    Ok(Opened {
        header,
        offset: None,
        crc32,
        payload: stored.slice(FRAME_HEADER_LEN..),
        is_in_stored: true,
    })
}

/// Opens a frame and authenticates it as one of this pack.
fn open_sealed(stored: Bytes, pack: PackId, keys: &DataKeys) -> Result<Opened, FrameFault> {
    let header = SealedHeader::open(&stored)?;
    let sealed = stored.slice(SEALED_AT..);
    drop(stored);
    let (mut bytes, is_in_stored) = match sealed.try_into_mut() {
        Ok(own) => (own, true),
        Err(shared) => (BytesMut::from(&shared[..]), false),
    };
    header.unseal(&mut bytes, pack, keys)?;
    let unsealed = FrameHeader::unsealed(&bytes, keys.content(), pack);
    let unsealed = unsealed.ok_or(FrameFault::Damaged("it ends within its header"))?;
    let (fields, offset) = unsealed?;
    Ok(Opened {
        header: fields,
        offset: Some(offset),
        crc32: header.crc32,
        payload: bytes.freeze().slice(SEALED_PAYLOAD_AT..),
        is_in_stored,
    })
}

fn verify_identity(
    header: &FrameHeader,
    expected: &FrameRef,
    block: BlockKey,
    volume: VolumeId,
) -> Result<(), FrameFault> {
    if header.volume != volume {
        return Err(identity("volume", header.volume, volume));
    }
    if header.pack != expected.pack {
        return Err(identity("pack", header.pack, expected.pack));
    }
    if header.block.inode != block.inode {
        return Err(identity("inode", header.block.inode, block.inode));
    }
    if header.block.block != block.block {
        return Err(identity("block", header.block.block.0, block.block.0));
    }
    if header.start != expected.start {
        return Err(identity("start", header.start, expected.start));
    }
    if header.raw_len != expected.raw_len {
        return Err(identity("length", header.raw_len, expected.raw_len));
    }
    Ok(())
}

fn identity(
    what: &'static str,
    found: impl std::fmt::Display,
    expected: impl std::fmt::Display,
) -> FrameFault {
    FrameFault::Identity {
        what,
        found: found.to_string(),
        expected: expected.to_string(),
    }
}
