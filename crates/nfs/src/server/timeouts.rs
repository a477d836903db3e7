//! Time limits for all that a client may keep a connection waiting for.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::{Duration, Instant};

use tokio::time::Sleep;

use crate::Limits;

/// Bounds of the interval between checks of the timeouts.
const LONGEST_TICK: Duration = Duration::from_secs(1);
const SHORTEST_TICK: Duration = Duration::from_millis(5);

/// The points in time from which a connection waits for its client. One timer serves for all of them, and runs only
/// while something could time out: an idle connection has none.
pub(super) struct Timeouts {
    tick: Pin<Box<Sleep>>,
    ticking: bool,
    /// When the record being assembled began.
    pub(super) record_since: Option<Instant>,
    /// When the current TLS handshake began.
    pub(super) handshake_since: Option<Instant>,
    /// Start of the period in which the replies taken by the client are measured, and the bytes it had taken by then.
    reply_since: Instant,
    reply_mark: u64,
    /// When the connection ends unconditionally: until its first call, or if its client is a stranger.
    ends_at: Option<Instant>,
    is_final: bool,
    /// When bytes were last moved.
    pub(super) active_at: Instant,
}

/// The pending work of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Busy {
    /// There are replies to send.
    pub(super) unsent: bool,
    /// There are calls under way.
    pub(super) calls: bool,
    /// Other connections wait for bytes that this one may hold.
    pub(super) others_wait: bool,
    /// Bytes of replies that were ever sent.
    pub(super) sent: u64,
}

impl Timeouts {
    pub(super) fn new(now: Instant) -> Timeouts {
        Timeouts {
            tick: Box::pin(tokio::time::sleep(Duration::ZERO)),
            ticking: false,
            record_since: None,
            handshake_since: None,
            reply_since: now,
            reply_mark: 0,
            ends_at: None,
            is_final: false,
            active_at: now,
        }
    }

    /// The connection ends after `time` unless a call comes before.
    pub(super) fn expect_call(&mut self, now: Instant, time: Duration) {
        self.ends_at = Some(now + time);
    }

    /// The connection ends after `time` unconditionally.
    pub(super) fn expel(&mut self, now: Instant, time: Duration) {
        if !self.is_final {
            self.ends_at = Some(now + time);
            self.is_final = true;
        }
    }

    /// A call has arrived.
    pub(super) fn called(&mut self) {
        if !self.is_final {
            self.ends_at = None;
        }
    }

    /// The client has taken all its replies, `sent` bytes so far.
    pub(super) fn all_taken(&mut self, now: Instant, sent: u64) {
        self.reply_since = now;
        self.reply_mark = sent;
    }

    /// Returns the timeout that has passed; otherwise registers the task for the next check.
    pub(super) fn poll(
        &mut self,
        now: Instant,
        limits: &Limits,
        busy: Busy,
        context: &mut Context<'_>,
    ) -> Option<&'static str> {
        loop {
            let begun = self.record_since.or(self.handshake_since);
            let ends = self.ends_at.is_some();
            if begun.is_none() && !ends && !busy.unsent && limits.idle_timeout.is_none() {
                // The timer may fire once more, without harm.
                return None;
            }
            if !self.ticking {
                let shortest = limits.record_timeout.min(limits.reply_timeout);
                let shortest = shortest.min(limits.handshake_timeout);
                let left = |end: Instant| end.saturating_duration_since(now);
                let shortest = self.ends_at.map_or(shortest, |end| shortest.min(left(end)));
                let idle = limits.idle_timeout.unwrap_or(shortest);
                let tick = (shortest.min(idle) / 4).clamp(SHORTEST_TICK, LONGEST_TICK);
                self.tick.as_mut().reset((now + tick).into());
                self.ticking = true;
            }
            if self.tick.as_mut().poll(context).is_pending() {
                return None;
            }
            self.ticking = false;
            if let Some(what) = self.overdue(now, limits, busy) {
                return Some(what);
            }
        }
    }

    fn overdue(&mut self, now: Instant, limits: &Limits, busy: Busy) -> Option<&'static str> {
        let since = |moment: Instant| now.saturating_duration_since(moment);
        let record = self.record_since.map(since).unwrap_or_default();
        if record > limits.record_timeout {
            return Some("a record was begun and not completed");
        }
        let handshake = self.handshake_since.map(since).unwrap_or_default();
        if handshake > limits.handshake_timeout {
            return Some("a TLS handshake was begun and not completed");
        }
        let (window, rate) = match busy.others_wait {
            false => (limits.reply_timeout, limits.reply_rate),
            true => (limits.reply_timeout / 10, 4 * limits.reply_rate),
        };
        let waited = since(self.reply_since);
        if busy.unsent && waited > window {
            let taken = busy.sent.saturating_sub(self.reply_mark);
            if (taken as f64) < rate as f64 * waited.as_secs_f64() {
                return Some("replies were not read, or too slowly");
            }
            self.all_taken(now, busy.sent);
        }
        if self.ends_at.is_some_and(|end| now > end) {
            return Some(match self.is_final {
                true => "no export names its address",
                false => "it made no call",
            });
        }
        let idle = limits.idle_timeout.filter(|_| !busy.calls);
        if idle.is_some_and(|idle| since(self.active_at) > idle) {
            return Some("nothing happened");
        }
        None
    }
}

/// For this time after a call was put off, further calls are put off without waiting first.
const HURRIED_FOR: Duration = Duration::from_secs(5);

/// Limits how long a call for which there is no room blocks the calls behind it.
#[derive(Default)]
pub(super) struct Blocking {
    since: Option<Instant>,
    put_off_at: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Blocking {
    /// Whether the blocking call has waited long enough: `time`, or not at all if another one was put off a short while
    /// ago. Otherwise the task is woken when it has.
    pub(super) fn is_over(
        &mut self,
        now: Instant,
        time: Duration,
        context: &mut Context<'_>,
    ) -> bool {
        let hurried = |at: Instant| now.saturating_duration_since(at) < HURRIED_FOR;
        if self.put_off_at.is_some_and(hurried) {
            return true;
        }
        let end = *self.since.get_or_insert(now) + time;
        if now >= end {
            return true;
        }
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end.into())));
        timer.as_mut().reset(end.into());
        timer.as_mut().poll(context).is_ready()
    }

    /// Nothing blocks any more.
    pub(super) fn passed(&mut self) {
        self.since = None;
    }

    /// The blocking call was put off.
    pub(super) fn put_off(&mut self, now: Instant) {
        self.since = None;
        self.put_off_at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Busy = Busy {
        unsent: false,
        calls: false,
        others_wait: false,
        sent: 0,
    };

    fn later(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    #[tokio::test]
    async fn each_limit_has_its_own_reason() {
        let limits = Limits {
            idle_timeout: Some(Duration::from_secs(600)),
            ..Limits::default()
        };
        let mut timeouts = Timeouts::new(Instant::now());
        let overdue = |timeouts: &mut Timeouts, seconds, busy| {
            timeouts.overdue(later(seconds), &limits, busy)
        };
        assert_eq!(overdue(&mut timeouts, 599, QUIET), None);
        assert_eq!(overdue(&mut timeouts, 601, QUIET), Some("nothing happened"));
        let calls = Busy {
            calls: true,
            ..QUIET
        };
        assert_eq!(overdue(&mut timeouts, 601, calls), None);
        let unsent = Busy {
            unsent: true,
            ..QUIET
        };
        assert_eq!(overdue(&mut timeouts, 30, unsent), None);
        assert!(overdue(&mut timeouts, 61, unsent).is_some());
        timeouts.record_since = Some(Instant::now());
        assert_eq!(overdue(&mut timeouts, 59, QUIET), None);
        assert!(overdue(&mut timeouts, 61, QUIET).is_some());
        timeouts.record_since = None;
        timeouts.handshake_since = Some(Instant::now());
        assert_eq!(overdue(&mut timeouts, 9, QUIET), None);
        assert!(overdue(&mut timeouts, 11, QUIET).is_some());
    }

    #[tokio::test]
    async fn unread_replies_time_out_sooner_while_others_wait() {
        let limits = Limits::default();
        let mut timeouts = Timeouts::new(Instant::now());
        let pressed = Busy {
            unsent: true,
            others_wait: true,
            ..QUIET
        };
        assert_eq!(timeouts.overdue(later(5), &limits, pressed), None);
        assert!(timeouts.overdue(later(7), &limits, pressed).is_some());
    }

    #[tokio::test]
    async fn replies_have_to_be_taken_at_a_rate_and_faster_while_others_wait() {
        let limits = Limits::default();
        let taking = |sent: u64, others_wait| Busy {
            unsent: true,
            others_wait,
            sent,
            ..QUIET
        };
        let mut timeouts = Timeouts::new(Instant::now());
        // 2 MiB in 61 s and then a few bytes now and then.
        assert_eq!(
            timeouts.overdue(later(61), &limits, taking(2 << 20, false)),
            None
        );
        let drips = taking((2 << 20) + 1000, false);
        assert_eq!(timeouts.overdue(later(120), &limits, drips), None);
        assert!(timeouts.overdue(later(122), &limits, drips).is_some());
        // A rate that is enough while no other connection waits is not enough when one does.
        let slow = |others_wait| taking(50 * (20 << 10), others_wait);
        let mut timeouts = Timeouts::new(Instant::now());
        assert_eq!(timeouts.overdue(later(50), &limits, slow(false)), None);
        assert!(timeouts.overdue(later(50), &limits, slow(true)).is_some());
        // A client that has taken everything has time again.
        timeouts.all_taken(later(50), slow(true).sent);
        assert_eq!(timeouts.overdue(later(55), &limits, slow(true)), None);
    }

    #[tokio::test]
    async fn a_connection_without_a_call_ends_and_one_of_a_stranger_in_any_case() {
        let limits = Limits::default();
        let mut timeouts = Timeouts::new(Instant::now());
        timeouts.expect_call(Instant::now(), Duration::from_secs(30));
        assert_eq!(timeouts.overdue(later(29), &limits, QUIET), None);
        assert_eq!(
            timeouts.overdue(later(31), &limits, QUIET),
            Some("it made no call")
        );
        timeouts.called();
        assert_eq!(timeouts.overdue(later(31), &limits, QUIET), None);
        timeouts.expel(Instant::now(), Duration::from_secs(10));
        timeouts.called();
        timeouts.expel(later(5), Duration::from_secs(10));
        assert!(timeouts.overdue(later(11), &limits, QUIET).is_some());
    }

    #[tokio::test]
    async fn after_one_call_was_put_off_others_do_not_wait_first() {
        // The timer, which uses the real clock, does not fire meanwhile.
        let time = Duration::from_secs(3600);
        let mut blocking = Blocking::default();
        let mut over = |now: Instant| {
            let mut context = Context::from_waker(std::task::Waker::noop());
            blocking.is_over(now, time, &mut context) && {
                blocking.put_off(now);
                true
            }
        };
        let begin = Instant::now();
        assert!(!over(begin));
        assert!(over(begin + time));
        assert!(over(begin + time));
        let later = begin + time + HURRIED_FOR;
        assert!(!over(later));
        assert!(over(later + time));
        // Nothing was blocked meanwhile.
        let much_later = later + 2 * time;
        assert!(!over(much_later));
        blocking.passed();
        let now = much_later + time;
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(!blocking.is_over(now, time, &mut context));
    }
}
