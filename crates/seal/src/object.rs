//! Sealing the parts of one object under a key of its own.
//!
//! ```text
//! key     BLAKE3 derive_key( context of the purpose,
//!                            data key: 32 | volume: 16 | number of the object: 8 | salt: 16 | name )
//! nonce   0  u32  0 a counted part, 1 the closing part
//!         4  u64  number of the part, or its place; 0 for the closing one
//! ```
//!
//! Numbers are little-endian. An object with a number has no name, and an object with a name has the number 0: the name
//! is last, so its length need not be fixed.

use forebay_types::VolumeId;

use crate::cipher::{Cipher, NONCE_LEN};
use crate::{DataKeyId, Entropy, Forged, Secret, Tag};

/// Length of a salt, in bytes.
pub const SALT_LEN: usize = 16;

/// Distinguishes the key of one object from those of all other objects that have, or have had, its
/// number. It is no secret, and is stored beside the sealed bytes.
pub type Salt = [u8; SALT_LEN];

/// The purpose of an object. Each has keys of its own, so that an object of one kind cannot be passed off as one of
/// another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A pack, numbered as packs are.
    Pack,
    /// An object of the metadata store, named by its location below the store's folder.
    Metadata,
    /// One life of a segment of the log, with the number of the segment.
    Log,
}

impl Purpose {
    fn context(self) -> &'static str {
        match self {
            Purpose::Pack => "forebay 2026-11 key of a pack v1",
            Purpose::Metadata => "forebay 2026-11 key of a metadata object v1",
            Purpose::Log => "forebay 2026-11 key of a log segment v1",
        }
    }
}

/// The identity of an object. It is part of the key, and need not be stored to be authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectId<'a> {
    /// What it is for.
    pub purpose: Purpose,
    /// The volume that it belongs to.
    pub volume: VolumeId,
    /// Its number among those of its purpose; 0 if they have names.
    pub number: u64,
    /// Its name among those of its purpose; empty if they have numbers.
    pub name: &'a str,
}

/// A part of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A part that is numbered from 0, or has a place of its own.
    Counted(u64),
    /// The part that closes the object, or its head.
    Closing,
}

impl Part {
    fn nonce(self) -> [u8; NONCE_LEN] {
        let (domain, number) = match self {
            Part::Counted(number) => (0_u32, number),
            Part::Closing => (1, 0),
        };
        let mut nonce = [0; NONCE_LEN];
        nonce[..4].copy_from_slice(&domain.to_le_bytes());
        nonce[4..].copy_from_slice(&number.to_le_bytes());
        nonce
    }
}

fn cipher(data_key: &Secret, object: ObjectId<'_>, salt: &Salt) -> Cipher {
    let number = object.number.to_le_bytes();
    // Only the last of these has no fixed length.
    let parts: [&[u8]; 4] = [&object.volume.0, &number, salt, object.name.as_bytes()];
    Cipher::new(&data_key.derive(object.purpose.context(), &parts))
}

/// Seals the parts of one object, each once, in their order. See the [crate's
/// documentation](crate) for why none of its nonces repeats.
pub struct Sealer {
    cipher: Cipher,
    key_id: DataKeyId,
    salt: Salt,
    next: u64,
}

impl Sealer {
    /// A sealer with a salt, and so a key, of its own.
    pub(crate) fn new(
        key_id: DataKeyId,
        data_key: &Secret,
        object: ObjectId<'_>,
        entropy: &dyn Entropy,
    ) -> Sealer {
        let mut salt = [0; SALT_LEN];
        entropy.fill(&mut salt);
        Sealer {
            cipher: cipher(data_key, object, &salt),
            key_id,
            salt,
            next: 0,
        }
    }

    /// The data key from which the sealer's key is derived: to be stored.
    pub fn key_id(&self) -> DataKeyId {
        self.key_id
    }

    /// The salt: to be stored.
    pub fn salt(&self) -> &Salt {
        &self.salt
    }

    /// Number of the next part: to be stored, or known from its position.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Seals the next part in place. `also` is authenticated with it; the opener needs the same bytes.
    ///
    /// # Panics
    ///
    /// When there are 2^64 parts already.
    pub fn seal(&mut self, also: &[u8], part: &mut [u8]) -> Tag {
        let nonce = Part::Counted(self.next).nonce();
        // Before the nonce is used: whatever happens then, it is not used again.
        self.next = self.next.checked_add(1).expect("fewer than 2^64 parts");
        self.cipher.seal(&nonce, also, part)
    }

    /// Seals the closing part in place. There is none after it.
    pub fn seal_closing(self, also: &[u8], part: &mut [u8]) -> Tag {
        self.cipher.seal(&Part::Closing.nonce(), also, part)
    }
}

/// Seals the parts of one object at places of their own, in any order and by several threads in parallel: for a log,
/// whose records are written to assigned places and not in order.
///
/// Its key is as unique as that of a [`Sealer`]. The caller ensures that its nonces do not repeat: it assigns each
/// place to one part and never again. So this type is only for callers whose parts have unique places in any case; it
/// cannot be cloned either.
pub struct PlaceSealer {
    cipher: Cipher,
    key_id: DataKeyId,
    salt: Salt,
}

impl PlaceSealer {
    /// A sealer with a salt, and so a key, of its own.
    pub(crate) fn new(
        key_id: DataKeyId,
        data_key: &Secret,
        object: ObjectId<'_>,
        entropy: &dyn Entropy,
    ) -> PlaceSealer {
        let Sealer {
            cipher,
            key_id,
            salt,
            ..
        } = Sealer::new(key_id, data_key, object, entropy);
        PlaceSealer {
            cipher,
            key_id,
            salt,
        }
    }

    /// The data key from which the sealer's key is derived: to be stored.
    pub fn key_id(&self) -> DataKeyId {
        self.key_id
    }

    /// The salt: to be stored.
    pub fn salt(&self) -> &Salt {
        &self.salt
    }

    /// Seals the part at `place` in place; an [`Opener`] refers to it as [`Part::Counted`] with that number. `also` is
    /// authenticated with it; the opener needs the same bytes.
    ///
    /// With one sealer, each place is for one call: a second one discloses the contents of both.
    pub fn seal_at(&self, place: u64, also: &[u8], part: &mut [u8]) -> Tag {
        self.cipher.seal(&Part::Counted(place).nonce(), also, part)
    }

    /// Authenticates the head of the object, which stays readable: [`Part::Closing`], of no bytes.
    ///
    /// Call it once for each sealer.
    pub fn seal_head(&self, head: &[u8]) -> Tag {
        self.cipher.seal(&Part::Closing.nonce(), head, &mut [])
    }
}

/// Opens the parts of one object.
pub struct Opener {
    cipher: Cipher,
}

impl Opener {
    pub(crate) fn new(data_key: &Secret, object: ObjectId<'_>, salt: &Salt) -> Opener {
        Opener {
            cipher: cipher(data_key, object, salt),
        }
    }

    /// Opens a part in place. If that fails, the bytes must not be used.
    pub fn open(&self, part: Part, also: &[u8], bytes: &mut [u8], tag: &Tag) -> Result<(), Forged> {
        self.cipher.open(&part.nonce(), also, bytes, tag)
    }
}

#[cfg(test)]
mod tests;
