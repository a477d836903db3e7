//! The packs that are read back: those that files refer to, and those that only snapshots hold.

use forebay_meta::record::{DeadPack, HeldPack, PackLife, PackRecord};
use forebay_meta::{Key, Record};
use forebay_types::{CommitNumber, PackId};

use super::{Broken, Scrub};

/// A pack that has an account or is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) pack: PackId,
    /// Its life, which has no end yet if it has an account.
    pub(super) life: PackLife,
    /// Number of its frames; `None` if it is held.
    pub(super) frames: Option<u32>,
}

impl Known {
    fn of_account(pack: PackId, account: &PackRecord) -> Known {
        Known {
            pack,
            life: PackLife {
                born: account.born,
                died: CommitNumber(u64::MAX),
                bytes: account.bytes,
            },
            frames: Some(account.frames),
        }
    }

    fn of_held(pack: PackId, held: &HeldPack) -> Known {
        Known {
            pack,
            life: held.life,
            frames: None,
        }
    }

    /// The pack of a record; `None` if that cannot be read, which is a finding of fsck, and no reason to skip the others.
    pub(super) fn decode(key: &[u8], value: &[u8]) -> Option<Known> {
        match Key::decode(key).ok()? {
            Key::Pack(pack) => {
                let account = PackRecord::decode(key, value).ok()?;
                Some(Known::of_account(pack, &account))
            }
            Key::HeldPack(pack) => {
                let held = HeldPack::decode(key, value).ok()?;
                Some(Known::of_held(pack, &held))
            }
            _ => None,
        }
    }
}

/// The pack of the key of an account, or of a held pack.
pub(super) fn pack_of(key: &[u8]) -> Option<PackId> {
    match Key::decode(key) {
        Ok(Key::Pack(pack) | Key::HeldPack(pack)) => Some(pack),
        _ => None,
    }
}

impl Scrub {
    /// What the metadata know of a pack now; `None` if files and snapshots do not need it.
    pub(super) async fn known(&self, pack: PackId) -> Result<Option<Known>, Broken> {
        if let Some(account) = self.account(pack).await? {
            return Ok(Some(Known::of_account(pack, &account)));
        }
        let key = Key::HeldPack(pack);
        let catalog = &self.context.catalog;
        let held = self.patiently(|| catalog.record::<HeldPack>(&key)).await?;
        if let Some(held) = held {
            return Ok(Some(Known::of_held(pack, &held)));
        }
        // A restored file may have taken it back meanwhile.
        let account = self.account(pack).await?;
        Ok(account.map(|account| Known::of_account(pack, &account)))
    }

    async fn account(&self, pack: PackId) -> Result<Option<PackRecord>, Broken> {
        self.patiently(|| self.context.catalog.pack(pack)).await
    }

    /// Whether the metadata have a record of a pack, also that it is to be deleted.
    pub(super) async fn has_record(&self, pack: PackId) -> Result<bool, Broken> {
        if self.known(pack).await?.is_some() {
            return Ok(true);
        }
        let key = Key::DeadPack(pack);
        let catalog = &self.context.catalog;
        let dead = self.patiently(|| catalog.record::<DeadPack>(&key)).await?;
        // It may have been held since it was looked at.
        Ok(dead.is_some() || self.known(pack).await?.is_some())
    }
}
