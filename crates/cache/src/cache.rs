//! What all block buffers share: the pool, the accounts and the order of use.

use crate::block::Footprint;
use crate::lru::Order;
use crate::pool::Pool;
use forebay_types::BlockKey;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Memory budget of all block buffers of a gateway. Every method may be called from any thread.
///
/// The limit is not enforced here: [`FileBlocks::write`](crate::FileBlocks::write) always works,
/// for a writer that holds a file's lock cannot wait. Whoever admits writers asks
/// [`has_room`](Self::has_room) first, and evicts or waits while there is none.
#[derive(Debug)]
pub struct Cache {
    pub(crate) pool: Arc<Pool>,
    pub(crate) order: Order,
    /// Counts uses: orders them, and names versions of blocks.
    ticks: AtomicU64,
    dirty_bytes: AtomicU64,
}

impl Cache {
    /// A budget of `limit_bytes` with nothing allocated.
    pub fn new(limit_bytes: u64) -> Arc<Cache> {
        Arc::new(Cache {
            pool: Pool::new(limit_bytes),
            order: Order::default(),
            ticks: AtomicU64::new(0),
            dirty_bytes: AtomicU64::new(0),
        })
    }

    /// The budget, in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.pool.limit_bytes()
    }

    /// Bytes allocated for block buffers: the buffers of all pieces alive, also those that only
    /// snapshots or closed checkpoints hold, plus bitmaps, tables and an estimate of what the maps
    /// around a block cost. Idle buffers are not in it.
    pub fn allocated_bytes(&self) -> u64 {
        self.pool.allocated_bytes()
    }

    /// Bytes of the buffers of all pieces alive: the part of
    /// [`allocated_bytes`](Self::allocated_bytes) that is exact to the byte.
    pub fn piece_bytes(&self) -> u64 {
        self.pool.used_bytes()
    }

    /// Bytes of idle buffers that wait to be used again. Together with
    /// [`allocated_bytes`](Self::allocated_bytes) they stay below the limit as long as that does.
    pub fn pooled_bytes(&self) -> u64 {
        self.pool.idle_bytes()
    }

    /// Frees all idle buffers.
    pub fn trim(&self) {
        self.pool.trim();
    }

    /// Dirty bytes of all files. A byte that was written again after its checkpoint closed counts
    /// for both checkpoints, since both bring it to the bucket.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes.load(Relaxed)
    }

    /// Whether `bytes` more fit in the budget. Frees idle buffers first if they stand in the way.
    /// A write of n bytes needs at most n plus 128 KiB for its two ragged ends, and up to 64 KiB
    /// for each piece that it has to copy.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.pool.make_room(bytes);
        self.allocated_bytes().saturating_add(bytes) <= self.limit_bytes()
    }

    /// Counts `bytes` as allocated for as long as what this gives lives: memory of others that stands beside block
    /// buffers, such as what is on its way into one.
    pub fn lease(self: &Arc<Self>, bytes: u64) -> Lease {
        self.pool.change_overhead(0, bytes);
        Lease {
            cache: self.clone(),
            bytes,
        }
    }

    /// Takes the block that comes first for eviction out of the order of use, or none if no clean
    /// block waits. The caller must then call [`FileBlocks::evict`] for it under the lock of its
    /// file: that puts the block back where it belongs if it cannot go. Ask again until enough is
    /// evicted.
    ///
    /// [`FileBlocks::evict`]: crate::FileBlocks::evict
    pub fn coldest(&self) -> Option<BlockKey> {
        self.order.pop()
    }

    /// Number of blocks in the order of use: an upper limit for the rounds of one search for
    /// something to evict.
    pub fn candidates(&self) -> usize {
        self.order.len()
    }

    /// How many pieces were copied on write since the start, because a snapshot or a closed
    /// checkpoint held them. For metrics.
    pub fn copied_pieces(&self) -> u64 {
        self.pool.copied_pieces()
    }

    /// The next tick; never the same twice, never zero.
    pub(crate) fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Relaxed) + 1
    }

    /// The newest tick.
    pub(crate) fn now(&self) -> u64 {
        self.ticks.load(Relaxed)
    }

    /// Replaces what one block adds to the accounts.
    pub(crate) fn account(&self, before: Footprint, after: Footprint) {
        self.pool
            .change_overhead(before.overhead_bytes, after.overhead_bytes);
        if before.dirty_bytes != after.dirty_bytes {
            // Adding the wrapped difference subtracts.
            let change = after.dirty_bytes.wrapping_sub(before.dirty_bytes);
            self.dirty_bytes.fetch_add(change, Relaxed);
        }
    }
}

/// Bytes that count as allocated. See [`Cache::lease`].
#[derive(Debug)]
pub struct Lease {
    cache: Arc<Cache>,
    bytes: u64,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.cache.pool.change_overhead(self.bytes, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_leased_takes_room_until_it_is_given_back() {
        let cache = Cache::new(1 << 20);
        let lease = cache.lease(1 << 19);
        assert_eq!(cache.allocated_bytes(), 1 << 19);
        assert!(cache.has_room(1 << 19));
        assert!(!cache.has_room((1 << 19) + 1));
        drop(lease);
        assert!(cache.has_room(1 << 20));
    }
}
