//! Ranges of cookies of a directory that no longer stand for a name.
//!
//! A removed name leaves a deletion in the metadata, under its cookie, until tables are merged; a listing that
//! reaches it walks over it. So each listing of a directory in which files come and go walks over all removed ones.
//! But a cookie that has lost its name never gets another one, so an empty range of cookies stays empty: the longest
//! ranges are kept in memory beside the directory, and listings skip them.

/// How many ranges are kept for one directory: the longest ones.
const MAX_STRETCHES: usize = 8;

/// Ranges of fewer cookies are not worth skipping.
pub(crate) const SHORT: u64 = 64;

/// The longest stretches of cookies without names.
#[derive(Default)]
pub(crate) struct PassedCookies {
    /// First and last cookie of each, in ascending order; they neither overlap nor adjoin.
    stretches: Vec<(u64, u64)>,
}

impl PassedCookies {
    /// The cookies from `first` to `last` no longer stand for names.
    pub(crate) fn add(&mut self, first: u64, last: u64) {
        let from = self
            .stretches
            .partition_point(|own| own.1.saturating_add(1) < first);
        let until = self
            .stretches
            .partition_point(|own| own.0 <= last.saturating_add(1));
        let touched = self.stretches.get(from..until).unwrap_or_default();
        let merged = touched.iter().fold((first, last), |merged, own| {
            (merged.0.min(own.0), merged.1.max(own.1))
        });
        self.stretches.splice(from..until, [merged]);
        if self.stretches.len() > MAX_STRETCHES {
            // But not the one that may be growing.
            let others = self.stretches.iter().enumerate();
            let others = others.filter(|(_, own)| **own != merged);
            let shortest = others.min_by_key(|(_, own)| own.1 - own.0);
            if let Some((at, _)) = shortest {
                self.stretches.remove(at);
            }
        }
    }

    /// The cookie after which a listing that has reached `cookie` continues: the end of the range that follows, if
    /// that is known to be empty.
    pub(crate) fn pass(&self, cookie: u64) -> u64 {
        let next = cookie.saturating_add(1);
        let at = self.stretches.partition_point(|own| own.1 < next);
        match self.stretches.get(at) {
            Some((first, last)) if *first <= next => *last,
            _ => cookie,
        }
    }

    /// The cookie before the next long stretch behind `cookie`.
    pub(crate) fn until(&self, cookie: u64) -> Option<u64> {
        let behind = self.stretches.iter().filter(|own| own.0 > cookie);
        let mut long = behind.filter(|own| own.1 - own.0 >= SHORT);
        long.next().map(|own| own.0 - 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_removed_one_after_the_other_is_one_stretch() {
        let mut passed = PassedCookies::default();
        // Others are longer, and there are as many as are kept.
        for other in 0..MAX_STRETCHES as u64 {
            passed.add(1000 * (other + 1), 1000 * (other + 1) + 500);
        }
        for cookie in (3..900).rev() {
            passed.add(cookie, cookie);
        }
        assert_eq!(passed.pass(2), 899);
        assert_eq!(passed.pass(500), 899);
        assert_eq!(passed.pass(899), 899);
        assert_eq!(passed.until(899), Some(1999));
        assert_eq!(passed.stretches.len(), MAX_STRETCHES);
        passed.add(900, 2100);
        assert_eq!(passed.pass(2), 2500);
    }

    proptest! {
        #[test]
        fn only_what_was_added_is_passed(
            added in prop::collection::vec((0u64..400, 0u64..90), 1..40),
            asked in prop::collection::vec(0u64..500, 30),
        ) {
            let mut passed = PassedCookies::default();
            let mut empty = [false; 600];
            for (first, len) in added {
                passed.add(first, first + len);
                (first..=first + len).for_each(|cookie| empty[cookie as usize] = true);
                prop_assert!(passed.stretches.len() <= MAX_STRETCHES);
            }
            for cookie in asked {
                let next = passed.pass(cookie);
                prop_assert!((cookie + 1..=next).all(|cookie| empty[cookie as usize]));
                if let Some(until) = passed.until(next) {
                    prop_assert!(until >= next);
                    prop_assert!(passed.pass(until) > until + SHORT);
                }
            }
        }
    }
}
