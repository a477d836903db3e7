//! The replay cache: a repeated call gets its first reply, and is not executed again.
//!
//! When a reply is lost with its connection, the client sends the call again over the next one.
//! READ can be executed twice; REMOVE cannot: the second time the name is missing, and the program that
//! removed it sees an error. So the replies of the procedures that change names or attributes are
//! kept for a while.
//!
//! * [`key`]: the key that identifies a call.
//! * [`shard`]: calls in the order of their arrival; the oldest are evicted when there are too many.
//! * [`replies`]: the bytes of their replies; the oldest are evicted when there are too many.
//!
//! Entries older than the cache's age are ignored. A call takes the lock of one
//! shard twice, on arrival and on completion. Each time the cost is constant, regardless of the number of
//! entries.

mod key;
mod replies;
mod shard;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::Transport;
use key::{Keys, ReplayKey};
use shard::{Known, Shard};

/// Independent parts, each with its own lock: many more than there are processors.
const SHARDS: usize = 32;

/// What the cache knows of a call that has arrived.
pub(crate) enum Arrival<'a> {
    /// Nothing: execute it, then call [`Ticket::finish`].
    First(Ticket<'a>),
    /// It was executed, and answered with this record.
    Done(Bytes),
    /// It is in flight; the receiver gets the reply, or an error if the call was abandoned.
    UnderWay(oneshot::Receiver<Bytes>),
    /// It is in flight, and enough repetitions wait for it.
    Crowded,
}

/// A shard behind its lock, in a pair of cache lines of its own, because processors fetch them in pairs: locking one
/// shard does not slow down the others.
#[repr(align(128))]
struct Guarded {
    shard: Mutex<Shard>,
    /// How often it was locked, for the tests.
    #[cfg(test)]
    locked: std::sync::atomic::AtomicU64,
}

impl Guarded {
    fn with<T>(&self, step: impl FnOnce(&mut Shard) -> T) -> T {
        #[cfg(test)]
        self.locked
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        step(&mut self.shard.lock())
    }
}

/// See the module's documentation.
pub(crate) struct ReplayCache {
    keys: Keys,
    shards: [Guarded; SHARDS],
    age: Duration,
}

/// The right and the duty to execute a call. If it is dropped without [`Ticket::finish`], the call counts as never
/// arrived.
pub(crate) struct Ticket<'a> {
    shard: &'a Guarded,
    key: ReplayKey,
    finished: bool,
}

impl ReplayCache {
    /// Creates a cache for at most `entries` replies of `bytes` bytes together, kept for at most `age`. Calls in flight
    /// are known regardless of these limits.
    pub(crate) fn new(entries: usize, bytes: usize, age: Duration) -> ReplayCache {
        let shard = |_| Guarded {
            shard: Mutex::new(Shard::new(entries / SHARDS, bytes / SHARDS)),
            #[cfg(test)]
            locked: Default::default(),
        };
        ReplayCache {
            keys: Keys::new(),
            shards: std::array::from_fn(shard),
            age,
        }
    }

    /// Registers a record that has arrived from this client over a connection with this protection.
    pub(crate) fn arrive(
        &self,
        address: IpAddr,
        transport: Transport,
        record: &[u8],
        now: Instant,
    ) -> Arrival<'_> {
        let (key, number) = self.keys.of(address, transport, record);
        // The index is taken modulo the length.
        let shard = &self.shards[number as usize % SHARDS];
        let known = shard.with(|shard| shard.arrive(key, now, self.age));
        match known {
            Known::Nothing => Arrival::First(Ticket {
                shard,
                key,
                finished: false,
            }),
            Known::Done(reply) => Arrival::Done(reply),
            Known::UnderWay(reply) => Arrival::UnderWay(reply),
            Known::Crowded => Arrival::Crowded,
        }
    }
}

impl Ticket<'_> {
    /// Completes the call with the record that answers it.
    pub(crate) fn finish(mut self, record: &[u8]) {
        self.finished = true;
        let waiting = self.shard.with(|shard| shard.finish(&self.key, record));
        if waiting.is_empty() {
            return;
        }
        let reply = Bytes::copy_from_slice(record);
        // A receiver is missing if its connection was closed.
        waiting
            .into_iter()
            .for_each(|sender| _ = sender.send(reply.clone()));
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if !self.finished {
            // The waiting repetitions get an error when their senders are dropped, after the lock.
            let waiting = self.shard.with(|shard| shard.forget(&self.key));
            drop(waiting);
        }
    }
}

#[cfg(test)]
mod tests;
