//! Buffers that are used again, so that the kernel does not have to clear fresh pages for every
//! megabyte that passes.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::thread::LocalKey;

use fastant::Instant;
use parking_lot::Mutex;

use super::budget::BudgetPermit;
use super::scratch::Scratch;

/// Total bytes of idle large buffers that are kept.
const IDLE_BYTES: usize = 8 << 20;

/// Idle scratch buffers kept in addition to those of the threads. A connection has one only while it has unread
/// bytes, so there are usually as many as threads.
const IDLE_SCRATCH: usize = 32;

/// A record of at least this many bytes is used in place in the scratch buffer if possible: copying a shorter one costs
/// less than counting the references to the buffer.
pub(super) const SHARED_BYTES: usize = 2 << 10;

/// Small record buffers up to this capacity are reused for the next record; the connection is charged for the capacity.
const SMALL_BYTES: usize = 512;

/// Number of idle buffers of replies, and of records, that a thread keeps, and the capacity up to which it keeps them:
/// half a MiB of each in all.
const IDLE_OF_THREAD: usize = 32;
const OF_THREAD_BYTES: usize = 16 << 10;

thread_local! {
    /// The scratch buffer that this thread read into last, or none: two reads in a row need no lock, and find
    /// it in the processor's cache.
    static NEAR: Cell<Option<Scratch>> = const { Cell::new(None) };

    /// Buffers of replies that this thread has sent.
    static SENT: Idle = const { Cell::new(Vec::new()) };

    /// Buffers of records that this thread has finished with: longer ones than a connection keeps for its next record.
    static DONE: Idle = const { Cell::new(Vec::new()) };
}

type Idle = Cell<Vec<Vec<u8>>>;

fn take_idle(idle: &'static LocalKey<Idle>) -> Option<Vec<u8>> {
    let mut buffers = idle.take();
    let buffer = buffers.pop();
    idle.set(buffers);
    buffer
}

fn give_idle(idle: &'static LocalKey<Idle>, mut buffer: Vec<u8>) {
    if buffer.capacity() > OF_THREAD_BYTES {
        return;
    }
    // A thread that is ending keeps no buffers.
    let _ = idle.try_with(|idle| {
        let mut buffers = idle.take();
        if buffers.len() < IDLE_OF_THREAD {
            buffer.clear();
            buffers.push(buffer);
        }
        idle.set(buffers);
    });
}

/// Returns an empty buffer to gather replies in, of any capacity.
pub(super) fn gathering() -> Vec<u8> {
    take_idle(&SENT).unwrap_or_default()
}

/// Returns a gathering buffer to the pool after it was sent.
pub(super) fn give_gathering(buffer: Vec<u8>) {
    give_idle(&SENT, buffer);
}

/// Returns an empty buffer for a record of this many bytes. Its capacity is at most twice that, because a call is
/// charged for the capacity.
pub(super) fn small_record(bytes: usize) -> Vec<u8> {
    let fits = |buffer: &Vec<u8>| (bytes..=2 * bytes).contains(&buffer.capacity());
    // A buffer that does not fit is from calls that are no longer made; dropping it makes room for current ones.
    let idle = (bytes > SMALL_BYTES).then(|| take_idle(&DONE)).flatten();
    idle.filter(fits)
        .unwrap_or_else(|| Vec::with_capacity(bytes))
}

/// Idle buffers.
pub(super) struct Pool {
    record_bytes: usize,
    records: Mutex<Vec<Vec<u8>>>,
    scratch: Mutex<Vec<Scratch>>,
}

impl Pool {
    /// Creates a pool for records of at most this length, in bytes.
    pub(super) fn new(record_bytes: usize) -> Pool {
        Pool {
            record_bytes,
            records: Mutex::default(),
            scratch: Mutex::default(),
        }
    }

    /// Returns an empty buffer that holds the largest record.
    pub(super) fn record(&self) -> Vec<u8> {
        let idle = self.records.lock().pop();
        idle.unwrap_or_else(|| Vec::with_capacity(self.record_bytes))
    }

    /// Returns an empty buffer to read into.
    pub(super) fn scratch(&self) -> Scratch {
        if let Some(near) = NEAR.take() {
            return near;
        }
        let idle = self.scratch.lock().pop();
        idle.unwrap_or_else(Scratch::new)
    }

    /// Takes back a scratch buffer, unless a call still uses a record in it: then the last of these calls returns it.
    pub(super) fn give_scratch(&self, scratch: Scratch) {
        let Some(scratch) = scratch.emptied() else {
            return;
        };
        let Some(before) = NEAR.replace(Some(scratch)) else {
            return;
        };
        let mut idle = self.scratch.lock();
        if idle.len() < IDLE_SCRATCH {
            idle.push(before);
        }
    }

    fn give_record(&self, mut record: Vec<u8>) {
        record.clear();
        let mut idle = self.records.lock();
        if (idle.len() + 1) * self.record_bytes <= IDLE_BYTES {
            idle.push(record);
        }
    }
}

/// A complete record, together with its memory and charge.
pub(super) struct Record {
    memory: Memory,
    /// When its last byte was read.
    arrived: Instant,
}

/// Where a record lies.
enum Memory {
    /// In a buffer of its own.
    Small(Vec<u8>),
    /// In a buffer of the pool.
    Large {
        bytes: Vec<u8>,
        pool: Arc<Pool>,
        /// What was charged for it.
        _permit: BudgetPermit,
    },
    /// In the scratch buffer it was read into, with others.
    Shared(Scratch, Range<usize>),
}

impl Record {
    /// A record in a buffer of its own size, whose last byte was read at `arrived`.
    pub(super) fn small(bytes: Vec<u8>, arrived: Instant) -> Record {
        let memory = Memory::Small(bytes);
        Record { memory, arrived }
    }

    /// A record in a buffer of the pool, whose last byte was read at `arrived`.
    pub(super) fn large(
        bytes: Vec<u8>,
        pool: Arc<Pool>,
        permit: BudgetPermit,
        arrived: Instant,
    ) -> Record {
        let memory = Memory::Large {
            bytes,
            pool,
            _permit: permit,
        };
        Record { memory, arrived }
    }

    /// A record in the scratch buffer it was read into at `arrived`; its bytes do not change while the record exists.
    pub(super) fn shared(scratch: Scratch, bytes: Range<usize>, arrived: Instant) -> Record {
        let memory = Memory::Shared(scratch, bytes);
        Record { memory, arrived }
    }

    /// When its last byte was read.
    pub(super) fn arrived(&self) -> Instant {
        self.arrived
    }

    /// The message.
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Small(bytes) | Memory::Large { bytes, .. } => bytes,
            Memory::Shared(scratch, range) => {
                scratch.bytes().get(range.clone()).unwrap_or_default()
            }
        }
    }

    /// Returns the buffer, if it is worth reusing for the next small record.
    pub(super) fn into_small_buffer(mut self) -> Option<Vec<u8>> {
        match &mut self.memory {
            Memory::Small(bytes) if bytes.capacity() <= SMALL_BYTES => Some(std::mem::take(bytes)),
            _ => None,
        }
    }

    /// Returns the same record in a buffer that holds nothing else.
    pub(super) fn into_own_buffer(self) -> Record {
        match &self.memory {
            Memory::Shared(..) => Record::small(self.bytes().to_vec(), self.arrived),
            Memory::Small(_) | Memory::Large { .. } => self,
        }
    }

    /// Bytes that have no charge yet.
    pub(super) fn uncharged_bytes(&self) -> usize {
        match &self.memory {
            Memory::Small(bytes) => bytes.capacity(),
            Memory::Large { .. } => 0,
            Memory::Shared(_, range) => range.len(),
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        match &mut self.memory {
            Memory::Small(bytes) if bytes.capacity() > SMALL_BYTES => {
                give_idle(&DONE, std::mem::take(bytes));
            }
            Memory::Large { bytes, pool, .. } => pool.give_record(std::mem::take(bytes)),
            Memory::Small(_) | Memory::Shared(..) => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_some_buffers_of_replies_and_no_large_ones() {
        give_gathering(Vec::with_capacity(OF_THREAD_BYTES + 1));
        assert_eq!(gathering().capacity(), 0);
        for _ in 0..IDLE_OF_THREAD + 5 {
            give_gathering(vec![7; 100]);
        }
        for _ in 0..IDLE_OF_THREAD {
            let buffer = gathering();
            assert!(buffer.is_empty() && buffer.capacity() >= 100);
        }
        assert_eq!(gathering().capacity(), 0);
    }

    #[test]
    fn scratch_buffers_come_back_to_their_thread_and_then_to_all() {
        let pool = Arc::new(Pool::new(1 << 20));
        let [mut first, mut second] = [pool.scratch(), pool.scratch()];
        first.target().push(1);
        second.target().push(2);
        pool.give_scratch(first);
        pool.give_scratch(second);
        assert_eq!(pool.scratch.lock().len(), 1);
        let empty = |scratch: Scratch| scratch.bytes().is_empty();
        assert!(empty(pool.scratch()) && empty(pool.scratch()));
        assert!(pool.scratch.lock().is_empty());
    }

    #[test]
    fn a_record_keeps_the_scratch_in_which_it_lies() {
        let pool = Pool::new(1 << 20);
        let mut scratch = pool.scratch();
        scratch.target().extend(0..100);
        let record = Record::shared(scratch.clone(), 10..20, Instant::now());
        pool.give_scratch(scratch);
        assert!(NEAR.take().is_none(), "somebody has it");
        pool.scratch().target().extend([0xee; 100]);
        assert_eq!(*record.bytes(), [10, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
        assert_eq!(record.uncharged_bytes(), 10);
        assert!(record.into_small_buffer().is_none());
    }

    #[test]
    fn a_thread_gives_records_what_fits_them_and_forgets_what_does_not() {
        let record = |capacity| Record::small(Vec::with_capacity(capacity), Instant::now());
        let done = |capacity| drop(record(capacity));
        done(SMALL_BYTES);
        done(OF_THREAD_BYTES + 1);
        assert!(take_idle(&DONE).is_none());
        done(5000);
        assert_eq!(small_record(4000).capacity(), 5000);
        done(5000);
        assert_eq!(small_record(SMALL_BYTES).capacity(), SMALL_BYTES);
        // One too small, and one too large.
        assert_eq!(small_record(5001).capacity(), 5001);
        assert!(take_idle(&DONE).is_none());
        done(5000);
        assert_eq!(small_record(2499).capacity(), 2499);
        for _ in 0..IDLE_OF_THREAD + 5 {
            done(5000);
        }
        let kept = std::iter::from_fn(|| take_idle(&DONE)).count();
        assert_eq!(kept, IDLE_OF_THREAD);
    }

    #[test]
    fn only_the_buffers_of_short_records_are_used_again_by_their_connection() {
        let record = |capacity| Record::small(Vec::with_capacity(capacity), Instant::now());
        let buffer = |capacity| record(capacity).into_small_buffer();
        assert!(buffer(SMALL_BYTES).is_some());
        assert!(buffer(SMALL_BYTES + 1).is_none());
    }
}
