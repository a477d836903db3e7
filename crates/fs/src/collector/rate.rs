//! The rate limits of background work.

use std::time::Duration;

use crate::FsConfig;

/// Shorter rests are left out: a timer is not more exact.
const LEAST_REST: Duration = Duration::from_millis(1);

/// The cost of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Bytes sent to the bucket and received from it.
    pub(crate) bytes: u64,
    pub(crate) requests: u64,
}

impl Work {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.requests += 1;
    }
}

/// The limits of background work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// Bytes per second.
    pub(crate) bytes: u64,
    /// Requests per second.
    pub(crate) requests: u64,
}

impl Rate {
    pub(crate) fn of(config: &FsConfig) -> Rate {
        Rate {
            bytes: config.background_rate,
            requests: config.background_requests,
        }
    }

    /// Rests after a step.
    pub(crate) async fn rest_after(&self, work: Work) {
        let rest = self.rest(work);
        if rest >= LEAST_REST {
            tokio::time::sleep(rest).await;
        }
    }

    /// How long to rest after a step so that both limits hold, however fast the step was.
    fn rest(&self, work: Work) -> Duration {
        let time = |amount: u64, rate: u64| {
            let seconds = amount as f64 / rate.max(1) as f64;
            Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
        };
        time(work.bytes, self.bytes).max(time(work.requests, self.requests))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tighter_limit_counts() {
        let rate = Rate {
            bytes: 1 << 20,
            requests: 10,
        };
        let rest = |bytes, requests| rate.rest(Work { bytes, requests });
        assert_eq!(rest(4 << 20, 5), Duration::from_secs(4));
        assert_eq!(rest(1 << 20, 50), Duration::from_secs(5));
        assert_eq!(rest(0, 0), Duration::ZERO);
    }
}
