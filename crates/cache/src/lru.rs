//! In which order clean blocks may leave.

use forebay_types::BlockKey;
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// The blocks that wait to be evicted, by the tick of their use *when they were queued*.
///
/// A use only stores a tick in the block, so it takes no lock. The order is put right when a block
/// comes out: whoever evicts compares the ticks and queues it again if it was used since. A block
/// that came out unused since is therefore the least recently used of all that wait.
///
/// An ordered set rather than a heap: a block that goes away takes its entry with it, so that
/// files which come and go without any eviction leave nothing behind.
#[derive(Debug, Default)]
pub(crate) struct Order {
    waiting: Mutex<BTreeSet<(u64, BlockKey)>>,
}

impl Order {
    pub(crate) fn insert(&self, tick: u64, key: BlockKey) {
        self.waiting.lock().insert((tick, key));
    }

    pub(crate) fn remove(&self, tick: u64, key: BlockKey) {
        self.waiting.lock().remove(&(tick, key));
    }

    pub(crate) fn pop(&self) -> Option<BlockKey> {
        let (_, key) = self.waiting.lock().pop_first()?;
        Some(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.lock().len()
    }
}
