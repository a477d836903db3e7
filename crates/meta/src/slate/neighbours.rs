//! Which merged runs become one when there are too many of them.
//!
//! SlateDB merges runs of similar size, which costs each entry a merge for each fourfold growth. Runs that are not similar to
//! their neighbours stay, and each is one more place where a key is looked for. SlateDB can bound their number, but
//! it takes the newest ones for that, whatever their sizes: a large one among these is written again for each few new
//! tables. Here the neighbours are taken that have the fewest bytes together.

use std::ops::Range;

/// The runs that should become one, by their places in `sizes`, which are bytes from the newest run to the oldest. None while
/// there are `most` or fewer.
pub(super) fn cheapest(sizes: &[u64], most: usize) -> Option<Range<usize>> {
    let together = sizes.len().checked_sub(most).filter(|more| *more > 0)? + 1;
    let windows = sizes.windows(together).enumerate();
    let cost = |window: &[u64]| window.iter().map(|size| u128::from(*size)).sum::<u128>();
    let (first, _) = windows.min_by_key(|(_, window)| cost(window))?;
    Some(first..first + together)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_run_is_not_written_again_for_each_small_one() {
        let sizes = [600, 63_276, 112, 564, 669, 1403, 2494, 18_630, 10_264];
        assert_eq!(cheapest(&sizes, 8), Some(2..4));
        assert_eq!(cheapest(&sizes[..8], 8), None);
        assert_eq!(cheapest(&[], 8), None);
    }

    #[test]
    fn as_many_become_one_as_there_are_too_many() {
        assert_eq!(cheapest(&[5, 1, 1, 1, 9], 3), Some(1..4));
        assert_eq!(cheapest(&[5, 1], 1), Some(0..2));
        let largest = [u64::MAX; 3];
        assert_eq!(cheapest(&largest, 2), Some(0..2));
    }

    /// Merges at least four neighbours that are alike, as SlateDB does; false if there are none.
    fn merge_alike(sizes: &mut Vec<u64>, written: &mut u64) -> bool {
        for first in 0..sizes.len() {
            let mut least = u64::MAX;
            let alike = sizes[first..].iter().take_while(|size| {
                let fits = **size <= least.saturating_mul(4);
                least = least.min(**size);
                fits
            });
            let count = alike.count().min(16);
            if count >= 4 {
                merge(sizes, first..first + count, written);
                return true;
            }
        }
        false
    }

    fn merge(sizes: &mut Vec<u64>, range: Range<usize>, written: &mut u64) {
        let merged: u64 = sizes[range.clone()].iter().sum();
        *written += merged;
        sizes.splice(range, [merged]);
    }

    /// New runs come without end: how much is written for all of them together. With the newest ones it is 1843 times.
    #[test]
    fn what_is_written_again_stays_a_small_multiple_of_what_is_new() {
        const NEW: u64 = 600;
        const RUNS: u64 = 4000;
        let (mut sizes, mut written) = (Vec::new(), 0);
        for _ in 0..RUNS {
            sizes.insert(0, NEW);
            loop {
                if merge_alike(&mut sizes, &mut written) {
                    continue;
                }
                let Some(range) = cheapest(&sizes, 8) else {
                    break;
                };
                merge(&mut sizes, range, &mut written);
            }
        }
        let times = written / (NEW * RUNS);
        assert!(times < 15, "{times} times");
    }
}
