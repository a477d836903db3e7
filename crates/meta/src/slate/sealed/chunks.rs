//! Sealing and opening the chunks of one object, without I/O.

use std::ops::Range;

use bytes::Bytes;
use forebay_seal::{
    ALGORITHM_AES_256_GCM, DataKeyId, Opener, Part, Purpose, SALT_LEN, Salt, Sealer, TAG_LEN, Tag,
    UnknownDataKey,
};
use forebay_types::to_usize;
use object_store::{GetRange, PutPayload};

use super::layout::{CHUNK_LEN, Extent, HEADER_LEN, STORED_LEN, stored_len};
use super::{READS, Sealing};

const MAGIC: [u8; 4] = *b"FBmd";
const VERSION: u16 = 1;

/// The authenticated part of the header; the tag follows it.
const IDENTITY_LEN: usize = 12 + SALT_LEN;

const _: () = assert!(to_usize(HEADER_LEN) == IDENTITY_LEN + TAG_LEN);
const _: () = assert!(usize::BITS >= 32 && STORED_LEN < 1 << 31);

/// The first part of a chunk's header: the same in all chunks of an object.
type Identity = [u8; IDENTITY_LEN];

/// How bytes that were read differ from the ones that were sealed there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Flaw {
    #[error(
        "is not sealed, but this volume is: it is damaged, or somebody without the keys has put it there"
    )]
    NotSealed,
    #[error(
        "is sealed in an unknown format (version {version}, algorithm {algorithm}): it is damaged, or a newer \
         program has written it"
    )]
    Unknown { version: u16, algorithm: u8 },
    #[error("cannot be opened: {0}")]
    UnknownKey(UnknownDataKey),
    #[error(
        "does not authenticate: it is damaged, or somebody has changed it, cut it off, or put something else in its place"
    )]
    Forged,
    #[error("has a length that no sealed object has: it was cut off, or something was added")]
    Length,
    #[error("ends before the requested range: it was cut off or replaced")]
    Short,
    #[error("did not arrive completely")]
    Incomplete,
}

impl Flaw {
    /// How many times an object is read before this flaw is believed. Bytes may be damaged in transit; a length does
    /// not arrive with them, but an answer may be truncated.
    pub(super) fn reads(self) -> u32 {
        match self {
            Flaw::Length | Flaw::Short => 2,
            _ => READS,
        }
    }
}

/// Seals an object as its bytes arrive.
pub(super) struct ObjectSealer {
    sealer: Sealer,
    identity: Identity,
    /// Sealed chunks, and from `begun` on the unsealed one: room for its header, and its plain bytes.
    out: Vec<u8>,
    begun: usize,
    plain: u64,
}

impl ObjectSealer {
    /// A sealer for an object of this name, with a salt of its own.
    pub(super) fn new(sealing: &Sealing, name: &str) -> ObjectSealer {
        let keys = &sealing.keys;
        let sealer = keys.named_sealer(Purpose::Metadata, name, &*sealing.entropy);
        let mut identity = [0; IDENTITY_LEN];
        identity[..4].copy_from_slice(&MAGIC);
        identity[4..6].copy_from_slice(&VERSION.to_le_bytes());
        identity[6] = ALGORITHM_AES_256_GCM;
        identity[8..12].copy_from_slice(&sealer.key_id().0.to_le_bytes());
        identity[12..].copy_from_slice(sealer.salt());
        ObjectSealer {
            sealer,
            identity,
            out: vec![0; to_usize(HEADER_LEN)],
            begun: 0,
            plain: 0,
        }
    }

    /// Takes the next plain bytes.
    pub(super) fn add(&mut self, payload: &PutPayload) {
        self.out
            .reserve(to_usize(stored_len(payload.content_length() as u64)));
        for mut piece in payload.iter().map(|piece| &piece[..]) {
            self.plain += piece.len() as u64;
            while !piece.is_empty() {
                self.seal_if_full();
                let room = to_usize(STORED_LEN) - (self.out.len() - self.begun);
                let (now, later) = piece.split_at(room.min(piece.len()));
                self.out.extend_from_slice(now);
                piece = later;
            }
        }
    }

    /// Returns the sealed chunks so far, for an object that continues.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.seal_if_full();
        let rest = self.out.split_off(self.begun);
        self.begun = 0;
        std::mem::replace(&mut self.out, rest)
    }

    /// Seals the rest as the end of the object.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let also = closing(&self.identity, self.plain);
        let (head, body) = self.out[self.begun..].split_at_mut(to_usize(HEADER_LEN));
        let tag = self.sealer.seal_closing(&also, body);
        write_header(head, &self.identity, &tag);
        self.out
    }

    /// Seals a full chunk. Whether it is the last one is not known before more bytes arrive.
    fn seal_if_full(&mut self) {
        if self.out.len() - self.begun < to_usize(STORED_LEN) {
            return;
        }
        let (head, body) = self.out[self.begun..].split_at_mut(to_usize(HEADER_LEN));
        let tag = self.sealer.seal(&self.identity, body);
        write_header(head, &self.identity, &tag);
        self.begun = self.out.len();
        self.out.resize(self.begun + to_usize(HEADER_LEN), 0);
    }
}

fn write_header(head: &mut [u8], identity: &Identity, tag: &Tag) {
    head[..IDENTITY_LEN].copy_from_slice(identity);
    head[IDENTITY_LEN..].copy_from_slice(tag);
}

/// Bytes authenticated with the last chunk: its identity, and the plain length of the object.
fn closing(identity: &Identity, plain: u64) -> Vec<u8> {
    [&identity[..], &plain.to_le_bytes()].concat()
}

/// The part of an object that arrived.
pub(super) struct Arrived {
    /// Length of the whole object.
    pub(super) stored: u64,
    /// Offset of the bytes in the object.
    pub(super) start: u64,
    pub(super) bytes: Bytes,
}

impl Arrived {
    /// The plain bytes of a range, and the range they cover. Returns no byte that does not authenticate.
    pub(super) fn open(
        &self,
        sealing: &Sealing,
        name: &str,
        range: Option<&GetRange>,
    ) -> Result<(Range<u64>, Extent, Bytes), Flaw> {
        if self.start.is_multiple_of(STORED_LEN) && !self.bytes.starts_with(&MAGIC) {
            // This reason explains more than the length.
            return Err(Flaw::NotSealed);
        }
        let extent = Extent::of_stored(self.stored).ok_or(Flaw::Length)?;
        let plain = match range {
            None => 0..extent.plain,
            Some(range) => range.as_range(extent.plain).map_err(|_| Flaw::Short)?,
        };
        let (first, last) = extent.covering(&plain);
        let (identity, ..) = self.chunk(&extent, first)?;
        let opener = opener(sealing, name, &identity)?;
        let len = usize::try_from((last - first + 1) * CHUNK_LEN).map_err(|_| Flaw::Length)?;
        let mut out = Vec::with_capacity(len.min(self.bytes.len()));
        for index in first..=last {
            let (its_identity, tag, sealed) = self.chunk(&extent, index)?;
            // Each write of an object has a salt of its own, so this chunk belongs to another write.
            if its_identity != identity {
                return Err(Flaw::Forged);
            }
            let at = out.len();
            out.extend_from_slice(sealed);
            let opened = if index + 1 == extent.chunks {
                let also = closing(&identity, extent.plain);
                opener.open(Part::Closing, &also, &mut out[at..], &tag)
            } else {
                opener.open(Part::Counted(index), &identity, &mut out[at..], &tag)
            };
            opened.map_err(|_| Flaw::Forged)?;
        }
        let skipped = plain.start.saturating_sub(first * CHUNK_LEN);
        let wanted = to_usize(skipped)..to_usize(skipped + (plain.end - plain.start));
        let out = Bytes::from(out);
        if wanted.end > out.len() {
            return Err(Flaw::Incomplete);
        }
        Ok((plain, extent, out.slice(wanted)))
    }

    /// Splits a chunk: the first part of its header, its tag, and the sealed bytes.
    fn chunk(&self, extent: &Extent, index: u64) -> Result<(Identity, Tag, &[u8]), Flaw> {
        let Range { start, end } = extent.chunk(index);
        let within = |at: u64| {
            let at = at.checked_sub(self.start)?;
            usize::try_from(at).ok()
        };
        let chunk = within(start)
            .zip(within(end))
            .and_then(|(start, end)| self.bytes.get(start..end))
            .ok_or(Flaw::Incomplete)?;
        let (identity, rest) = chunk.split_first_chunk().ok_or(Flaw::Length)?;
        let (tag, sealed) = rest.split_first_chunk().ok_or(Flaw::Length)?;
        Ok((*identity, *tag, sealed))
    }
}

fn opener(sealing: &Sealing, name: &str, identity: &Identity) -> Result<Opener, Flaw> {
    let mut version = [0; 2];
    let mut key_id = [0; 4];
    let mut salt: Salt = [0; SALT_LEN];
    version.copy_from_slice(&identity[4..6]);
    key_id.copy_from_slice(&identity[8..12]);
    salt.copy_from_slice(&identity[12..]);
    let (version, algorithm) = (u16::from_le_bytes(version), identity[6]);
    let is_reserved_set = identity[7] != 0;
    if !identity.starts_with(&MAGIC) {
        return Err(Flaw::NotSealed);
    }
    if version != VERSION || algorithm != ALGORITHM_AES_256_GCM || is_reserved_set {
        return Err(Flaw::Unknown { version, algorithm });
    }
    let key_id = DataKeyId(u32::from_le_bytes(key_id));
    let keys = &sealing.keys;
    keys.named_opener(Purpose::Metadata, name, key_id, &salt)
        .map_err(Flaw::UnknownKey)
}

#[cfg(test)]
mod tests;
