//! The replay cache: a call that is repeated is answered with its first reply, and not done again.
//!
//! When a reply is lost with its connection, the client sends the call again over the next one.
//! READ can be done twice; REMOVE cannot: the second time the name is gone, and the program that
//! removed it sees an error. So the replies of the procedures that change names or attributes are
//! kept for a while.
//!
//! A call is known by the client's IP address and a checksum of the whole record, which holds the
//! transaction id, program, procedure, credential and arguments. Not by port or connection:
//! both may change on the way. Entries are dropped oldest first when a shard has more than its
//! share of entries or bytes, and not used past their age. Every step costs the same whatever
//! the cache holds.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::Transport;

/// Independent parts, each with its own lock.
const SHARDS: usize = 16;

/// What an entry takes besides the bytes of the reply: its key, twice, and the tables' own
/// overhead.
const ENTRY_BYTES: usize = 192;

/// Repetitions that may wait for one call under way; more are dropped, as their client repeats them.
const MAX_WAITING: usize = 4;

/// By what a call is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReplayKey {
    address: IpAddr,
    /// A reply that went out protected must not be had again without.
    transport: Transport,
    checksum: [u8; 16],
}

impl ReplayKey {
    /// The key of a record that this client sent over such a connection.
    pub(crate) fn new(address: IpAddr, transport: Transport, record: &[u8]) -> ReplayKey {
        let mut checksum = [0; 16];
        let hash = blake3::hash(record);
        checksum
            .iter_mut()
            .zip(hash.as_bytes())
            .for_each(|(to, from)| *to = *from);
        ReplayKey {
            address,
            transport,
            checksum,
        }
    }

    fn shard(&self) -> usize {
        let [first, ..] = self.checksum;
        usize::from(first) % SHARDS
    }
}

/// What is known of a call that has arrived.
pub(crate) enum Arrival {
    /// Nothing: do it, then [`Ticket::finish`].
    First(Ticket),
    /// It was done, and answered with this record.
    Done(Bytes),
    /// It is being done; the reply comes here, or an error if it was given up.
    UnderWay(oneshot::Receiver<Bytes>),
    /// It is being done, and enough repetitions wait for it.
    Crowded,
}

enum Entry {
    UnderWay(Vec<oneshot::Sender<Bytes>>),
    Done {
        reply: Bytes,
        at: Instant,
        serial: u64,
    },
}

#[derive(Default)]
struct Shard {
    entries: HashMap<ReplayKey, Entry>,
    /// What is done, oldest first: key, serial, cost. An item whose serial is not that of its entry
    /// is a leftover.
    order: VecDeque<(ReplayKey, u64, usize)>,
    bytes: usize,
    serial: u64,
}

/// See the module's documentation.
pub(crate) struct ReplayCache {
    shards: [Mutex<Shard>; SHARDS],
    entries: usize,
    bytes: usize,
    age: Duration,
}

/// The right and the duty to do a call. Dropped without [`Ticket::finish`] the call counts as never
/// arrived.
pub(crate) struct Ticket {
    cache: Arc<ReplayCache>,
    key: ReplayKey,
    at: Instant,
    finished: bool,
}

impl ReplayCache {
    /// Keeps at most so many replies, in at most so many bytes, for at most so long.
    pub(crate) fn new(entries: usize, bytes: usize, age: Duration) -> ReplayCache {
        ReplayCache {
            shards: Default::default(),
            entries: entries / SHARDS,
            bytes: bytes / SHARDS,
            age,
        }
    }

    fn shard(&self, key: &ReplayKey) -> &Mutex<Shard> {
        // The index is taken modulo the length.
        &self.shards[key.shard()]
    }

    /// A call has arrived.
    pub(crate) fn arrive(self: &Arc<Self>, key: ReplayKey, now: Instant) -> Arrival {
        let mut shard = self.shard(&key).lock();
        match shard.entries.get_mut(&key) {
            Some(Entry::Done { reply, at, .. })
                if now.saturating_duration_since(*at) <= self.age =>
            {
                return Arrival::Done(reply.clone());
            }
            Some(Entry::UnderWay(waiting)) => {
                waiting.retain(|sender| !sender.is_closed());
                if waiting.len() >= MAX_WAITING {
                    return Arrival::Crowded;
                }
                let (sender, receiver) = oneshot::channel();
                waiting.push(sender);
                return Arrival::UnderWay(receiver);
            }
            Some(Entry::Done { .. }) | None => {}
        }
        shard.entries.insert(key, Entry::UnderWay(Vec::new()));
        Arrival::First(Ticket {
            cache: self.clone(),
            key,
            at: now,
            finished: false,
        })
    }

    fn finish(&self, key: ReplayKey, at: Instant, record: &[u8]) {
        let reply = Bytes::copy_from_slice(record);
        let cost = reply.len() + ENTRY_BYTES;
        let mut guard = self.shard(&key).lock();
        let shard = &mut *guard;
        shard.serial += 1;
        let serial = shard.serial;
        let done = Entry::Done {
            reply: reply.clone(),
            at,
            serial,
        };
        let before = shard.entries.insert(key, done);
        shard.order.push_back((key, serial, cost));
        shard.bytes += cost;
        while shard.order.len() > self.entries || shard.bytes > self.bytes {
            let Some((oldest, last, cost)) = shard.order.pop_front() else {
                break;
            };
            shard.bytes -= cost;
            let entry = shard.entries.get(&oldest);
            if matches!(entry, Some(Entry::Done { serial, .. }) if *serial == last) {
                shard.entries.remove(&oldest);
            }
        }
        drop(guard);
        if let Some(Entry::UnderWay(waiting)) = before {
            // A receiver that is gone had its connection closed.
            waiting
                .into_iter()
                .for_each(|sender| _ = sender.send(reply.clone()));
        }
    }
}

impl Ticket {
    /// The call is done and this is the record that answers it.
    pub(crate) fn finish(mut self, record: &[u8]) {
        self.finished = true;
        self.cache.finish(self.key, self.at, record);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.finished {
            self.cache.shard(&self.key).lock().entries.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries: usize, bytes: usize) -> Arc<ReplayCache> {
        let age = Duration::from_secs(10);
        Arc::new(ReplayCache::new(entries, bytes, age))
    }

    fn key(record: &[u8]) -> ReplayKey {
        ReplayKey::new("10.0.0.1".parse().unwrap(), Transport::Plain, record)
    }

    fn first(arrival: Arrival) -> Ticket {
        match arrival {
            Arrival::First(ticket) => ticket,
            _ => panic!("the call is known already"),
        }
    }

    fn done(arrival: Arrival) -> Bytes {
        match arrival {
            Arrival::Done(reply) => reply,
            _ => panic!("the call is not done"),
        }
    }

    #[test]
    fn a_repeated_call_gets_the_first_reply() {
        let (cache, now) = (cache(1000, 1 << 20), Instant::now());
        first(cache.arrive(key(b"call"), now)).finish(b"reply");
        assert_eq!(done(cache.arrive(key(b"call"), now)), &b"reply"[..]);
        first(cache.arrive(key(b"other call"), now));
        let other = ReplayKey::new("10.0.0.2".parse().unwrap(), Transport::Plain, b"call");
        first(cache.arrive(other, now));
    }

    #[test]
    fn a_repetition_of_a_call_under_way_waits_for_its_reply() {
        let (cache, now) = (cache(1000, 1 << 20), Instant::now());
        let ticket = first(cache.arrive(key(b"call"), now));
        let Arrival::UnderWay(mut waiting) = cache.arrive(key(b"call"), now) else {
            panic!("the call is under way");
        };
        assert!(waiting.try_recv().is_err());
        ticket.finish(b"reply");
        assert_eq!(waiting.try_recv().unwrap(), &b"reply"[..]);
    }

    #[test]
    fn only_a_few_repetitions_wait() {
        let (cache, now) = (cache(1000, 1 << 20), Instant::now());
        let _ticket = first(cache.arrive(key(b"call"), now));
        let mut waiting: Vec<_> = (0..MAX_WAITING)
            .map(|_| cache.arrive(key(b"call"), now))
            .collect();
        assert!(matches!(cache.arrive(key(b"call"), now), Arrival::Crowded));
        waiting.pop();
        let arrival = cache.arrive(key(b"call"), now);
        assert!(matches!(arrival, Arrival::UnderWay(_)));
    }

    #[test]
    fn a_call_that_was_given_up_can_be_done_again() {
        let (cache, now) = (cache(1000, 1 << 20), Instant::now());
        drop(first(cache.arrive(key(b"call"), now)));
        first(cache.arrive(key(b"call"), now));
    }

    #[test]
    fn an_old_reply_is_not_given_again() {
        let (cache, now) = (cache(1000, 1 << 20), Instant::now());
        first(cache.arrive(key(b"call"), now)).finish(b"reply");
        let later = now + Duration::from_secs(11);
        first(cache.arrive(key(b"call"), later)).finish(b"second");
        assert_eq!(done(cache.arrive(key(b"call"), later)), &b"second"[..]);
    }

    #[test]
    fn entries_and_bytes_stay_within_their_limits() {
        let now = Instant::now();
        for (entries, bytes) in [(SHARDS * 8, 1 << 20), (1 << 20, SHARDS * 4096)] {
            let cache = cache(entries, bytes);
            for number in 0..5000_u32 {
                let record = number.to_be_bytes();
                first(cache.arrive(key(&record), now)).finish(&[0; 100]);
                assert_eq!(done(cache.arrive(key(&record), now)).len(), 100);
            }
            for shard in &cache.shards {
                let shard = shard.lock();
                assert!(shard.entries.len() <= entries / SHARDS);
                assert_eq!(shard.entries.len(), shard.order.len());
                assert!(shard.bytes <= bytes / SHARDS);
            }
        }
    }
}
