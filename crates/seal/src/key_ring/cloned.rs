//! The ring of a clone, and the secret of the volume that it comes from.

use std::collections::BTreeMap;

use forebay_types::VolumeId;

use super::KeyRing;
use crate::{Entropy, Secret};

impl KeyRing {
    /// A ring for a clone of the volume: with the same volume key and the same data keys, for another identity, and
    /// without slots. Everything that is derived from these keys differs by the identity.
    pub fn for_clone(&self, volume: VolumeId, entropy: &dyn Entropy) -> KeyRing {
        let mut ring = KeyRing {
            volume,
            generation: 0,
            volume_key: self.volume_key.twin(),
            slots: BTreeMap::new(),
            data_keys: BTreeMap::new(),
            opened_by: None,
        };
        for (id, (sealed, secret)) in &self.data_keys {
            ring.insert_data_key(*id, sealed.created, secret.twin(), entropy);
        }
        ring
    }

    /// The [secret](KeyRing::volume_secret) of the volume whose identity the packs have.
    pub fn secret_of(&self, content: VolumeId) -> Secret {
        let context = "forebay 2026-11 secret of a volume v1";
        self.volume_key.derive(context, &[&content.0])
    }
}
