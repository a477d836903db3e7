//! Bytes that somebody has fetched, which pieces may keep where they lie.

use crate::pool::Pool;
use bytes::Bytes;
use std::sync::{Arc, OnceLock};

/// Bytes of the bucket, in the memory in which they arrived. Once a block buffer has taken some of it over, all of that
/// memory counts as allocated for block buffers, until the last one that shares it is gone.
#[derive(Clone, Debug)]
pub struct Arrived {
    bytes: Bytes,
    memory: Arc<Memory>,
}

/// The account of memory that came from elsewhere.
#[derive(Debug)]
struct Memory {
    len: u64,
    /// Where it is counted; nowhere before somebody has taken it over.
    counted: OnceLock<Arc<Pool>>,
}

impl Arrived {
    /// All that lies in one piece of memory.
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

    /// Other bytes that lie in the same memory.
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

    /// Bytes of the memory in which they lie.
    pub fn memory_len(&self) -> u64 {
        self.memory.len
    }

    /// Whether that memory counts as allocated for block buffers already.
    pub fn is_counted(&self) -> bool {
        self.memory.counted.get().is_some()
    }

    /// Whether both lie in the same memory.
    pub(crate) fn is_beside(&self, other: &Arrived) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory)
    }

    /// Some of them.
    ///
    /// # Panics
    /// When they have no such range.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Arrived {
        self.beside(self.bytes.slice(range))
    }

    /// Those that `part`, which must be some of them, has, for a piece to keep.
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
