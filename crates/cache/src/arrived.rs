//! Fetched bytes, whose memory pieces may share instead of copying it.

use crate::pool::Pool;
use bytes::Bytes;
use std::sync::{Arc, OnceLock};

/// Bytes of the bucket, in the memory in which they arrived. Once a block buffer has taken over some of it, all of
/// that memory counts as allocated for block buffers, until the last owner drops it.
#[derive(Clone, Debug)]
pub struct Arrived {
    bytes: Bytes,
    memory: Arc<Memory>,
}

/// The account of memory that came from outside the pool.
#[derive(Debug)]
struct Memory {
    len: u64,
    /// The pool that counts it; none before a block buffer has taken it over.
    counted: OnceLock<Arc<Pool>>,
}

impl Arrived {
    /// All bytes of one piece of memory.
    pub fn new(bytes: Bytes) -> Arrived {
        let memory = Memory {
            len: bytes.len() as u64,
            counted: OnceLock::new(),
        };
        Arrived {
            bytes,
            memory: Arc::new(memory),
        }
    }

    /// Other bytes in the same memory.
    pub fn beside(&self, bytes: Bytes) -> Arrived {
        Arrived {
            bytes,
            memory: Arc::clone(&self.memory),
        }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes of the memory that contains them.
    pub fn memory_len(&self) -> u64 {
        self.memory.len
    }

    /// Whether that memory already counts as allocated for block buffers.
    pub fn is_counted(&self) -> bool {
        self.memory.counted.get().is_some()
    }

    /// Whether both lie in the same memory.
    pub(crate) fn is_beside(&self, other: &Arrived) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory)
    }

    /// Some of the bytes.
    ///
    /// # Panics
    /// When they have no such range.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Arrived {
        self.beside(self.bytes.slice(range))
    }

    /// The bytes of `part`, which must be some of these, for a piece to keep.
    pub(crate) fn kept(&self, part: &[u8], pool: &Arc<Pool>) -> Arrived {
        self.memory.counted.get_or_init(|| {
            pool.count_taken_over(self.memory.len);
            Arc::clone(pool)
        });
        self.beside(self.bytes.slice_ref(part))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(pool) = self.counted.get() {
            pool.count_gone(self.len);
        }
    }
}
