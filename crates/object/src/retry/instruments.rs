//! What the retry policy does: repeats, requests that are not sent, and requests that wait.

use std::io;

use forebay_metrics::{Counter, Gauge, Samples, Source, Value, table};
use object_store::Error;

use crate::Fault;
use crate::chain::causes;
use crate::error::Hung;
use crate::link::Direction;
use crate::s3::{Kind, S3Error};

use super::Health;

/// Why a request is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The store asked for fewer requests.
    Throttled,
    /// There was no answer in time, or it did not go on.
    Timeout,
    /// The store reported an error.
    Failed,
    /// The store was not reached, or the answer was not usable.
    Connection,
}

impl Reason {
    /// All reasons, with their names in metrics, in the order of the counters.
    const ALL: [(Reason, &str); 4] = [
        (Reason::Throttled, "throttled"),
        (Reason::Timeout, "timeout"),
        (Reason::Failed, "failed"),
        (Reason::Connection, "connection"),
    ];

    /// The reason of a repeat after this error.
    pub(crate) fn of(error: &Error) -> Reason {
        for cause in causes(error) {
            if let Some(s3) = cause.downcast_ref::<S3Error>() {
                return match s3.kind() {
                    Kind::SlowDown => Reason::Throttled,
                    _ if s3.is_answer() => Reason::Failed,
                    _ if s3.is_silence() => Reason::Timeout,
                    _ => Reason::Connection,
                };
            }
            let is_late = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
            if cause.is::<Hung>() || cause.downcast_ref().is_some_and(is_late) {
                return Reason::Timeout;
            }
        }
        match Fault::of(error) {
            Fault::Unreachable => Reason::Connection,
            _ => Reason::Failed,
        }
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Instruments {
    repeats: [Counter; Reason::ALL.len()],
    pub(super) not_sent: Counter,
    pub(super) waiting: Gauge,
}

impl Instruments {
    /// Counts a repeat that is about to be made after this error.
    pub(super) fn repeated(&self, after: &Error) {
        self.repeats[Reason::of(after) as usize].add(1);
    }

    /// Counts a request that waits, until the result is dropped.
    pub(super) fn wait(&self) -> Waiting<'_> {
        self.waiting.add(1);
        Waiting(&self.waiting)
    }
}

/// Counts a request that waits, also if it is given up.
pub(super) struct Waiting<'a>(&'a Gauge);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.subtract(1);
    }
}

impl Source for Health {
    fn collect(&self, samples: &mut Samples) {
        let instruments = &self.policy.instruments;
        for ((_, name), repeats) in Reason::ALL.into_iter().zip(&instruments.repeats) {
            samples.counter_of(&table::STORE_RETRIES, name, repeats);
        }
        samples.counter(&table::STORE_NOT_SENT, &instruments.not_sent);
        samples.gauge(&table::STORE_WAITING, &instruments.waiting);
        for (direction, name) in [(Direction::Up, "up"), (Direction::Down, "down")] {
            let link = self.policy.link.as_ref();
            if let Some(held) = link.and_then(|link| link.held_in(direction)) {
                let value = Value::Counter(held.as_secs_f64());
                samples.add(&table::STORE_LINK_HELD, [name.into()], value);
            }
        }
    }
}
