//! What a client may keep a connection waiting for, and how long.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::{Duration, Instant};

use tokio::time::Sleep;

use crate::Limits;

/// Timeouts are looked at this often at most.
const LONGEST_TICK: Duration = Duration::from_secs(1);
const SHORTEST_TICK: Duration = Duration::from_millis(5);

/// Since when a connection has waited for its client. One timer serves for all of it, and only
/// while something could time out: an idle connection has none.
pub(super) struct Timeouts {
    tick: Pin<Box<Sleep>>,
    ticking: bool,
    /// When the record being assembled began.
    pub(super) record_since: Option<Instant>,
    /// When a TLS handshake began that is not over.
    pub(super) handshake_since: Option<Instant>,
    /// When the client last took bytes of replies, or had none to take.
    pub(super) reply_since: Instant,
    /// When bytes were last moved.
    pub(super) active_at: Instant,
}

/// What a connection has to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Busy {
    /// There are replies to send.
    pub(super) unsent: bool,
    /// There are calls under way.
    pub(super) calls: bool,
    /// Other connections wait for what this one may hold.
    pub(super) others_wait: bool,
}

impl Timeouts {
    pub(super) fn new(now: Instant) -> Timeouts {
        Timeouts {
            tick: Box::pin(tokio::time::sleep(Duration::ZERO)),
            ticking: false,
            record_since: None,
            handshake_since: None,
            reply_since: now,
            active_at: now,
        }
    }

    /// What has taken too long; otherwise the task is woken to look again.
    pub(super) fn poll(
        &mut self,
        now: Instant,
        limits: &Limits,
        busy: Busy,
        context: &mut Context<'_>,
    ) -> Option<&'static str> {
        loop {
            let begun = self.record_since.or(self.handshake_since);
            if begun.is_none() && !busy.unsent && limits.idle_timeout.is_none() {
                // The timer may go off once more; nothing is lost by that.
                return None;
            }
            if !self.ticking {
                let shortest = limits.record_timeout.min(limits.reply_timeout);
                let shortest = shortest.min(limits.handshake_timeout);
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

    fn overdue(&self, now: Instant, limits: &Limits, busy: Busy) -> Option<&'static str> {
        let since = |moment: Instant| now.saturating_duration_since(moment);
        let record = self.record_since.map(since).unwrap_or_default();
        if record > limits.record_timeout {
            return Some("a record was begun and not completed");
        }
        let handshake = self.handshake_since.map(since).unwrap_or_default();
        if handshake > limits.handshake_timeout {
            return Some("a TLS handshake was begun and not completed");
        }
        let patience = match busy.others_wait {
            false => limits.reply_timeout,
            true => limits.reply_timeout / 10,
        };
        if busy.unsent && since(self.reply_since) > patience {
            return Some("replies were not read");
        }
        let idle = limits.idle_timeout.filter(|_| !busy.calls);
        if idle.is_some_and(|idle| since(self.active_at) > idle) {
            return Some("nothing happened");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Busy = Busy {
        unsent: false,
        calls: false,
        others_wait: false,
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
        let overdue =
            |timeouts: &Timeouts, seconds, busy| timeouts.overdue(later(seconds), &limits, busy);
        assert_eq!(overdue(&timeouts, 599, QUIET), None);
        assert_eq!(overdue(&timeouts, 601, QUIET), Some("nothing happened"));
        let calls = Busy {
            calls: true,
            ..QUIET
        };
        assert_eq!(overdue(&timeouts, 601, calls), None);
        let unsent = Busy {
            unsent: true,
            ..QUIET
        };
        assert_eq!(overdue(&timeouts, 30, unsent), None);
        assert!(overdue(&timeouts, 61, unsent).is_some());
        timeouts.record_since = Some(Instant::now());
        assert_eq!(overdue(&timeouts, 59, QUIET), None);
        assert!(overdue(&timeouts, 61, QUIET).is_some());
        timeouts.record_since = None;
        timeouts.handshake_since = Some(Instant::now());
        assert_eq!(overdue(&timeouts, 9, QUIET), None);
        assert!(overdue(&timeouts, 11, QUIET).is_some());
    }

    #[tokio::test]
    async fn patience_with_unread_replies_is_shorter_while_others_wait() {
        let limits = Limits::default();
        let timeouts = Timeouts::new(Instant::now());
        let pressed = Busy {
            unsent: true,
            calls: false,
            others_wait: true,
        };
        assert_eq!(timeouts.overdue(later(5), &limits, pressed), None);
        assert!(timeouts.overdue(later(7), &limits, pressed).is_some());
    }
}
