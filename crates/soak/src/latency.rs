//! Latencies of calls, and the table of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The goal for calls that need no bucket, on 2 cores: the highest median, and the highest 99th percentile.
pub const GOAL: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(50));

/// Times of one kind of call.
#[derive(Clone, Debug, Default)]
struct Times {
    /// Number of calls.
    calls: u64,
    /// Times in microseconds, including those of calls that were due but not made (see [`Latencies::record`]).
    micros: Vec<u32>,
    /// Whether the goal applies to this kind.
    has_goal: bool,
    /// Answers "later" (JUKEBOX), after which the call was repeated; its time includes the repetition.
    later: u64,
}

/// Times of all kinds of calls of a run.
#[derive(Debug, Default)]
pub struct Latencies(Mutex<BTreeMap<String, Times>>);

/// Statistics of one kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Number of calls.
    pub calls: u64,
    /// Number of answers "later".
    pub later: u64,
    /// The median.
    pub median: Duration,
    /// The 90th percentile.
    pub p90: Duration,
    /// The 99th percentile.
    pub p99: Duration,
    /// The maximum.
    pub longest: Duration,
    /// Whether the goal applies to this kind.
    pub has_goal: bool,
}

impl Figures {
    /// Whether the goal is met, if there is one.
    pub fn meets_goal(&self) -> bool {
        !self.has_goal || (self.median <= GOAL.0 && self.p99 <= GOAL.1)
    }
}

impl Latencies {
    /// Records that a call of a kind that is made every `interval` took `time`, with `later` answers "later" meanwhile.
    /// Calls that were due during that time were not made: each counts as if it had been made on time and answered
    /// together with this one. Otherwise a server that stalls for a second would look as if one call of many had been
    /// slow.
    pub fn record(
        &self,
        kind: &str,
        has_goal: bool,
        interval: Duration,
        time: Duration,
        later: u64,
    ) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let times = all.entry(kind.to_owned()).or_default();
        times.calls += 1;
        times.later += later;
        times.has_goal = has_goal;
        let mut left = time;
        loop {
            let micros = u32::try_from(left.as_micros()).unwrap_or(u32::MAX);
            times.micros.push(micros);
            if interval.is_zero() || left <= interval {
                return;
            }
            left -= interval;
        }
    }

    /// The statistics of each kind.
    pub fn figures(&self) -> BTreeMap<String, Figures> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let figures = all.iter().map(|(kind, times)| {
            let mut micros = times.micros.clone();
            micros.sort_unstable();
            let at = |share: f64| {
                let rank = (micros.len() as f64 * share).ceil() as usize;
                let micros = micros.get(rank.saturating_sub(1)).copied();
                Duration::from_micros(micros.unwrap_or(0).into())
            };
            let figures = Figures {
                calls: times.calls,
                later: times.later,
                median: at(0.5),
                p90: at(0.9),
                p99: at(0.99),
                longest: at(1.0),
                has_goal: times.has_goal,
            };
            (kind.clone(), figures)
        });
        figures.collect()
    }
}

fn milliseconds(time: Duration) -> String {
    let value = time.as_secs_f64() * 1e3;
    match value {
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

/// A Markdown table: each kind of call, alone and beside the rude clients.
pub fn table(alone: &BTreeMap<String, Figures>, beside: &BTreeMap<String, Figures>) -> String {
    let mut text = String::from(
        "| call | alone: median | p99 | beside: calls | later | median | p90 | p99 | longest | goal |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|---|\n",
    );
    for (kind, figures) in beside {
        let (first, second) = match alone.get(kind) {
            Some(alone) => (milliseconds(alone.median), milliseconds(alone.p99)),
            None => ("-".to_owned(), "-".to_owned()),
        };
        let goal = match (figures.has_goal, figures.meets_goal()) {
            (false, _) => "none: may wait for the bucket",
            (true, true) => "10 and 50: met",
            (true, false) => "10 and 50: **missed**",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {kind} | {first} | {second} | {} | {} | {} | {} | {} | {} | {goal} |",
            figures.calls,
            figures.later,
            milliseconds(figures.median),
            milliseconds(figures.p90),
            milliseconds(figures.p99),
            milliseconds(figures.longest),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_calls() {
        let latencies = Latencies::default();
        let interval = Duration::from_secs(1);
        for number in 1..=100 {
            latencies.record("READ", true, interval, Duration::from_millis(number), 0);
        }
        let figures = latencies.figures()["READ"];
        assert_eq!(figures.calls, 100);
        assert_eq!(figures.median, Duration::from_millis(50));
        assert_eq!(figures.p90, Duration::from_millis(90));
        assert_eq!(figures.p99, Duration::from_millis(99));
        assert_eq!(figures.longest, Duration::from_millis(100));
        assert!(!figures.meets_goal());
    }

    #[test]
    fn a_call_that_holds_up_others_counts_for_them() {
        let latencies = Latencies::default();
        let interval = Duration::from_millis(100);
        for _ in 0..10 {
            latencies.record("READ", true, interval, Duration::from_millis(1), 0);
        }
        // A hundred calls were due in this time.
        latencies.record("READ", true, interval, Duration::from_secs(10), 3);
        let figures = latencies.figures()["READ"];
        assert_eq!((figures.calls, figures.later), (11, 3));
        assert!(figures.median > Duration::from_secs(4), "{figures:?}");
    }

    #[test]
    fn the_table_says_what_missed_its_goal() {
        let (alone, beside) = (Latencies::default(), Latencies::default());
        let interval = Duration::from_secs(1);
        alone.record("GETATTR", true, interval, Duration::from_micros(150), 0);
        beside.record("GETATTR", true, interval, Duration::from_millis(60), 0);
        beside.record("WRITE", false, interval, Duration::from_millis(900), 2);
        let table = table(&alone.figures(), &beside.figures());
        assert!(table.contains(
            "| GETATTR | 0.15 | 0.15 | 1 | 0 | 60.0 | 60.0 | 60.0 | 60.0 | 10 and 50: **missed** |"
        ));
        assert!(table.contains(
            "| WRITE | - | - | 1 | 2 | 900 | 900 | 900 | 900 | none: may wait for the bucket |"
        ));
    }
}
