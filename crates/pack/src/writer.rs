//! Gathers frames into a pack.

use bytes::Bytes;
use forebay_seal::Sealer;
use forebay_types::{BLOCK_SIZE, BlockKey, ByteRange, PackId, bounded_u32, to_usize};

use crate::codec::{Codec, Compression, FrameCompressor};
use crate::header::{FRAME_HEADER_LEN, FrameHeader, invert_crc32};
use crate::index::{
    INDEX_ENTRY_LEN, INDEX_FOOTER_LEN, IndexEntry, PACK_HEADER_LEN, PACK_VERSION,
    SEALED_PACK_VERSION, encode_index, encode_pack_header, sealed,
};
use crate::memory::Memory;
use crate::{FrameHash, FrameRef, MAX_PACK_LEN, PackKeys};

/// A pack that is being filled, in memory.
pub struct PackWriter {
    pack: PackId,
    keys: PackKeys,
    /// Each sealer has a salt of its own. `None` if the volume is not sealed.
    sealer: Option<Sealer>,
    compressor: FrameCompressor,
    bytes: Memory,
    entries: Vec<IndexEntry>,
}

/// A complete pack, for putting into the bucket.
#[derive(Clone, Debug)]
pub struct FinishedPack {
    /// Its number, from which [`crate::object_name`] derives its name.
    pub id: PackId,
    /// The whole object.
    pub bytes: Bytes,
    /// Its frames in the order of the calls of `push`.
    pub frames: Vec<IndexEntry>,
}

impl PackWriter {
    /// Begins the pack with the number `pack`, which no other pack of the volume may ever have had. (Even if one had,
    /// sealing is safe: this pack has another key.)
    pub fn new(pack: PackId, keys: &PackKeys, compression: Compression) -> PackWriter {
        PackWriter::new_in(Vec::new(), pack, keys, compression)
    }

    /// The same in existing memory, whose contents are replaced: preferably that of a former pack, whose bytes the
    /// processor need not fetch before they are replaced.
    pub fn new_in(
        memory: Vec<u8>,
        pack: PackId,
        keys: &PackKeys,
        compression: Compression,
    ) -> PackWriter {
        let sealer = keys.sealer(pack);
        let version = match sealer {
            None => PACK_VERSION,
            Some(_) => SEALED_PACK_VERSION,
        };
        let mut bytes = Memory::over(memory);
        bytes.put(&encode_pack_header(version, keys.volume(), pack));
        PackWriter {
            pack,
            keys: keys.clone(),
            sealer,
            compressor: FrameCompressor::new(compression),
            bytes,
            entries: Vec::new(),
        }
    }

    /// Sets the compression of the frames that are pushed from here on.
    pub fn set_compression(&mut self, compression: Compression) {
        self.compressor.set(compression);
    }

    /// Maximum memory that a pack of `frames` frames takes while it is assembled, if their raw bytes add up to
    /// `raw_bytes`: the memory for [`PackWriter::new_in`] should have this capacity, or it grows step by step.
    pub fn most_bytes(frames: usize, raw_bytes: usize) -> usize {
        let headers = frames * (FRAME_HEADER_LEN + INDEX_ENTRY_LEN);
        PACK_HEADER_LEN + raw_bytes + headers + INDEX_FOOTER_LEN
    }

    /// Adds the bytes of `range`, counted within `block`, as one frame. `raw` yields them in order, in pieces of any
    /// length.
    ///
    /// # Panics
    ///
    /// When the caller breaks the contract: `range` is empty or reaches beyond the block, `raw`
    /// does not yield as many bytes as `range` has, or the pack would grow beyond [`MAX_PACK_LEN`];
    /// a frame adds at most its raw bytes and 172 more to [`PackWriter::len`].
    pub fn push<'a>(
        &mut self,
        block: BlockKey,
        range: ByteRange,
        raw: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> FrameRef {
        self.push_hashed(block, range, raw, None).0
    }

    /// The same for a caller that knows the hash of `raw` already ([`PackKeys::frame_hash`]) or needs it: returns the
    /// hash with the frame if it was given or the frame needs it. A frame of a sealed volume that is stored raw does
    /// not.
    ///
    /// # Panics
    ///
    /// As [`PackWriter::push`].
    pub fn push_hashed<'a>(
        &mut self,
        block: BlockKey,
        range: ByteRange,
        raw: impl Iterator<Item = &'a [u8]> + Clone,
        known: Option<FrameHash>,
    ) -> (FrameRef, Option<FrameHash>) {
        assert!(
            !range.is_empty() && range.end <= BLOCK_SIZE,
            "a frame holds 1 byte to a whole block, not {range:?}"
        );
        let raw_len = to_usize(range.len());
        let given: usize = raw.clone().map(<[u8]>::len).sum();
        assert_eq!(
            given, raw_len,
            "raw bytes of a frame and length of its range"
        );
        assert!(
            self.len() + FRAME_HEADER_LEN + raw_len + INDEX_ENTRY_LEN <= MAX_PACK_LEN,
            "a pack ends at 4 GiB"
        );

        let offset = self.bytes.len();
        let start = bounded_u32(to_usize(range.start));
        self.bytes.reserve(FRAME_HEADER_LEN + raw_len);
        self.bytes.put(&[0; FRAME_HEADER_LEN]);
        let header = FrameHeader {
            codec: Codec::Raw,
            volume: self.keys.volume(),
            pack: self.pack,
            block,
            start,
            raw_len: bounded_u32(raw_len),
            payload_len: bounded_u32(raw_len),
            hash: None,
        };
        let may_shrink = self.compressor.may_pay(raw.clone(), raw_len);
        let (crc32, hash) = match may_shrink || self.sealer.is_some() {
            true => self.put_at_hand(offset, header, raw, may_shrink, known),
            false => self.put_as_it_is(offset, header, raw, known),
        };
        let frame = FrameRef {
            pack: self.pack,
            offset: bounded_u32(offset),
            stored_len: bounded_u32(self.bytes.len() - offset),
            start,
            raw_len: bounded_u32(raw_len),
            crc32,
        };
        self.entries.push(IndexEntry { block, frame });
        (frame, hash.or(known))
    }

    /// Adds a frame that stands for bytes of `range`, counted within `block`, which were lost before they could be put
    /// into a pack. Its header is whole and its checksum is inverted, so that [`crate::open_frame`] and every other
    /// reader take it for damaged ([`crate::FrameFault::Lost`]).
    ///
    /// # Panics
    ///
    /// As [`PackWriter::push`].
    pub fn push_lost(&mut self, block: BlockKey, range: ByteRange) -> FrameRef {
        /// A frame has at least one byte of payload.
        const PAYLOAD: [u8; 1] = [0];
        assert!(
            !range.is_empty() && range.end <= BLOCK_SIZE,
            "a frame holds 1 byte to a whole block, not {range:?}"
        );
        assert!(
            self.len() + FRAME_HEADER_LEN + PAYLOAD.len() + INDEX_ENTRY_LEN <= MAX_PACK_LEN,
            "a pack ends at 4 GiB"
        );
        let (offset, start) = (self.bytes.len(), bounded_u32(to_usize(range.start)));
        self.bytes.put(&[0; FRAME_HEADER_LEN]);
        self.bytes.put(&PAYLOAD);
        let header = FrameHeader {
            codec: Codec::Raw,
            volume: self.keys.volume(),
            pack: self.pack,
            block,
            start,
            raw_len: bounded_u32(to_usize(range.len())),
            payload_len: bounded_u32(PAYLOAD.len()),
            hash: None,
        };
        let stored = self.bytes.since_mut(offset);
        let crc32 = match &mut self.sealer {
            None => header.write_into(stored),
            Some(sealer) => header.seal_into(stored, bounded_u32(offset), sealer),
        };
        let frame = FrameRef {
            pack: self.pack,
            offset: bounded_u32(offset),
            stored_len: bounded_u32(self.bytes.len() - offset),
            start,
            raw_len: header.raw_len,
            crc32: invert_crc32(self.bytes.since_mut(offset), crc32),
        };
        self.entries.push(IndexEntry { block, frame });
        frame
    }

    /// Writes a frame that is sealed, or compressed if that pays: its payload behind the space for the header at
    /// `offset`, and then the header. Returns its CRC32, and the hash if the frame needs it.
    fn put_at_hand<'a>(
        &mut self,
        offset: usize,
        mut header: FrameHeader,
        raw: impl Iterator<Item = &'a [u8]>,
        may_shrink: bool,
        known: Option<FrameHash>,
    ) -> (u32, Option<FrameHash>) {
        // The raw bytes go where a raw frame has its payload: if compression does not pay, they are already in place.
        let payload = offset + FRAME_HEADER_LEN;
        for piece in raw {
            self.bytes.put(piece);
        }
        let raw = self.bytes.since(payload);
        let compressed = match may_shrink {
            true => self.compressor.compress(raw),
            false => None,
        };
        let is_hashed = compressed.is_some() || self.sealer.is_none();
        let computed = || self.keys.frame_hash(std::iter::once(raw));
        let hash = is_hashed.then(|| known.unwrap_or_else(computed));
        if let Some(compressed) = compressed {
            self.bytes.truncate(payload);
            self.bytes.put(compressed);
            header.codec = Codec::Zstd;
            header.payload_len = bounded_u32(compressed.len());
        }
        header.hash = hash.map(|FrameHash(hash)| hash);
        let stored = self.bytes.since_mut(offset);
        let crc32 = match &mut self.sealer {
            None => header.write_into(stored),
            Some(sealer) => header.seal_into(stored, bounded_u32(offset), sealer),
        };
        (crc32, hash)
    }

    /// The same for a frame that is neither: its checksum and hash are computed while the payload is copied.
    fn put_as_it_is<'a>(
        &mut self,
        offset: usize,
        mut header: FrameHeader,
        raw: impl Iterator<Item = &'a [u8]> + Clone,
        known: Option<FrameHash>,
    ) -> (u32, Option<FrameHash>) {
        let mut crc32 = crc32fast::Hasher::new();
        let mut hasher = known.is_none().then(|| self.keys.frame_hasher());
        for piece in raw {
            if let Some(hasher) = &mut hasher {
                hasher.update(piece);
            }
            self.bytes
                .put_past_caches(piece, |shown| crc32.update(shown));
        }
        let computed = hasher.map(|hasher| FrameHash(*hasher.finalize().as_bytes()));
        let hash = known.or(computed);
        header.hash = hash.map(|FrameHash(hash)| hash);
        let header_at = &mut self.bytes.since_mut(offset)[..FRAME_HEADER_LEN];
        (header.write_before(header_at, &crc32), hash)
    }

    /// Length that the pack would have if it were finished now, in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.entries.len() * INDEX_ENTRY_LEN + INDEX_FOOTER_LEN
    }

    /// Whether it has no frames.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of its frames.
    pub fn frames(&self) -> usize {
        self.entries.len()
    }

    /// Adds the index and returns the pack.
    pub fn finish(self) -> FinishedPack {
        let id = self.pack;
        let (bytes, frames) = self.finish_in_memory();
        FinishedPack {
            id,
            bytes: Bytes::from(bytes),
            frames,
        }
    }

    /// The same for a caller that reuses the memory ([`PackWriter::new_in`]): the whole object, and its frames in the
    /// order in which they were pushed.
    pub fn finish_in_memory(mut self) -> (Vec<u8>, Vec<IndexEntry>) {
        let index_offset = bounded_u32(self.bytes.len());
        let index = match self.sealer {
            None => encode_index(self.keys.volume(), self.pack, index_offset, &self.entries),
            Some(sealer) => sealed::encode_index(self.pack, index_offset, &self.entries, sealer),
        };
        self.bytes.put(&index);
        (self.bytes.into_vec(), self.entries)
    }
}

const _: () = assert!(FRAME_HEADER_LEN + INDEX_ENTRY_LEN == 172);
const _: () = assert!(PACK_HEADER_LEN + INDEX_FOOTER_LEN < MAX_PACK_LEN);
