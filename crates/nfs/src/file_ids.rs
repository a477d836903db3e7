//! How attributes name objects: by `fsid` and `fileid` (RFC 1813, section 2.5).
//!
//! Programs such as `rsync -H`, `du` and `tar` take two names with the same numbers for one file. So a file as a snapshot has it
//! needs other numbers than the file itself, and than the same file in another snapshot. Each snapshot has an fsid of its own:
//! Linux clients show it as a file system of its own, so that `find -xdev` and `du -x` do not enter it. Its file ids
//! differ as well, for clients that do not look at the fsid.
//!
//! A file in the trash has the number that it had, and gets again if it is brought back: it is in one place at a time, so the number
//! never names two objects, and `mv` out of the trash is a move within a file system.

use forebay_types::Inode;

use crate::handle::Tree;

/// The bit that all file ids outside the live file system have: no inode has so high a number.
const PAST: u64 = 1 << 62;
/// The bit of the file ids of the directories `.trash`.
const TRASH: u64 = 1 << 61;

/// The numbers of the objects of one tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIds {
    /// Of the file system.
    pub fsid: u64,
    /// Distinguishes the file ids from those of other trees.
    mask: u64,
}

impl FileIds {
    /// `volume` is the fsid of the live file system.
    #[inline]
    pub(crate) fn new(volume: u64, tree: Tree) -> FileIds {
        match tree {
            Tree::Live => FileIds {
                fsid: volume,
                mask: 0,
            },
            _ => FileIds::elsewhere(volume, tree),
        }
    }

    /// The same, kept out of the way of calls in the live file system.
    #[cold]
    fn elsewhere(volume: u64, tree: Tree) -> FileIds {
        match tree {
            Tree::Live | Tree::Removed => FileIds {
                fsid: volume,
                mask: 0,
            },
            // A directory of the live file system, with a number that no other one has.
            Tree::List => FileIds {
                fsid: volume,
                mask: PAST,
            },
            Tree::Trash(_) => FileIds {
                fsid: volume,
                mask: TRASH,
            },
            Tree::Snapshot(id) => FileIds {
                fsid: volume ^ spread(id.0),
                // Below the sign of a signed number.
                mask: PAST | (spread(!id.0) & (PAST - 1)),
            },
        }
    }

    /// The file id of an object: another one for each.
    pub fn fileid(self, inode: Inode) -> u64 {
        inode.0 ^ self.mask
    }
}

/// Spreads neighbouring numbers over all numbers; equal ones for no two, and 0 for 0 only (the finalizer of SplitMix64).
fn spread(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use forebay_types::SnapshotId;

    use super::*;

    #[test]
    fn no_two_trees_name_an_object_with_the_same_numbers() {
        let snapshots = (1..=2000).map(|id| Tree::Snapshot(SnapshotId(id)));
        let trees = [Tree::Live, Tree::List, Tree::Trash(0)]
            .into_iter()
            .chain(snapshots);
        let (mut seen, mut fsids) = (HashSet::new(), HashSet::new());
        for tree in trees {
            let ids = FileIds::new(77, tree);
            for inode in [1, 2, 3, 1 << 40] {
                let fileid = ids.fileid(Inode(inode));
                assert!(seen.insert((ids.fsid, fileid)), "{tree:?} {inode}");
                assert!(fileid < 1 << 63);
                assert_eq!(fileid == inode, tree == Tree::Live);
            }
            fsids.insert(ids.fsid);
        }
        assert_eq!(fsids.len(), 2001, "the live one, and one for each snapshot");
    }
}
