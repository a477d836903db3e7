//! Finds the pack that has a frame of a given content, as far as that is known and worth its memory.

use std::collections::HashMap;

use forebay_types::PackId;

/// The most frames of a generation. Two of them take 72 MB at most, and know 900 GB of data in frames of 256 KiB.
const GENERATION: usize = 1_800_000;

/// Names a pack for the short fingerprint of a frame. A wrong answer costs a look at that pack and a missing one an
/// upload, so nothing must be kept forever: when there is no more room, the entries that were not asked for longest
/// are dropped.
#[derive(Default)]
pub(super) struct Filter {
    young: HashMap<u64, PackId>,
    old: HashMap<u64, PackId>,
}

impl Filter {
    /// The pack that was inserted last.
    pub(super) fn get(&mut self, short: u64) -> Option<PackId> {
        if let Some(pack) = self.young.get(&short) {
            return Some(*pack);
        }
        let pack = self.old.remove(&short)?;
        self.insert(short, pack);
        Some(pack)
    }

    pub(super) fn insert(&mut self, short: u64, pack: PackId) {
        self.insert_within(short, pack, GENERATION);
    }

    fn insert_within(&mut self, short: u64, pack: PackId, generation: usize) {
        if self.young.len() >= generation {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(short, pack);
    }

    /// Forgets that this pack may have the frame.
    pub(super) fn forget(&mut self, short: u64, pack: PackId) {
        for generation in [&mut self.young, &mut self.old] {
            if generation.get(&short) == Some(&pack) {
                generation.remove(&short);
            }
        }
    }

    /// Number of known frames; some count twice.
    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stays_and_what_is_not_makes_room() {
        let mut filter = Filter::default();
        filter.insert_within(1, PackId(10), 100);
        for short in 2..=100 {
            filter.insert_within(short, PackId(20), 100);
        }
        assert_eq!(filter.get(1), Some(PackId(10)));
        filter.insert_within(101, PackId(30), 100);
        assert_eq!(filter.old.len(), 100);
        assert_eq!(filter.get(1), Some(PackId(10)), "it is young again");
        for short in 102..=200 {
            filter.insert_within(short, PackId(30), 100);
        }
        assert!(filter.len() <= 200);
        assert_eq!(filter.get(1), Some(PackId(10)));
        assert_eq!(filter.get(2), None);
    }

    #[test]
    fn only_the_pack_that_was_wrong_is_forgotten() {
        let mut filter = Filter::default();
        filter.insert(7, PackId(1));
        filter.insert(7, PackId(2));
        filter.forget(7, PackId(1));
        assert_eq!(filter.get(7), Some(PackId(2)));
        filter.forget(7, PackId(2));
        assert_eq!(filter.get(7), None);
    }
}
