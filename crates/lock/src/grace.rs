//! The time after a restart in which what was held before is locked again, and nothing else.

use std::time::Instant;

/// The grace period of a start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grace {
    until: Option<Instant>,
}

impl Grace {
    /// None: nobody held a lock when the server went.
    pub const NONE: Grace = Grace { until: None };

    /// Lasts until `end`.
    pub fn until(end: Instant) -> Grace {
        Grace { until: Some(end) }
    }

    /// Whether it lasts still.
    pub fn lasts(&self, now: Instant) -> bool {
        self.until.is_some_and(|end| now < end)
    }

    /// Whether a lock may be given: in the grace period to who had it before the restart (`reclaim`), and
    /// afterwards to who did not. A late reclaim is refused, for somebody else may have had the lock
    /// meanwhile, and changed what it protects.
    pub fn admits(&self, reclaim: bool, now: Instant) -> bool {
        reclaim == self.lasts(now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_reclaims_in_the_grace_period_and_none_after_it() {
        let start = Instant::now();
        let grace = Grace::until(start + Duration::from_secs(45));
        let late = start + Duration::from_secs(45);
        assert!(grace.admits(true, start) && !grace.admits(false, start));
        assert!(!grace.admits(true, late) && grace.admits(false, late));
        assert!(!Grace::NONE.admits(true, start) && Grace::NONE.admits(false, start));
    }
}
