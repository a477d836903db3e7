//! How many requests there were when.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use forebay_object::{Requests, Total};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Cost, Prices};

/// The time over which a rate is measured.
pub(super) const HOUR: Duration = Duration::from_secs(3600);

/// How often the requests are noted.
const STEP: Duration = Duration::from_secs(60);

/// The requests at some moments of the last hour, and one before it: 62 of them while they are noted once a step.
#[derive(Debug, Default)]
struct Past(VecDeque<(Duration, Vec<Total>)>);

impl Past {
    /// Notes the requests so far, at this time since the start.
    fn note(&mut self, at: Duration, totals: Vec<Total>) {
        self.0.push_back((at, totals));
        let hour_ago = at.saturating_sub(HOUR);
        while self.0.get(1).is_some_and(|(next, _)| *next <= hour_ago) {
            self.0.pop_front();
        }
    }

    /// The newest state that is an hour old or older, and its age; the start if there is none.
    fn hour_before(&self, now: Duration) -> (Duration, &[Total]) {
        let hour_ago = now.checked_sub(HOUR);
        let old = |(at, _): &&(Duration, Vec<Total>)| Some(*at) <= hour_ago;
        match self.0.iter().rev().find(old) {
            Some((at, totals)) => (now.saturating_sub(*at), totals),
            None => (now, &[]),
        }
    }
}

/// Measures the rate of requests.
#[derive(Debug)]
pub struct Meter {
    requests: Arc<Requests>,
    started: Instant,
    past: Mutex<Past>,
}

impl Meter {
    /// Measures `requests` from now on, which are none yet.
    pub fn new(requests: Arc<Requests>) -> Meter {
        Meter {
            requests,
            started: Instant::now(),
            past: Mutex::default(),
        }
    }

    /// Notes the requests so far, again and again. Never returns.
    pub async fn run(&self) {
        loop {
            tokio::time::sleep(STEP).await;
            let totals = self.requests.totals().collect();
            self.past.lock().note(self.started.elapsed(), totals);
        }
    }

    /// The cost so far, with this many bytes in the bucket.
    pub fn cost(&self, prices: &Prices, stored_bytes: Option<u64>) -> Cost {
        let now: Vec<Total> = self.requests.totals().collect();
        let past = self.past.lock();
        let (window, earlier) = past.hour_before(self.started.elapsed());
        Cost::of(prices, &now, earlier, window, stored_bytes)
    }
}

#[cfg(test)]
mod tests {
    use forebay_object::{Cause, Method};

    use super::*;

    fn puts(requests: u64) -> Vec<Total> {
        vec![Total {
            method: Method::Put,
            cause: Cause::Publish,
            requests,
            sent_bytes: 0,
            received_bytes: 0,
        }]
    }

    fn minutes(count: u64) -> Duration {
        Duration::from_secs(60 * count)
    }

    #[test]
    fn the_past_is_an_hour_in_bounded_memory() {
        let mut past = Past::default();
        assert_eq!(past.hour_before(minutes(5)), (minutes(5), &[][..]));
        for minute in 1..=1000 {
            past.note(minutes(minute), puts(minute));
            assert!(past.0.len() <= 62);
            let (window, earlier) = past.hour_before(minutes(minute));
            match minute {
                ..=60 => assert_eq!((window, earlier), (minutes(minute), &[][..])),
                _ => assert_eq!((window, earlier), (minutes(60), &puts(minute - 60)[..])),
            }
        }
        // Between two notes, and after a long sleep of the machine.
        let later = minutes(1000) + Duration::from_secs(30);
        let (window, _) = past.hour_before(later);
        assert_eq!(window, minutes(60) + Duration::from_secs(30));
        assert_eq!(past.hour_before(minutes(3000)).0, minutes(2000));
    }
}
