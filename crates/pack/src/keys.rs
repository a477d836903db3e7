//! What a volume's packs are identified and verified with.

use std::fmt;

use forebay_types::VolumeId;

/// Separates this use of the volume's secret from every other one (`blake3::derive_key`).
const HASH_CONTEXT: &str = "forebay 2026-11 frame hash of raw bytes v1";

/// The identity of a volume and the keys for its packs, derived from the volume's secret.
#[derive(Clone)]
pub struct PackKeys {
    volume: VolumeId,
    hash: [u8; 32],
}

impl PackKeys {
    /// Keys of `volume`, whose `secret` was drawn at random when it was formatted. The hash of a
    /// frame is keyed so that nobody who only sees the bucket can test a guess of what is in it.
    pub fn new(volume: VolumeId, secret: &[u8; 32]) -> PackKeys {
        let mut derivation = blake3::Hasher::new_derive_key(HASH_CONTEXT);
        derivation.update(secret);
        derivation.update(&volume.0);
        PackKeys {
            volume,
            hash: *derivation.finalize().as_bytes(),
        }
    }

    /// The volume that the keys belong to.
    pub fn volume(&self) -> VolumeId {
        self.volume
    }

    /// Keyed BLAKE3 of the raw bytes of a frame.
    pub(crate) fn hash(&self, raw: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.hash, raw)
    }
}

impl fmt::Debug for PackKeys {
    /// Names the volume and never the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackKeys")
            .field("volume", &self.volume)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_differ_between_secrets_and_between_volumes() {
        let keys = |volume, secret| PackKeys::new(VolumeId([volume; 16]), &[secret; 32]);
        let hash = keys(1, 1).hash(b"raw");
        assert_eq!(hash, keys(1, 1).hash(b"raw"));
        assert_ne!(hash, keys(1, 2).hash(b"raw"));
        assert_ne!(hash, keys(2, 1).hash(b"raw"));
    }

    #[test]
    fn debug_output_does_not_show_the_key() {
        let shown = format!("{:?}", PackKeys::new(VolumeId([7; 16]), &[9; 32]));
        assert_eq!(
            shown,
            "PackKeys { volume: VolumeId(07070707070707070707070707070707), .. }"
        );
    }
}
