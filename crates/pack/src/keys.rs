//! The keys by which a volume's packs are identified, verified and sealed.

use std::fmt;
use std::sync::Arc;

use forebay_seal::{DataKeys, Entropy, Purpose, Sealer, Sealing};
use forebay_types::{PackId, VolumeId};

/// Separates this use of the volume's secret from every other one (`blake3::derive_key`).
const HASH_CONTEXT: &str = "forebay 2026-11 frame hash of raw bytes v1";

/// Keyed BLAKE3 of the raw bytes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameHash(pub [u8; 32]);

/// The identity of a volume and the keys for its packs, derived from the volume's secret; and, if it is sealed, its
/// data keys. With data keys, packs are written sealed, and a pack that is not sealed is refused: anyone with write
/// access to the bucket could have made it.
#[derive(Clone)]
pub struct PackKeys {
    volume: VolumeId,
    hash: [u8; 32],
    sealing: Option<Sealing>,
}

impl PackKeys {
    /// Keys of `volume`, which is not sealed, and whose `secret` was drawn at random when it was formatted. The hash of
    /// a frame is keyed so that a reader of the packs who has no key cannot test a guess of a frame's content.
    pub fn new(volume: VolumeId, secret: &[u8; 32]) -> PackKeys {
        let mut derivation = blake3::Hasher::new_derive_key(HASH_CONTEXT);
        derivation.update(secret);
        derivation.update(&volume.0);
        PackKeys {
            volume,
            hash: *derivation.finalize().as_bytes(),
            sealing: None,
        }
    }

    /// Keys of the sealed volume of `data_keys`. Each [`crate::PackWriter`] draws its salt from `entropy`.
    pub fn sealed(
        secret: &[u8; 32],
        data_keys: Arc<DataKeys>,
        entropy: Arc<dyn Entropy>,
    ) -> PackKeys {
        let sealing = Sealing {
            keys: data_keys,
            entropy,
        };
        PackKeys::of(sealing.keys.content(), secret, Some(sealing))
    }

    /// Keys of `volume`, sealed if there is a `sealing`.
    pub fn of(volume: VolumeId, secret: &[u8; 32], sealing: Option<Sealing>) -> PackKeys {
        PackKeys {
            sealing,
            ..PackKeys::new(volume, secret)
        }
    }

    /// Whether the volume is sealed.
    pub fn is_sealed(&self) -> bool {
        self.sealing.is_some()
    }

    /// The volume that the keys belong to.
    pub fn volume(&self) -> VolumeId {
        self.volume
    }

    /// The data keys, if the volume is sealed.
    pub(crate) fn data_keys(&self) -> Option<&DataKeys> {
        self.sealing.as_ref().map(|sealing| &*sealing.keys)
    }

    /// A sealer for a pack with this number, if the volume is sealed. Each call returns another one, with another key.
    pub(crate) fn sealer(&self, pack: PackId) -> Option<Sealer> {
        let Sealing { keys, entropy } = self.sealing.as_ref()?;
        Some(keys.sealer(Purpose::Pack, pack.0, &**entropy))
    }

    /// Keyed BLAKE3 of the raw bytes of a frame, which `raw` yields in order: two frames of a volume with the same hash
    /// have the same bytes. For [`crate::PackWriter::push_hashed`], and for finding a frame by its content.
    pub fn frame_hash<'a>(&self, raw: impl Iterator<Item = &'a [u8]>) -> FrameHash {
        let mut hasher = self.frame_hasher();
        for piece in raw {
            hasher.update(piece);
        }
        FrameHash(*hasher.finalize().as_bytes())
    }

    /// A hasher for this hash, for bytes that come one after the other.
    pub(crate) fn frame_hasher(&self) -> blake3::Hasher {
        blake3::Hasher::new_keyed(&self.hash)
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
            .field("data_keys", &self.data_keys())
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
            "PackKeys { volume: VolumeId(07070707070707070707070707070707), data_keys: None, .. }"
        );
    }
}
