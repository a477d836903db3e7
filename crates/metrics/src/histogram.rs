//! Histograms with bounds 1, 2, 5, 10, 20, 50, ...

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::series;

/// Number of buckets with a bound. One more has the observations above the last bound.
const BUCKETS: usize = 22;

/// Index of 10 µs among bounds in nanoseconds.
const TEN_MICROSECONDS: u8 = 12;

/// Index of 100 bytes among bounds in bytes.
const HUNDRED_BYTES: u8 = 6;

/// Nanoseconds in a second.
const NANOS: f64 = 1e9;

/// Counts observations in buckets, and sums them up.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS + 1],
    sum: AtomicU64,
    /// Index of the first bound in the series.
    first: u8,
    /// Observed units in a unit of the outside.
    scale: f64,
}

impl Histogram {
    /// A histogram of times, from 10 µs to 100 s.
    pub const fn of_times() -> Histogram {
        Histogram::new(TEN_MICROSECONDS, NANOS)
    }

    /// A histogram of numbers, from 1 to 10^7.
    pub const fn of_numbers() -> Histogram {
        Histogram::new(0, 1.0)
    }

    /// A histogram of numbers of bytes, from 100 to 10^9.
    pub const fn of_bytes() -> Histogram {
        Histogram::new(HUNDRED_BYTES, 1.0)
    }

    const fn new(first: u8, scale: f64) -> Histogram {
        Histogram {
            buckets: [const { AtomicU64::new(0) }; BUCKETS + 1],
            sum: AtomicU64::new(0),
            first,
            scale,
        }
    }

    /// Observes a time.
    #[inline]
    pub fn observe_time(&self, time: Duration) {
        self.observe(nanos(time));
    }

    /// Observes a number: of nanoseconds for times.
    #[inline]
    pub fn observe(&self, value: u64) {
        let index = series::index_of(value).saturating_sub(usize::from(self.first));
        self.buckets[index.min(BUCKETS)].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    /// The observations so far. One that is made at the same time may be in the buckets and not in the sum yet.
    pub fn observed(&self) -> Observed {
        let buckets = self.buckets.iter().map(|bucket| bucket.load(Relaxed));
        Observed {
            first: self.first,
            scale: self.scale,
            buckets: buckets.collect(),
            sum: self.sum.load(Relaxed),
        }
    }
}

/// A time in nanoseconds, at most 584 years.
#[inline]
pub(crate) fn nanos(time: Duration) -> u64 {
    time.as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::from(time.subsec_nanos()))
}

/// The observations of a histogram at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    first: u8,
    scale: f64,
    buckets: Vec<u64>,
    sum: u64,
}

impl Observed {
    /// Number of observations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Their sum: in seconds for times.
    pub fn sum(&self) -> f64 {
        self.sum as f64 / self.scale
    }

    /// Upper bounds of the buckets and the number of observations in each, not added up. The last bound is infinite.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        self.buckets.iter().enumerate().map(|(index, count)| {
            let bound = match index {
                BUCKETS => f64::INFINITY,
                index => series::bound(usize::from(self.first) + index) as f64 / self.scale,
            };
            (bound, *count)
        })
    }

    /// Adds the observations of another histogram with the same bounds.
    pub fn add(&mut self, other: &Observed) {
        for (count, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *count += more;
        }
        self.sum = self.sum.wrapping_add(other.sum);
    }

    /// The observations since `before`, an earlier state of the same histogram. All of them if it was reset
    /// since, that is, if a bucket has fewer than before.
    pub fn since(&self, before: &Observed) -> Observed {
        let pairs = || self.buckets.iter().zip(&before.buckets);
        if pairs().any(|(now, before)| now < before) {
            return self.clone();
        }
        Observed {
            buckets: pairs().map(|(now, before)| now - before).collect(),
            sum: self.sum.wrapping_sub(before.sum),
            ..*self
        }
    }

    /// The value below which this part of the observations lies, from 0 to 1: exact to a bucket, and within it as if
    /// its observations were spread evenly. The last bound if it lies above that. `None` without observations.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = part.clamp(0.0, 1.0) * count as f64;
        let (mut below, mut lower) = (0.0, 0.0);
        for (bound, in_bucket) in self.buckets() {
            let in_bucket = in_bucket as f64;
            if in_bucket > 0.0 && below + in_bucket >= rank {
                return Some(match bound.is_finite() {
                    true => lower + (bound - lower) * ((rank - below) / in_bucket),
                    false => lower,
                });
            }
            below += in_bucket;
            lower = bound;
        }
        Some(lower)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_in_seconds() {
        let times = Histogram::of_times();
        times.observe_time(Duration::ZERO);
        times.observe_time(Duration::from_micros(10));
        times.observe_time(Duration::from_micros(11));
        times.observe_time(Duration::from_secs(100));
        times.observe_time(Duration::from_secs(101));
        let observed = times.observed();
        assert_eq!(observed.count(), 5);
        assert_eq!(observed.sum(), 201.000_021);
        let buckets: Vec<_> = observed.buckets().collect();
        assert_eq!(buckets[..3], [(0.000_01, 2), (0.000_02, 1), (0.000_05, 0)]);
        assert_eq!(buckets[20..], [(50.0, 0), (100.0, 1), (f64::INFINITY, 1)]);
    }

    #[test]
    fn numbers_begin_with_one() {
        let numbers = Histogram::of_numbers();
        for number in [0, 1, 3, 20_000_000] {
            numbers.observe(number);
        }
        let observed = numbers.observed();
        let buckets: Vec<_> = observed.buckets().collect();
        assert_eq!(buckets[..3], [(1.0, 2), (2.0, 0), (5.0, 1)]);
        assert_eq!(buckets[21..], [(1e7, 0), (f64::INFINITY, 1)]);
        assert_eq!(observed.sum(), 20_000_004.0);
    }

    fn observed(millis: &[u64]) -> Observed {
        let times = Histogram::of_times();
        for time in millis {
            times.observe_time(Duration::from_millis(*time));
        }
        times.observed()
    }

    #[test]
    fn quantiles_lie_within_their_bucket() {
        assert_eq!(observed(&[]).quantile(0.5), None);
        // All in the bucket from 2 to 5 ms.
        let all = observed(&[3, 3, 3, 3]);
        assert_eq!(all.quantile(0.0), Some(0.002));
        assert_eq!(all.quantile(0.5), Some(0.003_5));
        assert_eq!(all.quantile(1.0), Some(0.005));
        let two = observed(&[1, 1, 1, 40]);
        assert_eq!(two.quantile(0.75), Some(0.001));
        let near = two.quantile(0.99).unwrap() - (0.02 + 0.03 * 0.96);
        assert!(near.abs() < 1e-12, "{near}");
        // There is no bound above.
        assert_eq!(observed(&[200_000]).quantile(0.5), Some(100.0));
    }

    #[test]
    fn the_difference_of_two_states_has_the_observations_between_them() {
        let (before, after) = (observed(&[3, 3, 200_000]), observed(&[3, 3, 200_000, 40]));
        let between = after.since(&before);
        assert_eq!(between, observed(&[40]));
        assert_eq!(between.sum(), 0.04);
        assert_eq!(after.since(&after).quantile(0.5), None);
        // It was reset.
        assert_eq!(observed(&[3]).since(&before), observed(&[3]));
        let mut both = before.clone();
        both.add(&between);
        assert_eq!(both, after);
    }

    #[test]
    fn bytes_begin_with_a_hundred_and_end_with_a_gigabyte() {
        let bytes = Histogram::of_bytes();
        for number in [0, 100, 101, 1_000_000_000, 1_000_000_001] {
            bytes.observe(number);
        }
        let buckets: Vec<_> = bytes.observed().buckets().collect();
        assert_eq!(buckets[..2], [(100.0, 2), (200.0, 1)]);
        assert_eq!(buckets[21..], [(1e9, 1), (f64::INFINITY, 1)]);
    }

    #[test]
    fn a_time_that_no_clock_measures_does_not_overflow() {
        assert_eq!(nanos(Duration::MAX), u64::MAX);
        Histogram::of_times().observe_time(Duration::MAX);
    }
}
