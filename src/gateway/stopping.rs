//! How long a stop may take.

use std::time::Duration;

/// How long calls may take to finish at a stop.
pub(super) const DRAIN: Duration = Duration::from_secs(10);

/// How long the bucket must have been unreachable for a stop not to wait for it: a shorter outage may end soon.
const AWAY_FOR: Duration = Duration::from_secs(5);

/// How long a stop may then take, once for calls and once for publishing. Docker kills a process that does not end in
/// 10 s.
const AWAY_LIMIT: Duration = Duration::from_secs(3);

/// The time for calls to finish, and the time for the volume to publish after that, at a stop that may take `limit`;
/// `away` is the time for which the bucket has not answered.
pub(super) fn stop_times(limit: Duration, away: Option<Duration>) -> (Duration, Duration) {
    match away {
        Some(away) if away >= AWAY_FOR => (limit.min(AWAY_LIMIT), limit.min(AWAY_LIMIT)),
        _ => (DRAIN, limit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_without_the_bucket_ends_within_the_10_s_of_docker() {
        let seconds = Duration::from_secs;
        // Including the closing of the metadata, which takes at most 3 s.
        let whole = |(drain, publish): (Duration, Duration)| drain + publish + seconds(3);
        for away in [5, 6, 3600] {
            for limit in [0, 1, 30, 3600] {
                let times = stop_times(seconds(limit), Some(seconds(away)));
                assert!(whole(times) < seconds(10), "{times:?}");
            }
        }
    }

    #[test]
    fn a_bucket_that_answers_or_has_just_failed_gets_the_whole_limit() {
        let seconds = Duration::from_secs;
        for away in [None, Some(seconds(0)), Some(seconds(4))] {
            let (_, publish) = stop_times(seconds(30), away);
            assert_eq!(publish, seconds(30));
        }
    }
}
