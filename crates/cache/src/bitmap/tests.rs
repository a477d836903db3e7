//! Tests of [`RangeBitmap`] against a set of single bytes.

use super::*;
use proptest::prelude::*;

fn bitmap(ranges: &[(u64, u64)]) -> RangeBitmap {
    let mut bitmap = RangeBitmap::new();
    for (start, end) in ranges {
        bitmap.set(ByteRange::new(*start, *end));
    }
    bitmap
}

fn listed(ranges: impl Iterator<Item = ByteRange>) -> Vec<(u64, u64)> {
    ranges.map(|range| (range.start, range.end)).collect()
}

#[test]
fn adjacent_ranges_merge_across_granules_and_words() {
    let bitmap = bitmap(&[(0, 5000), (5000, 8192), (8192, 64 * 4096 + 1)]);
    assert_eq!(listed(bitmap.ranges()), [(0, 64 * 4096 + 1)]);
    assert_eq!(bitmap.len(), 64 * 4096 + 1);
}

#[test]
fn a_granule_that_fills_up_costs_no_memory_but_the_list() {
    let mut bitmap = bitmap(&[(0, 10), (20, 30)]);
    assert!(bitmap.heap_bytes() >= 512, "two runs need a bit a byte");
    bitmap.set(ByteRange::new(0, 4096));
    assert!(bitmap.partial.is_empty());
    assert_eq!(bitmap.dense, 0);
    assert!(bitmap.contains(ByteRange::new(0, 4096)));
}

#[test]
fn a_growing_tail_stays_a_run() {
    let mut bitmap = RangeBitmap::new();
    for at in 0..4000 {
        bitmap.set(ByteRange::new(at, at + 1));
    }
    assert_eq!(bitmap.dense, 0);
    assert_eq!(listed(bitmap.ranges()), [(0, 4000)]);
}

#[test]
fn ranges_beyond_the_block_are_cut_off_and_never_contained() {
    let mut bitmap = RangeBitmap::new();
    bitmap.set(ByteRange::new(BLOCK_SIZE - 1, BLOCK_SIZE + 4096));
    bitmap.set(ByteRange::new(BLOCK_SIZE, u64::MAX));
    assert_eq!(bitmap.len(), 1);
    assert!(!bitmap.contains(ByteRange::new(BLOCK_SIZE - 1, BLOCK_SIZE + 1)));
    bitmap.clear(ByteRange::new(0, u64::MAX));
    assert!(bitmap.is_empty());
}

#[test]
fn union_and_subtract_are_exact_at_ragged_edges() {
    let mut sum = bitmap(&[(10, 20), (4096, 8192)]);
    let other = bitmap(&[(15, 5000), (9000, 9001)]);
    sum.union(&other);
    assert_eq!(listed(sum.ranges()), [(10, 8192), (9000, 9001)]);
    sum.subtract(&other);
    assert_eq!(listed(sum.ranges()), [(10, 15), (5000, 8192)]);
}

/// Ranges that meet, touch and cross borders of granules often: edges are drawn near them.
fn range() -> impl Strategy<Value = ByteRange> {
    let edge = (0u64..8, 0u64..4096, any::<bool>())
        .prop_map(|(granule, byte, ragged)| granule * 4096 + if ragged { byte } else { 0 });
    (edge.clone(), edge).prop_map(|(a, b)| ByteRange::new(a.min(b), a.max(b)))
}

const SPACE: usize = 8 * 4096;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn agrees_with_a_flag_a_byte(
        steps in prop::collection::vec((any::<bool>(), range()), 1..24),
        window in range(),
    ) {
        let mut bitmap = RangeBitmap::new();
        let mut model = vec![false; SPACE];
        for (set, range) in steps {
            if set { bitmap.set(range) } else { bitmap.clear(range) }
            model[std::ops::Range::<usize>::from(range)].fill(set);
            prop_assert_eq!(bitmap.len(), model.iter().filter(|set| **set).count() as u64);
            let inside = &model[std::ops::Range::<usize>::from(window)];
            prop_assert_eq!(bitmap.contains(window), inside.iter().all(|set| *set));
            for (wanted, ranges) in [
                (true, listed(bitmap.set_ranges(window))),
                (false, listed(bitmap.unset_ranges(window))),
            ] {
                let mut expected = Vec::new();
                let mut at = window.start;
                for run in inside.chunk_by(|a, b| a == b) {
                    let end = at + run.len() as u64;
                    if run[0] == wanted {
                        expected.push((at, end));
                    }
                    at = end;
                }
                prop_assert_eq!(ranges, expected);
            }
        }
        for (index, (_, granule)) in bitmap.partial.iter().enumerate() {
            prop_assert!(granule.count() > 0 && granule.count() < GRANULE, "entry {}", index);
        }
        prop_assert_eq!(bitmap.dense, bitmap.partial.iter().filter(|(_, g)| g.is_dense()).count());
    }
}

/// The bytes that are set.
fn flags(bitmap: &RangeBitmap) -> Vec<bool> {
    let mut flags = vec![false; SPACE];
    let ranges = bitmap.ranges().map(std::ops::Range::<usize>::from);
    ranges.for_each(|range| flags[range].fill(true));
    flags
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn two_sets_agree_with_two_flags_a_byte(
        own in prop::collection::vec((any::<bool>(), range()), 1..12),
        other in prop::collection::vec((any::<bool>(), range()), 1..12),
    ) {
        let [own, other] = [own, other].map(|steps| {
            let mut bitmap = RangeBitmap::new();
            for (set, range) in steps {
                if set { bitmap.set(range) } else { bitmap.clear(range) }
            }
            bitmap
        });
        let both = flags(&own).into_iter().zip(flags(&other));
        let both: Vec<bool> = both.map(|(own, other)| own && other).collect();
        let len = both.iter().filter(|set| **set).count() as u64;
        prop_assert_eq!(own.common_len(&other), len);
        prop_assert_eq!(other.common_len(&own), len);
        let touched = other.ranges().any(|range| own.touches(range));
        prop_assert_eq!(touched, len > 0);
        let mut common = own.clone();
        common.intersect(&other);
        prop_assert_eq!(common.len(), len);
        prop_assert_eq!(flags(&common), both);
    }
}
