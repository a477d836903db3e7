//! The public interface of the log.

mod fill;
mod futures;
mod hand;
mod preparer;
mod reader;
mod restart;
mod shared;
mod syncer;
mod writer;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use forebay_types::{Lsn, bounded_u32, to_usize};
use parking_lot::{Condvar, Mutex};

use crate::error::{AppendError, LogFailed, OpenError};
use crate::instruments::Instruments;
use crate::layout::{RecordKind, record_bytes};
use crate::position::Position;
use crate::state::{Closing, RecordPlace, Reserved, State};
use crate::stats::Stats;
use crate::storage::Storage;

use fill::{fill, fill_sealed};
use shared::Shared;

pub use futures::{Complete, Durable, Failed, Room};
pub use hand::Hand;
pub use reader::RecordReader;

/// Records with payloads up to this many bytes are copied under the lock: that takes no longer than to release the
/// lock and take it again.
const COPIED_UNDER_LOCK: u64 = 1 << 10;

/// The place of an appended record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// LSN of its first byte.
    pub lsn: Lsn,
    /// LSN after its last byte: the argument for [`Wal::durable`] and [`Wal::complete`].
    pub end: Lsn,
}

/// A log that is open for appending. Made by [`Recovery::into_wal`](crate::Recovery::into_wal).
///
/// All methods may be called from any thread. Dropping it stops its threads without a flush, so only a power cut can
/// lose records then; [`Wal::close`] flushes first.
pub struct Wal {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The log has no threads: see [`Hand`].
    by_hand: bool,
}

impl Wal {
    /// Starts the threads of a log. Prepares a first segment before that if there is room. If there is none and the
    /// log holds nothing that could make room, the error gives the reason.
    pub(crate) fn start(storage: Arc<dyn Storage>, state: State) -> Result<Wal, OpenError> {
        let wal = Wal::prepare(storage, state)?;
        wal.spawn("wal-syncer", syncer::run)?;
        wal.spawn("wal-preparer", preparer::run)?;
        wal.spawn("wal-writer", writer::run)?;
        Ok(wal)
    }

    /// Starts a log without threads; calls of the [`Hand`] do their work.
    pub(crate) fn start_by_hand(
        storage: Arc<dyn Storage>,
        state: State,
    ) -> Result<(Wal, Hand), OpenError> {
        let mut wal = Wal::prepare(storage, state)?;
        wal.by_hand = true;
        let hand = Hand::new(Arc::clone(&wal.shared));
        Ok((wal, hand))
    }

    fn prepare(storage: Arc<dyn Storage>, state: State) -> Result<Wal, OpenError> {
        let reached = state.reached();
        let shared = Arc::new(Shared {
            position: Position::begin(&*storage, state.options.volume, reached),
            storage,
            sealing: state.options.sealing.clone(),
            keys: state.keys.clone(),
            seal_bytes: state.options.seal_bytes(),
            largest_payload: state.options.largest_payload(),
            limit_bytes: state.options.limit_bytes,
            complete: AtomicU64::new(state.complete.0),
            durable: AtomicU64::new(state.durable.0),
            settled: AtomicU64::new(state.settled.upto.0),
            state: Mutex::new(state),
            syncer: Condvar::new(),
            preparer: Condvar::new(),
            writer: Condvar::new(),
            restarter: Condvar::new(),
            instruments: Instruments::default(),
        });
        preparer::work_off(&shared);
        {
            let state = shared.state.lock();
            if let (Some(shortage), true) = (&state.shortage, state.retained.is_empty()) {
                return Err(OpenError::Io {
                    action: "prepare the first segment (free space on its disk, or set a smaller \
                             log_segment)"
                        .to_owned(),
                    source: io::Error::other(shortage.clone()),
                });
            }
        }
        Ok(Wal {
            shared,
            threads: Mutex::default(),
            by_hand: false,
        })
    }

    fn spawn(&self, name: &str, run: fn(&Shared)) -> Result<(), OpenError> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&shared))
            .map_err(OpenError::io("start a thread"))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Appends a record whose payload is `parts`, one after the other. Copies them; never waits for the disk. The
    /// record is complete in memory when this returns, but it can be recovered only once all records before it are
    /// complete: see [`Wal::complete`].
    pub fn append(&self, kind: RecordKind, parts: &[&[u8]]) -> Result<Appended, AppendError> {
        let payload = parts.iter().map(|part| part.len() as u64).sum();
        // Sealing takes longer than the lock does, even for few bytes.
        if payload > COPIED_UNDER_LOCK || self.shared.seal_bytes > 0 {
            return Ok(self.reserve(payload)?.fill(kind, parts));
        }
        self.check_size(payload)?;
        let mut state = self.shared.state.lock();
        let current = state.last;
        let place = state.append_here(record_bytes(payload), |slot, place| {
            // Records are shorter than segments, which end at 4 GiB.
            fill(slot, kind, place, bounded_u32(to_usize(payload)), parts);
        });
        self.shared.publish(&state);
        // An append may also concern the log's threads, if it has begun a segment or found none, and waiting tasks.
        let turned = place.is_err() || state.last != current;
        if turned || state.somebody_waits() || state.write_back_is_due() {
            self.shared.announce(state, turned);
        }
        let RecordPlace { lsn, end, .. } = place?;
        Ok(Appended { lsn, end })
    }

    fn check_size(&self, payload: u64) -> Result<(), AppendError> {
        let limit = self.shared.largest_payload;
        if payload > limit {
            return Err(AppendError::TooLarge {
                bytes: payload,
                limit,
            });
        }
        Ok(())
    }

    /// The first half of an append: LSN and place.
    pub(crate) fn reserve(&self, payload: u64) -> Result<Reservation<'_>, AppendError> {
        self.check_size(payload)?;
        let stored = payload + self.shared.seal_bytes;
        let mut state = self.shared.state.lock();
        let current = state.last;
        let reserved = state.reserve(record_bytes(stored));
        if reserved.is_err() || state.last != current {
            self.shared.preparer.notify_one();
        }
        Ok(Reservation {
            shared: &self.shared,
            reserved: reserved?,
            // As above.
            stored: bounded_u32(to_usize(stored)),
        })
    }

    /// Ready when an append with a payload of `bytes` would not be [`AppendError::Full`] (unless another append comes
    /// first: then try again). An error when the log has failed or was closed.
    ///
    /// If the disk refused a segment, each poll makes the log's own thread request it again: a waiting task should
    /// poll from time to time.
    pub fn room(&self, bytes: u64) -> Room {
        Room::new(&self.shared, bytes)
    }

    /// Ready when every record that ends at or before `upto` is completely in the log, with no hole before it: from
    /// then on it survives the end of the process. If nothing is ever appended that far, it never becomes ready.
    #[inline]
    pub fn complete(&self, upto: Lsn) -> Complete {
        Complete::new(&self.shared, upto)
    }

    /// Ready when every record that ends at or before `upto` is on stable storage. The first poll requests a flush,
    /// which all waiting tasks share; if the records are already durable, no flush is needed.
    #[inline]
    pub fn durable(&self, upto: Lsn) -> Durable {
        Durable::new(&self.shared, upto)
    }

    /// Ready when the log is poisoned: a flush has failed, whether or not a task was waiting for that flush.
    pub fn failed(&self) -> Failed {
        Failed::new(&self.shared)
    }

    /// LSN of the next record.
    pub fn next_lsn(&self) -> Lsn {
        self.shared.state.lock().next
    }

    /// Every record before it is completely in the log.
    pub fn complete_lsn(&self) -> Lsn {
        Lsn(self.shared.complete.load(Ordering::Acquire))
    }

    /// Every record before it is on stable storage: flushed, or recycled because the bucket has it.
    pub fn durable_lsn(&self) -> Lsn {
        Lsn(self.shared.durable.load(Ordering::Acquire))
    }

    /// Where a record begins, before which all are settled: flushed, in pages that no later append stores into. Not even a
    /// failed flush endangers them. At most 64 KiB and the records of one flush behind [`Wal::durable_lsn`].
    pub fn settled_lsn(&self) -> Lsn {
        Lsn(self.shared.settled.load(Ordering::Acquire))
    }

    /// Reads records of this log, also of earlier runs, until they are recycled.
    pub fn reader(&self) -> RecordReader {
        RecordReader::new(Arc::clone(&self.shared))
    }

    /// Declares everything below `below` safe elsewhere (published in the bucket): it counts as durable, and segments
    /// that are completely below are reused or deleted.
    pub fn recycle(&self, below: Lsn) {
        let due = self.shared.change(|state, due| {
            state.recycle(below, due);
            preparer::is_due(state)
        });
        if due {
            self.shared.preparer.notify_one();
        }
    }

    /// Bytes that the log needs for records that are not yet recycled; reaches [`Wal::limit_bytes`] when it is full.
    pub fn used_bytes(&self) -> u64 {
        self.shared.state.lock().used_bytes()
    }

    /// The limit of the options.
    pub fn limit_bytes(&self) -> u64 {
        self.shared.limit_bytes
    }

    /// Counters since the log was opened.
    pub fn stats(&self) -> Stats {
        self.shared.state.lock().stats.clone()
    }

    /// The times and sizes of its flushes.
    pub fn instruments(&self) -> &Instruments {
        &self.shared.instruments
    }

    /// Why the log is poisoned, if it is. [`Wal::restart`] clears it.
    pub fn failure(&self) -> Option<LogFailed> {
        self.shared.state.lock().failure.clone()
    }

    /// Why no segment can be prepared (the disk is full, for example), as long as this lasts. The log continues with
    /// the segments it has, and tries again when segments are recycled, when an append finds the log full, or when
    /// [`Wal::room`] is polled.
    pub fn shortage(&self) -> Option<String> {
        self.shared.state.lock().shortage.clone()
    }

    /// Whether no further segment is available before older ones are recycled: the limit is reached, or the disk
    /// refuses one. A log that is full but does not need recycling is about to have room.
    pub fn needs_recycling(&self) -> bool {
        let state = self.shared.state.lock();
        state.shortage.is_some() || state.spares.is_empty() && !state.may_create()
    }

    /// Whether the preparer has nothing to do: it has prepared what is wanted, or cannot prepare more.
    #[cfg(test)]
    pub(crate) fn is_prepared(&self) -> bool {
        let state = self.shared.state.lock();
        !state.preparing && !preparer::is_due(&state)
    }

    /// Whether a restart is under way.
    #[cfg(test)]
    pub(crate) fn is_restarting(&self) -> bool {
        self.shared.state.lock().restarting
    }

    /// Restarts a failed log in a fresh segment, with the first record at `at`.
    ///
    /// The caller has made everything before [`Wal::next_lsn`] safe elsewhere (the failed log takes no appends, so
    /// `next_lsn` does not move): all old segments are deleted. The new one must pass a flush; otherwise the log
    /// stays poisoned, and this can be called again.
    ///
    /// # Errors
    /// `InvalidInput` if the log has not failed, was closed, or `at` lies before `next_lsn`; otherwise an error of
    /// the storage.
    pub fn restart(&self, at: Lsn) -> io::Result<()> {
        restart::restart(&self.shared, at)
    }

    /// Flushes everything, stops the threads and waits for them. Appends fail from then on. A second call only
    /// repeats the result.
    pub fn close(&self) -> Result<(), LogFailed> {
        self.shared.close(Closing::Flush);
        while self.by_hand && syncer::turn(&self.shared) {}
        self.join();
        let state = self.shared.state.lock();
        match &state.failure {
            Some(failure) => Err(failure.clone()),
            None if state.flushed < state.next => Err(state.closed()),
            None => Ok(()),
        }
    }

    fn join(&self) {
        for thread in self.threads.lock().drain(..) {
            // The panic hook has reported a panic of the thread; there is nothing to add here.
            let _ = thread.join();
        }
    }

    /// For tests: stops the threads now, as a crash does.
    #[cfg(test)]
    pub(crate) fn abandon(&self) {
        self.shared.close(Closing::Abandon);
        self.join();
    }
}

impl Drop for Wal {
    fn drop(&mut self) {
        self.shared.close(Closing::Abandon);
        self.join();
    }
}

/// An append that has its place but is not filled yet. Dropped unfilled, it leaves a hole, and nothing after the hole
/// is ever complete: the same as after a crash at this point.
pub(crate) struct Reservation<'a> {
    shared: &'a Shared,
    reserved: Reserved,
    /// Bytes of the payload as stored.
    stored: u32,
}

impl Reservation<'_> {
    /// The second half: payload, checksum, completion.
    pub(crate) fn fill(self, kind: RecordKind, parts: &[&[u8]]) -> Appended {
        let Reserved {
            mut slot,
            header: place,
            sequence,
            sealer,
        } = self.reserved;
        match &sealer {
            Some(sealer) => fill_sealed(slot.bytes(), kind, place, self.stored, parts, sealer),
            None => fill(slot.bytes(), kind, place, self.stored, parts),
        }
        // Before completion, after which the map may be dropped.
        drop(slot);
        self.shared.change(|state, due| state.finish(sequence, due));
        Appended {
            lsn: place.lsn,
            end: place.end,
        }
    }
}
