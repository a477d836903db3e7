//! The changes of a checkpoint to the published usage.
//!
//! Live accounts are ahead of the bucket. Each node knows its [`Share`] of the published counts. A publication
//! replaces the shares of the objects that changed, and writes the sums in the same batch as the objects themselves:
//! so the counts in the bucket are those of exactly the published LSN.

use std::collections::BTreeMap;

use forebay_meta::record::InodeRecord;
use forebay_types::Inode;

use super::account::Amount;

/// The published count of an object, and its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    tree: Option<Inode>,
    bytes: u64,
}

impl Share {
    /// The share of an object with the published `record`.
    pub fn of(record: &InodeRecord) -> Share {
        Share {
            tree: record.tree,
            bytes: record.charged_bytes(),
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
    fn add(&mut self, share: Share, sign: i128) {
        self.bytes += sign * i128::from(share.bytes);
        self.files += sign;
    }

    /// The amount after this difference, clamped to the possible range.
    pub fn after(self, before: Amount) -> Amount {
        let sum = |before: u64, difference: i128| {
            let sum = (i128::from(before) + difference).clamp(0, i128::from(u64::MAX));
            sum as u64
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
    /// The change of each tree, by its root.
    pub trees: BTreeMap<Inode, Difference>,
}

impl Ledger {
    /// Replaces an object's published share `before` by `after`.
    pub fn replace(&mut self, before: Option<Share>, after: Option<Share>) {
        if before == after {
            return;
        }
        let shares = before.map(|share| (share, -1));
        for (share, sign) in shares.into_iter().chain(after.map(|share| (share, 1))) {
            self.volume.add(share, sign);
            if let Some(tree) = share.tree {
                self.trees.entry(tree).or_default().add(share, sign);
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
        let share = |tree: u64, bytes| {
            Some(Share {
                tree: Some(Inode(tree)),
                bytes,
            })
        };
        ledger.replace(share(5, 1024), share(6, 512));
        ledger.replace(None, share(5, 512));
        ledger.replace(share(6, 7), share(6, 7));
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
}
