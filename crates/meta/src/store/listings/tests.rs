//! Listings against a model: an ordered map that takes the same commits.

use std::collections::BTreeMap;

use forebay_types::Inode;
use proptest::prelude::*;

use super::*;
use crate::key::Key;

const DIRECTORIES: u64 = 3;

fn entry(directory: u64, cookie: u64) -> Bytes {
    Key::Cookie(Inode(directory), cookie).encode()
}

/// The result that the store would return.
fn truth(map: &BTreeMap<Bytes, Bytes>, range: &KeyRange, limit: usize) -> Vec<(Bytes, Bytes)> {
    let all = map.iter().filter(|(key, _)| range.contains(key));
    let all = all.map(|(key, value)| (key.clone(), value.clone()));
    all.take(limit).collect()
}

#[derive(Clone, Debug)]
enum Step {
    /// One commit that puts (with a record of this length) or deletes entries of directories; whether its success is
    /// known.
    Commit(Vec<(u64, u64, Option<usize>)>, bool),
    /// A listing of a directory: the cookie where it starts, the maximum number of entries, and a cookie where it
    /// stops, as an unpublished entry ends a scan.
    List(u64, u64, usize, Option<u64>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let change = (0..DIRECTORIES, 0..40_u64, prop::option::of(0..30_usize));
    let commit = (
        prop::collection::vec(change, 0..6),
        prop::bool::weighted(0.8),
    );
    let list = (
        0..DIRECTORIES,
        0..40_u64,
        1..20_usize,
        prop::option::of(0..40_u64),
    );
    let from_start = (0..DIRECTORIES, 1..50_usize);
    prop::collection::vec(
        prop_oneof![
            commit.prop_map(|(changes, is_done)| Step::Commit(changes, is_done)),
            list.prop_map(|(directory, from, limit, to)| Step::List(directory, from, limit, to)),
            from_start.prop_map(|(directory, limit)| Step::List(directory, 2, limit, None)),
        ],
        0..120,
    )
}

proptest! {
    #[test]
    fn what_is_given_is_what_the_store_would_give(steps in steps()) {
        let (mut map, mut listings) = (BTreeMap::new(), Listings::default());
        for step in steps {
            match step {
                Step::Commit(changes, is_done) => {
                    for (directory, cookie, value) in changes {
                        let key = entry(directory, cookie);
                        let change = match value {
                            Some(len) => Entry::Value(vec![len as u8; len].into()),
                            None => Entry::Deleted,
                        };
                        match &change {
                            Entry::Value(value) => drop(map.insert(key.clone(), value.clone())),
                            Entry::Deleted => drop(map.remove(&key)),
                        }
                        match is_done {
                            true => listings.change(&key, &change),
                            false => listings.forget(&key),
                        }
                    }
                }
                Step::List(directory, from, limit, to) => {
                    let mut range = KeyRange::cookies_after(Inode(directory), from);
                    if let Some(to) = to {
                        range = range.up_to(&entry(directory, to));
                    }
                    if range.is_empty() {
                        continue;
                    }
                    let wanted = truth(&map, &range, limit);
                    if let Some(known) = listings.scan(&range, limit) {
                        prop_assert_eq!(known, wanted);
                    } else {
                        listings.keep(&range, limit, &wanted);
                    }
                }
            }
            let held = listings.young.values().chain(listings.old.values());
            prop_assert_eq!(held.map(|stretch| stretch.bytes).sum::<usize>(), listings.bytes());
        }
    }
}

fn whole(directory: u64) -> KeyRange {
    KeyRange::cookies_after(Inode(directory), 2)
}

fn entries(directory: u64, count: u64) -> Vec<(Bytes, Bytes)> {
    let entries = (3..3 + count).map(|cookie| (entry(directory, cookie), Bytes::from("a name")));
    entries.collect()
}

#[test]
fn a_directory_that_is_listed_piece_by_piece_is_known_as_a_whole() {
    let mut listings = Listings::default();
    let all = entries(1, 25);
    let mut from = 2;
    for piece in all.chunks(10) {
        let range = KeyRange::cookies_after(Inode(1), from);
        assert_eq!(listings.scan(&range, 10), None);
        listings.keep(&range, 10, piece);
        from += 10;
    }
    assert_eq!(listings.scan(&whole(1), 1000), Some(all.clone()));
    let end = KeyRange::cookies_after(Inode(1), 27);
    assert_eq!(listings.scan(&end, 10), Some(Vec::new()));
    // A new entry at the end, and one that is deleted.
    listings.change(&entry(1, 99), &Entry::Value("new".into()));
    listings.change(&entry(1, 3), &Entry::Deleted);
    let found = listings.scan(&whole(1), 1000).unwrap();
    assert_eq!(found[..24], all[1..]);
    assert_eq!(found[24], (entry(1, 99), Bytes::from("new")));
    listings.forget(&entry(1, 50));
    assert_eq!(listings.scan(&whole(1), 1000), None);
    assert_eq!(listings.bytes(), 0);
}

#[test]
fn what_is_kept_is_bounded_and_what_is_listed_every_day_stays() {
    let mut listings = Listings::default();
    let root = entries(1, 100);
    listings.keep(&whole(1), 1000, &root);
    for directory in 2..1000 {
        listings.keep(&whole(directory), 1000, &entries(directory, 100));
        assert_eq!(listings.scan(&whole(1), 1000).as_ref(), Some(&root));
        assert!(listings.bytes() <= MAX_BYTES);
    }
    assert!(listings.bytes() > MAX_BYTES / 4);
    assert_eq!(listings.scan(&whole(2), 1000), None);
    // Of a directory that is too large, the first entries are kept as far as there is room.
    let large = entries(5000, 20_000);
    for piece in large.chunks(1000) {
        let first = Key::decode(&piece[0].0).unwrap();
        let Key::Cookie(directory, cookie) = first else {
            unreachable!("they are cookies");
        };
        let range = KeyRange::cookies_after(directory, cookie - 1);
        listings.keep(&range, 1000, piece);
    }
    assert_eq!(
        listings.scan(&whole(5000), 1000).as_deref(),
        Some(&large[..1000])
    );
    assert_eq!(listings.scan(&whole(5000), 20_000), None);
    assert!(listings.bytes() <= MAX_BYTES);
}

#[test]
fn what_is_no_listing_of_one_directory_is_left_to_the_store() {
    for range in [
        KeyRange::all(),
        KeyRange::cookies_from(Inode(3)),
        KeyRange::inodes_from(Inode(3)),
        KeyRange {
            start: entry(3, 4),
            end: entry(5, 4),
        },
        KeyRange {
            start: entry(3, 4),
            end: Bytes::new(),
        },
    ] {
        assert!(!Listings::is_listing(&range), "{range:?}");
    }
    assert!(Listings::is_listing(&whole(3)));
    assert!(Listings::is_listing(&whole(3).up_to(&entry(3, 9))));
}
