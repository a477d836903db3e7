//! Which directories were moved to other directories, so that a walk over ancestors knows whether its result still holds.

use std::collections::VecDeque;

use forebay_types::Inode;

/// How many moves are remembered: a walk during which there are more cannot be checked.
const MAX_REMEMBERED: usize = 1024;

/// The latest directories that were moved from one directory to another.
#[derive(Default)]
pub(crate) struct Moves {
    /// Number of moves since the start.
    pub(crate) count: u64,
    latest: VecDeque<Inode>,
}

impl Moves {
    /// The directory is moved.
    pub(crate) fn add(&mut self, directory: Inode) {
        if self.latest.len() == MAX_REMEMBERED {
            self.latest.pop_front();
        }
        self.latest.push_back(directory);
        self.count += 1;
    }

    /// The directories moved after the first `count` moves; `None` if those are no longer remembered.
    fn since(&self, count: u64) -> Option<impl Iterator<Item = &Inode>> {
        let since = usize::try_from(self.count - count).ok()?;
        let known = self.latest.len().checked_sub(since)?;
        Some(self.latest.range(known..))
    }
}

/// A directory and all directories above it, as a walk found them one after the other.
pub(crate) struct Ancestors {
    /// In the order of their numbers.
    pub(crate) inodes: Vec<Inode>,
    /// Number of moves before the walk began.
    pub(crate) moves: u64,
}

impl Ancestors {
    /// Whether the ancestors are still the same. The result stays valid while the moves are locked.
    pub(crate) fn hold(&self, moves: &Moves) -> bool {
        moves
            .since(self.moves)
            .is_some_and(|mut moved| !moved.any(|inode| self.contain(*inode)))
    }

    pub(crate) fn contain(&self, inode: Inode) -> bool {
        self.inodes.binary_search(&inode).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(inodes: &[u64], moves: &Moves) -> Ancestors {
        let mut inodes: Vec<_> = inodes.iter().copied().map(Inode).collect();
        inodes.sort_unstable();
        Ancestors {
            inodes,
            moves: moves.count,
        }
    }

    #[test]
    fn ancestors_hold_until_one_of_them_is_moved() {
        let mut moves = Moves::default();
        moves.add(Inode(7));
        let above = found(&[9, 7, 1], &moves);
        assert!(above.hold(&moves), "it was moved before the walk");
        assert!(above.contain(Inode(7)) && !above.contain(Inode(8)));
        moves.add(Inode(8));
        assert!(above.hold(&moves), "that one lies elsewhere");
        moves.add(Inode(9));
        assert!(!above.hold(&moves));
        assert!(found(&[9, 7, 1], &moves).hold(&moves), "walked again");
    }

    #[test]
    fn ancestors_do_not_hold_when_more_was_moved_than_is_remembered() {
        let mut moves = Moves::default();
        let above = found(&[9, 1], &moves);
        for inode in 0..MAX_REMEMBERED as u64 {
            assert!(above.hold(&moves), "after {inode} moves");
            moves.add(Inode(100 + inode));
        }
        assert!(above.hold(&moves));
        moves.add(Inode(5000));
        assert!(!above.hold(&moves));
        assert_eq!(moves.latest.len(), MAX_REMEMBERED);
    }
}
