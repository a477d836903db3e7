//! The key ring: the object that opens a sealed volume.
//!
//! It is text of three lines, written as a whole at each change:
//!
//! ```text
//! {"forebay":"keys","format":1,"volume":"<32 hex digits>","generation":<number>,
//!  "slots":[
//!   {"kind":"passphrase","id":<number>,
//!    "argon2id":{"memory_kib":65536,"passes":3,"lanes":4},"salt":"<32>","wrapped":"<96>"},
//!   {"kind":"key-file","id":<number>,"salt":"<32>","wrapped":"<96>"},
//!   {"kind":"service","id":<number>,"service":"aws-kms","key":"arn:...","wrapped":"<up to 16384>"}],
//!  "data_keys":[{"id":<number>,"created":<seconds since 1970>,"salt":"<32>","sealed":"<96>"}]}\n
//! mac <64 hex digits>\n          keyed BLAKE3 of the first line with its line break
//! crc32 <8 hex digits>\n         of both lines before
//! ```
//!
//! The first line contains no other line breaks. Numbers of slots and of data keys ascend; the data key with the
//! highest number seals. *Wrapped* and *sealed* keys are AES-256-GCM, 32 bytes and their tag, with a nonce of zeros
//! under a key that is used only once:
//!
//! ```text
//! slot       derive_key("forebay 2026-11 key of a passphrase slot v1" or "... key file slot v1",
//!                       Argon2id(passphrase, salt), or the key of the key file: 32
//!                       | volume: 16 | id: 4 | salt: 16)
//! data key   derive_key("forebay 2026-11 key of a data key v1", volume key: 32
//!                       | volume: 16 | id: 4 | salt: 16)
//! mac        derive_key("forebay 2026-11 authentication of a key ring v1", volume key: 32 | volume: 16)
//! secret     derive_key("forebay 2026-11 secret of a volume v1", volume key: 32 | volume: 16)
//! ```
//!
//! # Meaning of each failed check
//!
//! | found | means |
//! |---|---|
//! | wrong CRC32, or no such text | damaged: [`RingError::Damaged`] |
//! | a higher format | a newer program wrote it: [`RingError::Newer`] |
//! | another volume | the object was copied from elsewhere: [`RingError::OtherVolume`] |
//! | no slot opens | the credential is wrong, or its slot was changed: [`RingError::WrongPassphrase`] and so on |
//! | a slot opens, the MAC is wrong | it was changed without the keys: [`RingError::Changed`] |
//! | a lower generation than one seen before | an old one was put back: [`RingError::Older`] |
//!
//! An old key ring opens with the credentials that it had then. So anyone who has both an old copy and a passphrase
//! that was changed since has the volume key; revoking that access takes a new volume, into which the data are moved.

mod cloned;
mod locked;
mod text;
mod wrapped;

use std::collections::BTreeMap;
use std::fmt;

use forebay_types::VolumeId;

use crate::object::SALT_LEN;
use crate::{
    Argon2Cost, DataKeyId, DataKeys, Entropy, InvalidCost, KeyFile, KeyService, Passphrase, Salt,
    Secret, ServiceError,
};
pub use locked::LockedRing;
use wrapped::{Use, WrappedKey};

/// Name of the object under the volume's prefix.
pub const KEY_RING_NAME: &str = "forebay.keys";

/// The newest format that this program reads, and the one that it writes.
pub const KEY_RING_VERSION: u32 = 1;

/// Longest key ring that is read, in bytes.
pub const MAX_KEY_RING_LEN: usize = 2 << 20;
/// Maximum number of slots. Each may cost the time and memory of Argon2 when the ring is opened.
pub const MAX_SLOTS: usize = 16;
/// Maximum number of data keys: a new one every day for eleven years.
pub const MAX_DATA_KEYS: usize = 4096;
/// Maximum length of a volume key that a key service has wrapped, in bytes.
pub const MAX_WRAPPED_LEN: usize = 8 << 10;
/// Maximum length of the name of a key service, and of that of its key, in bytes.
pub const MAX_SERVICE_NAME_LEN: usize = 2048;
const _: () = assert!(
    MAX_SLOTS * (2 * MAX_WRAPPED_LEN + 12 * MAX_SERVICE_NAME_LEN + 512) + MAX_DATA_KEYS * 256
        < MAX_KEY_RING_LEN,
    "every key ring that is written can be read"
);

/// Number of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u32);

impl fmt::Display for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The kind of credential that opens a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotKind {
    /// A passphrase, at this cost.
    Passphrase(Argon2Cost),
    /// A key file.
    KeyFile,
    /// A key service.
    Service {
        /// The kind of service.
        service: String,
        /// Its key.
        key: String,
    },
}

/// The public properties of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotInfo {
    /// Its number.
    pub id: SlotId,
    /// The kind of credential that opens it.
    pub kind: SlotKind,
}

/// The volume key, wrapped for one credential.
#[derive(Clone)]
enum Slot {
    Passphrase {
        cost: Argon2Cost,
        wrapped: WrappedKey,
    },
    KeyFile {
        wrapped: WrappedKey,
    },
    Service {
        service: String,
        key: String,
        wrapped: Vec<u8>,
    },
}

impl Slot {
    fn kind(&self) -> SlotKind {
        match self {
            Slot::Passphrase { cost, .. } => SlotKind::Passphrase(*cost),
            Slot::KeyFile { .. } => SlotKind::KeyFile,
            Slot::Service { service, key, .. } => SlotKind::Service {
                service: service.clone(),
                key: key.clone(),
            },
        }
    }
}

/// A data key as stored in the ring.
#[derive(Clone)]
struct SealedDataKey {
    /// In seconds since 1970-01-01 00:00 UTC.
    created: u64,
    sealed: WrappedKey,
}

/// The keys of a volume, opened: slots can be added and removed, and a new data key can be made.
/// Changes take effect only when the output of [`KeyRing::encode`] replaces the object.
pub struct KeyRing {
    volume: VolumeId,
    generation: u64,
    volume_key: Secret,
    slots: BTreeMap<SlotId, Slot>,
    data_keys: BTreeMap<DataKeyId, (SealedDataKey, Secret)>,
    opened_by: Option<SlotId>,
}

impl KeyRing {
    /// Creates a ring for a new volume, with a volume key, a first data key made at `created`
    /// (seconds since 1970-01-01 00:00 UTC), and no slot yet.
    pub fn create(volume: VolumeId, created: u64, entropy: &dyn Entropy) -> KeyRing {
        let mut ring = KeyRing {
            volume,
            generation: 0,
            volume_key: Secret::draw(entropy),
            slots: BTreeMap::new(),
            data_keys: BTreeMap::new(),
            opened_by: None,
        };
        ring.add_data_key(DataKeyId(1), created, entropy);
        ring
    }

    /// The volume that it belongs to.
    pub fn volume(&self) -> VolumeId {
        self.volume
    }

    /// Number of times that it was written: 0 before the first time.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the ring, or an error if it is older than a generation that was seen before.
    pub fn not_older_than(self, seen: u64) -> Result<KeyRing, RingError> {
        match self.generation < seen {
            true => Err(RingError::Older {
                found: self.generation,
                seen,
            }),
            false => Ok(self),
        }
    }

    /// The slot that it was opened with; `None` for a new ring.
    pub fn opened_by(&self) -> Option<SlotId> {
        self.opened_by
    }

    /// The secret of the volume, for keys that must not change with the data key, of data that are not sealed: hashes
    /// of frames, file handles. It is derived from the volume key, which cannot be computed from it.
    pub fn volume_secret(&self) -> Secret {
        self.secret_of(self.volume)
    }

    /// Its slots, in the order of their numbers.
    pub fn slots(&self) -> impl Iterator<Item = SlotInfo> {
        infos(&self.slots)
    }

    /// Its data keys and when each was made (seconds since 1970-01-01 00:00 UTC), in the order of their numbers.
    pub fn data_keys(&self) -> impl Iterator<Item = (DataKeyId, u64)> {
        let keys = self.data_keys.iter();
        keys.map(|(id, (sealed, _))| (*id, sealed.created))
    }

    /// Adds a slot for a passphrase.
    pub fn add_passphrase(
        &mut self,
        passphrase: &Passphrase,
        cost: Argon2Cost,
        entropy: &dyn Entropy,
    ) -> Result<SlotId, RingError> {
        let id = self.next_slot()?;
        let salt = draw_salt(entropy);
        let source = cost.stretch(passphrase, &salt)?;
        let place = Use::PassphraseSlot.of(self.volume, id.0);
        let wrapped = WrappedKey::wrap(&source, place, salt, &self.volume_key);
        self.slots.insert(id, Slot::Passphrase { cost, wrapped });
        Ok(id)
    }

    /// Adds a slot for a key file.
    pub fn add_key_file(
        &mut self,
        key_file: &KeyFile,
        entropy: &dyn Entropy,
    ) -> Result<SlotId, RingError> {
        let id = self.next_slot()?;
        let place = Use::KeyFileSlot.of(self.volume, id.0);
        let salt = draw_salt(entropy);
        let wrapped = WrappedKey::wrap(key_file.key(), place, salt, &self.volume_key);
        self.slots.insert(id, Slot::KeyFile { wrapped });
        Ok(id)
    }

    /// Adds a slot for a key service. Checks that the service unwraps the key that it has wrapped: a failure would
    /// otherwise be found only when nothing else opens the volume. If that fails, or the future is dropped, nothing has
    /// changed.
    pub async fn add_service(&mut self, service: &dyn KeyService) -> Result<SlotId, RingError> {
        let id = self.next_slot()?;
        let wrapped = service.wrap(&self.volume_key, self.volume).await?;
        let names = [service.service(), service.key()];
        if wrapped.len() > MAX_WRAPPED_LEN
            || names.iter().any(|name| name.len() > MAX_SERVICE_NAME_LEN)
        {
            return Err(RingError::TooMuch("length of the wrapped key"));
        }
        let unwrapped = service.unwrap(&wrapped, service.key(), self.volume).await?;
        if unwrapped.expose() != self.volume_key.expose() {
            let why = "the unwrapped key differs from the wrapped one";
            return Err(ServiceError::Refused(why.into()).into());
        }
        let slot = Slot::Service {
            service: service.service().into(),
            key: service.key().into(),
            wrapped,
        };
        self.slots.insert(id, slot);
        Ok(id)
    }

    /// Removes a slot. The last one cannot be removed: without it the volume could never be opened again.
    pub fn remove_slot(&mut self, id: SlotId) -> Result<(), RingError> {
        if !self.slots.contains_key(&id) {
            return Err(RingError::NoSuchSlot(id));
        }
        if self.slots.len() == 1 {
            return Err(RingError::LastSlot);
        }
        self.slots.remove(&id);
        Ok(())
    }

    /// Makes a new data key, which seals from the next start of a gateway on. The older ones still open the data that
    /// they have sealed.
    pub fn rotate(&mut self, created: u64, entropy: &dyn Entropy) -> Result<DataKeyId, RingError> {
        let last = self.data_keys.last_key_value().map_or(0, |(id, _)| id.0);
        match last.checked_add(1) {
            Some(next) if self.data_keys.len() < MAX_DATA_KEYS => {
                Ok(self.add_data_key(DataKeyId(next), created, entropy))
            }
            _ => Err(RingError::TooMuch("data keys")),
        }
    }

    /// Encodes the object, which has to replace the one that was read, and only if that is still there. Each call
    /// increases the generation.
    pub fn encode(&mut self) -> Result<Vec<u8>, RingError> {
        if self.slots.is_empty() {
            return Err(RingError::LastSlot);
        }
        let next = self.generation.checked_add(1);
        self.generation = next.ok_or(RingError::TooMuch("generations"))?;
        let data_keys = self.data_keys.iter().map(|(id, (sealed, _))| (id, sealed));
        let line = text::encode(self.volume, self.generation, &self.slots, data_keys);
        Ok(text::close(line, |line| {
            mac(&self.volume_key, self.volume, line)
        }))
    }

    /// The data keys, which a running gateway needs. The volume key is wiped.
    pub fn into_data_keys(self) -> DataKeys {
        let mut keys = self.data_keys;
        let (current, (_, secret)) = keys
            .pop_last()
            .expect("a ring has a data key from its creation on, and none is removed");
        let older = keys.into_iter().map(|(id, (_, secret))| (id, secret));
        DataKeys::new(self.volume, (current, secret), older)
    }

    fn next_slot(&self) -> Result<SlotId, RingError> {
        let last = self.slots.last_key_value().map_or(0, |(id, _)| id.0);
        match last.checked_add(1) {
            Some(next) if self.slots.len() < MAX_SLOTS => Ok(SlotId(next)),
            _ => Err(RingError::TooMuch("slots")),
        }
    }

    fn add_data_key(&mut self, id: DataKeyId, created: u64, entropy: &dyn Entropy) -> DataKeyId {
        self.insert_data_key(id, created, Secret::draw(entropy), entropy);
        id
    }

    fn insert_data_key(
        &mut self,
        id: DataKeyId,
        created: u64,
        secret: Secret,
        entropy: &dyn Entropy,
    ) {
        let place = Use::DataKey.of(self.volume, id.0);
        let sealed = WrappedKey::wrap(&self.volume_key, place, draw_salt(entropy), &secret);
        let sealed = SealedDataKey { created, sealed };
        self.data_keys.insert(id, (sealed, secret));
    }
}

impl fmt::Debug for KeyRing {
    /// Shows the parts that are stored unencrypted, and never a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRing")
            .field("volume", &self.volume)
            .field("generation", &self.generation)
            .field("slots", &self.slots().collect::<Vec<_>>())
            .field("data_keys", &self.data_keys.keys())
            .finish_non_exhaustive()
    }
}

fn infos(slots: &BTreeMap<SlotId, Slot>) -> impl Iterator<Item = SlotInfo> {
    slots.iter().map(|(id, slot)| SlotInfo {
        id: *id,
        kind: slot.kind(),
    })
}

fn draw_salt(entropy: &dyn Entropy) -> Salt {
    let mut salt = [0; SALT_LEN];
    entropy.fill(&mut salt);
    salt
}

/// Authenticates the first line of a ring.
fn mac(volume_key: &Secret, volume: VolumeId, line: &[u8]) -> blake3::Hash {
    let context = "forebay 2026-11 authentication of a key ring v1";
    blake3::keyed_hash(volume_key.derive(context, &[&volume.0]).expose(), line)
}

/// Why a key ring could not be read, opened or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// It differs from the key ring that was written.
    #[error(
        "the key ring {KEY_RING_NAME} is damaged: {0}; restore it (from an earlier version of the \
         object, or a backup)"
    )]
    Damaged(String),
    /// A newer program wrote it.
    #[error(
        "the key ring {KEY_RING_NAME} has format {found}, and this program reads formats up to \
         {KEY_RING_VERSION}; use a newer Forebay"
    )]
    Newer {
        /// Its format.
        found: u32,
    },
    /// It belongs to another volume.
    #[error(
        "the key ring {KEY_RING_NAME} belongs to volume {found}, and this is volume {expected}; \
         restore the key ring of this volume"
    )]
    OtherVolume {
        /// The volume that it names.
        found: VolumeId,
        /// The volume that was to be opened.
        expected: VolumeId,
    },
    /// The passphrase opens no slot.
    #[error(
        "the passphrase opens none of the {slots} passphrase slots: it is not the right one (or \
         somebody has damaged its slot)"
    )]
    WrongPassphrase {
        /// Number of passphrase slots.
        slots: usize,
    },
    /// The key file opens no slot.
    #[error(
        "the key file opens none of the {slots} key file slots: it is not the right one (or somebody \
         has damaged its slot)"
    )]
    WrongKeyFile {
        /// Number of key file slots.
        slots: usize,
    },
    /// There is no slot for this kind of credential.
    #[error("the volume has no {0} slot; open it with another kind of slot")]
    NoSlotFor(&'static str),
    /// A slot opens, but the ring was not written by a holder of the keys.
    #[error(
        "the key ring {KEY_RING_NAME} was changed without the keys; restore an earlier version of \
         the object, and find out who can write to the bucket"
    )]
    Changed,
    /// An old ring has replaced a newer one.
    #[error(
        "the key ring {KEY_RING_NAME} has generation {found}, but generation {seen} was seen \
         before: an old key ring was put back"
    )]
    Older {
        /// Its generation.
        found: u64,
        /// The highest one known.
        seen: u64,
    },
    /// The Argon2 parameters of a passphrase cannot be used.
    #[error(transparent)]
    Cost(#[from] InvalidCost),
    /// The key service failed or refused.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// There is no slot with this number.
    #[error("the key ring has no slot {0}")]
    NoSuchSlot(SlotId),
    /// The change would remove the last slot.
    #[error("a key ring needs at least one slot, or nothing opens the volume; add one first")]
    LastSlot,
    /// The limit of a ring is exceeded.
    #[error("a key ring cannot hold more {0}")]
    TooMuch(&'static str),
}

#[cfg(test)]
mod tests;
