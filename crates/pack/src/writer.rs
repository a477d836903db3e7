//! Gathers frames into a pack.

use bytes::Bytes;
use forebay_seal::Sealer;
use forebay_types::{BLOCK_SIZE, BlockKey, ByteRange, PackId};

use crate::codec::{Codec, Compression, FrameCompressor};
use crate::header::{FRAME_HEADER_LEN, FrameHeader};
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
    /// With a salt of its own. None if the volume is not sealed.
    sealer: Option<Sealer>,
    compressor: FrameCompressor,
    bytes: Memory,
    entries: Vec<IndexEntry>,
}

/// A pack that is complete and ready to be put into the bucket.
#[derive(Clone, Debug)]
pub struct FinishedPack {
    /// Its number, from which [`crate::object_name`] makes its name.
    pub id: PackId,
    /// The whole object.
    pub bytes: Bytes,
    /// Its frames in the order in which they were pushed.
    pub frames: Vec<IndexEntry>,
}

impl PackWriter {
    /// Begins the pack with the number `pack`, which no other pack of the volume may ever have had. (If
    /// one had, sealing is safe all the same: this one has another key.)
    pub fn new(pack: PackId, keys: &PackKeys, compression: Compression) -> PackWriter {
        PackWriter::new_in(Vec::new(), pack, keys, compression)
    }

    /// The same in memory that is there already. What it holds is replaced: best a former pack, of whose bytes the processor
    /// need not fetch what is about to be replaced.
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

    /// Frames that are pushed from here on are compressed in this way.
    pub fn set_compression(&mut self, compression: Compression) {
        self.compressor.set(compression);
    }

    /// Bytes of memory that a pack of so many frames takes, whose raw bytes come to `raw_bytes`, while it is put
    /// together: what [`PackWriter::new_in`] is given should have this capacity, or it grows step by step.
    pub fn most_bytes(frames: usize, raw_bytes: usize) -> usize {
        let headers = frames * (FRAME_HEADER_LEN + INDEX_ENTRY_LEN);
        PACK_HEADER_LEN + raw_bytes + headers + INDEX_FOOTER_LEN
    }

    /// Adds the bytes of `range`, counted within `block`, as one frame. `raw` gives them in order, in
    /// pieces of any length.
    ///
    /// # Panics
    ///
    /// When the caller breaks the contract: `range` is empty or reaches beyond the block, `raw`
    /// does not give as many bytes as `range` has, or the pack would grow beyond
    /// [`MAX_PACK_LEN`]; a frame adds at most its raw bytes and 172 more to [`PackWriter::len`].
    pub fn push<'a>(
        &mut self,
        block: BlockKey,
        range: ByteRange,
        raw: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> FrameRef {
        self.push_hashed(block, range, raw, None).0
    }

    /// The same for who knows the hash of `raw` already ([`PackKeys::frame_hash`]) or wants to know it: gives it beside
    /// the frame if it was given or the frame needs it. A frame of a sealed volume that is stored raw does not.
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
        let raw_len = range.len() as usize;
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
        self.bytes.reserve(FRAME_HEADER_LEN + raw_len);
        self.bytes.put(&[0; FRAME_HEADER_LEN]);
        let header = FrameHeader {
            codec: Codec::Raw,
            volume: self.keys.volume(),
            pack: self.pack,
            block,
            start: range.start as u32,
            raw_len: raw_len as u32,
            payload_len: raw_len as u32,
            hash: None,
        };
        let may_shrink = self.compressor.may_pay(raw.clone(), raw_len);
        let (crc32, hash) = match may_shrink || self.sealer.is_some() {
            true => self.put_at_hand(offset, header, raw, may_shrink, known),
            false => self.put_as_it_is(offset, header, raw, known),
        };
        let frame = FrameRef {
            pack: self.pack,
            offset: offset as u32,
            stored_len: (self.bytes.len() - offset) as u32,
            start: range.start as u32,
            raw_len: raw_len as u32,
            crc32,
        };
        self.entries.push(IndexEntry { block, frame });
        (frame, hash.or(known))
    }

    /// Puts the payload behind the place of the header at `offset`, and the header there, of a frame that is compressed if that
    /// pays, or is sealed. Gives its CRC32, and the hash if it needs it.
    fn put_at_hand<'a>(
        &mut self,
        offset: usize,
        mut header: FrameHeader,
        raw: impl Iterator<Item = &'a [u8]>,
        may_shrink: bool,
        known: Option<FrameHash>,
    ) -> (u32, Option<FrameHash>) {
        // The raw bytes go where a raw frame has its payload: if compression does not pay, they
        // already lie right.
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
            header.payload_len = compressed.len() as u32;
        }
        header.hash = hash.map(|FrameHash(hash)| hash);
        let stored = self.bytes.since_mut(offset);
        let crc32 = match &mut self.sealer {
            None => header.write_into(stored),
            Some(sealer) => header.seal_into(stored, offset as u32, sealer),
        };
        (crc32, hash)
    }

    /// The same for a frame that is neither: all that there is to know of its payload is found out on the way there.
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

    /// Bytes that the pack would have if it were finished now.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.entries.len() * INDEX_ENTRY_LEN + INDEX_FOOTER_LEN
    }

    /// Whether there is no frame in it.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of frames in it.
    pub fn frames(&self) -> usize {
        self.entries.len()
    }

    /// Adds the index and hands the pack out.
    pub fn finish(self) -> FinishedPack {
        let id = self.pack;
        let (bytes, frames) = self.finish_in_memory();
        FinishedPack {
            id,
            bytes: Bytes::from(bytes),
            frames,
        }
    }

    /// The same for who uses the memory again ([`PackWriter::new_in`]): the whole object, and its frames in the order in
    /// which they were pushed.
    pub fn finish_in_memory(mut self) -> (Vec<u8>, Vec<IndexEntry>) {
        let index_offset = self.bytes.len() as u32;
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
