//! The waits and requests of one call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Declares what calls wait for, with the names.
macro_rules! kinds {
    ($($(#[$meaning:meta])* $kind:ident = $name:literal,)*) => {
        /// What a call waits for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum For {
            $($(#[$meaning])* $kind,)*
        }

        impl For {
            /// All of them with their names, in the order of their declaration.
            pub const ALL: &'static [(For, &'static str)] = &[$((For::$kind, $name),)*];
        }
    };
}

kinds! {
    /// Its turn: its connection has too many calls in flight, or the calls of all clients hold too much memory.
    Turn = "turn",
    /// The first execution of the same call, which the client has sent again.
    Repetition = "repetition",
    /// Memory for the bytes that it writes.
    Memory = "memory",
    /// Memory for a change of names or attributes.
    Names = "names",
    /// Room in the log.
    Log = "log",
    /// The flush of the log to the disk; for an unstable write, that the log has all changes before it.
    Flush = "flush",
    /// The bucket: data or metadata that are not stored locally, or the publication of its change.
    Bucket = "bucket",
    /// Data from the disk cache.
    DiskCache = "disk_cache",
    /// Data from the log, that are neither in memory nor in the bucket.
    LogRead = "log_read",
    /// The names of a directory that another call changes.
    DirectoryLock = "directory_lock",
    /// The state of a file or directory that another call uses.
    NodeLock = "node_lock",
    /// The end of a checkpoint that is being closed.
    CheckpointLock = "checkpoint_lock",
}

impl For {
    /// Its name in traces: lower case, with underscores.
    pub fn name(self) -> &'static str {
        // They are numbered in order.
        For::ALL[self as usize].1
    }
}

/// The record of one call. Its clones are the same record.
#[derive(Clone, Debug, Default)]
pub struct Call(Arc<Mutex<Record>>);

#[derive(Debug, Default)]
struct Record {
    waits: [Wait; For::ALL.len()],
    requests: Vec<Requested>,
}

/// The waits of one kind. Those that overlap, as of several fetches at a time, count once.
#[derive(Clone, Copy, Debug, Default)]
struct Wait {
    /// Those that have begun and not ended.
    open: u32,
    /// When the first of these began.
    since: Option<Instant>,
    /// Time of those before.
    total: Duration,
}

/// The requests of one method that a call has caused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requested {
    /// Their method, in the words of the metrics.
    pub method: &'static str,
    /// Their number.
    pub requests: u64,
    /// Bytes of their bodies.
    pub sent_bytes: u64,
    /// Bytes of the bodies of their answers.
    pub received_bytes: u64,
    /// Time until their answers began, all together; requests that ran at the same time count each.
    pub time: Duration,
}

/// What a call has waited for, and what it has caused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// What it has waited for, and how long. Waits of different kinds may overlap.
    pub waits: Vec<(For, Duration)>,
    /// The requests to the bucket, by method.
    pub requests: Vec<Requested>,
}

impl Call {
    /// A wait begins `now`. It has to be ended.
    pub fn begin(&self, what: For, now: Instant) {
        let wait = &mut self.lock().waits[what as usize];
        wait.open += 1;
        wait.since.get_or_insert(now);
    }

    /// A wait that has begun ends `now`.
    pub fn end(&self, what: For, now: Instant) {
        let wait = &mut self.lock().waits[what as usize];
        wait.open = wait.open.saturating_sub(1);
        if wait.open == 0
            && let Some(since) = wait.since.take()
        {
            wait.total += now.saturating_duration_since(since);
        }
    }

    /// The call has waited this long.
    pub fn waited(&self, what: For, time: Duration) {
        self.lock().waits[what as usize].total += time;
    }

    /// A request to the bucket that the call has caused is answered, or given up, after this time. Bytes are those of
    /// the bodies.
    pub fn requested(&self, method: &'static str, (sent, received): (u64, u64), time: Duration) {
        let requests = &mut self.lock().requests;
        let place = requests.iter().position(|own| own.method == method);
        let place = place.unwrap_or_else(|| {
            requests.push(Requested {
                method,
                requests: 0,
                sent_bytes: 0,
                received_bytes: 0,
                time: Duration::ZERO,
            });
            requests.len() - 1
        });
        let own = &mut requests[place];
        own.requests += 1;
        own.sent_bytes += sent;
        own.received_bytes += received;
        own.time += time;
    }

    /// Everything until `now`, including waits that have not ended.
    pub fn summary(&self, now: Instant) -> Summary {
        let record = self.lock();
        let waits = For::ALL.iter().zip(&record.waits);
        let waits = waits.map(|((what, _), wait)| {
            let open = wait.since.map(|since| now.saturating_duration_since(since));
            (*what, wait.total + open.unwrap_or_default())
        });
        Summary {
            waits: waits.filter(|(_, time)| !time.is_zero()).collect(),
            requests: record.requests.clone(),
        }
    }

    /// Calls `each` with each kind of wait that has ended, and how long these waits took together. Allocates nothing.
    pub fn ended(&self, mut each: impl FnMut(For, Duration)) {
        let record = self.lock();
        for ((what, _), wait) in For::ALL.iter().zip(&record.waits) {
            if !wait.total.is_zero() {
                each(*what, wait.total);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        // Held for a few assignments, which cannot leave an inconsistent state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_name_stands_at_the_place_of_its_number() {
        for (place, (what, name)) in For::ALL.iter().enumerate() {
            assert_eq!((*what as usize, what.name()), (place, *name));
        }
    }

    #[test]
    fn waits_of_a_kind_that_overlap_count_once_and_kinds_apart() {
        let (call, start) = (Call::default(), Instant::now());
        let at = |seconds| start + SECOND * seconds;
        call.begin(For::Bucket, at(0));
        call.begin(For::Bucket, at(1));
        call.begin(For::Flush, at(1));
        call.end(For::Bucket, at(2));
        call.end(For::Flush, at(3));
        call.end(For::Bucket, at(4));
        call.begin(For::Bucket, at(10));
        call.waited(For::Turn, SECOND);
        assert_eq!(
            call.summary(at(12)).waits,
            [
                (For::Turn, SECOND),
                (For::Flush, 2 * SECOND),
                (For::Bucket, 6 * SECOND),
            ]
        );
        call.end(For::Bucket, at(11));
        let bucket = (For::Bucket, 5 * SECOND);
        assert_eq!(call.summary(at(99)).waits.last(), Some(&bucket));
    }

    #[test]
    fn waits_that_have_ended_are_reported_by_kind() {
        let (call, start) = (Call::default(), Instant::now());
        call.waited(For::Turn, SECOND);
        call.waited(For::Turn, SECOND);
        call.begin(For::Flush, start);
        call.begin(For::Bucket, start);
        call.end(For::Flush, start + SECOND);
        let mut ended = Vec::new();
        call.ended(|what, time| ended.push((what, time)));
        assert_eq!(ended, [(For::Turn, 2 * SECOND), (For::Flush, SECOND)]);
    }

    #[test]
    fn requests_are_added_up_by_method() {
        let call = Call::default();
        call.requested("get", (0, 10), SECOND);
        call.requested("put", (7, 0), SECOND);
        call.requested("get", (0, 5), SECOND);
        let requests = call.summary(Instant::now()).requests;
        let get = Requested {
            method: "get",
            requests: 2,
            sent_bytes: 0,
            received_bytes: 15,
            time: 2 * SECOND,
        };
        assert_eq!(requests.len(), 2);
        assert_eq!((&requests[0], requests[1].sent_bytes), (&get, 7));
    }
}
