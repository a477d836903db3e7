//! Forebay: the keys of a volume, and sealing with them.
//!
//! *Sealing* is AES-256-GCM: without the key, nobody can read sealed data, or change them unnoticed. The keys form a
//! tree of which only the leaves touch data:
//!
//! ```text
//! passphrase --Argon2id--+
//! key file ------BLAKE3--+--wraps--> volume key --seals--> data keys --derive--> one key per object
//! key service -----------+           (a slot each)         1, 2, 3 ...           (and salt)
//! ```
//!
//! * A [`KeyRing`] is the object `forebay.keys` of the bucket: slots, each of which holds the volume key for one
//!   passphrase, key file or key service, and the sealed data keys. Changing a passphrase rewrites this object; no data
//!   are touched. Layout and rules are in [`mod@key_ring`].
//! * [`DataKeys`] is the part that a running gateway keeps.
//! * A [`Sealer`] seals the parts of one object, a pack or an object of the metadata, under a key of its own; an
//!   [`Opener`] opens them. A [`PlaceSealer`] does the same for the log, whose records have places.
//!
//! # Why no nonce repeats
//!
//! AES-GCM breaks if one key is used twice with one nonce and different bytes. Here
//!
//! 1. a [`Sealer`] draws a salt of 16 random bytes when it is made and derives its key from data key, purpose, volume,
//!    number or name of the object, and salt, so two sealers never share a key, whatever the gateway remembers of an
//!    earlier run, and however many copies of it exist;
//! 2. its nonces are counted; it cannot be cloned, and no caller can set its salt or counter; the nonce of the closing
//!    part has a domain of its own, and sealing that part consumes the sealer. A [`PlaceSealer`] takes its nonces from
//!    the places of the log, each of which is assigned once.
//!
//! So restarts, copies of a volume and logs that were rolled back are safe without a record of used
//! nonces: they would have to draw the same 128 random bits.
//!
//! Everything is plain synchronous code without a clock and without I/O. Randomness comes from
//! [`Entropy`]; a [`KeyService`] may have to ask a server, and returns a future.
//!
//! Secrets are [`Secret`]s: never shown, wiped when they are dropped, and not cloned.

#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

mod cipher;
mod credential;
mod data_keys;
mod entropy;
mod hex;
pub mod key_ring;
mod object;
mod passphrase;
mod sealing;
mod secret;
mod service;

pub use cipher::{Forged, TAG_LEN, Tag};
pub use credential::{Credential, InvalidCredential, KeyFile, Passphrase};
pub use data_keys::{DataKeyId, DataKeys, UnknownDataKey};
pub use entropy::{Entropy, SystemEntropy};
pub use key_ring::{KeyRing, LockedRing, RingError, SlotId, SlotInfo, SlotKind};
pub use object::{ObjectId, Opener, Part, PlaceSealer, Purpose, SALT_LEN, Salt, Sealer};
pub use passphrase::{Argon2Cost, InvalidCost};
pub use sealing::Sealing;
pub use secret::{SECRET_LEN, Secret};
pub use service::{KeyService, ServiceError, ServiceFuture};

#[cfg(feature = "fake")]
pub use entropy::SeededEntropy;
#[cfg(feature = "fake")]
pub use service::FakeKeyService;

/// The number of AES-256-GCM, with keys derived as here, in stored formats.
pub const ALGORITHM_AES_256_GCM: u8 = 1;
