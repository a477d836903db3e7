//! Flushes: when one is due, what it writes, and what is durable afterwards.
//!
//! A flush that a task waits for writes everything that is complete. Without a request full segments are flushed: if the
//! log is [written back](super::write_back) early, one at a time when all of it was begun to be written (small ones
//! together, so that the disk is not flushed for each), else together when they have added up to the backlog.

use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;

use forebay_types::Lsn;

use super::{Closing, State};
use crate::map::{SegmentMap, Unwritten};

/// Full segments are flushed in the background when they have this part of the backlog: 12.8 MiB where that is 64 MiB. So a
/// segment of 16 MiB and more is flushed alone. Each flush costs the disk the same, whatever it has to write.
const GATHERED_PART: u64 = 5;

/// The work of one flush.
pub(crate) struct Flush {
    /// The LSN up to which it flushes.
    pub(crate) upto: Lsn,
    /// The ranges to write, in order.
    pub(crate) parts: Vec<(Arc<SegmentMap>, Range<usize>)>,
    /// The number of records, and of their bytes, that no earlier flush has tried to write.
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

impl State {
    /// Whether the syncer has something to do.
    pub(crate) fn flush_is_due(&self) -> bool {
        self.failure.is_none() && self.complete > self.flushed && self.next_flush().is_some()
    }

    /// The LSN up to which the next flush writes; `None` if none is due.
    fn next_flush(&self) -> Option<Lsn> {
        if self.closing == Closing::Flush || self.for_durable.any_due(self.complete) {
            return Some(self.complete);
        }
        let newest = self.retained.iter().rev().find_map(|segment| segment.end)?;
        if newest <= self.flushed {
            return None;
        }
        let is_backlog = newest >= self.flushed.advance(self.flush_backlog);
        let Some(begun) = self.begun_early() else {
            return (is_backlog && newest <= self.complete).then_some(self.complete);
        };
        // No more than is needed for a flush that is worth it: a commit waits for no more than that, and segments become
        // durable in order.
        let enough = self.flushed.advance(self.flush_backlog / GATHERED_PART);
        let mut unflushed = self.retained.range(self.first_unflushed()..);
        let gathered = unflushed.find_map(|segment| segment.end.filter(|end| *end >= enough))?;
        let is_begun = gathered <= begun;
        (gathered <= self.complete && (is_begun || is_backlog)).then_some(gathered)
    }

    /// Whether a flush is due, and enough waiters have arrived if the syncer waits for more.
    pub(crate) fn flush_may_begin(&self) -> bool {
        self.flush_is_due()
            && self
                .gathering
                .is_none_or(|expected| self.for_durable.count() >= expected)
    }

    /// The index of the first segment that may have bytes to flush. Looked for from the back: a log that is full has
    /// hundreds of segments, of which the last ones alone are not flushed.
    fn first_unflushed(&self) -> usize {
        let last_before = self
            .retained
            .iter()
            .rposition(|segment| segment.base() < self.flushed);
        last_before.unwrap_or(0)
    }

    /// Plans a flush: of everything that is complete, unless it is one that nobody has requested. Its parts have all bytes
    /// from `flushed` on, also those that were begun to be written early: a flush promises nothing outside its range. None
    /// of its segments is recycled until [`State::flush_done`].
    pub(crate) fn begin_flush(&mut self) -> Flush {
        let (from, upto) = (self.flushed, self.next_flush().unwrap_or(self.complete));
        let mut parts = Vec::new();
        for segment in self.retained.range(self.first_unflushed()..) {
            let end = segment.end.unwrap_or(self.next).min(upto);
            let Some(unwritten) = segment
                .unwritten
                .as_ref()
                .filter(|_| end > from && segment.base() < upto)
            else {
                continue;
            };
            let start = if segment.header_flushed {
                segment.position(from)
            } else {
                0
            };
            parts.push((unwritten.share(), start..segment.position(end)));
        }
        self.flushing_below = Some(upto);
        self.flush_writes(upto);
        // Those in flight are not complete, or have one before them that is not.
        let all = self.stats.appends - self.in_flight.appends.len() as u64;
        let mut segments = self.retained.iter().rev();
        let full = segments.find(|segment| segment.end == Some(upto));
        let complete = full.map_or(all, |segment| segment.appends);
        let records = complete - std::mem::replace(&mut self.flushed_appends, complete);
        Flush {
            upto,
            parts,
            records,
            bytes: upto.0 - from.0,
        }
    }

    /// Records the outcome of a flush.
    pub(crate) fn flush_done(
        &mut self,
        upto: Lsn,
        outcome: std::io::Result<()>,
        due: &mut Vec<Waker>,
    ) {
        self.flushing_below = None;
        match outcome {
            // It was begun to be written before, and that has failed meanwhile.
            _ if self.failure.is_some() => {}
            Ok(()) => {
                self.stats.flushes += 1;
                let first = self.first_unflushed();
                self.flushed = upto;
                let segments = self.retained.range_mut(first..);
                for segment in segments.take_while(|segment| segment.base() < upto) {
                    segment.header_flushed = true;
                    if segment.end.is_some_and(|end| end <= upto) {
                        let map = segment.unwritten.take_if(|unwritten| !unwritten.stays());
                        self.unmap.extend(map.map(Unwritten::into_map));
                    }
                }
                self.settle(upto);
                self.advance_durable(upto, due);
                self.recycle(Lsn::ZERO, due);
            }
            Err(error) => self.fail(format!("a flush failed: {error}"), due),
        }
    }
}
