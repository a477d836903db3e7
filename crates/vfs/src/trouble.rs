//! Counts of the calls that wait, and of the clients that the front end refuses.
//!
//! Code that makes a call wait holds a [`Waiting`] meanwhile; code that refuses a client calls
//! [`Troubles::refused`]. The cost of a refusal is two additions, and that of a wait two readings of the clock more. The
//! task that reads the counts periodically decides how long a trouble lasts, and which messages to log about it.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use forebay_metrics::{Histogram, Samples, Source, Value, table};

/// Declares the kinds of trouble, and [`Trouble::ALL`] with all of them.
macro_rules! troubles {
    ($($(#[$meaning:meta])* $kind:ident,)*) => {
        /// A kind of trouble.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Trouble {
            $($(#[$meaning])* $kind,)*
        }

        impl Trouble {
            /// All kinds, in the order of their declaration.
            pub const ALL: &'static [Trouble] = &[$(Trouble::$kind,)*];
        }
    };
}

troubles! {
    /// Changes wait for room in the log.
    LogFull,
    /// Writes wait for memory for their bytes.
    MemoryFull,
    /// Changes of names and attributes wait for memory.
    NamesFull,
    /// Calls wait for the bucket: for data or metadata that are not stored locally, or until their change is stored
    /// there.
    Bucket,
    /// Mounts are refused, because no export names the client's address.
    MountAddress,
    /// Mounts are refused, because the client's port is not privileged.
    MountPort,
    /// Connections are refused, because the limit is reached.
    Connections,
}

const KINDS: usize = Trouble::ALL.len();

/// The kinds for which calls wait, with their names in metrics.
const WAITS: [(Trouble, &str); 4] = [
    (Trouble::LogFull, "log"),
    (Trouble::MemoryFull, "memory"),
    (Trouble::NamesFull, "names"),
    (Trouble::Bucket, "bucket"),
];

/// Counts of all kinds of trouble.
#[derive(Debug, Default)]
pub struct Troubles {
    counters: [Counter; KINDS],
}

#[derive(Debug)]
struct Counter {
    waiting: AtomicU64,
    total: AtomicU64,
    /// Times of the waits that are over.
    times: Histogram,
    client: Mutex<Option<IpAddr>>,
}

impl Default for Counter {
    fn default() -> Counter {
        Counter {
            waiting: AtomicU64::new(0),
            total: AtomicU64::new(0),
            times: Histogram::of_times(),
            client: Mutex::default(),
        }
    }
}

/// The counts of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that wait now.
    pub waiting: u64,
    /// Calls that had to wait, or were refused, since the beginning.
    pub total: u64,
    /// The client that was refused last.
    pub client: Option<IpAddr>,
}

impl Troubles {
    /// Counts a call as waiting while the returned guard lives.
    pub fn wait(&self, kind: Trouble) -> Waiting<'_> {
        let counter = self.of(kind);
        counter.total.fetch_add(1, Ordering::Relaxed);
        counter.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting {
            counter,
            since: Instant::now(),
        }
    }

    /// Runs `work`, and counts it as waiting from the first poll that does not complete it.
    pub async fn during<T>(&self, kind: Trouble, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let mut waiting = None;
        poll_fn(|context| {
            let polled = work.as_mut().poll(context);
            if polled.is_pending() {
                waiting.get_or_insert_with(|| self.wait(kind));
            }
            polled
        })
        .await
    }

    /// Counts a refused client.
    pub fn refused(&self, kind: Trouble, client: IpAddr) {
        let counter = self.of(kind);
        counter.total.fetch_add(1, Ordering::Relaxed);
        // Held for one assignment, which cannot leave an inconsistent state.
        let mut last = counter
            .client
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *last = Some(client);
    }

    /// Returns the current counts of a kind.
    pub fn counts(&self, kind: Trouble) -> Counts {
        let counter = self.of(kind);
        let client = counter
            .client
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Counts {
            waiting: counter.waiting.load(Ordering::Relaxed),
            total: counter.total.load(Ordering::Relaxed),
            client: *client,
        }
    }

    fn of(&self, kind: Trouble) -> &Counter {
        // There are as many counters as kinds, and the kinds are numbered in order.
        &self.counters[kind as usize]
    }
}

impl Counts {
    /// Adds the counts of two sources.
    pub fn and(self, other: Counts) -> Counts {
        Counts {
            waiting: self.waiting + other.waiting,
            total: self.total + other.total,
            client: self.client.or(other.client),
        }
    }
}

/// Counts a waiting call, until the wait ends or is cancelled.
#[derive(Debug)]
#[must_use]
pub struct Waiting<'a> {
    counter: &'a Counter,
    since: Instant,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.counter.times.observe_time(self.since.elapsed());
        self.counter.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Source for Troubles {
    fn collect(&self, samples: &mut Samples) {
        for (kind, name) in WAITS {
            let counter = self.of(kind);
            let waiting = counter.waiting.load(Ordering::Relaxed) as f64;
            samples.add(&table::WAITING_CALLS, [name.into()], Value::Gauge(waiting));
            samples.histogram_of(&table::WAIT_DURATION, name, &counter.times);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn kinds_are_counted_apart_and_a_wait_ends_with_its_guard() {
        let troubles = Troubles::default();
        let first = troubles.wait(Trouble::LogFull);
        let second = troubles.wait(Trouble::LogFull);
        drop(first);
        let counts = troubles.counts(Trouble::LogFull);
        assert_eq!((counts.waiting, counts.total), (1, 2));
        drop(second);
        let counts = troubles.counts(Trouble::LogFull);
        assert_eq!((counts.waiting, counts.total), (0, 2));
        for kind in Trouble::ALL
            .iter()
            .filter(|kind| **kind != Trouble::LogFull)
        {
            assert_eq!(troubles.counts(*kind), Counts::default(), "{kind:?}");
        }
    }

    #[test]
    fn waits_are_observed_when_they_end() {
        let troubles = Troubles::default();
        let first = troubles.wait(Trouble::LogFull);
        let _second = troubles.wait(Trouble::LogFull);
        drop(first);
        troubles.refused(Trouble::MountPort, [127, 0, 0, 1].into());
        let samples = Samples::of([&troubles as &dyn Source]);
        assert_eq!(samples.number("waiting_calls", &["log"]), Some(1.0));
        assert_eq!(samples.number("wait_duration_seconds", &["log"]), Some(1.0));
        assert_eq!(samples.number("waiting_calls", &["bucket"]), Some(0.0));
        assert_eq!(samples.number("wait_duration_seconds", &["bucket"]), None);
        assert_eq!(samples.iter().count(), 5);
    }

    #[test]
    fn work_that_is_done_at_once_is_no_wait() {
        let troubles = Troubles::default();
        let mut context = Context::from_waker(Waker::noop());
        let done = pin!(troubles.during(Trouble::Bucket, ready(7))).poll(&mut context);
        assert_eq!(done, Poll::Ready(7));
        assert_eq!(troubles.counts(Trouble::Bucket), Counts::default());
        {
            let mut waits = pin!(troubles.during(Trouble::Bucket, pending::<()>()));
            assert!(waits.as_mut().poll(&mut context).is_pending());
            assert!(waits.as_mut().poll(&mut context).is_pending());
            let counts = troubles.counts(Trouble::Bucket);
            assert_eq!((counts.waiting, counts.total), (1, 1));
        }
        assert_eq!(troubles.counts(Trouble::Bucket).waiting, 0);
    }

    #[test]
    fn the_client_that_was_refused_last_is_known() {
        let troubles = Troubles::default();
        for last in 1..=3 {
            troubles.refused(Trouble::MountAddress, [127, 0, 0, last].into());
        }
        let counts = troubles.counts(Trouble::MountAddress);
        let client = Some([127, 0, 0, 3].into());
        assert_eq!(
            (counts.waiting, counts.total, counts.client),
            (0, 3, client)
        );
    }
}
