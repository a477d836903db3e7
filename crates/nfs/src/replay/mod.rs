//! The replay cache: a call that is repeated is answered with its first reply, and not done again.
//!
//! When a reply is lost with its connection, the client sends the call again over the next one.
//! READ can be done twice; REMOVE cannot: the second time the name is gone, and the program that
//! removed it sees an error. So the replies of the procedures that change names or attributes are
//! kept for a while.
//!
//! * [`key`]: by what a call is known.
//! * [`shard`]: calls in the order of their arrival, the oldest of which leave first when there are too many.
//! * [`replies`]: the bytes of their replies, of which the oldest leave first when there are too many.
//!
//! What was kept for longer than the cache's age is not used any more. A call takes the lock of one
//! shard twice, when it arrives and when it is done, each time for a step that costs the same whatever
//! the cache holds.

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

/// Independent parts, each with its own lock: many more than processors.
const SHARDS: usize = 32;

/// What is known of a call that has arrived.
pub(crate) enum Arrival<'a> {
    /// Nothing: do it, then [`Ticket::finish`].
    First(Ticket<'a>),
    /// It was done, and answered with this record.
    Done(Bytes),
    /// It is being done; the reply comes here, or an error if it was given up.
    UnderWay(oneshot::Receiver<Bytes>),
    /// It is being done, and enough repetitions wait for it.
    Crowded,
}

/// A shard behind its lock, in cache lines of its own, two at a time as processors fetch them: whoever locks one does
/// not slow down the others.
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

/// The right and the duty to do a call. Dropped without [`Ticket::finish`] the call counts as never
/// arrived.
pub(crate) struct Ticket<'a> {
    shard: &'a Guarded,
    key: ReplayKey,
    finished: bool,
}

impl ReplayCache {
    /// Keeps at most so many replies, in at most so many bytes, for at most so long. Calls under way are known
    /// whatever the limits.
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

    /// This record has arrived from this client, over such a connection.
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
    /// The call is done and this is the record that answers it.
    pub(crate) fn finish(mut self, record: &[u8]) {
        self.finished = true;
        let waiting = self.shard.with(|shard| shard.finish(&self.key, record));
        if waiting.is_empty() {
            return;
        }
        let reply = Bytes::copy_from_slice(record);
        // A receiver that is gone had its connection closed.
        waiting
            .into_iter()
            .for_each(|sender| _ = sender.send(reply.clone()));
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if !self.finished {
            // Those who wait learn of it when their senders are dropped, after the lock.
            let waiting = self.shard.with(|shard| shard.forget(&self.key));
            drop(waiting);
        }
    }
}

#[cfg(test)]
mod tests;
