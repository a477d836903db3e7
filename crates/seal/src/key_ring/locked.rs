//! A key ring as read from the bucket, before it is opened.

use std::fmt;

use forebay_types::VolumeId;

use super::text::{self, Content};
use super::wrapped::Use;
use super::{KeyRing, RingError, Slot, SlotId, SlotInfo, infos, mac};
use crate::{Credential, DataKeyId, InvalidCost, KeyService, Secret, ServiceError};

/// A key ring that was read and not opened. Its checksum is right; nothing of it is authenticated
/// yet, so it is only good for opening it, and for showing people which slots it has.
pub struct LockedRing {
    line: Box<str>,
    mac: blake3::Hash,
    content: Content,
}

impl LockedRing {
    /// Decodes the output of [`KeyRing::encode`].
    pub fn decode(object: &[u8]) -> Result<LockedRing, RingError> {
        let (line, mac) = text::open(object)?;
        Ok(LockedRing {
            content: text::decode(line)?,
            line: line.into(),
            mac,
        })
    }

    /// A ring with this content, which need not be valid.
    #[cfg(test)]
    pub(super) fn of_content(content: Content, volume_key: &Secret) -> LockedRing {
        let line = "of a test";
        LockedRing {
            mac: mac(volume_key, content.volume, line.as_bytes()),
            line: line.into(),
            content,
        }
    }

    /// The volume that it names.
    pub fn volume(&self) -> VolumeId {
        self.content.volume
    }

    /// The generation that it names.
    pub fn generation(&self) -> u64 {
        self.content.generation
    }

    /// Its slots, in the order of their numbers.
    pub fn slots(&self) -> impl Iterator<Item = SlotInfo> {
        infos(&self.content.slots)
    }

    /// Its data keys and when each was made (seconds since 1970-01-01 00:00 UTC), in the order of their numbers.
    pub fn data_keys(&self) -> impl Iterator<Item = (DataKeyId, u64)> {
        let keys = self.content.data_keys.iter();
        keys.map(|(id, sealed)| (*id, sealed.created))
    }

    /// Opens the ring of `volume` with a passphrase or key file. Each passphrase slot that is tried takes the time and
    /// memory of its Argon2.
    pub fn unlock(
        &self,
        volume: VolumeId,
        credential: Credential<'_>,
    ) -> Result<KeyRing, RingError> {
        self.check_volume(volume)?;
        let (mut tried, mut too_costly) = (0, None);
        for (id, slot) in &self.content.slots {
            match self.try_slot(*id, slot, credential, &mut tried) {
                Ok(Some(volume_key)) => return self.unlocked(*id, volume_key),
                Ok(None) => {}
                // A slot that was made on a larger machine. Another slot may open.
                Err(cost) => too_costly = Some(cost),
            }
        }
        if let Some(cost) = too_costly {
            return Err(cost.into());
        }
        Err(match (credential, tried) {
            (Credential::Passphrase(_), 0) => RingError::NoSlotFor("passphrase"),
            (Credential::KeyFile(_), 0) => RingError::NoSlotFor("key file"),
            (Credential::Passphrase(_), slots) => RingError::WrongPassphrase { slots },
            (Credential::KeyFile(_), slots) => RingError::WrongKeyFile { slots },
        })
    }

    /// Opens the ring of `volume` with a key service, which is asked for each slot of its kind until one opens. Returns
    /// the error of the last slot. An unreachable service is not asked for the next slot, so that an outage takes no
    /// longer than one request.
    pub async fn unlock_with_service(
        &self,
        volume: VolumeId,
        service: &dyn KeyService,
    ) -> Result<KeyRing, RingError> {
        self.check_volume(volume)?;
        let mut failed = None;
        for (id, slot) in &self.content.slots {
            let Slot::Service {
                service: kind,
                key,
                wrapped,
            } = slot
            else {
                continue;
            };
            if kind != service.service() {
                continue;
            }
            match service.unwrap(wrapped, key, volume).await {
                Ok(volume_key) => return self.unlocked(*id, volume_key),
                Err(error @ ServiceError::Unavailable(_)) => return Err(error.into()),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.map_or(RingError::NoSlotFor("key service"), RingError::Service))
    }

    fn check_volume(&self, expected: VolumeId) -> Result<(), RingError> {
        let found = self.content.volume;
        match found == expected {
            true => Ok(()),
            false => Err(RingError::OtherVolume { found, expected }),
        }
    }

    /// The volume key if the credential opens this slot. Counts the slots of the credential's kind that were tried.
    fn try_slot(
        &self,
        id: SlotId,
        slot: &Slot,
        credential: Credential<'_>,
        tried: &mut usize,
    ) -> Result<Option<Secret>, InvalidCost> {
        let volume = self.content.volume;
        Ok(match (slot, credential) {
            (Slot::Passphrase { cost, wrapped }, Credential::Passphrase(passphrase)) => {
                *tried += 1;
                let source = cost.stretch(passphrase, &wrapped.salt)?;
                let place = Use::PassphraseSlot.of(volume, id.0);
                wrapped.unwrap(&source, place).ok()
            }
            (Slot::KeyFile { wrapped }, Credential::KeyFile(key_file)) => {
                *tried += 1;
                let place = Use::KeyFileSlot.of(volume, id.0);
                wrapped.unwrap(key_file.key(), place).ok()
            }
            _ => None,
        })
    }

    /// The ring, if the volume key is the one that it was written with.
    fn unlocked(&self, slot: SlotId, volume_key: Secret) -> Result<KeyRing, RingError> {
        let Content {
            volume,
            generation,
            slots,
            data_keys,
        } = &self.content;
        // The comparison of `blake3::Hash` takes constant time.
        if mac(&volume_key, *volume, self.line.as_bytes()) != self.mac {
            return Err(RingError::Changed);
        }
        let data_keys = data_keys.iter().map(|(id, sealed)| {
            let place = Use::DataKey.of(*volume, id.0);
            let secret = sealed.sealed.unwrap(&volume_key, place);
            let secret = secret.map_err(|_| RingError::Changed)?;
            Ok((*id, (sealed.clone(), secret)))
        });
        Ok(KeyRing {
            volume: *volume,
            generation: *generation,
            data_keys: data_keys.collect::<Result<_, RingError>>()?,
            slots: slots.clone(),
            volume_key,
            opened_by: Some(slot),
        })
    }
}

impl fmt::Debug for LockedRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockedRing")
            .field("volume", &self.volume())
            .field("generation", &self.generation())
            .field("slots", &self.slots().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
