//! The changes of a checkpoint to the published usage.
//!
//! Live accounts are ahead of the bucket. Each node knows its [`PublishedUsage`]. A publication
//! replaces the usage of the objects that changed, and writes the sums in the same batch as the objects themselves:
//! so the counts in the bucket are those of exactly the published LSN.

use std::collections::BTreeMap;

use forebay_meta::record::InodeRecord;
use forebay_types::Inode;

use super::account::Amount;

/// The published count of an object, and its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedUsage {
    tree: Option<Inode>,
    bytes: u64,
    /// It counts in the trash, and not in the volume.
    is_trash: bool,
}

impl PublishedUsage {
    /// The usage of an object with the published `record`.
    pub fn of(record: &InodeRecord) -> PublishedUsage {
        PublishedUsage {
            tree: record.tree,
            bytes: record.charged_bytes(),
            is_trash: record.is_in_trash(),
        }
    }
}

/// A sum of differences.
#[derive(Clone, Copy, Debug, Default)]
pub struct Difference {
    // Wide enough for any number of objects of any size.
    bytes: i128,
    files: i128,
}

impl Difference {
    fn add(&mut self, usage: PublishedUsage, sign: i128) {
        self.bytes += sign * i128::from(usage.bytes);
        self.files += sign;
    }

    /// The amount after this difference, clamped to the possible range.
    pub fn after(self, before: Amount) -> Amount {
        let sum = |before: u64, difference: i128| {
            let sum = (i128::from(before) + difference).max(0);
            u64::try_from(sum).unwrap_or(u64::MAX)
        };
        Amount {
            bytes: sum(before.bytes, self.bytes),
            files: sum(before.files, self.files),
        }
    }
}

/// The changes of a batch to the counts of the volume and of trees.
#[derive(Debug, Default)]
pub struct Ledger {
    /// The change of the volume.
    pub volume: Difference,
    /// The change of the trash.
    pub trash: Difference,
    /// The change of each tree, by its root.
    pub trees: BTreeMap<Inode, Difference>,
}

impl Ledger {
    /// Replaces an object's published usage `before` by `after`.
    pub fn replace(&mut self, before: Option<PublishedUsage>, after: Option<PublishedUsage>) {
        if before == after {
            return;
        }
        let usages = before.map(|usage| (usage, -1));
        for (usage, sign) in usages.into_iter().chain(after.map(|usage| (usage, 1))) {
            match usage.is_trash {
                true => self.trash.add(usage, sign),
                false => self.volume.add(usage, sign),
            }
            if let Some(tree) = usage.tree {
                self.trees.entry(tree).or_default().add(usage, sign);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_changes_its_tree_is_taken_from_one_and_added_to_the_other() {
        let mut ledger = Ledger::default();
        let usage = |tree: u64, bytes| {
            Some(PublishedUsage {
                tree: Some(Inode(tree)),
                bytes,
                is_trash: false,
            })
        };
        ledger.replace(usage(5, 1024), usage(6, 512));
        ledger.replace(None, usage(5, 512));
        ledger.replace(usage(6, 7), usage(6, 7));
        let before = Amount {
            bytes: 4096,
            files: 4,
        };
        let after = |difference: Difference| {
            let Amount { bytes, files } = difference.after(before);
            (bytes, files)
        };
        assert_eq!(after(ledger.trees[&Inode(5)]), (4096 - 512, 4));
        assert_eq!(after(ledger.trees[&Inode(6)]), (4096 + 512, 5));
        assert_eq!(after(ledger.volume), (4096, 5));
    }

    #[test]
    fn an_object_that_goes_to_the_trash_leaves_the_volume() {
        let mut ledger = Ledger::default();
        let live = PublishedUsage {
            tree: Some(Inode(5)),
            bytes: 1024,
            is_trash: false,
        };
        let trash = PublishedUsage {
            tree: None,
            is_trash: true,
            ..live
        };
        ledger.replace(Some(live), Some(trash));
        let before = Amount {
            bytes: 4096,
            files: 4,
        };
        let amount = |bytes, files| Amount { bytes, files };
        assert_eq!(ledger.volume.after(before), amount(3072, 3));
        assert_eq!(ledger.trash.after(before), amount(5120, 5));
        assert_eq!(ledger.trees[&Inode(5)].after(before), amount(3072, 3));
        ledger.replace(Some(trash), None);
        assert_eq!(ledger.trash.after(before), before);
    }
}
