//! Judges which objects below `packs/` nothing refers to.
//!
//! | object | what it is |
//! |---|---|
//! | known by an account, or as a dead or held pack | the gateway's |
//! | of the newest epoch, and of none before | under way: it may be about to be published |
//! | of an earlier epoch, younger than the grace time | young |
//! | of an earlier epoch, and a block map refers to it | without account: damage, for fsck to judge |
//! | of an earlier epoch, and nothing refers to it | an orphan |
//!
//! The metadata must be read after the list. A gateway of an earlier epoch can commit nothing more, and the one of the
//! newest epoch makes accounts only for packs with its own numbers: so an orphan stays an orphan.

use forebay_types::PackId;

use crate::judge::packs::epoch_of;
use crate::report::Amount;

/// A pack in the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    pack: PackId,
    bytes: u64,
    is_young: bool,
    is_known: bool,
    is_referred_to: bool,
}

/// The packs of the bucket, in the order of the list.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    rows: Vec<Row>,
}

/// The packs, sorted by the table above.
#[derive(Debug, Default)]
pub(crate) struct Sorted {
    pub(crate) orphans: Vec<(PackId, u64)>,
    pub(crate) young: Amount,
    pub(crate) under_way: Amount,
    pub(crate) unaccounted: Amount,
}

impl Listed {
    pub(crate) fn push(&mut self, pack: PackId, bytes: u64, is_young: bool) {
        self.rows.push(Row {
            pack,
            bytes,
            is_young,
            is_known: false,
            is_referred_to: false,
        });
    }

    /// Called after the last pack of the list.
    pub(crate) fn complete(&mut self) {
        self.rows.sort_unstable_by_key(|row| row.pack);
    }

    /// Marks a pack that the metadata name.
    pub(crate) fn known(&mut self, pack: PackId) {
        if let Some(row) = self.find(pack) {
            row.is_known = true;
        }
    }

    /// Marks a pack that a block map refers to.
    pub(crate) fn referred_to(&mut self, pack: PackId) {
        if let Some(row) = self.find(pack) {
            row.is_referred_to = true;
        }
    }

    /// Whether some packs are unknown, so that the block maps must be read.
    pub(crate) fn has_unknown(&self, newest_epoch: u64) -> bool {
        let mut rows = self.rows.iter();
        rows.any(|row| !row.is_known && epoch_of(row.pack) < newest_epoch)
    }

    /// Sorts the packs by the table above. `newest_epoch` is the newest epoch of the metadata.
    pub(crate) fn sorted(&self, newest_epoch: u64) -> Sorted {
        let mut sorted = Sorted::default();
        for row in self.rows.iter().filter(|row| !row.is_known) {
            if epoch_of(row.pack) >= newest_epoch {
                sorted.under_way.add(row.bytes);
            } else if row.is_referred_to {
                sorted.unaccounted.add(row.bytes);
            } else if row.is_young {
                sorted.young.add(row.bytes);
            } else {
                sorted.orphans.push((row.pack, row.bytes));
            }
        }
        sorted
    }

    fn find(&mut self, pack: PackId) -> Option<&mut Row> {
        let at = self.rows.binary_search_by_key(&pack, |row| row.pack);
        at.ok().and_then(|at| self.rows.get_mut(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(epoch: u64, number: u64) -> PackId {
        PackId((epoch << 40) | number)
    }

    #[test]
    fn only_what_nothing_can_ever_refer_to_is_an_orphan() {
        let mut listed = Listed::default();
        let all = [
            (pack(3, 1), 1, false),
            (pack(2, 5), 2, false),
            (pack(2, 4), 4, true),
            (pack(2, 3), 8, false),
            (pack(2, 2), 16, false),
            (pack(1, 9), 32, false),
            (pack(4, 1), 64, false),
        ];
        for (pack, bytes, is_young) in all {
            listed.push(pack, bytes, is_young);
        }
        listed.complete();
        assert!(listed.has_unknown(3));
        listed.known(pack(2, 5));
        listed.known(pack(7, 7));
        listed.referred_to(pack(2, 3));
        let sorted = listed.sorted(3);
        assert_eq!(sorted.orphans, [(pack(1, 9), 32), (pack(2, 2), 16)]);
        assert_eq!((sorted.young.count, sorted.young.bytes), (1, 4));
        assert_eq!((sorted.unaccounted.count, sorted.unaccounted.bytes), (1, 8));
        // One of the newest epoch, and one of an epoch that began after the metadata were read.
        assert_eq!((sorted.under_way.count, sorted.under_way.bytes), (2, 65));
        assert!(!listed.has_unknown(1));
    }
}
