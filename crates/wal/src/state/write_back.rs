//! Early write-back: the log begins to write records to the disk before a flush asks for them.
//!
//! ```text
//!   flushed <= written back <= complete
//! ```
//!
//! A step begins to write some MiB, in the order of the log, and waits for nothing. It makes nothing durable: a record
//! counts as durable after a flush alone. The flush then has less to do. Three rules keep that safe:
//!
//! * An error of a step counts as a failed flush: it poisons the log. Nobody tries again.
//! * From its first step on until the flush that covers it, a segment stays mapped, under the same file descriptor, since
//!   the system reports an error of a step at the next flush of that descriptor. A published segment is the exception:
//!   it may be recycled between two steps, because its bytes are not needed. During a step it is not recycled either.
//! * A step ends before bytes that are still being written. The system writes whole pages, and would have to write a page
//!   again that is stored into later. So a step ends at a multiple of [`PIECE`], or with a full segment.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;

use forebay_types::{Lsn, to_usize};

use super::State;
use crate::layout::SEGMENT_HEADER;
use crate::map::SegmentMap;
use crate::options::Options;
use crate::storage::PIECE;

/// How far the write-back has come.
pub(crate) struct WrittenBack {
    /// Bytes of a step; `None` if only flushes write.
    step_bytes: Option<u64>,
    /// The system was asked to write every retained record before it.
    upto: Lsn,
    /// The next step begins when every record before it is complete; `None` if there is no next step yet.
    next: Option<Lsn>,
    /// The base of the segment of which a step is under way.
    under_way: Option<Lsn>,
}

/// One step of the write-back.
pub(crate) struct WriteBackStep {
    pub(crate) map: Arc<SegmentMap>,
    /// The bytes of the segment to write.
    pub(crate) range: Range<usize>,
    /// The LSN up to which it writes.
    pub(crate) upto: Lsn,
    /// The base of the segment.
    base: Lsn,
}

impl WrittenBack {
    /// The write-back of a log that ends at `end`, of which everything is on the disk.
    pub(crate) fn new(options: &Options, end: Lsn) -> WrittenBack {
        WrittenBack {
            step_bytes: options.write_back_step(),
            upto: end,
            next: None,
            under_way: None,
        }
    }
}

impl State {
    /// Whether a step may begin.
    #[inline]
    pub(crate) fn write_back_is_due(&self) -> bool {
        self.written_back
            .next
            .is_some_and(|next| next <= self.complete)
    }

    /// The LSN up to which records were begun to be written before their flush; `None` in a log that writes late.
    pub(crate) fn begun_early(&self) -> Option<Lsn> {
        self.written_back.step_bytes.map(|_| self.written_back.upto)
    }

    /// Whether a step is under way.
    pub(crate) fn is_writing_back(&self) -> bool {
        self.written_back.under_way.is_some()
    }

    /// Whether a step of the segment with this base is under way.
    pub(crate) fn is_written_back_now(&self, base: Lsn) -> bool {
        self.written_back.under_way == Some(base)
    }

    /// A flush has begun, which writes everything before `upto`.
    pub(crate) fn flush_writes(&mut self, upto: Lsn) {
        self.written_back.upto = self.written_back.upto.max(upto);
        self.plan_write_back();
    }

    /// Plans the next step. To be called when a step is over, and when a segment has begun, `flushed` has moved, or the
    /// log has failed.
    pub(crate) fn plan_write_back(&mut self) {
        self.written_back.upto = self.written_back.upto.max(self.flushed);
        let step = self.next_step();
        let bytes = self.written_back.step_bytes.unwrap_or(0);
        // So a load of small commits has no steps.
        let enough = self.flushed.advance(bytes);
        self.written_back.next = step.map(|step| step.upto.max(enough));
    }

    fn next_step(&self) -> Option<WriteBackStep> {
        let bytes = to_usize(self.written_back.step_bytes?);
        if self.failure.is_some() || self.is_writing_back() {
            return None;
        }
        let from = self.written_back.upto;
        let mut segments = self.retained.iter().rev();
        let segment = segments.find(|segment| segment.base() <= from)?;
        let first = segment.position(from);
        let mut end = (first + bytes).next_multiple_of(PIECE);
        if let Some(full) = segment.end {
            end = end.min(segment.position(full));
        }
        // The header of a segment is written with its first step.
        let start = if segment.base() == from { 0 } else { first };
        (first < end).then_some(WriteBackStep {
            map: segment.unwritten.as_ref()?.share(),
            range: start..end,
            upto: segment.base().advance((end - SEGMENT_HEADER) as u64),
            base: segment.base(),
        })
    }

    /// Begins the step that is due. The segment is not recycled until [`State::write_back_done`].
    pub(crate) fn begin_write_back(&mut self) -> Option<WriteBackStep> {
        if !self.write_back_is_due() {
            return None;
        }
        let step = self.next_step()?;
        self.written_back.under_way = Some(step.base);
        self.written_back.next = None;
        Some(step)
    }

    /// Records the outcome of a step. The caller wakes the wakers in `due` without the lock.
    pub(crate) fn write_back_done(
        &mut self,
        upto: Lsn,
        outcome: io::Result<()>,
        due: &mut Vec<Waker>,
    ) {
        self.written_back.under_way = None;
        match outcome {
            Ok(()) => {
                self.stats.write_backs += 1;
                self.written_back.upto = self.written_back.upto.max(upto);
            }
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                self.written_back.step_bytes = None;
            }
            Err(error) => self.fail(format!("writing records to the disk failed: {error}"), due),
        }
        let published = |end: Lsn| end <= self.recycle_below;
        let oldest = self.retained.front().and_then(|oldest| oldest.end);
        if oldest.is_some_and(published) {
            self.recycle(Lsn::ZERO, due);
        }
        self.plan_write_back();
    }
}
