//! A key that is wrapped with another key.

use forebay_types::VolumeId;

use crate::cipher::{Cipher, NONCE_LEN, TAG_LEN};
use crate::{Forged, SECRET_LEN, Salt, Secret, Tag, hex};

/// Bytes of a wrapped key.
const WRAPPED_LEN: usize = SECRET_LEN + TAG_LEN;

/// The salt ensures that a wrapping key is used once.
const NONCE: [u8; NONCE_LEN] = [0; NONCE_LEN];

/// The purpose of a wrapping key.
#[derive(Clone, Copy)]
pub(super) enum Use {
    PassphraseSlot,
    KeyFileSlot,
    DataKey,
}

impl Use {
    fn context(self) -> &'static str {
        match self {
            Use::PassphraseSlot => "forebay 2026-11 key of a passphrase slot v1",
            Use::KeyFileSlot => "forebay 2026-11 key of a key file slot v1",
            Use::DataKey => "forebay 2026-11 key of a data key v1",
        }
    }

    /// The place in the ring of `volume` with this use and number.
    pub(super) fn of(self, volume: VolumeId, id: u32) -> WrapContext {
        WrapContext {
            purpose: self,
            volume,
            id,
        }
    }
}

/// The place of a wrapped key. The key does not unwrap in another place.
#[derive(Clone, Copy)]
pub(super) struct WrapContext {
    purpose: Use,
    volume: VolumeId,
    id: u32,
}

/// A key, wrapped with a key that is derived from a source key, from its place, and from its salt.
#[derive(Clone, Copy)]
pub(super) struct WrappedKey {
    pub(super) salt: Salt,
    bytes: [u8; WRAPPED_LEN],
}

impl WrappedKey {
    /// Wraps `key`. `salt` was drawn for this call and is used only here.
    pub(super) fn wrap(
        source: &Secret,
        place: WrapContext,
        salt: Salt,
        key: &Secret,
    ) -> WrappedKey {
        let mut bytes = [0; WRAPPED_LEN];
        let (wrapped, tag) = bytes.split_at_mut(SECRET_LEN);
        wrapped.copy_from_slice(key.expose());
        tag.copy_from_slice(&cipher(source, place, &salt).seal(&NONCE, &[], wrapped));
        WrappedKey { salt, bytes }
    }

    pub(super) fn unwrap(&self, source: &Secret, place: WrapContext) -> Result<Secret, Forged> {
        let cipher = cipher(source, place, &self.salt);
        let (wrapped, tag) = self.bytes.split_at(SECRET_LEN);
        let tag: &Tag = tag.try_into().map_err(|_| Forged)?;
        Secret::try_filled(|key| {
            key.copy_from_slice(wrapped);
            cipher.open(&NONCE, &[], key, tag)
        })
    }

    pub(super) fn to_hex(self) -> String {
        hex::encode(&self.bytes)
    }

    pub(super) fn from_hex(salt: &str, bytes: &str) -> Option<WrappedKey> {
        Some(WrappedKey {
            salt: hex::decode_array(salt)?,
            bytes: hex::decode_array(bytes)?,
        })
    }
}

fn cipher(source: &Secret, place: WrapContext, salt: &Salt) -> Cipher {
    let parts: [&[u8]; 3] = [&place.volume.0, &place.id.to_le_bytes(), salt];
    Cipher::new(&source.derive(place.purpose.context(), &parts))
}
