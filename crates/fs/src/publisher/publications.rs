//! The times of publications, as far back as this gateway knows them.

use std::collections::VecDeque;

use forebay_types::Lsn;
use forebay_vfs::Timestamp;
use parking_lot::Mutex;

/// How many publications are kept: those of some hours under a steady load.
const KEPT: usize = 4096;

/// A moment from which on the bucket has had an object as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    /// The moment, by the clock of this gateway: seconds since 1970.
    pub seconds: i64,
    /// Whether its last change was published at that moment. Otherwise it was published then or earlier.
    pub is_exact: bool,
}

/// The publication of a checkpoint.
#[derive(Clone, Copy, Debug)]
struct Publication {
    /// The bucket has everything before this since then.
    end: Lsn,
    /// When the checkpoint closed.
    closed: Timestamp,
    at: Timestamp,
}

/// The times of the last publications. Kept in memory: no record of the volume has them.
#[derive(Debug)]
pub(crate) struct Publications(Mutex<Kept>);

#[derive(Debug)]
struct Kept {
    /// From which moment on they are complete: since then, clients may change objects.
    began: Timestamp,
    /// The position from which on they are complete.
    from: Lsn,
    /// Ascending.
    publications: VecDeque<Publication>,
    /// When the checkpoint that is being published closed.
    closing: Option<Timestamp>,
}

impl Publications {
    pub(crate) fn new() -> Publications {
        Publications(Mutex::new(Kept {
            began: Timestamp::default(),
            from: Lsn(u64::MAX),
            publications: VecDeque::new(),
            closing: None,
        }))
    }

    /// Recovery is done: from now on, publications are noted, and the bucket has everything before `published`.
    pub(crate) fn begin(&self, now: Timestamp, published: Lsn) {
        let mut kept = self.0.lock();
        (kept.began, kept.from) = (now, published);
        kept.publications.clear();
    }

    /// A checkpoint closes.
    pub(super) fn closing(&self, now: Timestamp) {
        self.0.lock().closing = Some(now);
    }

    /// The checkpoint that has closed last is published: the bucket has everything before `end`.
    pub(super) fn published(&self, now: Timestamp, end: Lsn) {
        let mut kept = self.0.lock();
        let closed = kept.closing.take().unwrap_or(now);
        if kept.publications.len() == KEPT
            && let Some(oldest) = kept.publications.pop_front()
        {
            kept.from = oldest.end;
        }
        kept.publications.push_back(Publication {
            end,
            closed,
            at: now,
        });
    }

    /// Since when the bucket has an object without unpublished changes. `last` is the position after its last change,
    /// if that was made while it has been in memory; `changed` is the time of that change.
    pub(crate) fn since(&self, last: Option<Lsn>, changed: Timestamp) -> Since {
        let kept = self.0.lock();
        let known = last.filter(|last| *last > kept.from);
        let holds = |publication: &&Publication| match known {
            Some(last) => publication.end >= last,
            // The time is taken just before the change is made, perhaps in the next checkpoint already.
            None => publication.closed.seconds > changed.seconds + 1,
        };
        let found = kept.publications.iter().find(holds);
        let newest = kept.publications.back();
        Since {
            seconds: found
                .or(newest)
                .map_or(kept.began, |found| found.at)
                .seconds,
            is_exact: known.is_some() && found.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanos: 0 }
    }

    fn since(seconds: i64, is_exact: bool) -> Since {
        Since { seconds, is_exact }
    }

    fn publish(times: &Publications, closed: i64, published: i64, end: u64) {
        times.closing(at(closed));
        times.published(at(published), Lsn(end));
    }

    #[test]
    fn the_first_publication_that_holds_the_last_change_gives_the_time() {
        let times = Publications::new();
        publish(&times, 1, 2, 50);
        times.begin(at(100), Lsn(60));
        assert_eq!(times.since(None, at(10)), since(100, false));
        publish(&times, 110, 112, 200);
        publish(&times, 120, 125, 300);
        assert_eq!(times.since(Some(Lsn(61)), at(105)), since(112, true));
        assert_eq!(times.since(Some(Lsn(200)), at(109)), since(112, true));
        assert_eq!(times.since(Some(Lsn(201)), at(111)), since(125, true));
        // The position is not known: only that a publication came after it.
        assert_eq!(times.since(None, at(10)), since(112, false));
        assert_eq!(times.since(None, at(109)), since(125, false));
        assert_eq!(times.since(None, at(500)), since(125, false));
    }

    #[test]
    fn old_publications_are_forgotten() {
        let times = Publications::new();
        times.begin(at(0), Lsn(0));
        for (n, end) in (1..).zip(1..=KEPT as u64 + 1) {
            publish(&times, n, n, end);
        }
        assert_eq!(times.since(Some(Lsn(1)), at(0)), since(2, false));
        assert_eq!(times.since(Some(Lsn(2)), at(1)), since(2, true));
    }
}
