//! The read side of a connection: from bytes of the stream to records.
//!
//! Bytes are read into scratch, or directly into a large record that lacks many bytes. An idle connection holds no
//! scratch.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BufMut;
use fastant::Instant;
use tokio::io::AsyncReadExt;

use crate::record::{Assembler, MARK_BYTES, RecordError, Step};
use crate::server::budget::BudgetPermit;
use crate::server::pool::{self, Pool, Record, SHARED_BYTES};
use crate::server::scratch::{SCRATCH_BYTES, Unread};
use crate::server::stream::Stream;

/// See the module's documentation.
pub(super) struct Incoming {
    pool: Arc<Pool>,
    unread: Unread,
    assembler: Assembler,
    /// The charge for the large record that is being assembled.
    permit: Option<BudgetPermit>,
    /// A large record that was completed by reading into it.
    complete: Option<Vec<u8>>,
    /// When bytes were read last.
    read_at: Instant,
}

/// The next step after a read.
pub(super) enum Next {
    /// Read more: all bytes are consumed.
    Input,
    /// Begin this call.
    Record(Record),
    /// A large record has begun. [`Incoming::grant`] gives it a buffer, [`Incoming::discard`] discards it.
    Buffer,
    /// The end of a discarded record. It began with these bytes.
    Discarded(Vec<u8>),
}

impl Incoming {
    /// Creates the read side for records of at most this length, in bytes.
    pub(super) fn new(record_bytes: usize, pool: Arc<Pool>) -> Incoming {
        Incoming {
            pool,
            unread: Unread::default(),
            assembler: Assembler::with_buffers(record_bytes, pool::small_record),
            permit: None,
            complete: None,
            read_at: Instant::now(),
        }
    }

    /// Reads the available bytes, and returns their number; 0 at the end of the stream. All earlier bytes have to be
    /// consumed.
    pub(super) fn poll_read(
        &mut self,
        stream: &mut Stream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if let Some((record, wanted)) = self.assembler.direct() {
            let mut target = record.limit(wanted);
            let read = pin!(stream.read_buf(&mut target)).poll(context);
            if let Poll::Ready(Ok(bytes)) = read {
                self.read_at = Instant::now();
                self.complete = self.assembler.advance(bytes);
            }
            return read;
        }
        let mut scratch = self.pool.scratch();
        let read = {
            let mut target = scratch.target().limit(SCRATCH_BYTES);
            pin!(stream.read_buf(&mut target)).poll(context)
        };
        if matches!(read, Poll::Ready(Ok(bytes)) if bytes > 0) {
            self.read_at = Instant::now();
            self.unread = Unread::new(scratch);
        } else {
            self.pool.give_scratch(scratch);
        }
        read
    }

    /// Consumes bytes that were read. A long record that lies whole in scratch is used there if `in_place` allows it.
    pub(super) fn next(&mut self, in_place: bool) -> Result<Next, RecordError> {
        if let Some(record) = self.complete.take() {
            return Ok(Next::Record(self.record(record)));
        }
        if in_place && let Some(record) = self.in_scratch() {
            return Ok(Next::Record(record));
        }
        let mut input = self.unread.bytes();
        let before = input.len();
        let step = self.assembler.take(&mut input);
        let taken = before - input.len();
        self.unread.take(taken);
        Ok(match step? {
            Step::NeedInput => {
                if let Some(scratch) = self.unread.finish() {
                    self.pool.give_scratch(scratch);
                }
                Next::Input
            }
            Step::NeedBuffer(_) => Next::Buffer,
            Step::Discarded(head) => Next::Discarded(head),
            Step::Record(record) => Next::Record(self.record(record)),
        })
    }

    /// Returns the next record of scratch, if it is worth using in place.
    fn in_scratch(&mut self) -> Option<Record> {
        let length = self.assembler.whole(self.unread.bytes())?;
        if length < SHARED_BYTES {
            return None;
        }
        self.unread.take(MARK_BYTES);
        let (scratch, range) = self.unread.take_in_place(length)?;
        Some(Record::shared(scratch, range, self.read_at))
    }

    fn record(&mut self, bytes: Vec<u8>) -> Record {
        match self.permit.take() {
            Some(permit) => Record::large(bytes, self.pool.clone(), permit, self.read_at),
            None => Record::small(bytes, self.read_at),
        }
    }

    /// Gives a buffer, charged to `permit`, to the large record that has begun.
    pub(super) fn grant(&mut self, permit: BudgetPermit) {
        self.permit = Some(permit);
        self.assembler.grant(self.pool.record());
    }

    /// Discards the large record that has begun: it is read, and only its beginning is kept.
    pub(super) fn discard(&mut self) {
        self.assembler.discard();
    }

    /// Takes a buffer for the next record, to save an allocation.
    pub(super) fn reuse(&mut self, buffer: Vec<u8>) {
        self.assembler.reuse(buffer);
    }

    /// When bytes were read last.
    pub(super) fn read_at(&self) -> Instant {
        self.read_at
    }

    /// Whether a record has begun and is not complete.
    pub(super) fn is_midway(&self) -> bool {
        self.assembler.is_midway()
    }

    /// Whether all bytes are consumed, and the last ones ended a record.
    pub(super) fn is_empty(&self) -> bool {
        self.unread.bytes().is_empty() && !self.is_midway()
    }

    /// Bytes of memory that it holds and that have no charge.
    pub(super) fn held_bytes(&self) -> usize {
        let record = match self.permit {
            Some(_) => 0,
            None => self.assembler.held_bytes(),
        };
        record + self.unread.held_bytes()
    }
}
