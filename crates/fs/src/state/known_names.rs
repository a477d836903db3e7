//! Hashes of a directory's names, which prove without a look into the bucket that a name is free.
//!
//! A CREATE first checks whether the name is free. The overlay has only unpublished names; for all others the
//! metadata must be searched, table by table, to find nothing. If this gateway itself made the directory, it has seen
//! every name. So it keeps a hash of each name beside the directory, as long as the directory stays in memory, and a
//! name whose hash is not among them needs no search.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many names of all directories together are kept: some 20 MiB, and half as much again while a table grows.
const MAX_NAMES: usize = 1 << 20;

/// How many names of one directory are kept, so that one in which names come and go does not take the room of all.
const MAX_OF_ONE: usize = 1 << 17;

/// The part that all directories share: how many names may still be kept, and a secret key for their hashes.
pub(crate) struct Room {
    left: AtomicUsize,
    hasher: RandomState,
}

impl Room {
    /// Room for the number of names that goes with `bytes` of memory for unpublished names: a million with 64 MiB,
    /// and never more.
    pub(crate) fn beside(bytes: u64) -> Arc<Room> {
        Room::for_names(MAX_NAMES.min((bytes / 64) as usize))
    }

    fn for_names(names: usize) -> Arc<Room> {
        Arc::new(Room {
            left: AtomicUsize::new(names),
            hasher: RandomState::new(),
        })
    }
}

/// All names that a directory has had since it was made, removed ones too.
pub(crate) struct KnownNames {
    hashes: HashSet<u64>,
    room: Arc<Room>,
}

impl KnownNames {
    /// The names of a directory that was just made.
    pub(crate) fn none_yet(room: &Arc<Room>) -> KnownNames {
        KnownNames {
            hashes: HashSet::new(),
            room: room.clone(),
        }
    }

    /// Whether the directory may have, or have had, this name.
    pub(crate) fn may_have(&self, name: &[u8]) -> bool {
        self.hashes.contains(&self.room.hasher.hash_one(name))
    }

    /// Adds a name of the directory. Returns false if there is no room for it: then the directory's names are no
    /// longer all known, and the caller must drop them.
    #[must_use]
    pub(crate) fn add(&mut self, name: &[u8]) -> bool {
        if !self.hashes.insert(self.room.hasher.hash_one(name)) {
            return true;
        }
        let one_less = |left: usize| left.checked_sub(1);
        let taken = self
            .room
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        if taken.is_err() {
            // Not counted, so it must not be given back.
            self.hashes.remove(&self.room.hasher.hash_one(name));
            return false;
        }
        self.hashes.len() <= MAX_OF_ONE
    }
}

impl Drop for KnownNames {
    fn drop(&mut self) {
        self.room
            .left
            .fetch_add(self.hashes.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_that_was_added_may_be_there_and_no_other() {
        let mut names = KnownNames::none_yet(&Room::for_names(MAX_NAMES));
        for i in 0..1000_u32 {
            assert!(!names.may_have(&i.to_le_bytes()));
            assert!(names.add(&i.to_le_bytes()));
        }
        assert!((0..1000_u32).all(|i| names.may_have(&i.to_le_bytes())));
        assert!(!names.may_have(b""));
    }

    #[test]
    fn room_is_shared_and_comes_back() {
        let room = Room::for_names(3);
        let mut one = KnownNames::none_yet(&room);
        let mut other = KnownNames::none_yet(&room);
        assert!(one.add(b"a") && one.add(b"a") && one.add(b"b"));
        assert!(other.add(b"a"));
        assert!(!other.add(b"b"), "a fourth one");
        assert!(other.add(b"a"), "is there already");
        drop(other);
        assert!(one.add(b"c"));
        drop(one);
        assert_eq!(room.left.load(Ordering::Relaxed), 3);
    }
}
