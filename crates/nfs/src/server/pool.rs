//! Buffers that are used again, so that the kernel does not have to clear fresh pages for every
//! megabyte that passes.

use std::sync::Arc;

use parking_lot::Mutex;

use super::budget::Share;

/// Idle large buffers are kept up to so many bytes together.
const IDLE_BYTES: usize = 8 << 20;

/// Size of the buffers that sockets are read into.
pub(super) const SCRATCH_BYTES: usize = 64 << 10;

/// Idle scratch buffers kept. A connection has one only while it has unread bytes, so there are
/// mostly as many as threads.
const IDLE_SCRATCH: usize = 32;

/// Idle buffers.
pub(super) struct Pool {
    record_bytes: usize,
    records: Mutex<Vec<Vec<u8>>>,
    scratch: Mutex<Vec<Vec<u8>>>,
}

impl Pool {
    /// For records of at most so many bytes.
    pub(super) fn new(record_bytes: usize) -> Pool {
        Pool {
            record_bytes,
            records: Mutex::default(),
            scratch: Mutex::default(),
        }
    }

    /// An empty buffer that holds the largest record.
    pub(super) fn record(&self) -> Vec<u8> {
        let idle = self.records.lock().pop();
        idle.unwrap_or_else(|| Vec::with_capacity(self.record_bytes))
    }

    /// An empty buffer of [`SCRATCH_BYTES`].
    pub(super) fn scratch(&self) -> Vec<u8> {
        let idle = self.scratch.lock().pop();
        idle.unwrap_or_else(|| Vec::with_capacity(SCRATCH_BYTES))
    }

    /// Gives a scratch buffer back.
    pub(super) fn give_scratch(&self, mut scratch: Vec<u8>) {
        scratch.clear();
        let mut idle = self.scratch.lock();
        if idle.len() < IDLE_SCRATCH {
            idle.push(scratch);
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

/// A complete record, with what it holds besides its bytes.
pub(super) struct Record {
    bytes: Vec<u8>,
    /// Where the buffer comes from and what was charged for it, if it is a large one.
    large: Option<(Arc<Pool>, Share)>,
}

impl Record {
    /// A record in a buffer of its own size.
    pub(super) fn small(bytes: Vec<u8>) -> Record {
        Record { bytes, large: None }
    }

    /// A record in a buffer of the pool.
    pub(super) fn large(bytes: Vec<u8>, pool: Arc<Pool>, share: Share) -> Record {
        let large = Some((pool, share));
        Record { bytes, large }
    }

    /// The message.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes that are not charged yet.
    pub(super) fn uncharged_bytes(&self) -> usize {
        match self.large {
            Some(_) => 0,
            None => self.bytes.capacity(),
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if let Some((pool, _)) = self.large.take() {
            pool.give_record(std::mem::take(&mut self.bytes));
        }
    }
}
