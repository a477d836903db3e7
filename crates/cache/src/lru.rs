//! The order in which blocks give back their memory.

use forebay_types::BlockKey;
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// The blocks that wait to be evicted, or to be spilled, by the tick of their use *when they were queued*.
///
/// A use only stores a tick in the block, so it takes no lock. The order is corrected when a block is taken out: the
/// evictor compares the ticks and queues the block again if it was used since. A block that is taken out and was not
/// used since is therefore the least recently used of all queued ones.
///
/// An ordered set rather than a heap: a dropped block removes its entry, so that files which come and go without any
/// eviction leave nothing behind.
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

    /// The tick of the first block.
    pub(crate) fn first(&self) -> Option<u64> {
        let waiting = self.waiting.lock();
        waiting.first().map(|(tick, _)| *tick)
    }

    pub(crate) fn pop(&self) -> Option<BlockKey> {
        let (_, key) = self.waiting.lock().pop_first()?;
        Some(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.lock().len()
    }
}
