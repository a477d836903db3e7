//! The ranges of a file that a log has written.

/// Sorted ranges that neither adjoin nor overlap, as offsets: the first byte, and one past the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    pub(super) fn add(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let first = self.0.partition_point(|range| range.1 < start);
        let behind = self.0.partition_point(|range| range.0 <= end);
        let merged = self
            .0
            .get(first..behind)
            .unwrap_or_default()
            .iter()
            .fold((start, end), |all, one| {
                (all.0.min(one.0), all.1.max(one.1))
            });
        self.0.splice(first..behind, [merged]);
    }

    /// Removes everything at or behind `end`.
    pub(super) fn truncate(&mut self, end: u64) {
        self.0.retain_mut(|range| {
            range.1 = range.1.min(end);
            range.0 < range.1
        });
    }

    pub(super) fn into_vec(self) -> Vec<(u64, u64)> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_hold_what_a_bitmap_holds(
            steps in proptest::collection::vec((any::<bool>(), 0_u64..64, 0_u64..64), 0..40)
        ) {
            let (mut ranges, mut bits) = (Ranges::default(), [false; 64]);
            for (adds, a, b) in steps {
                if adds {
                    ranges.add(a, b);
                    (a..b).for_each(|at| bits[at as usize] = true);
                } else {
                    ranges.truncate(a);
                    (a..64).for_each(|at| bits[at as usize] = false);
                }
            }
            let found = ranges.into_vec();
            let mut held = [false; 64];
            for (start, end) in &found {
                prop_assert!(start < end);
                (*start..*end).for_each(|at| held[at as usize] = true);
            }
            prop_assert_eq!(held, bits);
            prop_assert!(found.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }
}
