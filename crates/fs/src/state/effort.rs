//! How hard background work may work: by how full the reservoir is, how old its oldest change is, and whether clients are
//! writing at this moment.
//!
//! Uploads share processors, disk and link with the writers that fill the log. A burst that fits is taken at the speed of the
//! disk if nothing else happens meanwhile, and is uploaded in the pause after it. So:
//!
//! | first row that applies | uploads at once | streams uploaded early | collector, scrub |
//! |---|---|---|---|
//! | `fill` is 3/4 or more | all | yes | no |
//! | a call waits for room or for the bucket, a snapshot is not published yet, there is no log, or nothing was recorded for [`busy_time`](crate::FsConfig::busy_time) | all | yes | yes |
//! | `fill` is below 1/4, and the oldest change is younger than the interval of checkpoints | none; those in flight go on | no | no |
//! | else | from one to all: with `fill` from 1/4 to 3/4, or with the age from one to three intervals | from one interval on | from one interval on |
//!
//! So a load without pauses is published and collected as well: after three intervals with all that there is.

use std::time::Duration;

use forebay_types::Lsn;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::State;

/// The longest time between two looks of work that is held back.
pub(crate) const EFFORT_LOOK: Duration = Duration::from_millis(100);

/// The whole, for parts of it.
const ALL: u64 = 1000;

/// How full the reservoir is. Parts are in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reservoir {
    /// The largest part in use: of the log, of memory for data that cannot leave it, or of memory for names.
    fill: u64,
    /// The age of the oldest unpublished change, in thousandths of the interval of checkpoints.
    age: u64,
    /// Whether clients change something at this moment.
    is_busy: bool,
    /// Whether a call waits for room, or for the bucket, or would lose its bytes with this process; or a snapshot waits.
    waits: bool,
}

/// How hard background work may work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Effort {
    /// Uploads that may be under way at once; no new one begins beyond that.
    pub(crate) uploads: usize,
    /// Whether blocks of the open checkpoint may be uploaded.
    pub(crate) eager: bool,
    /// Whether work may begin that nobody waits for: collector and scrub.
    pub(crate) background: bool,
}

/// Tells how hard background work may work now.
pub(crate) trait Foreground: Send + Sync {
    fn effort(&self) -> Effort;
}

/// The effort, with `most` uploads at once. See the module's documentation.
fn effort(of: Reservoir, most: usize) -> Effort {
    let all = |background| Effort {
        uploads: most,
        eager: true,
        background,
    };
    if of.fill >= ALL / 4 * 3 {
        return all(false);
    }
    if of.waits || !of.is_busy {
        return all(true);
    }
    if of.fill < ALL / 4 && of.age < ALL {
        return Effort {
            uploads: 0,
            eager: false,
            background: false,
        };
    }
    let by_fill = of.fill.saturating_sub(ALL / 4) * 2;
    let by_age = of.age.saturating_sub(ALL) / 2;
    let part = by_fill.max(by_age).min(ALL);
    let more = most.saturating_sub(1) as u64 * part / ALL;
    Effort {
        uploads: most.min(1 + usize::try_from(more).unwrap_or(usize::MAX)),
        eager: of.age >= ALL,
        background: of.age >= ALL,
    }
}

/// Notes whether changes are recorded, by looking at the end of the log now and then.
pub(super) struct Pauses {
    /// Clients are busy until nothing was recorded for this time.
    busy_time: Duration,
    /// The end of the log at the last look, and when it was found changed.
    seen: Mutex<(Lsn, Option<Instant>)>,
}

impl Pauses {
    pub(super) fn new(end: Lsn, busy_time: Duration) -> Pauses {
        Pauses {
            busy_time,
            seen: Mutex::new((end, None)),
        }
    }

    /// Forgets what was recorded so far, up to `end`.
    pub(super) fn begin(&self, end: Lsn) {
        *self.seen.lock() = (end, None);
    }

    /// Whether something was recorded within the last `busy_time`, as far as these looks tell; `end` is the end of the log.
    fn is_busy(&self, end: Lsn, now: Instant) -> bool {
        let mut seen = self.seen.lock();
        if seen.0 != end {
            *seen = (end, Some(now));
        }
        seen.1
            .is_some_and(|at| now.saturating_duration_since(at) < self.busy_time)
    }
}

/// `part` of `whole`, in thousandths.
fn thousandths(part: u64, whole: u64) -> u64 {
    let found = u128::from(part) * u128::from(ALL) / u128::from(whole.max(1));
    u64::try_from(found).unwrap_or(u64::MAX)
}

impl State {
    fn reservoir(&self) -> Reservoir {
        let now = Instant::now();
        let end = self.position();
        let of_log = self
            .log()
            .map_or(0, |wal| thousandths(wal.used_bytes(), wal.limit_bytes()));
        let of_memory = match self.config.spills() {
            // What does not fit goes to the log alone.
            true => 0,
            false => thousandths(self.memory.cache.dirty_bytes(), self.config.memory_limit),
        };
        let of_names = thousandths(self.unpublished_names_bytes(), self.config.overlay_limit);
        let age = self
            .oldest_unpublished()
            .map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Reservoir {
            fill: of_log.max(of_memory).max(of_names),
            age: thousandths(millis(age), millis(self.config.checkpoint_interval)),
            is_busy: self.pauses.is_busy(end, now),
            // Without a log, nothing but the bucket keeps the bytes.
            waits: self.log().is_none()
                || !self.signals.is_serving()
                || self.signals.is_waited_for()
                || self.closed.have_snapshot()
                || self.memory.writers_wait()
                || self.log_health.next_attempt().is_some(),
        }
    }
}

impl Foreground for State {
    fn effort(&self) -> Effort {
        effort(self.reservoir(), self.config.upload_parallel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 16;

    fn of(fill: u64, age: u64, is_busy: bool, waits: bool) -> Effort {
        let reservoir = Reservoir {
            fill,
            age,
            is_busy,
            waits,
        };
        effort(reservoir, MOST)
    }

    #[test]
    fn a_burst_that_fits_meets_no_upload_and_a_pause_is_used() {
        let nothing = Effort {
            uploads: 0,
            eager: false,
            background: false,
        };
        assert_eq!(of(0, 0, true, false), nothing);
        assert_eq!(of(249, 999, true, false), nothing);
        for fill in [0, 249, 250, 749] {
            let all = Effort {
                uploads: MOST,
                eager: true,
                background: true,
            };
            assert_eq!(of(fill, 999, false, false), all);
        }
    }

    #[test]
    fn a_call_that_waits_and_a_full_log_get_all_uploads() {
        let all = |background| Effort {
            uploads: MOST,
            eager: true,
            background,
        };
        for is_busy in [false, true] {
            assert_eq!(of(0, 0, is_busy, true), all(true));
            assert_eq!(of(750, 0, is_busy, false), all(false));
            assert_eq!(of(750, 9000, is_busy, true), all(false));
        }
    }

    #[test]
    fn a_load_without_pauses_has_one_upload_at_its_interval_and_all_at_the_third() {
        assert_eq!(of(0, 1000, true, false).uploads, 1);
        assert!(of(0, 1000, true, false).eager);
        assert_eq!(of(0, 2000, true, false).uploads, 1 + 15 / 2);
        assert_eq!(of(0, 3000, true, false).uploads, MOST);
        assert_eq!(of(250, 0, true, false).uploads, 1);
        assert!(!of(250, 0, true, false).eager);
        assert_eq!(of(500, 0, true, false).uploads, 1 + 15 / 2);
        assert_eq!(of(0, u64::MAX, true, false).uploads, MOST);
    }

    #[test]
    fn more_to_do_never_lessens_the_effort() {
        for is_busy in [false, true] {
            for fill in (0..=1000).step_by(25) {
                for age in (0..=4000).step_by(100) {
                    let here = of(fill, age, is_busy, false);
                    for (fill, later) in [
                        (fill + 25, of(fill + 25, age, is_busy, false)),
                        (fill, of(fill, age + 100, is_busy, false)),
                    ] {
                        assert!(later.uploads >= here.uploads && later.eager >= here.eager);
                        // A log that is nearly full leaves nothing for it.
                        assert!(later.background >= here.background || fill >= ALL / 4 * 3);
                    }
                    assert!(here.uploads <= MOST);
                }
            }
        }
        let one = Reservoir {
            fill: 700,
            age: 0,
            is_busy: true,
            waits: false,
        };
        assert_eq!(effort(one, 1).uploads, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_begins_when_nothing_was_recorded_for_a_while() {
        const BUSY: Duration = Duration::from_millis(250);
        let pauses = Pauses::new(Lsn(5), BUSY);
        assert!(!pauses.is_busy(Lsn(5), Instant::now()));
        assert!(pauses.is_busy(Lsn(6), Instant::now()));
        tokio::time::sleep(BUSY - Duration::from_millis(1)).await;
        assert!(pauses.is_busy(Lsn(6), Instant::now()));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(!pauses.is_busy(Lsn(6), Instant::now()));
        assert!(pauses.is_busy(Lsn(7), Instant::now()));
        pauses.begin(Lsn(8));
        assert!(!pauses.is_busy(Lsn(8), Instant::now()));
    }
}
