//! Slows writers while the log is nearly full, so that none of them meets a full one all at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_types::Lsn;
use forebay_vfs::{ClientId, Result};
use forebay_waits::{For, waiting};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::State;
use super::reservoir::{Level, writers_rate};

/// The longest time between two looks at the rate.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Publications of fewer bytes say nothing about the rate: their time is that of the requests.
const LEAST_MEASURED: u64 = 1 << 20;
/// The largest WRITE.
const LARGEST_WRITE: f64 = 1_048_576.0;
/// Seconds over which the rate of the bucket is averaged: older publications count little.
const REMEMBERED_SECONDS: f64 = 10.0;

/// The pace of a volume's writers.
pub(crate) struct Pace {
    /// The position up to which the bucket has everything.
    published: AtomicU64,
    drain: Mutex<Drain>,
    /// Writers that are slowed have their turn one after the other, in the order in which they came.
    turn: tokio::sync::Mutex<Turn>,
}

/// How fast the bucket takes records while there are some for it.
struct Drain {
    /// Bytes a second; `None` before the first publication that says something about it.
    rate: Option<f64>,
    /// When the one began that is under way: at the end of the one before, or when there was something to publish again.
    begun: Instant,
}

impl Drain {
    /// Counts a publication of this many bytes of the log.
    fn published(&mut self, bytes: u64, now: Instant) {
        let seconds = (now - self.begun).as_secs_f64().max(0.001);
        self.begun = now;
        if bytes < LEAST_MEASURED {
            return;
        }
        #[allow(clippy::cast_precision_loss, reason = "it is an estimate")]
        let new = bytes as f64 / seconds;
        let old = (-seconds / REMEMBERED_SECONDS).exp();
        self.rate = Some(self.rate.map_or(new, |rate| rate * old + new * (1.0 - old)));
    }

    /// Bytes a second now, if anything is known of it; `under_way` is what the next publication brings. If that takes more than
    /// twice as long as it should, the rate is lower already before it ends.
    fn rate(&self, under_way: u64, now: Instant) -> Option<u64> {
        let rate = self.rate?;
        let seconds = (now - self.begun).as_secs_f64().max(0.001);
        #[allow(clippy::cast_precision_loss, reason = "it is an estimate")]
        let most = match under_way {
            0 => f64::INFINITY,
            under_way => 2.0 * under_way as f64 / seconds,
        };
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative"
        )]
        let rate = rate.min(most) as u64;
        Some(rate)
    }
}

/// Bytes that may be written now.
struct Turn {
    /// In bytes; never more than the largest WRITE.
    saved: f64,
    at: Instant,
}

impl Turn {
    /// How long a write of `bytes` has to wait at this rate; zero if its turn has come, which takes it.
    fn wait(&mut self, bytes: u64, rate: u64, now: Instant) -> Duration {
        #[allow(clippy::cast_precision_loss, reason = "writes are small")]
        let (bytes, rate) = (bytes as f64, rate.max(1) as f64);
        let since = (now - self.at).as_secs_f64();
        self.at = now;
        self.saved = (self.saved + since * rate).min(bytes.max(LARGEST_WRITE));
        let missing = bytes - self.saved;
        // Less than a microsecond is nothing.
        if missing <= rate / 1e6 {
            // What a larger write has waited for stays.
            self.saved = (self.saved - bytes).max(0.0);
            return Duration::ZERO;
        }
        Duration::from_secs_f64((missing / rate).min(LOOK_AGAIN.as_secs_f64()))
    }
}

impl Pace {
    pub(crate) fn new(published: Lsn) -> Pace {
        let now = Instant::now();
        Pace {
            published: AtomicU64::new(published.0),
            drain: Mutex::new(Drain {
                rate: None,
                begun: now,
            }),
            turn: tokio::sync::Mutex::new(Turn {
                saved: 0.0,
                at: now,
            }),
        }
    }

    /// There is something to publish, and there was nothing before.
    pub(super) fn begins(&self) {
        self.drain.lock().begun = Instant::now();
    }

    /// The bucket has everything before `end`.
    pub(crate) fn published(&self, end: Lsn) {
        let before = self.published.fetch_max(end.0, Ordering::Relaxed);
        let bytes = end.0.saturating_sub(before);
        if bytes > 0 {
            self.drain.lock().published(bytes, Instant::now());
        }
    }

    /// Bytes of the log before `end` that the bucket does not have.
    pub(super) fn unpublished(&self, end: Lsn) -> u64 {
        end.0.saturating_sub(self.published.load(Ordering::Relaxed))
    }

    /// Bytes of the log a second that the bucket takes, if anything is known of it. The publication that is under way, or the
    /// next one, ends at `next`.
    fn drain(&self, next: Option<Lsn>) -> Option<u64> {
        let under_way = next.map_or(0, |next| self.unpublished(next));
        self.drain.lock().rate(under_way, Instant::now())
    }

    /// Returns when a write of `bytes` has its turn, or when `rate` says that nobody is slowed any more.
    async fn turn(&self, bytes: u64, rate: impl Fn() -> Option<u64>) {
        let mut turn = self.turn.lock().await;
        while let Some(rate) = rate() {
            match turn.wait(bytes, rate, Instant::now()) {
                Duration::ZERO => return,
                wait => tokio::time::sleep(wait).await,
            }
        }
    }
}

impl State {
    /// Waits for the turn of a write of `bytes`, if the log is nearly full. Not a client that has written little beside others.
    /// After [`FsConfig::room_wait`](crate::FsConfig::room_wait) the call fails with
    /// [`Error::Delay`](forebay_vfs::Error::Delay).
    pub(crate) async fn pace(&self, client: ClientId, bytes: u64) -> Result<()> {
        // Mostly the log has room, and nothing more is looked at.
        if self.paced_rate().is_none() || self.memory.is_light(client) {
            return Ok(());
        }
        let turn = self.pace.turn(bytes, || self.paced_rate());
        let turn = async {
            turn.await;
            Ok(())
        };
        waiting(For::Log, self.memory.bounded(turn)).await
    }

    /// Bytes of the log a second that the bucket takes, while it lacks some; 0 before its first publication.
    pub(crate) fn publication_rate(&self) -> Option<u64> {
        let is_behind = self.pace.unpublished(self.position()) > 0;
        is_behind.then(|| self.drain().unwrap_or(0))
    }

    fn drain(&self) -> Option<u64> {
        self.pace.drain(self.closed.oldest_end())
    }

    /// The rate of writers; `None` if they are not slowed.
    fn paced_rate(&self) -> Option<u64> {
        let wal = self.journal().wal().filter(|_| self.config.spills())?;
        let limit = wal.limit_bytes();
        // Records do not fill the segments that they lie in, but most of them.
        if self.pace.unpublished(wal.complete_lsn()) <= limit / 8 * 5 {
            return None;
        }
        let used = wal.used_bytes();
        if used <= limit / 8 * 7 || self.signals.check_running().is_err() {
            return None;
        }
        let drain = self.drain();
        writers_rate(&Level { used, limit, drain })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[tokio::test(start_paused = true)]
    async fn writers_together_have_the_rate_in_the_order_in_which_they_came() {
        let pace = std::sync::Arc::new(Pace::new(Lsn(0)));
        let began = Instant::now();
        let mut writers = Vec::new();
        for number in 0..100_u32 {
            let pace = pace.clone();
            writers.push(tokio::spawn(async move {
                pace.turn(MIB, || Some(10 * MIB)).await;
                (number, began.elapsed())
            }));
            tokio::task::yield_now().await;
        }
        for (number, writer) in (1..).zip(writers) {
            let (came, waited) = writer.await.unwrap();
            let expected = Duration::from_millis(100 * number);
            assert!(
                waited.abs_diff(expected) < Duration::from_millis(2 * number),
                "{came}: {waited:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_write_leaves_what_a_large_one_has_waited_for() {
        let pace = Pace::new(Lsn(0));
        let rate = || Some(MIB / 2);
        // It needs two seconds and gives up after each.
        let mut attempts = 0;
        let mut large = async || {
            attempts += 1;
            let turn = pace.turn(MIB, rate);
            tokio::time::timeout(Duration::from_secs(1), turn)
                .await
                .is_ok()
        };
        while !large().await {
            for _ in 0..10 {
                tokio::time::sleep(Duration::from_millis(10)).await;
                pace.turn(4096, rate).await;
            }
        }
        assert!(attempts <= 3, "{attempts}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_that_changes_counts_for_those_who_wait() {
        let pace = Pace::new(Lsn(0));
        let began = Instant::now();
        let rate = || match began.elapsed().as_secs() {
            0..5 => Some(1),
            5..7 => Some(MIB),
            _ => None,
        };
        pace.turn(MIB, rate).await;
        let since = |seconds| began.elapsed().abs_diff(Duration::from_secs(seconds));
        let tolerance = LOOK_AGAIN + Duration::from_millis(10);
        assert!(since(6) < tolerance, "{:?}", began.elapsed());
        pace.turn(1 << 40, rate).await;
        assert!(since(7) <= LOOK_AGAIN, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_of_the_bucket_is_that_of_the_last_seconds_in_which_it_had_something_to_do() {
        let pace = Pace::new(Lsn(0));
        assert_eq!(pace.drain(None), None);
        let mut end = 0;
        for rate in [10_u64, 1, 50] {
            // An hour without anything to publish.
            tokio::time::sleep(Duration::from_secs(3600)).await;
            pace.begins();
            for _ in 0..60 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                end += rate << 20;
                pace.published(Lsn(end));
            }
            // Small ones in between say nothing.
            end += 200;
            pace.published(Lsn(end));
            let found = pace.drain(None).unwrap() >> 20;
            assert!(found.abs_diff(rate) <= 1 + rate / 50, "{found} of {rate}");
        }
        assert_eq!(pace.unpublished(Lsn(end + 5)), 5);
        // The bucket is away: less from second to second.
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!(pace.drain(Some(Lsn(end + (50 << 20)))), Some(MIB));
        // But as long as it may take at that rate, a large publication lowers nothing.
        let large = Some(Lsn(end + (5000 << 20)));
        assert!(pace.drain(large).unwrap() > 49 * MIB);
    }
}
