//! A bounded rate of events.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// Delays events so that their rate stays below a bound. Some may come at once after a pause.
#[derive(Debug)]
pub(super) struct Rate {
    /// The mean distance of events.
    distance: Duration,
    /// The time that a pause can save up.
    saved: Duration,
    next: Mutex<Option<Instant>>,
}

impl Rate {
    /// `per_second` events a second, and `at_once` after a pause.
    pub(super) fn new(per_second: u32, at_once: u32) -> Rate {
        let distance = Duration::from_secs(1) / per_second.max(1);
        Rate {
            distance,
            saved: distance * at_once,
            next: Mutex::new(None),
        }
    }

    /// Waits until the next event may happen. Returns whether that took any time.
    pub(super) async fn wait(&self) -> bool {
        let now = Instant::now();
        let when = self.reserve(now);
        let waits = when > now;
        if waits {
            sleep_until(when).await;
        }
        waits
    }

    /// The time of the next event, which is taken.
    fn reserve(&self, now: Instant) -> Instant {
        let mut next = self.next.lock();
        let earliest = now.checked_sub(self.saved).unwrap_or(now);
        let when = next.map_or(earliest, |next| next.max(earliest));
        *next = Some(when + self.distance);
        when
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wait_is_reported() {
        let rate = Rate::new(100, 2);
        let mut waits = Vec::new();
        for _ in 0..4 {
            waits.push(rate.wait().await);
        }
        assert_eq!(waits, [false, false, false, true]);
    }

    #[test]
    fn some_events_come_at_once_and_the_rest_at_the_rate() {
        let rate = Rate::new(100, 5);
        let now = Instant::now();
        let late = |when: Instant| when.saturating_duration_since(now);
        for _ in 0..5 {
            assert!(rate.reserve(now) < now);
        }
        for number in 0..100 {
            assert_eq!(late(rate.reserve(now)), Duration::from_millis(10) * number);
        }
        // A pause saves up no more than at the beginning.
        let later = now + Duration::from_secs(3600);
        for _ in 0..5 {
            assert!(rate.reserve(later) < later);
        }
        assert_eq!(rate.reserve(later), later);
    }
}
