//! Tests of [`LogMap`] against an LSN for every byte.

use super::*;
use proptest::prelude::*;

/// The extents: their ranges and LSNs.
fn listed(map: &LogMap) -> Vec<(u64, u64, u64)> {
    let extents = map.0.iter();
    extents
        .map(|extent| (extent.start(), extent.end(), extent.lsn.0))
        .collect()
}

fn note(map: &mut LogMap, start: u64, end: u64, lsn: u64) {
    map.note(ByteRange::new(start, end), Some(Lsn(lsn)));
}

#[test]
fn a_later_write_replaces_and_splits() {
    let mut map = LogMap::default();
    note(&mut map, 0, 100, 1);
    note(&mut map, 40, 60, 2);
    assert_eq!(listed(&map), [(0, 40, 1), (40, 60, 2), (60, 100, 1)]);
    note(&mut map, 30, 70, 3);
    assert_eq!(listed(&map), [(0, 30, 1), (30, 70, 3), (70, 100, 1)]);
    note(&mut map, 0, 100, 4);
    assert_eq!(listed(&map), [(0, 100, 4)]);
}

#[test]
fn a_write_without_a_record_carves() {
    let mut map = LogMap::default();
    note(&mut map, 0, 100, 1);
    map.note(ByteRange::new(10, 20), None);
    assert_eq!(listed(&map), [(0, 10, 1), (20, 100, 1)]);
    map.carve(ByteRange::new(50, BLOCK_SIZE));
    assert_eq!(listed(&map), [(0, 10, 1), (20, 50, 1)]);
    map.carve(ByteRange::new(0, BLOCK_SIZE));
    assert_eq!(listed(&map), []);
}

#[test]
fn a_full_map_notes_no_more_and_keeps_nothing_older() {
    let mut map = LogMap::default();
    let mut at = 0;
    while map.0.len() < LogMap::MAX_EXTENTS - 1 {
        note(&mut map, at, at + 4, at);
        at += 8;
    }
    note(&mut map, BLOCK_SIZE - 1, BLOCK_SIZE, 7);
    assert_eq!(map.0.len(), LogMap::MAX_EXTENTS - 1, "it is full");
    // Neither the new record nor the ones that had these bytes before.
    note(&mut map, 8, 20, 9);
    assert_eq!(listed(&map)[..3], [(0, 4, 0), (24, 28, 24), (32, 36, 32)]);
    note(&mut map, 8, 20, 9);
    assert_eq!(listed(&map)[..2], [(0, 4, 0), (8, 20, 9)]);
}

/// Ranges that overlap and touch often.
fn range() -> impl Strategy<Value = ByteRange> {
    (0..SPACE, 0..SPACE).prop_map(|(a, b)| ByteRange::new(a.min(b), a.max(b)))
}

const SPACE: u64 = 64;

proptest! {
    #[test]
    fn agrees_with_an_lsn_for_every_byte(
        steps in prop::collection::vec((range(), prop::option::weighted(0.8, 1..1000u64)), 1..60),
    ) {
        let mut map = LogMap::default();
        let mut model = [None; SPACE as usize];
        for (range, record) in steps {
            map.note(range, record.map(Lsn));
            model[std::ops::Range::<usize>::from(range)].fill(record);
            let mut found = [None; SPACE as usize];
            let mut end = 0;
            for extent in &map.0 {
                prop_assert!(end <= extent.start() && extent.start() < extent.end());
                end = extent.end();
                let range = std::ops::Range::<usize>::from(extent.range());
                found[range].fill(Some(extent.lsn.0));
            }
            prop_assert_eq!(found, model);
        }
    }
}
