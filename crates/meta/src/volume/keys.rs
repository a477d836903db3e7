//! The key ring in its bucket: opening a sealed volume with it, and changing it.
//!
//! Two sources say whether a volume is sealed. One is the descriptor, and anyone with write access to the bucket can
//! have written that. So the caller that opens a volume passes what it [expects](Expected), from its own configuration,
//! and a volume that differs is refused:
//!
//! | expected | descriptor says | |
//! |---|---|---|
//! | not sealed | not sealed | opened |
//! | not sealed | sealed | [`VolumeError::Sealed`], with what to set |
//! | sealed | not sealed | [`VolumeError::NotSealed`]: else an attacker could have later writes stored in the clear |
//! | sealed | sealed | opened with the key ring |
//!
//! The ring is one object, which is replaced as a whole and only if it is still the version that was read. Of two
//! programs that change it at once, one reads it again, so that no slot of the other is lost.

use std::sync::Arc;

use forebay_seal::key_ring::{KEY_RING_NAME, MAX_KEY_RING_LEN};
use forebay_seal::{
    Argon2Cost, Credential, DataKeyId, Entropy, KeyFile, KeyRing, KeyService, LockedRing,
    Passphrase, RingError, Sealing, Secret, SlotId, SystemEntropy,
};
use forebay_types::VolumeId;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion};

use super::{Protection, VolumeDescriptor, VolumeError};

/// How many times a change is attempted because another program replaced the ring first.
const ATTEMPTS: u32 = 8;

/// A secret or service that opens a key ring.
pub enum Unlock {
    /// A passphrase.
    Passphrase(Passphrase),
    /// A key file.
    KeyFile(KeyFile),
    /// The permission to use a key service.
    Service(Box<dyn KeyService>),
}

impl std::fmt::Debug for Unlock {
    /// Shows only the kind.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Unlock::Passphrase(_) => "Passphrase(..)",
            Unlock::KeyFile(_) => "KeyFile(..)",
            Unlock::Service(_) => "Service(..)",
        })
    }
}

/// What the caller expects of a volume that it opens. It comes from the caller's configuration, never from the bucket.
#[derive(Clone, Debug, Default)]
pub enum Expected {
    /// The volume is not sealed.
    #[default]
    NotSealed,
    /// The volume is sealed, and this opens it.
    Sealed(Arc<Unlock>),
}

/// The keys for the contents of a volume.
#[derive(Debug)]
pub struct VolumeKeys {
    secret: Secret,
    sealing: Option<Sealing>,
    generation: u64,
}

impl VolumeKeys {
    /// Opens the key ring of a volume, if it is sealed and expected to be. A ring of a lower generation than `seen` is
    /// refused: somebody put an old one back. With a passphrase this takes the time and memory of Argon2, in a thread
    /// beside the runtime's.
    pub async fn load(
        store: &Arc<dyn ObjectStore>,
        root: &Path,
        descriptor: &VolumeDescriptor,
        expected: &Expected,
        seen: u64,
    ) -> Result<VolumeKeys, VolumeError> {
        let root_text = || root.to_string();
        match (&descriptor.protection, expected) {
            (Protection::None { hash_key }, Expected::NotSealed) => {
                let mut hash_key = *hash_key;
                Ok(VolumeKeys {
                    secret: Secret::take(&mut hash_key),
                    sealing: None,
                    generation: 0,
                })
            }
            (Protection::Aes256Gcm, Expected::NotSealed) => {
                Err(VolumeError::Sealed { root: root_text() })
            }
            (Protection::None { .. }, Expected::Sealed(_)) => {
                Err(VolumeError::NotSealed { root: root_text() })
            }
            (Protection::Aes256Gcm, Expected::Sealed(unlock)) => {
                let stored = StoredRing::load(store, root).await?;
                let ring = open(stored.ring, descriptor.volume, unlock).await?;
                let ring = ring.not_older_than(seen)?;
                Ok(VolumeKeys {
                    secret: ring.secret_of(descriptor.content()),
                    generation: ring.generation(),
                    sealing: Some(Sealing {
                        keys: Arc::new(ring.into_data_keys().with_content(descriptor.content())),
                        entropy: Arc::new(SystemEntropy),
                    }),
                })
            }
        }
    }

    /// The key of the hashes of frames and of the handles of files; a clone has that of its source. It stays the same when data keys are added.
    pub fn secret(&self) -> &[u8; 32] {
        self.secret.expose()
    }

    /// The sealing keys; `None` if the volume is not sealed.
    pub fn sealing(&self) -> Option<Sealing> {
        self.sealing.clone()
    }

    /// The generation of the key ring: 1 or more, and 0 for a volume that has no ring.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

/// The key ring of a new volume, not stored yet.
pub struct NewRing(Vec<u8>);

/// Makes the key ring of a new volume, made at `created` (seconds since 1970-01-01 00:00 UTC), with one slot.
///
/// # Errors
/// When the key service fails.
pub async fn make(
    volume: VolumeId,
    created: u64,
    unlock: &Arc<Unlock>,
) -> Result<NewRing, VolumeError> {
    let ring = KeyRing::create(volume, created, &SystemEntropy);
    let (mut ring, _) = add_slot(ring, unlock).await?;
    Ok(NewRing(ring.encode()?))
}

/// Makes the key ring of the clone `volume` of the volume under `root`, which `unlock` opens: with its keys, and one slot.
///
/// # Errors
/// When the ring of the source cannot be opened, or the key service fails.
pub async fn make_for_clone(
    store: &Arc<dyn ObjectStore>,
    root: &Path,
    source: VolumeId,
    volume: VolumeId,
    unlock: &Arc<Unlock>,
) -> Result<NewRing, VolumeError> {
    let stored = StoredRing::load(store, root).await?;
    let ring = open(stored.ring, source, unlock).await?;
    let ring = ring.for_clone(volume, &SystemEntropy);
    let (mut ring, _) = add_slot(ring, unlock).await?;
    Ok(NewRing(ring.encode()?))
}

/// Stores the key ring of a new volume.
///
/// # Errors
/// When there is one already, or the bucket fails.
pub async fn create(
    store: &Arc<dyn ObjectStore>,
    root: &Path,
    ring: NewRing,
) -> Result<(), VolumeError> {
    let options = PutOptions::from(PutMode::Create);
    store
        .put_opts(&location(root), ring.0.into(), options)
        .await?;
    Ok(())
}

/// The key ring as stored in the bucket.
pub struct StoredRing {
    /// The ring, which was not opened: nothing in it is authenticated.
    pub ring: LockedRing,
    bytes: bytes::Bytes,
    version: UpdateVersion,
}

impl StoredRing {
    /// Reads the key ring of the volume under `root`; reads it once more if it arrives damaged.
    pub async fn load(
        store: &Arc<dyn ObjectStore>,
        root: &Path,
    ) -> Result<StoredRing, VolumeError> {
        match StoredRing::load_once(store, root).await {
            Err(VolumeError::KeyRing(RingError::Damaged(why))) => {
                tracing::warn!("the key ring arrived damaged: {why}; it is read again");
                StoredRing::load_once(store, root).await
            }
            loaded => loaded,
        }
    }

    async fn load_once(
        store: &Arc<dyn ObjectStore>,
        root: &Path,
    ) -> Result<StoredRing, VolumeError> {
        let found = match store.get(&location(root)).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => {
                return Err(VolumeError::NoKeyRing {
                    root: root.to_string(),
                    object: KEY_RING_NAME.to_owned(),
                });
            }
            Err(error) => return Err(error.into()),
        };
        if found.meta.size > MAX_KEY_RING_LEN as u64 {
            return Err(RingError::Damaged("it is far too long".into()).into());
        }
        let version = UpdateVersion {
            e_tag: found.meta.e_tag.clone(),
            version: found.meta.version.clone(),
        };
        let bytes = found.bytes().await?;
        Ok(StoredRing {
            ring: LockedRing::decode(&bytes)?,
            bytes,
            version,
        })
    }
}

/// A change of a key ring.
#[derive(Debug)]
pub enum RingChange {
    /// Add a slot that this opens.
    Add(Arc<Unlock>),
    /// Add a slot that this opens, and remove the slot that opened the ring.
    Exchange(Arc<Unlock>),
    /// Remove a slot: another one than that which opened the ring.
    Remove(SlotId),
    /// Make a data key, at this time in seconds since 1970-01-01 00:00 UTC.
    Rotate(u64),
}

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingChanged {
    /// This slot was added.
    Added(SlotId),
    /// The second slot was added, and the first one removed.
    Exchanged(SlotId, SlotId),
    /// This slot was removed.
    Removed(SlotId),
    /// This data key was made.
    Rotated(DataKeyId),
}

/// Changes the key ring of a sealed volume, which `unlock` opens and which is of no lower generation than `seen`. It
/// changes no other object of the volume, and a gateway that serves it goes on.
///
/// After an error the ring is unchanged, with one exception: if the bucket did not answer, the change may or may not
/// have been made.
pub async fn change(
    store: &Arc<dyn ObjectStore>,
    root: &Path,
    volume: VolumeId,
    unlock: &Arc<Unlock>,
    seen: u64,
    change: &RingChange,
) -> Result<RingChanged, VolumeError> {
    let location = location(root);
    for _ in 0..ATTEMPTS {
        let stored = StoredRing::load(store, root).await?;
        let ring = open(stored.ring, volume, unlock).await?;
        let (mut ring, changed) = apply(ring.not_older_than(seen)?, change).await?;
        let bytes = bytes::Bytes::from(ring.encode()?);
        let options = PutOptions::from(PutMode::Update(stored.version));
        let put = store.put_opts(&location, bytes.clone().into(), options);
        match put.await {
            Ok(_) => return Ok(changed),
            Err(object_store::Error::Precondition { .. }) => {
                // Perhaps our own ring: the request was repeated because its answer was lost.
                if StoredRing::load(store, root).await?.bytes == bytes {
                    return Ok(changed);
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(VolumeError::KeyRingBusy)
}

async fn apply(ring: KeyRing, change: &RingChange) -> Result<(KeyRing, RingChanged), VolumeError> {
    let own = ring.opened_by();
    Ok(match change {
        RingChange::Add(unlock) => {
            let (ring, slot) = add_slot(ring, unlock).await?;
            (ring, RingChanged::Added(slot))
        }
        RingChange::Exchange(unlock) => {
            let (mut ring, slot) = add_slot(ring, unlock).await?;
            match own {
                Some(own) => {
                    ring.remove_slot(own)?;
                    (ring, RingChanged::Exchanged(own, slot))
                }
                None => (ring, RingChanged::Added(slot)),
            }
        }
        RingChange::Remove(slot) if own == Some(*slot) && ring.slots().count() > 1 => {
            return Err(VolumeError::OwnSlot(*slot));
        }
        RingChange::Remove(slot) => {
            let mut ring = ring;
            ring.remove_slot(*slot)?;
            (ring, RingChanged::Removed(*slot))
        }
        RingChange::Rotate(created) => {
            let mut ring = ring;
            let key = ring.rotate(*created, &SystemEntropy)?;
            (ring, RingChanged::Rotated(key))
        }
    })
}

/// Opens a ring. Work that keeps the processor busy for long runs in a thread of its own.
async fn open(
    ring: LockedRing,
    volume: VolumeId,
    unlock: &Arc<Unlock>,
) -> Result<KeyRing, RingError> {
    if let Unlock::Service(service) = &**unlock {
        return ring.unlock_with_service(volume, &**service).await;
    }
    let unlock = Arc::clone(unlock);
    in_thread(move || match &*unlock {
        Unlock::Passphrase(passphrase) => ring.unlock(volume, Credential::Passphrase(passphrase)),
        Unlock::KeyFile(key_file) => ring.unlock(volume, Credential::KeyFile(key_file)),
        Unlock::Service(_) => Err(RingError::NoSlotFor("key service")),
    })
    .await
}

async fn add_slot(mut ring: KeyRing, unlock: &Arc<Unlock>) -> Result<(KeyRing, SlotId), RingError> {
    if let Unlock::Service(service) = &**unlock {
        let slot = ring.add_service(&**service).await?;
        return Ok((ring, slot));
    }
    let unlock = Arc::clone(unlock);
    in_thread(move || {
        let entropy: &dyn Entropy = &SystemEntropy;
        let slot = match &*unlock {
            Unlock::Passphrase(passphrase) => {
                ring.add_passphrase(passphrase, Argon2Cost::default(), entropy)?
            }
            Unlock::KeyFile(key_file) => ring.add_key_file(key_file, entropy)?,
            Unlock::Service(_) => return Err(RingError::NoSlotFor("key service")),
        };
        Ok((ring, slot))
    })
    .await
}

async fn in_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RingError> + Send + 'static,
) -> Result<T, RingError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}

fn location(root: &Path) -> Path {
    root.clone().join(KEY_RING_NAME)
}

#[cfg(test)]
mod tests;
