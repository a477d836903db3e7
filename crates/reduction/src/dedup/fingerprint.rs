//! Fingerprints: identify the bytes of a frame.

use std::collections::HashMap;

use forebay_meta::record::KnownFrame;
use forebay_pack::{FrameHash, PackKeys};
use forebay_types::bounded_u32;

use super::{Dedup, MIN_SHARED, Sharing};

/// Number of bytes at the start of a frame that have a CRC32 of their own.
const HEAD: usize = 4096;

/// The fingerprint of the bytes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Length of the frame in bytes, before compression.
    pub len: u32,
    /// CRC32 of its first 4096 bytes.
    pub head_crc32: u32,
    /// CRC32 of all its bytes.
    pub raw_crc32: u32,
    /// The only proof that the bytes are the same; none if it was not worth computing.
    pub hash: Option<FrameHash>,
}

impl Fingerprint {
    /// The fingerprint, without the hash, of bytes that come in order, in pieces of any length.
    pub fn without_hash<'a>(raw: impl Iterator<Item = &'a [u8]>) -> Fingerprint {
        let (mut head, mut all) = (crc32fast::Hasher::new(), crc32fast::Hasher::new());
        let (mut len, mut head_left) = (0, HEAD);
        for piece in raw {
            let of_head = piece.len().min(head_left);
            head.update(&piece[..of_head]);
            head_left -= of_head;
            all.update(piece);
            len += piece.len();
        }
        Fingerprint {
            // A frame is at most as long as a block.
            len: bounded_u32(len),
            head_crc32: head.finalize(),
            raw_crc32: all.finalize(),
            hash: None,
        }
    }

    /// The fingerprint of a frame in the bucket.
    pub fn of(frame: &KnownFrame) -> Fingerprint {
        Fingerprint {
            len: frame.raw_len,
            head_crc32: frame.head_crc32,
            raw_crc32: frame.raw_crc32,
            hash: frame.hash.map(FrameHash),
        }
    }

    /// The short fingerprint for the filter; `None` for frames that are never looked up.
    pub fn short(&self, mode: Dedup) -> Option<u64> {
        if u64::from(self.len) < MIN_SHARED {
            return None;
        }
        match mode {
            Dedup::Off => None,
            Dedup::Full => {
                let FrameHash(hash) = self.hash?;
                let (first, _) = hash.split_first_chunk::<8>()?;
                Some(u64::from_le_bytes(*first))
            }
            Dedup::Fast => {
                let crcs = u64::from(self.head_crc32) << 32 | u64::from(self.raw_crc32);
                Some(crcs ^ u64::from(self.len).wrapping_mul(0x9e37_79b9_7f4a_7c15))
            }
        }
    }

    /// Whether the bytes are certainly the same.
    pub fn is_same(&self, other: &Fingerprint) -> bool {
        self.hash.is_some() && self.hash == other.hash && self.len == other.len
    }
}

/// The fingerprints of frames, each given in pieces, with the hashes that will be needed.
pub fn fingerprints(frames: &[Vec<&[u8]>], sharing: &Sharing, keys: &PackKeys) -> Vec<Fingerprint> {
    let pieces =
        |frame: &Vec<&[u8]>| -> Fingerprint { Fingerprint::without_hash(frame.iter().copied()) };
    let mut fingerprints: Vec<Fingerprint> = frames.iter().map(pieces).collect();
    // How often each short fingerprint occurs among these.
    let mut times: HashMap<u64, u32> = HashMap::new();
    if sharing.mode == Dedup::Fast {
        for short in fingerprints
            .iter()
            .filter_map(|fingerprint| fingerprint.short(Dedup::Fast))
        {
            *times.entry(short).or_default() += 1;
        }
    }
    for (fingerprint, frame) in fingerprints.iter_mut().zip(frames) {
        let is_asked_for = match sharing.mode {
            Dedup::Off => false,
            Dedup::Full => u64::from(fingerprint.len) >= MIN_SHARED,
            Dedup::Fast => fingerprint.short(Dedup::Fast).is_some_and(|short| {
                times.get(&short).is_some_and(|times| *times > 1) || sharing.may_know(short)
            }),
        };
        if is_asked_for {
            fingerprint.hash = Some(keys.frame_hash(frame.iter().copied()));
        }
    }
    fingerprints
}

#[cfg(test)]
mod tests {
    use forebay_types::VolumeId;

    use super::*;

    fn keys() -> PackKeys {
        PackKeys::new(VolumeId([1; 16]), &[2; 32])
    }

    #[test]
    fn pieces_do_not_matter_and_the_head_is_a_part() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|n| (n % 251) as u8).collect();
        let whole = Fingerprint::without_hash(std::iter::once(&bytes[..]));
        for cut in [1, HEAD - 1, HEAD, HEAD + 1, 9_999] {
            let (one, other) = bytes.split_at(cut);
            assert_eq!(Fingerprint::without_hash([one, other].into_iter()), whole);
        }
        assert_eq!(whole.head_crc32, crc32fast::hash(&bytes[..HEAD]));
        assert_eq!(whole.raw_crc32, crc32fast::hash(&bytes));
    }

    #[test]
    fn the_strong_hash_alone_says_that_bytes_are_the_same() {
        let fingerprint = |bytes: &[u8]| Fingerprint {
            hash: Some(keys().frame_hash(std::iter::once(bytes))),
            ..Fingerprint::without_hash(std::iter::once(bytes))
        };
        let (one, other) = (fingerprint(&[1; 4096]), fingerprint(&[2; 4096]));
        assert!(one.is_same(&one));
        let collides = Fingerprint {
            hash: other.hash,
            ..one
        };
        assert_eq!(one.short(Dedup::Fast), collides.short(Dedup::Fast));
        assert!(!one.is_same(&collides));
        let unknown = Fingerprint { hash: None, ..one };
        assert!(!unknown.is_same(&unknown), "no fingerprint is known");
    }

    #[test]
    fn fast_computes_a_hash_only_for_what_may_be_known() {
        let sharing = Sharing::new(Dedup::Fast);
        let (one, two, tiny) = (vec![1; 4096], vec![2; 4096], vec![3; 100]);
        let of = |frames: &[&[u8]], sharing: &Sharing| -> Vec<bool> {
            let frames: Vec<_> = frames.iter().map(|frame| vec![*frame]).collect();
            let fingerprints = fingerprints(&frames, sharing, &keys());
            fingerprints
                .iter()
                .map(|fingerprint| fingerprint.hash.is_some())
                .collect()
        };
        assert_eq!(of(&[&one, &two, &tiny], &sharing), [false; 3]);
        assert_eq!(of(&[&one, &two, &one], &sharing), [true, false, true]);
        let short = Fingerprint::without_hash(std::iter::once(&two[..])).short(Dedup::Fast);
        let pack = forebay_types::PackId(1);
        sharing.inner.lock().filter.insert(short.unwrap(), pack);
        assert_eq!(of(&[&one, &two], &sharing), [false, true]);
        let full = Sharing::new(Dedup::Full);
        assert_eq!(of(&[&one, &two, &tiny], &full), [true, true, false]);
    }
}
