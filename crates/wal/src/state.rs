//! The log's state machine: everything that changes under the log's one lock. No I/O.
//!
//! ```text
//!            flushed <= complete <= next
//!            durable <= complete
//!            flushed <= written back <= complete
//!
//!   file: spare -(preparer)-> prepared -(begin)-> current -(full)-> sealed -(recycle)-> spare
//! ```

mod flush;
mod reading;
mod settled;
mod write_back;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use forebay_types::Lsn;

use crate::error::{AppendError, LogFailed};
use crate::layout::{SEGMENT_HEADER, Salt, SegmentHeader, SegmentNumber, record_bytes};
use crate::map::{SegmentMap, Slot, Unwritten};
use crate::options::Options;
use crate::position::Reached;
use crate::seal::{LogKeys, SegmentSealer};
use crate::segment::{Prepared, Retained, Spare};
use crate::stats::Stats;
use crate::waiting::Waiters;

pub(crate) use flush::Flush;
pub(crate) use reading::Readable;
pub(crate) use settled::Settled;
pub(crate) use write_back::{WriteBackStep, WrittenBack};

/// Recycled segments that stay mapped, beyond the current and the prepared ones: as many as are prepared at once, so
/// that those need neither be mapped nor faulted in again. All of them if there is no disk.
const MAPPED_SPARES: usize = 4;

/// How the log is being closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Closing {
    /// It is not.
    Open,
    /// Everything is flushed first.
    Flush,
    /// Nothing more is done.
    Abandon,
}

pub(crate) struct State {
    pub(crate) options: Options,
    /// Bytes of full segments that may wait before they are flushed without a request.
    pub(crate) flush_backlog: u64,
    /// LSN of the next record.
    pub(crate) next: Lsn,
    /// Every record before it is completely in memory.
    pub(crate) complete: Lsn,
    /// Every retained record before it is on the local disk.
    pub(crate) flushed: Lsn,
    /// What was begun to be written beyond `flushed`.
    pub(crate) written_back: WrittenBack,
    /// Every record before it is on stable storage, on the local disk or (recycled) in the bucket.
    pub(crate) durable: Lsn,
    pub(crate) settled: Settled,
    /// Opens the records of sealed segments.
    pub(crate) keys: LogKeys,
    pub(crate) in_flight: InFlight,
    /// Oldest first. The last one is being appended to if its `end` is `None`.
    pub(crate) retained: VecDeque<Retained>,
    /// The segment that was begun last, even if it is recycled.
    pub(crate) last: SegmentNumber,
    /// The salt of the last segment's key; zeros if it is not sealed, or if there was none.
    pub(crate) last_key: forebay_seal::Salt,
    /// In the order of their numbers, in which they are begun.
    pub(crate) prepared: VecDeque<Prepared>,
    /// How many prepared segments are wanted.
    pub(crate) ahead: usize,
    pub(crate) spares: Vec<Spare>,
    /// Maps that are dropped outside the lock.
    pub(crate) unmap: Vec<Arc<SegmentMap>>,
    /// Bytes of all files, including one that the preparer is creating.
    pub(crate) file_bytes: u64,
    /// The highest segment number that was ever used.
    pub(crate) numbers: u64,
    /// Number of waiters that the syncer waits for before the next flush.
    pub(crate) gathering: Option<usize>,
    /// The syncer is flushing segments that begin below this.
    pub(crate) flushing_below: Option<Lsn>,
    /// How many of the appends the flushes so far have tried to write.
    pub(crate) flushed_appends: u64,
    /// The preparer is working.
    pub(crate) preparing: bool,
    /// A restart is under way: the preparer does nothing.
    pub(crate) restarting: bool,
    /// The highest LSN that `recycle` was called with.
    pub(crate) recycle_below: Lsn,
    pub(crate) failure: Option<LogFailed>,
    /// Why the last attempt to prepare a segment failed.
    pub(crate) shortage: Option<String>,
    /// Another attempt is due despite the shortage.
    pub(crate) try_again: bool,
    pub(crate) closing: Closing,
    pub(crate) for_complete: Waiters,
    pub(crate) for_durable: Waiters,
    pub(crate) for_room: Waiters,
    pub(crate) for_failure: Waiters,
    pub(crate) stats: Stats,
}

/// A place in the log that one append fills.
pub(crate) struct Reserved {
    pub(crate) slot: Slot,
    pub(crate) header: RecordPlace,
    pub(crate) sequence: u64,
    /// Seals the record, if it is to be sealed.
    pub(crate) sealer: Option<Arc<SegmentSealer>>,
}

/// The fields of a record's header that depend on its place.
#[derive(Clone, Copy)]
pub(crate) struct RecordPlace {
    pub(crate) lsn: Lsn,
    pub(crate) end: Lsn,
    pub(crate) salt: Salt,
}

impl State {
    /// How far the log has come.
    #[inline]
    pub(crate) fn reached(&self) -> Reached {
        Reached {
            complete: self.complete,
            durable: self.durable,
        }
    }

    /// Whether the next append with this payload gets its place at once.
    pub(crate) fn has_room(&self, payload: u64) -> bool {
        let stored = payload + self.options.seal_bytes();
        !self.prepared.is_empty()
            || self.left().map(|left| left as u64) >= Some(record_bytes(stored))
    }

    /// Bytes that are left in the current segment, if there is one.
    #[inline]
    fn left(&self) -> Option<usize> {
        let last = self.retained.back().filter(|last| last.end.is_none());
        Some(last?.unwritten.as_ref()?.left())
    }

    /// Assigns LSN and place to a record, which its append fills without the lock.
    pub(crate) fn reserve(&mut self, bytes: u64) -> Result<Reserved, AppendError> {
        let (current, size, header) = self.place(bytes)?;
        let slot = current.reserve_shared(size).ok_or(AppendError::Full)?;
        let current = self.retained.back();
        let sealer = current.and_then(|current| current.sealer.clone());
        self.passed(header);
        Ok(Reserved {
            slot,
            header,
            sequence: self.in_flight.begin(header.end),
            sealer,
        })
    }

    /// Assigns LSN and place to a record that `fill` fills at once.
    #[inline]
    pub(crate) fn append_here(
        &mut self,
        bytes: u64,
        fill: impl FnOnce(&mut [u8], RecordPlace),
    ) -> Result<RecordPlace, AppendError> {
        let (current, size, place) = self.place(bytes)?;
        let mut slot = current.reserve(size).ok_or(AppendError::Full)?;
        slot.fetch_ahead();
        fill(slot.bytes(), place);
        self.passed(place);
        if let Some(complete) = self.in_flight.pass(place.end) {
            self.complete = complete;
        }
        Ok(place)
    }

    /// Whether a task waits for an event that an append may cause.
    #[inline]
    pub(crate) fn somebody_waits(&self) -> bool {
        !self.for_complete.is_empty() || !self.for_durable.is_empty()
    }

    /// Takes the wakers of tasks whose LSN is complete by now. The caller wakes them without the lock.
    pub(crate) fn take_complete(&mut self, due: &mut Vec<Waker>) {
        self.for_complete.take_due(self.complete, due);
    }

    /// The place of the next record of this many bytes. Begins a prepared segment if the current one is full.
    #[inline]
    fn place(&mut self, bytes: u64) -> Result<(&mut Unwritten, usize, RecordPlace), AppendError> {
        if self.failure.is_some() || self.closing > Closing::Open {
            return Err(self.refusal().into());
        }
        let size = usize::try_from(bytes).map_err(|_| AppendError::Full)?;
        if self.left() < Some(size) {
            self.make_way(size)?;
        }
        let current = self.retained.back_mut().ok_or(AppendError::Full)?;
        let place = RecordPlace {
            lsn: self.next,
            end: self.next.advance(bytes),
            salt: current.header.salt,
        };
        let unwritten = current.unwritten.as_mut().ok_or(AppendError::Full)?;
        Ok((unwritten, size, place))
    }

    /// Begins prepared segments until one has room for this many bytes.
    #[cold]
    fn make_way(&mut self, bytes: usize) -> Result<(), AppendError> {
        while self.left() < Some(bytes) {
            let Some(prepared) = self.prepared.pop_front() else {
                self.try_again = true;
                if self.preparing {
                    self.ahead = (2 * self.ahead).min(self.options.most_prepared());
                }
                return Err(AppendError::Full);
            };
            self.begin(prepared, None);
        }
        Ok(())
    }

    /// Why the log takes no more appends.
    #[cold]
    fn refusal(&self) -> LogFailed {
        self.failure.clone().unwrap_or_else(|| self.closed())
    }

    /// Counts a record that has been placed.
    #[inline]
    fn passed(&mut self, place: RecordPlace) {
        self.stats.appends += 1;
        self.stats.appended_bytes += place.end.0 - place.lsn.0;
        self.next = place.end;
    }

    /// Makes a segment the current one. Writes its header into memory, unless it has one, which is flushed.
    pub(crate) fn begin(&mut self, mut prepared: Prepared, flushed: Option<SegmentHeader>) {
        self.seal();
        let header = flushed.unwrap_or_else(|| {
            let header = self.header(&prepared);
            if let Some(mut page) = prepared.unwritten.reserve(SEGMENT_HEADER) {
                header.write(page.bytes(), prepared.bytes);
            }
            header
        });
        self.last = prepared.number;
        let salt = prepared.sealer.as_ref().map(|sealer| sealer.salt());
        self.last_key = salt.unwrap_or_default();
        self.retained.push_back(Retained {
            name: prepared.name,
            header,
            bytes: prepared.bytes,
            end: None,
            appends: 0,
            unwritten: Some(prepared.unwritten),
            header_flushed: flushed.is_some(),
            sealer: prepared.sealer,
            readers: 0,
        });
        self.plan_write_back();
    }

    /// The header of a segment, if it were begun now.
    fn header(&self, prepared: &Prepared) -> SegmentHeader {
        let header = SegmentHeader {
            volume: self.options.volume,
            epoch: self.options.epoch,
            number: prepared.number,
            base: self.next,
            salt: prepared.salt,
            previous: self.last,
            previous_end: self.next,
            durable: self.durable,
            seal: None,
        };
        match &prepared.sealer {
            Some(sealer) => sealer.seal_header(header, self.last_key),
            None => header,
        }
    }

    /// Ends the current segment at the end of its records.
    fn seal(&mut self) {
        let next = self.next;
        if let Some(current) = self.retained.back_mut().filter(|last| last.end.is_none()) {
            current.end = Some(next);
            current.appends = self.stats.appends;
        }
    }

    /// Notes that an append has filled its place. The caller wakes the wakers in `due` without the lock.
    pub(crate) fn finish(&mut self, sequence: u64, due: &mut Vec<Waker>) {
        if let Some(complete) = self.in_flight.finish(sequence) {
            self.complete = complete;
            self.for_complete.take_due(complete, due);
        }
    }

    fn advance_durable(&mut self, upto: Lsn, due: &mut Vec<Waker>) {
        self.durable = self.durable.max(upto);
        let before = due.len();
        self.for_durable.take_due(self.durable, due);
        self.stats.flush_waiters += (due.len() - before) as u64;
    }

    /// Poisons the log. The first reason stays.
    fn fail(&mut self, reason: String, due: &mut Vec<Waker>) {
        if self.failure.is_some() {
            return;
        }
        self.failure = Some(LogFailed {
            durable: self.durable,
            reason,
        });
        self.plan_write_back();
        self.for_durable.take_all(due);
        self.for_room.take_all(due);
        self.for_failure.take_all(due);
    }

    /// Turns segments that end at or below `below` into spares, except those that are being flushed, written back or read.
    pub(crate) fn recycle(&mut self, below: Lsn, due: &mut Vec<Waker>) {
        self.recycle_below = self.recycle_below.max(below.min(self.complete));
        let below = self.recycle_below;
        if self.failure.is_some() {
            // The segments of the failed flush stay as they are until the restart.
            return;
        }
        self.advance_durable(below, due);
        // If there is no other way to get a segment, the current one is recycled, provided that none of its records
        // is needed.
        let stuck = self.prepared.is_empty()
            && !self.preparing
            && self.spares.is_empty()
            && (self.shortage.is_some() || !self.may_create());
        if stuck && self.complete == self.next && self.next <= below {
            self.seal();
        }
        while let Some(oldest) = self.retained.front() {
            let flushing = self.flushing_below.is_some_and(|upto| oldest.base() < upto);
            let in_use = flushing || self.is_written_back_now(oldest.base()) || oldest.readers > 0;
            if in_use || oldest.end.is_none_or(|end| end > below) {
                break;
            }
            let Some(oldest) = self.retained.pop_front() else {
                break;
            };
            self.stats.segments_recycled += 1;
            self.add_spare(oldest);
        }
        let oldest = self
            .retained
            .front()
            .map_or(self.next, |oldest| oldest.base());
        self.flushed = self.flushed.max(oldest.min(self.complete));
        self.plan_write_back();
        self.try_again = true;
    }

    fn add_spare(&mut self, segment: Retained) {
        let mapped = self
            .spares
            .iter()
            .filter(|spare| spare.memory.is_some())
            .count();
        let mut memory = None;
        match segment.unwritten.map(Unwritten::into_map) {
            Some(map) if mapped < MAPPED_SPARES || map.stays() => {
                memory = Arc::into_inner(map).map(SegmentMap::into_memory);
            }
            Some(map) => self.unmap.push(map),
            None => {}
        }
        self.spares.push(Spare {
            name: segment.name,
            bytes: segment.bytes,
            memory,
        });
    }

    /// Whether the limit allows another file.
    pub(crate) fn may_create(&self) -> bool {
        self.file_bytes + self.options.segment_bytes <= self.options.limit_bytes
    }

    /// Bytes that records occupy, including the unusable ends of full segments.
    pub(crate) fn used_bytes(&self) -> u64 {
        let used = |segment: &Retained| match (&segment.unwritten, segment.end) {
            (Some(unwritten), None) => unwritten.reserved() as u64,
            _ => segment.bytes,
        };
        self.retained.iter().map(used).sum()
    }

    /// The error for appends and waiters once the log is closed.
    pub(crate) fn closed(&self) -> LogFailed {
        LogFailed {
            durable: self.durable,
            reason: "it was closed".to_owned(),
        }
    }

    /// Ends the log: wakes all tasks that wait for events which will not come.
    pub(crate) fn close(&mut self, how: Closing, due: &mut Vec<Waker>) {
        self.closing = self.closing.max(how);
        self.for_room.take_all(due);
        // Tasks that can still wait for something enter again.
        self.for_durable.take_all(due);
    }

    /// The answer of `durable(upto)`, if it is known.
    pub(crate) fn durability(&self, upto: Lsn) -> Option<Result<(), LogFailed>> {
        if upto <= self.durable {
            Some(Ok(()))
        } else if let Some(failure) = &self.failure {
            Some(Err(failure.clone()))
        } else if self.closing == Closing::Abandon
            || (self.closing > Closing::Open && upto > self.next)
        {
            Some(Err(self.closed()))
        } else {
            None
        }
    }
}

/// Appends that have a place and may still be copying, in LSN order.
#[derive(Default)]
pub(crate) struct InFlight {
    /// The end of each, and whether it is done.
    appends: VecDeque<(Lsn, bool)>,
    /// Sequence number of the first one.
    first: u64,
}

impl InFlight {
    fn begin(&mut self, end: Lsn) -> u64 {
        self.appends.push_back((end, false));
        self.first + self.appends.len() as u64 - 1
    }

    /// An append that ends at `end` begins and is done at once; returns like [`finish`](Self::finish).
    #[inline]
    fn pass(&mut self, end: Lsn) -> Option<Lsn> {
        if self.appends.is_empty() {
            self.first += 1;
            return Some(end);
        }
        self.appends.push_back((end, true));
        None
    }

    /// Marks an append as done. Returns the new complete LSN if it has moved.
    fn finish(&mut self, sequence: u64) -> Option<Lsn> {
        let index = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        self.appends.get_mut(index)?.1 = true;
        let mut complete = None;
        while let Some((end, _)) = self.appends.pop_front_if(|(_, done)| *done) {
            self.first += 1;
            complete = Some(end);
        }
        complete
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.appends.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_does_not_pass_a_hole() {
        let mut appends = InFlight::default();
        let ids: Vec<_> = [8, 16, 24].map(|end| appends.begin(Lsn(end))).into();
        assert_eq!(appends.finish(ids[1]), None);
        assert_eq!(appends.finish(ids[0]), Some(Lsn(16)));
        assert_eq!(
            appends.finish(ids[0]),
            None,
            "a second time changes nothing"
        );
        assert_eq!(appends.pass(Lsn(32)), None, "another hole is before it");
        assert_eq!(appends.finish(ids[2]), Some(Lsn(32)));
        assert!(appends.is_empty());
        assert_eq!(appends.pass(Lsn(40)), Some(Lsn(40)));
        let last = appends.begin(Lsn(48));
        assert_eq!(appends.finish(last), Some(Lsn(48)));
    }
}
