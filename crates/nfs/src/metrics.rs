//! Metrics of the server.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::nfs3::PROCEDURES;

/// Whether a value only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows while the server runs.
    Counter,
    /// Increases and decreases.
    Gauge,
}

/// One value with its name and meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Name, with the unit last.
    pub name: &'static str,
    /// The label `procedure`, where there is one value for each.
    pub procedure: Option<&'static str>,
    /// What it means.
    pub meaning: &'static str,
    /// Counter or gauge.
    pub kind: Kind,
    /// The value.
    pub value: u64,
}

/// A counter or gauge.
#[derive(Debug, Default)]
pub(crate) struct Value(AtomicU64);

impl Value {
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, amount: u64) {
        self.0.fetch_sub(amount, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Declares the table of values: field, kind, meaning. The metric's name derives from the field's.
macro_rules! metrics {
    ($($field:ident: $kind:ident, $meaning:literal;)*) => {
        /// Counters and gauges of the server, from when it was bound.
        #[derive(Debug, Default)]
        pub struct Metrics {
            $(pub(crate) $field: Value,)*
            pub(crate) calls: [Value; PROCEDURES.len()],
        }

        impl Metrics {
            /// All values, with their names and meanings.
            pub fn samples(&self) -> Vec<Sample> {
                let mut samples = vec![$(Sample {
                    name: concat!("nfs_", stringify!($field)),
                    procedure: None,
                    meaning: $meaning,
                    kind: Kind::$kind,
                    value: self.$field.get(),
                },)*];
                samples.extend(PROCEDURES.iter().zip(&self.calls).map(|(procedure, calls)| Sample {
                    name: "nfs_calls",
                    procedure: Some(procedure),
                    meaning: "calls of each NFSv3 procedure that were begun",
                    kind: Kind::Counter,
                    value: calls.get(),
                }));
                samples
            }
        }
    };
}

metrics! {
    connections: Gauge, "open connections";
    connections_accepted: Counter, "connections accepted";
    connections_refused: Counter, "connections closed at once because there were too many";
    connections_of_strangers: Counter, "connections from addresses that no export names";
    connections_over_share: Counter, "connections closed because their client held more than its share of memory in calls that were not complete or not answered";
    accept_errors: Counter, "failures to accept a connection";
    connections_broken: Counter, "connections closed because the bytes were not an RPC call, or a record was too long";
    connections_timed_out: Counter, "connections closed because a record or a TLS handshake was not completed, replies were not read, or nothing happened";
    tls_handshakes: Counter, "connections that switched to TLS";
    tls_handshakes_failed: Counter, "connections closed because the switch to TLS failed";
    received_bytes: Counter, "bytes received";
    sent_bytes: Counter, "bytes sent";
    calls_waiting: Gauge, "calls that wait for the file system";
    calls_denied: Counter, "calls refused for their credential or the client's address";
    calls_garbage: Counter, "calls whose arguments could not be decoded";
    calls_elsewhere: Counter, "calls of programs, versions or procedures that are not served here";
    calls_put_off: Counter, "calls answered NFS3ERR_JUKEBOX because there was no room for them in time";
    replays_answered: Counter, "repeated calls answered with their first reply";
    replays_joined: Counter, "repeated calls that waited for the first to be done";
    replays_dropped: Counter, "repeated calls left unanswered because the first was being done or was given up";
    budget_waits: Counter, "times that a call had to wait for its client's share of the budget of bytes";
    lock_calls: Counter, "calls of the lock manager (NLM)";
    locks: Gauge, "locks, waiters for locks and share reservations";
    lock_callbacks: Counter, "successful callbacks for locks that clients waited for";
    lock_callbacks_failed: Counter, "failed callbacks for such locks";
    mounts: Counter, "successful MNT calls";
    mounts_refused: Counter, "MNT calls refused";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_a_name_and_a_meaning() {
        let metrics = Metrics::default();
        metrics.received_bytes.add(5);
        metrics.calls[1].add(2);
        let samples = metrics.samples();
        let value = |name: &str, procedure: Option<&str>| {
            let mut found = samples.iter();
            let sample = found.find(|s| s.name == name && s.procedure == procedure);
            sample.unwrap().value
        };
        assert_eq!(value("nfs_received_bytes", None), 5);
        assert_eq!(value("nfs_calls", Some("GETATTR")), 2);
        assert!(samples.iter().all(|sample| !sample.meaning.is_empty()));
    }
}
