//! Tests of single judges, where a whole volume would hide their work.

use std::collections::BTreeMap;

use forebay_meta::record::{CookieRecord, Kind, NameRecord};
use forebay_types::Inode;

use crate::finding::Finding;
use crate::judge::entries::Entries;
use crate::judge::loops::{Loops, Step};

/// Goes up from the climbers. Returns the findings and the number of parents that were asked for.
fn walk(climbers: &[u64], parents: &[(u64, u64)]) -> (Vec<Finding>, usize) {
    let parents: BTreeMap<u64, u64> = parents.iter().copied().collect();
    let mut loops = Loops::new(climbers.iter().copied().map(Inode).collect());
    let (mut found, mut asked) = (Vec::new(), 0);
    while let Step::Ask(directory) = loops.next() {
        asked += 1;
        assert!(asked < 1000, "no end");
        loops.answer(parents.get(&directory.0).copied().map(Inode), &mut found);
    }
    (found, asked)
}

#[test]
fn a_chain_that_reaches_the_root_or_nothing_is_no_loop() {
    let (found, _) = walk(&[5, 6], &[(5, 9), (9, 3), (3, 1), (6, 77)]);
    assert_eq!(found, []);
}

#[test]
fn a_loop_is_told_once_however_many_climbers_lead_to_it() {
    // 4 -> 7 -> 9 -> 4, and 2 and 3 lead into it.
    let parents = [(4, 7), (7, 9), (9, 4), (2, 3), (3, 9)];
    let (found, _) = walk(&[2, 3, 4, 7], &parents);
    assert_eq!(found.len(), 1, "{found:?}");
    let Finding::Loop { directories, .. } = found[0] else {
        panic!("{found:?}");
    };
    assert_eq!(directories, 3);
}

#[test]
fn what_was_passed_is_not_passed_again() {
    let mut parents: Vec<(u64, u64)> = (100..200).map(|inode| (inode, inode + 1)).collect();
    parents.push((200, 1));
    let climbers: Vec<u64> = (100..200).collect();
    let (found, asked) = walk(&climbers, &parents);
    assert_eq!(found, []);
    assert_eq!(asked, 101);
}

fn cookie(inode: u64, name: &'static str) -> Option<CookieRecord> {
    Some(CookieRecord {
        inode: Inode(inode),
        kind: Kind::Regular,
        name: name.into(),
    })
}

fn named(inode: u64, cookie: u64) -> NameRecord {
    NameRecord {
        inode: Inode(inode),
        cookie,
        kind: Kind::Regular,
    }
}

#[test]
fn entries_of_other_chunks_are_left_to_them() {
    let mut found = Vec::new();
    let mut chunk = Entries::new(Inode(1), 10);
    chunk.cookie(10, cookie(5, "a"));
    chunk.cookie(12, cookie(6, "b"));
    // A cookie that cannot be read belongs to any name that refers to it.
    chunk.cookie(13, None);
    chunk.end_with(13);
    for (name, record) in [
        ("before", named(9, 9)),
        ("a", named(5, 10)),
        ("missing", named(9, 11)),
        ("unknown", named(9, 13)),
        ("behind", named(9, 14)),
    ] {
        chunk.name(&name.into(), &record, &mut found);
    }
    chunk.finish(&mut found);
    let told: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 2, "{told:?}");
    assert!(
        told[0].contains("name missing") && told[0].contains("cookie 11"),
        "{told:?}"
    );
    assert!(
        told[1].contains("name b") && told[1].contains("cookie 12"),
        "{told:?}"
    );
}
