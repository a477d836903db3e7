//! Decides which body may move bytes over one direction of the link.
//!
//! A token bucket and, in front of it, two queues. Tokens are bytes: they arrive at the rate of the hour, and at most
//! those of a tenth of a second are kept. A body asks for a permit for each of its pieces and queues up again after it,
//! so that large bodies share the link evenly.
//!
//! ```text
//!   small bodies  ---- piece, piece, piece ----+
//!                                              +--- 3 bytes to 1 if both wait ---> tokens ---> the link
//!   large bodies  ---- piece, piece, piece ----+
//! ```
//!
//! Small bodies are metadata, small files and data that a reader waits for: they go first. They leave a quarter to
//! large ones, so that neither class waits for ever.
//!
//! A body has to begin first. The number of bodies of each class in transit is limited, so that each of them gets a
//! piece every few seconds: servers give up connections on which nothing moves.

use std::collections::VecDeque;
use std::time::Duration;

use forebay_types::balance;
use tokio::time::Instant;

use super::LinkLimit;

/// Most bytes that one permit is for.
pub(crate) const PIECE: usize = 64 << 10;
/// Share of the rate for each body that may begin. If both classes wait, a large one then gets a piece every four
/// seconds, out of its quarter, and a small one every five and a third.
const RATE_OF_SMALL: u64 = 16 << 10;
const RATE_OF_LARGE: u64 = 64 << 10;
/// Bytes of small bodies that go before a waiting large one.
const BEFORE_LARGE: u64 = 3 * PIECE as u64;
/// Tokens of this time are kept, in seconds.
const KEPT_S: f64 = 0.1;
/// Maximum time after which a waiting body asks again: the rate may have changed by then.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// A waiting body that has not asked for this time loses its place: its reader has stopped reading, and blocks those
/// behind.
const PLACE_KEPT: Duration = Duration::from_secs(3);

/// The priority of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Small,
    Large,
}

impl Class {
    /// Maximum number of bodies in transit.
    fn most(self, rate: u64) -> usize {
        let of_one = match self {
            Class::Small => RATE_OF_SMALL,
            Class::Large => RATE_OF_LARGE,
        };
        usize::try_from(rate / of_one).unwrap_or(usize::MAX)
    }
}

/// The place of a waiting body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ticket(u64);

/// The answer to a request for a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The tokens are taken. The place is given up.
    Granted,
    /// Ask again when the body in front has left, and at this time in any case.
    Wait(Instant),
}

#[derive(Debug)]
struct Waiter {
    place: Ticket,
    asked: Instant,
}

/// The bodies of one class.
#[derive(Debug, Default)]
struct Bodies {
    /// Bodies that have not begun.
    beginners: VecDeque<Waiter>,
    /// Number of bodies that have begun, and have not ended.
    under_way: usize,
    /// Bodies that wait for a permit.
    waiting: VecDeque<Waiter>,
}

/// One direction of the link.
#[derive(Debug)]
pub(super) struct Queue {
    limit: LinkLimit,
    tokens: f64,
    filled: Instant,
    small: Bodies,
    large: Bodies,
    /// Bytes of small bodies that went before waiting large ones, less those for which large ones went.
    passed: u64,
    next_place: u64,
    /// Time in which any body waited, without the period that began at `held_since`.
    held: Duration,
    held_since: Option<Instant>,
}

impl Queue {
    pub(super) fn new(limit: LinkLimit, now: Instant) -> Queue {
        Queue {
            limit,
            tokens: PIECE as f64,
            filled: now,
            small: Bodies::default(),
            large: Bodies::default(),
            passed: 0,
            next_place: 0,
            held: Duration::ZERO,
            held_since: None,
        }
    }

    /// Bytes per second in this minute of the day; `None` for no limit.
    pub(super) fn rate(&self, minute: u16) -> Option<u64> {
        self.limit.rate_at(minute)
    }

    /// Total time in which any body has waited so far.
    pub(super) fn held(&self, now: Instant) -> Duration {
        let running = self.held_since.map(|since| now.duration_since(since));
        self.held + running.unwrap_or_default()
    }

    /// Asks for a permit for `bytes`, [`PIECE`] at most, in this minute of the day. A body without a place gets the last
    /// one of its class.
    pub(super) fn ask(
        &mut self,
        place: &mut Option<Ticket>,
        class: Class,
        bytes: usize,
        now: Instant,
        minute: u16,
    ) -> Answer {
        let rate = self.limit.rate_at(minute);
        self.fill(rate, now);
        let own = self.place(place);
        enter(&mut self.of(class).waiting, own, now);
        self.note(now);
        let Some(rate) = rate else {
            self.take(place, now);
            return Answer::Granted;
        };
        let count = bytes.min(PIECE);
        let bytes = count as f64;
        if self.next(now) != Some(own) {
            return Answer::Wait(now + ASK_AGAIN);
        }
        if self.tokens < bytes {
            let missing = Duration::from_secs_f64((bytes - self.tokens) / rate as f64);
            // Never zero: a rounded time would be asked for again and again.
            let pause = missing.clamp(Duration::from_millis(1), ASK_AGAIN);
            return Answer::Wait(now + pause);
        }
        self.tokens -= bytes;
        match class {
            Class::Small if !self.large.waiting.is_empty() => self.passed += count as u64,
            Class::Small => {}
            Class::Large => self.passed = self.passed.saturating_sub(BEFORE_LARGE),
        }
        self.take(place, now);
        Answer::Granted
    }

    /// Asks whether a body may begin; [`Queue::end`] has to follow.
    pub(super) fn begin(
        &mut self,
        place: &mut Option<Ticket>,
        class: Class,
        now: Instant,
        minute: u16,
    ) -> Answer {
        let own = self.place(place);
        enter(&mut self.of(class).beginners, own, now);
        self.note(now);
        if let Some(rate) = self.limit.rate_at(minute) {
            let is_full = self.of(class).under_way >= class.most(rate);
            if is_full || self.next_to_begin(class, now) != Some(own) {
                return Answer::Wait(now + ASK_AGAIN);
            }
        }
        self.of(class).under_way += 1;
        self.take(place, now);
        Answer::Granted
    }

    /// Notes that a body which has begun has ended, or was given up.
    pub(super) fn end(&mut self, class: Class) {
        let bodies = self.of(class);
        bodies.under_way = balance::taken_count("bodies in flight", bodies.under_way, 1);
    }

    /// Gives a place up.
    pub(super) fn take(&mut self, place: &mut Option<Ticket>, now: Instant) {
        if let Some(place) = place.take() {
            for bodies in [&mut self.small, &mut self.large] {
                bodies.beginners.retain(|waiter| waiter.place != place);
                bodies.waiting.retain(|waiter| waiter.place != place);
            }
        }
        self.note(now);
    }

    /// The place whose body is to ask next. Bodies that have stopped asking lose their places.
    pub(super) fn next(&mut self, now: Instant) -> Option<Ticket> {
        forget(&mut self.small.waiting, now);
        forget(&mut self.large.waiting, now);
        self.note(now);
        let large_is_due = self.passed >= BEFORE_LARGE;
        let (first, second) = if large_is_due {
            (&self.large, &self.small)
        } else {
            (&self.small, &self.large)
        };
        let waiter = first.waiting.front().or(second.waiting.front())?;
        Some(waiter.place)
    }

    /// The place of the body of a class that is to ask next whether it may begin.
    pub(super) fn next_to_begin(&mut self, class: Class, now: Instant) -> Option<Ticket> {
        forget(&mut self.of(class).beginners, now);
        self.note(now);
        let first = self.of(class).beginners.front();
        first.map(|waiter| waiter.place)
    }

    fn of(&mut self, class: Class) -> &mut Bodies {
        match class {
            Class::Small => &mut self.small,
            Class::Large => &mut self.large,
        }
    }

    /// The place of the body that asks; a new one if it has none yet.
    fn place(&mut self, place: &mut Option<Ticket>) -> Ticket {
        *place.get_or_insert_with(|| {
            self.next_place += 1;
            Ticket(self.next_place)
        })
    }

    fn fill(&mut self, rate: Option<u64>, now: Instant) {
        let passed = now.duration_since(self.filled).as_secs_f64();
        self.filled = now;
        if let Some(rate) = rate {
            let most = (rate as f64 * KEPT_S).max(PIECE as f64);
            self.tokens = (self.tokens + rate as f64 * passed).min(most);
        }
    }

    /// Updates the time in which any body waits.
    fn note(&mut self, now: Instant) {
        let waits = [&self.small, &self.large]
            .iter()
            .any(|bodies| !bodies.beginners.is_empty() || !bodies.waiting.is_empty());
        match (waits, self.held_since) {
            (true, None) => self.held_since = Some(now),
            (false, Some(since)) => {
                self.held += now.duration_since(since);
                self.held_since = None;
            }
            _ => {}
        }
    }
}

/// Notes that a body asks; appends it to the queue if it is not in it.
fn enter(queue: &mut VecDeque<Waiter>, place: Ticket, now: Instant) {
    match queue.iter_mut().find(|waiter| waiter.place == place) {
        Some(waiter) => waiter.asked = now,
        None => queue.push_back(Waiter { place, asked: now }),
    }
}

/// Removes bodies at the front that have stopped asking.
fn forget(queue: &mut VecDeque<Waiter>, now: Instant) {
    let is_gone = |first: &Waiter| now.duration_since(first.asked) > PLACE_KEPT;
    while queue.front().is_some_and(is_gone) {
        queue.pop_front();
    }
}

#[cfg(test)]
mod tests;
