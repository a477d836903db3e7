//! What a batch does to the accounts of packs and of the volume.

use std::collections::BTreeMap;

use forebay_meta::record::{Displaced, PackRecord};
use forebay_types::PackId;
use forebay_types::balance::taken;

/// What a batch adds to and takes from the accounts of packs and of the volume.
#[derive(Default)]
pub(crate) struct Account {
    /// What published packs lose.
    pub(super) displaced: Displaced,
    /// Bytes of each pack that something refers to from now on.
    added: BTreeMap<PackId, u64>,
    /// The accounts of new packs.
    pub(super) opened: Vec<(PackId, PackRecord)>,
}

impl Account {
    /// Something refers to so many bytes of a pack, which is new or shared.
    pub(crate) fn add(&mut self, pack: PackId, bytes: u64) {
        *self.added.entry(pack).or_default() += bytes;
    }

    /// Opens the account of a new pack, with the bytes that something refers to after all. If there are none, there is no
    /// account, and this says so: the pack is to be deleted.
    pub(crate) fn open(&mut self, pack: PackId, record: PackRecord) -> bool {
        let live_bytes = self.added.get(&pack).copied().unwrap_or(0);
        if live_bytes > 0 {
            let record = PackRecord {
                live_bytes,
                ..record
            };
            self.opened.push((pack, record));
        }
        live_bytes > 0
    }

    /// Bytes that something refers to from now on in packs that were published before.
    pub(super) fn referred(&self) -> BTreeMap<PackId, u64> {
        let mut referred = self.added.clone();
        referred.retain(|_, gained| *gained > 0);
        for (pack, _) in &self.opened {
            referred.remove(pack);
        }
        referred
    }

    pub(crate) fn displace(&mut self, displaced: Displaced) -> u64 {
        let mut bytes = 0;
        for (pack, lost) in displaced {
            bytes += lost;
            let mut rest = lost;
            if let Some(added) = self.added.get_mut(&pack) {
                // It had left early, and was written anew in the same checkpoint. What a shared pack loses and gains
                // cancels as well.
                rest = lost.saturating_sub(*added);
                *added -= lost - rest;
            }
            if rest > 0 {
                *self.displaced.entry(pack).or_default() += rest;
            }
        }
        bytes
    }

    /// The volume's bytes after this.
    pub(crate) fn balance(&self, before: u64) -> u64 {
        let added: u64 = self.added.values().sum();
        taken(
            "bytes of the volume",
            before + added,
            self.displaced.values().sum(),
        )
    }
}
