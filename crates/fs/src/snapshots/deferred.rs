//! Deletions that wait because a clone was made of the snapshot when they had begun.
//!
//! A clone that finds the snapshot being deleted gives up within a moment, and takes its note away; one that was made before it
//! could see that may need the snapshot for years. So the notes are read again after a second, and then after pauses that double.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_types::SnapshotId;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The pause before the notes on clones are read again for the first time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, Debug)]
struct Wait {
    due: Instant,
    pause: Duration,
}

/// The deferred deletions. Only in memory: after an opening each is looked at at once.
#[derive(Debug, Default)]
pub(super) struct Deferred(Mutex<BTreeMap<SnapshotId, Wait>>);

impl Deferred {
    /// Defers a deletion. Returns whether it was not deferred before.
    pub(super) fn defer(&self, id: SnapshotId, now: Instant) -> bool {
        let mut waits = self.0.lock();
        let before = waits.get(&id).map(|wait| wait.pause);
        let pause = before.map_or(FIRST_PAUSE, |pause| (2 * pause).min(LONGEST_PAUSE));
        let due = now + pause;
        waits.insert(id, Wait { due, pause });
        before.is_none()
    }

    /// Forgets a deletion that goes on.
    pub(super) fn goes_on(&self, id: SnapshotId) {
        self.0.lock().remove(&id);
    }

    /// The snapshots whose deletions are not looked at now.
    pub(super) fn waiting(&self, now: Instant) -> BTreeSet<SnapshotId> {
        let waits = self.0.lock();
        let waiting = waits.iter().filter(|(_, wait)| wait.due > now);
        waiting.map(|(id, _)| *id).collect()
    }

    /// When the next one is looked at; `None` if there is none.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.lock().values().map(|wait| wait.due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_five_minutes_and_each_snapshot_has_its_own() {
        let (deferred, mut now) = (Deferred::default(), Instant::now());
        let (one, other) = (SnapshotId(1), SnapshotId(2));
        assert_eq!(deferred.next(), None);
        assert!(deferred.defer(one, now));
        for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            let pause = Duration::from_secs(seconds);
            assert_eq!(deferred.next(), Some(now + pause));
            assert_eq!(deferred.waiting(now), [one].into());
            now += pause;
            assert!(deferred.waiting(now).is_empty());
            assert!(!deferred.defer(one, now), "it is reported once");
        }
        assert!(deferred.defer(other, now));
        assert_eq!(deferred.next(), Some(now + FIRST_PAUSE));
        assert_eq!(deferred.waiting(now + FIRST_PAUSE), [one].into());
        deferred.goes_on(other);
        deferred.goes_on(one);
        assert_eq!(deferred.next(), None);
    }
}
