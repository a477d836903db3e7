//! The changes of a batch to the accounts of packs and of the volume.

use std::collections::{BTreeMap, BTreeSet};

use forebay_meta::record::{Displaced, PackRecord};
use forebay_types::PackId;
use forebay_types::balance::taken;

/// What a batch adds to the accounts of packs and of the volume, and what it takes from them.
#[derive(Default)]
pub(crate) struct AccountUpdates {
    /// Bytes that published packs lose.
    pub(super) displaced: Displaced,
    /// Bytes of each pack that are referred to from now on.
    added: BTreeMap<PackId, u64>,
    /// The accounts of new packs.
    pub(super) opened: Vec<(PackId, PackRecord)>,
    /// Packs that no snapshot holds any more.
    pub(super) released: BTreeSet<PackId>,
}

impl AccountUpdates {
    /// Adds references to this many bytes of a pack, which is new or shared.
    pub(crate) fn add(&mut self, pack: PackId, bytes: u64) {
        *self.added.entry(pack).or_default() += bytes;
    }

    /// Notes a pack without an account that no snapshot holds any more.
    pub(crate) fn release(&mut self, pack: PackId) {
        self.released.insert(pack);
    }

    /// Opens the account of a new pack, with the bytes that are still referred to. If there are none, opens no
    /// account and returns false: the pack must be deleted.
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

    /// Bytes of packs published before that are referred to from now on.
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
                // It was uploaded eagerly, and written again in the same checkpoint. Losses and gains of a shared
                // pack cancel as well.
                rest = lost.saturating_sub(*added);
                *added -= lost - rest;
            }
            if rest > 0 {
                *self.displaced.entry(pack).or_default() += rest;
            }
        }
        bytes
    }

    /// The volume's bytes after this batch.
    pub(crate) fn balance(&self, before: u64) -> u64 {
        let added: u64 = self.added.values().sum();
        taken(
            "bytes of the volume",
            before + added,
            self.displaced.values().sum(),
        )
    }
}
