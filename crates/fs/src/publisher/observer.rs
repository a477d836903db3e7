//! The view that other engines have of commits.

use std::collections::BTreeSet;

use forebay_meta::Batch;
use forebay_meta::record::PackRecord;
use forebay_types::PackId;

/// How a commit has changed the account of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AccountChange {
    pub(crate) pack: PackId,
    pub(crate) before: Option<PackRecord>,
    pub(crate) after: Option<PackRecord>,
}

/// An engine that observes commits and the fate of packs. Calls come one after the other; none may wait.
pub(crate) trait Observer: Send + Sync {
    /// Whether it has records that should be committed even if nothing else must be.
    fn has_records_due(&self) -> bool {
        false
    }

    /// A batch is about to be committed, which removes the packs `dead`: their accounts, or the notes that snapshots hold
    /// them. The observer may add records of its own.
    fn before_commit(&self, batch: &mut Batch, dead: &BTreeSet<PackId>) {
        let _ = (batch, dead);
    }

    /// That batch is in the bucket. `changes` are the changes of accounts; the packs `dead` have none, and are not held.
    fn committed(&self, changes: &[AccountChange], dead: &BTreeSet<PackId>) {
        let _ = (changes, dead);
    }

    /// An attempt to put this pack was never answered: the bucket may carry it out later, even after the pack was
    /// deleted.
    fn put_in_doubt(&self, pack: PackId) {
        let _ = pack;
    }

    /// The pack was deleted.
    fn pack_deleted(&self, pack: PackId) {
        let _ = pack;
    }

    /// A pack that the metadata need is not in the bucket.
    fn pack_missing(&self, pack: PackId) {
        let _ = pack;
    }
}
