//! One of the cache's independent parts: calls in the order of their arrival, found by their keys.
//!
//! ```text
//!  heads, by key         slots, by serial number, oldest first
//!  +-----+          +------+------+------+------+------+------+
//!  |  7 -----+      |  3   |  4   |  5   |  6   |  7   |  8   |  <- the next arrival is 9
//!  |  8  |   |      +------+------+------+------+------+------+
//!  |  2  |   |         ^                            |
//!  +-----+   |         +----------- back -----------+
//!            +--------------------------------------^
//! ```
//!
//! A head is the newest call of its bucket. Each slot stores the distance to the next older call of the same bucket.
//! Serial numbers increase and slots leave at the front: a number below that of the first slot (2 in the drawing)
//! belongs to a call that has left, and so do all older ones of its bucket. Nothing has to be removed from a bucket
//! when a call leaves, and there are as many buckets as calls: a step visits one or two calls, regardless of the number
//! of entries.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_types::to_usize;
use tokio::sync::oneshot;

use super::key::ReplayKey;
use super::replies::{Begin, Replies};

/// Repetitions that may wait for one call in flight; further ones are dropped, as their client sends them again.
pub(super) const MAX_WAITING: usize = 4;

/// Bytes that a call takes in addition to its reply: its slot, and its part of the heads.
pub(super) const SLOT_BYTES: usize = size_of::<Slot>() + 2 * size_of::<u64>();

/// Room for the reply to any kept call except unusual ones.
const REPLY_BYTES: usize = 288;

/// The senders to the repetitions that wait for the reply to a call.
pub(super) type Waiting = Vec<oneshot::Sender<Bytes>>;

/// What the shard knows of a call that arrives.
pub(super) enum Known {
    /// Nothing: from now on it counts as in flight.
    Nothing,
    /// It was answered with this reply.
    Done(Bytes),
    /// It is in flight.
    UnderWay(oneshot::Receiver<Bytes>),
    /// It is in flight, and enough repetitions wait.
    Crowded,
}

#[derive(Debug)]
enum State {
    /// With the repetitions that wait for it; usually there are none.
    UnderWay(Option<Box<Waiting>>),
    Done(Begin),
    /// Abandoned, or the reply was too long: treated as if it had never arrived.
    Void,
}

/// A cache line, which each call fetches once.
#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    key: ReplayKey,
    /// Distance to the serial number of the next older call of its bucket; a call that has left is far enough.
    back: u32,
    /// Arrival time, in nanoseconds since the first arrival: half the size of an `Instant`.
    at: u64,
    state: State,
}

// A larger slot would take two cache lines.
const _: () = assert!(size_of::<Slot>() == 64);

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Shard {
    /// Serial numbers by bucket; their number is a power of two.
    heads: Box<[u64]>,
    slots: VecDeque<Slot>,
    /// Serial number of the first slot. Numbers begin with 1: heads begin with 0, which stands for a call that has
    /// left.
    first: u64,
    /// Calls that may be kept; there are more only while that many are in flight.
    entries: usize,
    replies: Replies,
    /// Time of the first arrival.
    begin: Option<Instant>,
    /// Number of slots visited, for the tests.
    #[cfg(test)]
    pub(super) looked_at: std::cell::Cell<u64>,
}

impl Shard {
    /// Creates a shard for at most `entries` calls in `bytes` bytes, but for at least one.
    pub(super) fn new(entries: usize, bytes: usize) -> Shard {
        let entries = entries.min(bytes / (SLOT_BYTES + REPLY_BYTES)).max(1);
        Shard {
            heads: vec![0; entries.next_power_of_two()].into(),
            slots: VecDeque::new(),
            first: 1,
            entries,
            replies: Replies::new(bytes.saturating_sub(entries * SLOT_BYTES)),
            begin: None,
            #[cfg(test)]
            looked_at: std::cell::Cell::default(),
        }
    }

    /// Registers the arrival of a call.
    pub(super) fn arrive(&mut self, key: ReplayKey, now: Instant, age: Duration) -> Known {
        let begin = *self.begin.get_or_insert(now);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the server began less than 584 years ago"
        )]
        let now = now.saturating_duration_since(begin).as_nanos() as u64;
        let found = self.find(&key);
        let found = found.and_then(|serial| self.place(serial));
        if let Some(slot) = found.and_then(|place| self.slots.get_mut(place)) {
            match &mut slot.state {
                State::UnderWay(waiting) => {
                    let waiting = waiting.get_or_insert_default();
                    waiting.retain(|sender| !sender.is_closed());
                    if waiting.len() >= MAX_WAITING {
                        return Known::Crowded;
                    }
                    let (sender, receiver) = oneshot::channel();
                    waiting.push(sender);
                    return Known::UnderWay(receiver);
                }
                State::Done(begin) if u128::from(now.saturating_sub(slot.at)) <= age.as_nanos() => {
                    if let Some(reply) = self.replies.get(*begin) {
                        return Known::Done(Bytes::copy_from_slice(reply));
                    }
                }
                State::Done(_) | State::Void => {}
            }
        }
        self.make_room();
        self.push(key, now, State::UnderWay(None));
        Known::Nothing
    }

    /// Completes a call in flight with its reply. Returns the senders that wait for it.
    pub(super) fn finish(&mut self, key: &ReplayKey, reply: &[u8]) -> Waiting {
        let done = self.replies.keep(reply).map_or(State::Void, State::Done);
        self.end(key, done)
    }

    /// Removes a call in flight that was abandoned. Returns the senders that wait for it.
    pub(super) fn forget(&mut self, key: &ReplayKey) -> Waiting {
        self.end(key, State::Void)
    }

    fn end(&mut self, key: &ReplayKey, state: State) -> Waiting {
        let place = self.find(key).and_then(|serial| self.place(serial));
        let Some(slot) = place.and_then(|place| self.slots.get_mut(place)) else {
            return Waiting::new();
        };
        match std::mem::replace(&mut slot.state, state) {
            State::UnderWay(waiting) => waiting.map_or_else(Waiting::new, |waiting| *waiting),
            State::Done(_) | State::Void => Waiting::new(),
        }
    }

    /// Evicts the oldest calls if the limit is reached. A call in flight stays and becomes the newest. To keep the cost
    /// constant regardless of how many are in flight, there can then be one call above the limit, and the next times
    /// evict two.
    fn make_room(&mut self) {
        for _ in 0..2 {
            if self.slots.len() < self.entries {
                break;
            }
            let Some(oldest) = self.slots.pop_front() else {
                break;
            };
            self.first += 1;
            #[cfg(test)]
            self.looked_at.update(|count| count + 1);
            if let State::UnderWay(_) = oldest.state {
                self.push(oldest.key, oldest.at, oldest.state);
            }
        }
    }

    fn push(&mut self, key: ReplayKey, at: u64, state: State) {
        let serial = self.first + self.slots.len() as u64;
        let bucket = self.bucket(&key);
        let Some(head) = self.heads.get_mut(bucket) else {
            return;
        };
        let older = std::mem::replace(head, serial);
        self.slots.push_back(Slot {
            key,
            back: u32::try_from(serial - older).unwrap_or(u32::MAX),
            at,
            state,
        });
    }

    /// Finds the newest call with this key.
    fn find(&self, key: &ReplayKey) -> Option<u64> {
        let mut serial = *self.heads.get(self.bucket(key))?;
        // Each is older than the one before, so the loop ends.
        loop {
            let slot = self.slots.get(self.place(serial)?)?;
            #[cfg(test)]
            self.looked_at.update(|count| count + 1);
            if slot.key == *key {
                return Some(serial);
            }
            serial = serial.saturating_sub(slot.back.into());
        }
    }

    /// Index of the slot of a call, if it has not left.
    fn place(&self, serial: u64) -> Option<usize> {
        serial.checked_sub(self.first).map(to_usize)
    }

    fn bucket(&self, key: &ReplayKey) -> usize {
        // The upper bits have chosen the shard.
        to_usize(key.spread()) & (self.heads.len() - 1)
    }

    /// Whether the limits hold, with `under_way` calls in flight.
    #[cfg(test)]
    pub(super) fn is_within(&self, entries: usize, under_way: usize) -> bool {
        self.slots.len() <= entries + under_way
    }
}
