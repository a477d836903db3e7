//! Names that the bucket cannot have, known without asking it.
//!
//! Who makes a file is asked first whether its name is free, and the overlay knows of unpublished names only: for all
//! others the metadata have to be asked, table by table, to learn that there is nothing. Of a directory that this
//! gateway has made itself it has seen every name. So a hash of each is kept beside the directory, as long as that
//! stays in memory, and a name whose hash is not among them needs no question.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Names of all directories together that are kept: some 20 MiB, and half as much again while a table grows.
const MAX_NAMES: usize = 1 << 20;

/// Names of one directory that are kept, so that one in which names come and go does not take the room of all.
const MAX_OF_ONE: usize = 1 << 17;

/// What all directories share: how many names may still be kept, and a key for their hashes that nobody outside knows.
pub(crate) struct Room {
    left: AtomicUsize,
    hasher: RandomState,
}

impl Room {
    /// For as many names as go with `bytes` of memory for unpublished ones: a million with 64 MiB, and never more.
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
    /// Of a directory that was just made.
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

    /// The directory gets this name. Gives false if there is no room for all of its names: the directory's names are not all
    /// known any more then, and what is known of them has to go.
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
            // Not counted, so not to be given back.
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
