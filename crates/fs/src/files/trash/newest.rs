//! The newest of many objects in the trash, some at a time: memory does not grow with the trash.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use forebay_types::Inode;
use forebay_vfs::Timestamp;

/// When an object was removed, and its number: the same object may come back and be removed again.
pub(super) type Removal = (Timestamp, Inode);

/// Looks several times at the same objects, and takes the newest that it has not taken before.
pub(super) struct Newest {
    limit: usize,
    /// Everything from there on was taken.
    taken: Option<Removal>,
    /// The oldest is at the top.
    found: BinaryHeap<Reverse<Removal>>,
    is_all: bool,
}

impl Newest {
    /// Takes `limit` objects at a time.
    pub(super) fn new(limit: usize) -> Newest {
        Newest {
            limit,
            taken: None,
            found: BinaryHeap::new(),
            is_all: false,
        }
    }

    /// Begins a look at all objects.
    pub(super) fn begin(&mut self) {
        self.found.clear();
        self.is_all = true;
    }

    /// The look comes upon this one.
    pub(super) fn add(&mut self, removal: Removal) {
        if self.taken.is_some_and(|taken| removal >= taken) {
            return;
        }
        self.found.push(Reverse(removal));
        if self.found.len() > self.limit {
            self.found.pop();
            self.is_all = false;
        }
    }

    /// The newest of those that were not taken before, the newest first.
    pub(super) fn take(&mut self) -> Vec<Removal> {
        self.taken = self
            .found
            .peek()
            .map(|Reverse(oldest)| *oldest)
            .or(self.taken);
        let sorted = std::mem::take(&mut self.found).into_sorted_vec();
        sorted.into_iter().map(|Reverse(removal)| removal).collect()
    }

    /// Nothing else is wanted.
    pub(super) fn no_more(&mut self) {
        self.found.clear();
        self.is_all = true;
    }

    /// Whether the last look has found no more than was taken.
    pub(super) fn is_all(&self) -> bool {
        self.is_all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removal(seconds: i64, inode: u64) -> Removal {
        let removed = Timestamp { seconds, nanos: 0 };
        (removed, Inode(inode))
    }

    #[test]
    fn all_are_taken_once_the_newest_first() {
        // Several have the same time.
        let all: Vec<Removal> = (0..100)
            .map(|n: u32| removal(i64::from(n * 37 % 50), n.into()))
            .collect();
        let mut expected = all.clone();
        expected.sort_by_key(|removal| Reverse(*removal));
        for limit in [1, 7, 50, 99, 100, 1000] {
            let mut newest = Newest::new(limit);
            let (mut taken, mut looks) = (Vec::new(), 0);
            while !newest.is_all() {
                newest.begin();
                all.iter().for_each(|removal| newest.add(*removal));
                taken.extend(newest.take());
                looks += 1;
            }
            assert_eq!(taken, expected);
            assert_eq!(looks, all.len().div_ceil(limit));
        }
    }

    #[test]
    fn nothing_is_all_after_one_look() {
        let mut newest = Newest::new(3);
        newest.begin();
        assert_eq!((newest.take(), newest.is_all()), (Vec::new(), true));
        newest.begin();
        (0..9).for_each(|n| newest.add(removal(n, 1)));
        assert!(!newest.is_all());
        newest.no_more();
        assert!(newest.is_all());
    }
}
