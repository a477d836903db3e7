//! Plans the compression level of the next pack.
//!
//! Packs go through two stages: the processor encodes them, then the link takes them. While the link is the slower
//! one, idle processor time buys smaller packs, and so a shorter way to the bucket for waiting uploads. The planner
//! compares, in time for the given pack,
//!
//! ```text
//!   encoding at a level                       the link's time for the pack
//!   what the last packs took, and half as     stored bytes to be expected, at the speed of the last packs and no
//!   much again for each level above           faster than the limit that is in force
//!
//!   the highest level counts whose encoding takes at most
//!     half of what the threads can do in the link's time   while as many packs as may be under way wait for the link,
//!     a sixteenth of the link's time                       else: nothing hides the encoding, and what a level
//!                                                          saves is a few hundredths
//! ```
//!
//! A level costs half as much again as the one below it on average, seldom twice as much; its real time is measured
//! as soon as it is used. If callers leave less processor time to the encoders, encoding takes longer and the level
//! falls. So uploads never wait for the encoding, and a writer that waits for uploads never waits longer because of a
//! higher level.

use std::time::Duration;

use forebay_types::balance;

use super::Levels;

/// How much longer a level takes than the one below it, on average.
const STEP: f64 = 1.5;

/// The share of the link's time that the processor may spend on a pack whose encoding nothing hides.
const SHARE_ALONE: f64 = 1.0 / 16.0;

/// The share of the threads' time in it that the processor may spend while packs wait for the link: the other half is
/// for variations, and for other work.
const SHARE_BEHIND: f64 = 0.5;

/// The weight of the past when the next pack is added.
const MEMORY: f64 = 0.75;

/// Packs with fewer stored bytes show the time of a request, and not the speed of the link.
const TELLING_BYTES: u64 = 256 << 10;

/// Time and bytes of past packs, of which the last ones weigh most.
#[derive(Clone, Copy, Debug, Default)]
struct Speed {
    seconds: f64,
    bytes: f64,
}

impl Speed {
    fn add(&mut self, took: Duration, bytes: u64) {
        self.seconds = self.seconds * MEMORY + took.as_secs_f64();
        self.bytes = self.bytes * MEMORY + bytes as f64;
    }

    /// Seconds per byte; `None` before anything was added.
    fn per_byte(self) -> Option<f64> {
        (self.bytes > 0.0).then(|| self.seconds / self.bytes)
    }
}

/// A pack to encode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    /// Its bytes before encoding.
    pub(super) raw_bytes: u64,
    /// Levels that its files allow.
    pub(super) levels: Levels,
    /// Limit of the bytes a second that may go to the bucket, if there is one.
    pub(super) link_limit: Option<u64>,
}

/// It has no clock: the caller passes the time, since any origin, never going back.
#[derive(Debug)]
pub(super) struct Planner {
    /// Number of threads that encode.
    threads: usize,
    /// Number of packs that may be on the link at the same time.
    parallel: usize,
    /// Number of packs that are encoded and not yet in the bucket.
    waiting: usize,
    /// Time of one thread for raw bytes, converted to level 1 as if each level above took [`STEP`] times as long.
    encoding: Speed,
    /// Time of the link for stored bytes.
    sending: Speed,
    /// Stored bytes per raw byte.
    shrink: f64,
    /// When the last pack arrived.
    last_arrival: Duration,
}

impl Planner {
    /// For this many threads that encode, and this many packs on the link at the same time.
    pub(super) fn new(threads: usize, parallel: usize) -> Planner {
        Planner {
            threads,
            parallel,
            waiting: 0,
            encoding: Speed::default(),
            sending: Speed::default(),
            shrink: 1.0,
            last_arrival: Duration::ZERO,
        }
    }

    /// The level of the next pack.
    pub(super) fn level(&self, next: &Next) -> u8 {
        let Next {
            raw_bytes, levels, ..
        } = *next;
        let (Some(encoding), Some(sending)) =
            (self.encoding.per_byte(), self.seconds_per_stored(next))
        else {
            return levels.lowest();
        };
        let raw_bytes = raw_bytes as f64;
        let link = raw_bytes * self.shrink * sending;
        let may_take = match self.waiting >= self.parallel {
            true => link * self.threads as f64 * SHARE_BEHIND,
            false => link * SHARE_ALONE,
        };
        let takes = |level: u8| raw_bytes * encoding * cost(level);
        let all = levels.lowest()..=levels.highest();
        let fits = all.rev().find(|level| takes(*level) <= may_take);
        fits.unwrap_or(levels.lowest())
    }

    /// Seconds of the link per stored byte; `None` while that is not known.
    fn seconds_per_stored(&self, next: &Next) -> Option<f64> {
        let measured = self.sending.per_byte();
        let at_least = next.link_limit.map(|rate| 1.0 / rate as f64);
        measured.into_iter().chain(at_least).reduce(f64::max)
    }

    /// Notes that a pack was encoded in this time of a thread, and waits for the link. `level` is `None` if no part
    /// of it was to be compressed.
    pub(super) fn encoded(
        &mut self,
        level: Option<u8>,
        raw_bytes: u64,
        stored_bytes: u64,
        took: Duration,
    ) {
        self.waiting += 1;
        if let Some(level) = level
            && raw_bytes > 0
        {
            self.encoding.add(took.div_f64(cost(level)), raw_bytes);
            let shrink = stored_bytes as f64 / raw_bytes as f64;
            self.shrink = self.shrink * MEMORY + shrink * (1.0 - MEMORY);
        }
    }

    /// Notes that a pack whose upload began at `began` has arrived.
    pub(super) fn arrived(&mut self, stored_bytes: u64, began: Duration, now: Duration) {
        self.given_up();
        // Each of several concurrent uploads is charged only with the time since the previous arrival.
        let since = began.max(self.last_arrival);
        self.last_arrival = now;
        if stored_bytes >= TELLING_BYTES {
            self.sending.add(now.saturating_sub(since), stored_bytes);
        }
    }

    /// Notes that a pack will not arrive.
    pub(super) fn given_up(&mut self) {
        self.waiting = balance::taken_count("packs that wait for the link", self.waiting, 1);
    }
}

/// The time of a level relative to level 1.
fn cost(level: u8) -> f64 {
    STEP.powi(i32::from(level) - 1)
}

#[cfg(test)]
mod tests;
