//! Decides when tables are merged, and when replaced ones are deleted.
//!
//! Neither may starve the other. Commits that come faster than merges end would keep merging busy without end, so it
//! starts nothing new after a quarter of the retention. A merge that took longer than the retention delays the next
//! deletion; if merges continue to do so, they wait for a deletion.

use std::time::{Duration, Instant};

/// Merges may delay deletions for this many retentions at most.
const OVERDUE: u32 = 4;

/// Decides the next step. Times are arguments.
pub(super) struct Rounds {
    retention: Duration,
    /// Time of the last deletion, or the start.
    last: Instant,
    /// Time of the next deletion. Reads may need the replaced tables until then.
    due: Instant,
}

impl Rounds {
    /// The first deletion is due at once: a gateway before this one may have left something.
    pub(super) fn new(retention: Duration, now: Instant) -> Rounds {
        Rounds {
            retention,
            last: now,
            due: now,
        }
    }

    /// Whether tables may be merged now.
    pub(super) fn may_merge(&self, now: Instant) -> bool {
        now >= self.due || now - self.last < OVERDUE * self.retention
    }

    /// How long a run of merges may start further ones.
    pub(super) fn merging_time(&self) -> Duration {
        self.retention / 4
    }

    /// Records the end of a run of merges, which began at `began`.
    pub(super) fn merged(&mut self, began: Instant, now: Instant) {
        if now - began >= self.retention {
            // SlateDB protects replaced tables for the retention from the end of the merge on. Here that end is known
            // only now, as it may have waited behind a manifest that waits for packs, and reads continued to use the
            // replaced tables.
            self.due = now + self.retention;
        }
    }

    /// Time of the next deletion of replaced tables.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Records a deletion.
    pub(super) fn deleted(&mut self, now: Instant) {
        self.last = now;
        self.due = now + self.retention;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETENTION: Duration = Duration::from_secs(60);

    fn rounds() -> (Rounds, Instant) {
        let start = Instant::now();
        (Rounds::new(RETENTION, start), start)
    }

    #[test]
    fn deletions_are_a_retention_apart_and_the_first_one_comes_at_once() {
        let (mut rounds, start) = rounds();
        assert!(rounds.due() <= start);
        rounds.deleted(start);
        assert!(rounds.due() > start + RETENTION / 2);
        assert!(rounds.due() <= start + RETENTION);
    }

    #[test]
    fn a_short_merge_puts_no_deletion_off_and_a_long_one_does() {
        let (mut rounds, start) = rounds();
        rounds.merged(start, start + RETENTION / 2);
        assert!(rounds.due() <= start + RETENTION / 2);
        let end = start + 2 * RETENTION;
        rounds.merged(start + RETENTION, end);
        assert!(rounds.due() > end + RETENTION / 2);
        assert!(rounds.due() <= end + RETENTION);
    }

    #[test]
    fn merges_that_take_longer_than_the_retention_again_and_again_do_not_keep_deletions_off() {
        let (mut rounds, start) = rounds();
        rounds.deleted(start);
        let (mut now, mut deletions, mut merges) = (start, 0, 0);
        while now < start + 100 * RETENTION {
            if rounds.may_merge(now) {
                let began = now;
                now += RETENTION + RETENTION / 10;
                rounds.merged(began, now);
                merges += 1;
            } else {
                now = rounds.due();
            }
            if rounds.due() <= now {
                rounds.deleted(now);
                deletions += 1;
            }
        }
        assert!(deletions >= 15, "{deletions} deletions");
        assert!(merges >= 60, "{merges} merges");
    }
}
