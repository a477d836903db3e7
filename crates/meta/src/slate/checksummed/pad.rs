//! The pad that ties a table to its name.
//!
//! SlateDB fetches ranges of tables, each of which ends in a checksum of its own, and nothing in them names the table
//! that they belong to. So a table is stored XORed with a pad that is derived from its name: read under another name,
//! no section matches its checksum. Any range is still one request, and no byte longer.
//!
//! ```text
//! pad   the numbers of SplitMix64, each 8 bytes, little-endian; the seed is the CRC32 of the last part of the name
//! ```

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_types::to_usize;
use object_store::path::Path;
use object_store::{MultipartUpload, PutPayload, PutResult, Result, UploadPart};

/// Bytes of a SplitMix64 number.
const NUMBER_BYTES: usize = 8;
/// Increment of the SplitMix64 state from one number to the next.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The pad of one table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pad {
    seed: u64,
}

impl Pad {
    pub(super) fn of(location: &Path) -> Pad {
        let name = location.filename().unwrap_or_default();
        Pad {
            seed: crc32fast::hash(name.as_bytes()).into(),
        }
    }

    /// Applies the pad to bytes at offset `at` of the table, or removes it again.
    pub(super) fn turn(self, at: u64, bytes: &mut [u8]) {
        let (index, skipped) = (at / NUMBER_BYTES as u64, to_usize(at) % NUMBER_BYTES);
        let (head, rest) = bytes.split_at_mut(bytes.len().min(NUMBER_BYTES - skipped));
        xor(head, &self.number(index)[skipped..]);
        let (whole, tail) = rest.as_chunks_mut::<NUMBER_BYTES>();
        let mut index = index.wrapping_add(1);
        for number in whole {
            xor(number, &self.number(index));
            index = index.wrapping_add(1);
        }
        xor(tail, &self.number(index));
    }

    /// The same for contiguous pieces.
    pub(super) fn turned<'a>(
        self,
        at: u64,
        pieces: impl IntoIterator<Item = &'a Bytes>,
    ) -> Vec<u8> {
        let pieces: Vec<_> = pieces.into_iter().map(|piece| &piece[..]).collect();
        let mut bytes = pieces.concat();
        self.turn(at, &mut bytes);
        bytes
    }

    fn number(self, index: u64) -> [u8; NUMBER_BYTES] {
        let steps = index.wrapping_add(1);
        let mut z = self.seed.wrapping_add(steps.wrapping_mul(STEP));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).to_le_bytes()
    }
}

fn xor(bytes: &mut [u8], with: &[u8]) {
    for (byte, with) in bytes.iter_mut().zip(with) {
        *byte ^= with;
    }
}

/// An upload in parts, as SlateDB uses it for larger tables.
pub(super) struct PaddedUpload {
    inner: Box<dyn MultipartUpload>,
    pad: Pad,
    /// Bytes uploaded so far.
    len: u64,
}

impl PaddedUpload {
    pub(super) fn new(inner: Box<dyn MultipartUpload>, pad: Pad) -> PaddedUpload {
        PaddedUpload { inner, pad, len: 0 }
    }
}

impl fmt::Debug for PaddedUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PaddedUpload({:?})", self.inner)
    }
}

#[async_trait]
impl MultipartUpload for PaddedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let part = self.pad.turned(self.len, data.iter());
        self.len += part.len() as u64;
        self.inner.put_part(part.into())
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.inner.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pad_is_that_of_splitmix64() {
        // The first two numbers for the seed 1234567, as the author's program prints them.
        let pad = Pad { seed: 1_234_567 };
        let mut bytes = [0; 16];
        pad.turn(0, &mut bytes);
        let (first, second) = bytes.split_at(8);
        assert_eq!(first, 6_457_827_717_110_365_317_u64.to_le_bytes());
        assert_eq!(second, 3_203_168_211_198_807_973_u64.to_le_bytes());
    }

    #[test]
    fn any_piece_is_turned_as_the_whole_is() {
        let pad = Pad::of(&Path::from("meta/compacted/01.sst"));
        let mut whole = [0; 64];
        pad.turn(0, &mut whole);
        for start in 0..40 {
            for end in start..60 {
                let mut piece = vec![0; end - start];
                pad.turn(start as u64, &mut piece);
                assert_eq!(piece, whole[start..end], "{start} {end}");
            }
        }
        let pieces = [Bytes::from_static(&[0; 3]), Bytes::from_static(&[0; 20])];
        assert_eq!(pad.turned(5, &pieces), whole[5..28]);
        let mut far = [0; 20];
        pad.turn(u64::MAX - 9, &mut far);
        pad.turn(u64::MAX - 9, &mut far);
        assert_eq!(far, [0; 20]);
    }

    #[test]
    fn each_name_has_another_one_and_its_folder_has_none() {
        let turned =
            |name: &str| Pad::of(&Path::from(name)).turned(0, &[Bytes::from_static(&[0; 8])]);
        assert_ne!(
            turned("meta/compacted/01.sst"),
            turned("meta/compacted/02.sst")
        );
        assert_eq!(turned("meta/compacted/01.sst"), turned("elsewhere/01.sst"));
    }
}
