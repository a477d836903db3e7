//! Metrics of the server: the instruments, and what they report.
//!
//! * `calls`: the time that calls take, for each procedure and outcome.
//! * `clients`: calls and bytes of each client.
//! * `lock_answers`: the answers of the lock manager, by their status.
//! * `files`: the files with the most reads and writes.
//! * `waits`: the time that calls wait, by kind.

mod calls;
mod clients;
mod files;
mod lock_answers;
mod waits;

use std::sync::Arc;

use forebay_metrics::{Counter, Gauge, Samples, Source, Value, table};

use calls::Calls;
pub(crate) use clients::ClientCounts;
use clients::Clients;
pub use files::BusyFile;
use files::Files;
use lock_answers::LockAnswers;
use waits::Waits;

/// Declares the instruments without labels: field, type, method of [`Samples`], family.
macro_rules! instruments {
    ($($field:ident: $kind:ident, $add:ident, $family:ident;)*) => {
        /// Instruments of the server, from when it was bound. The [table] says what each means.
        #[derive(Debug, Default)]
        pub struct Metrics {
            $(pub(crate) $field: $kind,)*
            /// Bytes that clients hold of the shared budgets, and the sum of these.
            pub(crate) held: Arc<Gauge>,
            pub(crate) holdable: Gauge,
            pub(crate) calls: Calls,
            pub(crate) clients: Clients,
            pub(crate) files: Files,
            pub(crate) lock_answers: LockAnswers,
            pub(crate) waits: Waits,
        }

        impl Source for Metrics {
            fn collect(&self, samples: &mut Samples) {
                $(samples.$add(&table::$family, &self.$field);)*
                for (family, bytes) in [
                    (&table::MEMORY, &*self.held),
                    (&table::MEMORY_LIMIT, &self.holdable),
                ] {
                    samples.add(family, ["calls".into()], Value::Gauge(bytes.get() as f64));
                }
                self.calls.collect(samples);
                self.clients.collect(samples);
                self.lock_answers.collect(samples);
                self.waits.collect(samples);
            }
        }
    };
}

instruments! {
    connections: Gauge, gauge, NFS_CONNECTIONS;
    connections_accepted: Counter, counter, NFS_CONNECTIONS_ACCEPTED;
    connections_refused: Counter, counter, NFS_CONNECTIONS_REFUSED;
    connections_of_strangers: Counter, counter, NFS_CONNECTIONS_OF_STRANGERS;
    connections_over_share: Counter, counter, NFS_CONNECTIONS_OVER_SHARE;
    connections_broken: Counter, counter, NFS_CONNECTIONS_BROKEN;
    connections_timed_out: Counter, counter, NFS_CONNECTIONS_TIMED_OUT;
    accept_errors: Counter, counter, NFS_ACCEPT_ERRORS;
    tls_handshakes: Counter, counter, NFS_TLS_HANDSHAKES;
    tls_handshakes_failed: Counter, counter, NFS_TLS_HANDSHAKES_FAILED;
    received_bytes: Counter, counter, NFS_RECEIVED;
    sent_bytes: Counter, counter, NFS_SENT;
    read_bytes: Counter, counter, NFS_READ;
    written_bytes: Counter, counter, NFS_WRITTEN;
    calls_waiting: Gauge, gauge, NFS_CALLS_WAITING;
    calls_denied: Counter, counter, NFS_CALLS_DENIED;
    calls_garbage: Counter, counter, NFS_CALLS_GARBAGE;
    calls_elsewhere: Counter, counter, NFS_CALLS_ELSEWHERE;
    calls_put_off: Counter, counter, NFS_CALLS_PUT_OFF;
    slow_calls: Counter, counter, NFS_SLOW_CALLS;
    replays_answered: Counter, counter, NFS_REPLAYS_ANSWERED;
    replays_joined: Counter, counter, NFS_REPLAYS_JOINED;
    replays_dropped: Counter, counter, NFS_REPLAYS_DROPPED;
    budget_waits: Counter, counter, NFS_BUDGET_WAITS;
    lock_calls: Counter, counter, NFS_LOCK_CALLS;
    locks: Gauge, gauge, NFS_LOCKS;
    lock_callbacks: Counter, counter, NFS_LOCK_CALLBACKS;
    lock_callbacks_failed: Counter, counter, NFS_LOCK_CALLBACKS_FAILED;
    mounts: Counter, counter, NFS_MOUNTS;
    mounts_refused: Counter, counter, NFS_MOUNTS_REFUSED;
}

impl Metrics {
    /// The files with the most reads and writes, at most 256, in no order. For one reader that looks every few seconds:
    /// earlier load weighs less with each look. The counts of a place only grow; those of busy gateways are sampled.
    pub fn busy_files(&self) -> Vec<BusyFile> {
        self.files.look()
    }
}
