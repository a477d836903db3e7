//! The grace period: the time after a restart in which only reclaims of earlier locks are granted.

use std::time::Instant;

/// The grace period of a start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grace {
    until: Option<Instant>,
}

impl Grace {
    /// No grace period: no client held a lock when the server stopped.
    pub const NONE: Grace = Grace { until: None };

    /// Lasts until `end`.
    pub fn until(end: Instant) -> Grace {
        Grace { until: Some(end) }
    }

    /// Whether the grace period has not ended yet.
    pub fn lasts(&self, now: Instant) -> bool {
        self.until.is_some_and(|end| now < end)
    }

    /// Whether a lock may be granted: in the grace period only to clients that held it before the restart (`reclaim`),
    /// and afterwards only to others. A late reclaim is refused, because another client may have had the lock
    /// meanwhile, and changed the data that it protects.
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
