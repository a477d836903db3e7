//! The parts that all block buffers share: the pool, the accounts and the order of use.

use crate::block::Footprint;
use crate::image::BlockImage;
use crate::lru::Order;
use crate::pool::Pool;
use forebay_metrics::{Counter, Samples, Source, table};
use forebay_types::{BlockKey, Lsn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Memory budget of all block buffers of a gateway. Every method may be called from any thread.
///
/// The limit is not enforced here: [`FileBlocks::write`](crate::FileBlocks::write) always works, because a writer
/// that holds a file's lock cannot wait. Admission calls [`has_room`](Self::has_room) first, and evicts or waits
/// while there is no room.
#[derive(Debug)]
pub struct Cache {
    pub(crate) pool: Arc<Pool>,
    /// Clean blocks.
    pub(crate) order: Order,
    /// Dirty blocks with bytes in memory that the log has as well.
    pub(crate) dirty_order: Order,
    /// Counts uses: orders them, and names versions of blocks.
    ticks: AtomicU64,
    dirty_bytes: AtomicU64,
    spilled_bytes: AtomicU64,
    /// Memory of log maps, a part of the overhead.
    index_bytes: AtomicU64,
    /// Evicted blocks, and the bytes of their buffers.
    evictions: Counter,
    evicted_bytes: Counter,
}

impl Cache {
    /// A budget of `limit_bytes` with nothing allocated.
    pub fn new(limit_bytes: u64) -> Arc<Cache> {
        Cache::with_reserve(limit_bytes, 0)
    }

    /// A budget of `limit_bytes` with nothing allocated, of which `reserve_bytes` are only for callers that
    /// [`draw`](Self::draw) on it.
    pub fn with_reserve(limit_bytes: u64, reserve_bytes: u64) -> Arc<Cache> {
        Arc::new(Cache {
            pool: Pool::new(limit_bytes, reserve_bytes),
            order: Order::default(),
            dirty_order: Order::default(),
            ticks: AtomicU64::new(0),
            dirty_bytes: AtomicU64::new(0),
            spilled_bytes: AtomicU64::new(0),
            index_bytes: AtomicU64::new(0),
            evictions: Counter::default(),
            evicted_bytes: Counter::default(),
        })
    }

    /// The budget, in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.pool.limit_bytes()
    }

    /// Bytes allocated for block buffers: the buffers of all live pieces, including those that only images or
    /// closed checkpoints hold, plus bitmaps, tables and an estimate of the maps around a block. Idle buffers are not
    /// included.
    pub fn allocated_bytes(&self) -> u64 {
        self.pool.allocated_bytes()
    }

    /// Bytes of the memory of all live pieces: the part of [`allocated_bytes`](Self::allocated_bytes) that is exact
    /// to the byte.
    pub fn piece_bytes(&self) -> u64 {
        self.pool.used_bytes()
    }

    /// Bytes of idle buffers that can be used again. Together with [`allocated_bytes`](Self::allocated_bytes) they
    /// stay below the limit as long as the latter does.
    pub fn pooled_bytes(&self) -> u64 {
        self.pool.idle_bytes()
    }

    /// Frees all idle buffers.
    pub fn trim(&self) {
        self.pool.trim();
    }

    /// Frees idle buffers that were not needed since the last call.
    pub fn free_unused(&self) {
        self.pool.free_unused();
    }

    /// Dirty bytes of all files. A byte that was written again after its checkpoint closed counts for both
    /// checkpoints, since both upload it.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes.load(Relaxed)
    }

    /// The part of [`dirty_bytes`](Self::dirty_bytes) that is in the log alone. The rest is in memory, or in images.
    pub fn spilled_bytes(&self) -> u64 {
        self.spilled_bytes.load(Relaxed)
    }

    /// Bytes of [`allocated_bytes`](Self::allocated_bytes) that log maps take: what is known of the records that have
    /// dirty bytes. Once they take a quarter of the budget, the records of further writes are not noted, and their bytes
    /// stay in memory until they are published.
    pub fn index_bytes(&self) -> u64 {
        self.index_bytes.load(Relaxed)
    }

    /// Whether log maps may grow.
    pub(crate) fn may_note_records(&self) -> bool {
        self.index_bytes() < self.limit_bytes() / 4
    }

    /// Whether `bytes` more fit in the budget beside the bytes that are allocated, leased and reserved. Frees idle
    /// buffers first if that makes the room. A write of n bytes needs at most n plus 128 KiB for its two ragged ends,
    /// and up to 64 KiB for each piece that it has to copy.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.pool.make_room(bytes);
        self.pool.has_room(bytes)
    }

    /// Bytes of the budget in use outside the block buffers: leased and drawn.
    pub fn leased_bytes(&self) -> u64 {
        self.pool.lent_bytes()
    }

    /// Takes `bytes` of the budget for as long as the returned lease lives, if [there is room](Self::has_room): for
    /// memory outside the block buffers, for example of bytes on their way into one. The same room is never given to
    /// two concurrent callers.
    pub fn try_lease(&self, bytes: u64) -> Option<Lease> {
        self.pool.make_room(bytes);
        self.pool.lend(bytes).then(|| Lease {
            pool: Arc::clone(&self.pool),
            bytes,
            drawn: false,
        })
    }

    /// Takes `bytes` of the reserve for as long as the returned lease lives, if that many are left.
    pub fn try_draw(&self, bytes: u64) -> Option<Lease> {
        self.pool.draw_reserve(bytes).then(|| Lease {
            pool: Arc::clone(&self.pool),
            bytes,
            drawn: true,
        })
    }

    /// Takes `bytes` of the budget for as long as the returned lease lives, whether there is room or not, from the
    /// reserve first: for work without which nothing would make progress, such as the upload of dirty bytes.
    pub fn draw(&self, bytes: u64) -> Lease {
        self.pool.draw(bytes);
        Lease {
            pool: Arc::clone(&self.pool),
            bytes,
            drawn: true,
        }
    }

    /// Takes the first block for eviction out of the order of use; none if no clean block is queued. The caller must
    /// then call [`FileBlocks::evict`] for it under the lock of its file, which queues the block again if it cannot
    /// be evicted. Repeat until enough is evicted.
    ///
    /// [`FileBlocks::evict`]: crate::FileBlocks::evict
    pub fn coldest(&self) -> Option<BlockKey> {
        self.order.pop()
    }

    /// Number of blocks in the order of use: an upper limit for the rounds of one search for a block to evict.
    pub fn candidates(&self) -> usize {
        self.order.len()
    }

    /// The same for dirty blocks: takes out the first one that may be spilled. The caller must then call
    /// [`FileBlocks::spill`] for it under the lock of its file, which queues the block again if some of it stays in
    /// memory.
    ///
    /// [`FileBlocks::spill`]: crate::FileBlocks::spill
    pub fn coldest_dirty(&self) -> Option<BlockKey> {
        self.dirty_order.pop()
    }

    /// Takes out the block that was used least recently of those that [`coldest`](Self::coldest) and
    /// [`coldest_dirty`](Self::coldest_dirty) would return.
    pub fn coldest_of_both(&self) -> Option<Coldest> {
        let dirty_first = match (self.order.first(), self.dirty_order.first()) {
            (Some(clean), Some(dirty)) => dirty < clean,
            (clean, _) => clean.is_none(),
        };
        // Another thread may have taken it meanwhile.
        let clean = || self.coldest().map(Coldest::Clean);
        let dirty = || self.coldest_dirty().map(Coldest::Dirty);
        match dirty_first {
            true => dirty().or_else(clean),
            false => clean().or_else(dirty),
        }
    }

    /// Number of dirty blocks in the order of use, like [`candidates`](Self::candidates).
    pub fn candidates_to_spill(&self) -> usize {
        self.dirty_order.len()
    }

    /// Puts bytes of a record into an image that needs them: `data`, which the record has at `offset` of the file. Only
    /// ranges of [`BlockImage::logged`] with this `lsn` take them; other bytes of the image do not change. Returns
    /// their number.
    ///
    /// The image gets memory of its own for them, which counts as allocated until the image is dropped. The pieces that
    /// it shares with the block are copied.
    pub fn load(&self, image: &mut BlockImage, lsn: Lsn, offset: u64, data: &[u8]) -> u64 {
        image.load(lsn, offset, data, &self.pool)
    }

    /// Number of pieces that were copied since the start, because an image, a closed checkpoint or a reader held
    /// them, or because their memory had been taken over. For metrics.
    pub fn copied_pieces(&self) -> u64 {
        self.pool.copied_pieces()
    }

    /// Counts a block that was evicted.
    pub(crate) fn evicted(&self, bytes: u64) {
        self.evictions.add(1);
        self.evicted_bytes.add(bytes);
    }

    /// The next tick; never the same twice, never zero.
    pub(crate) fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Relaxed) + 1
    }

    /// The newest tick.
    pub(crate) fn now(&self) -> u64 {
        self.ticks.load(Relaxed)
    }

    /// Replaces the contribution of one block to the accounts.
    pub(crate) fn account(&self, before: Footprint, after: Footprint) {
        if before == after {
            return;
        }
        self.pool
            .change_overhead(before.overhead_bytes, after.overhead_bytes);
        change(&self.dirty_bytes, before.dirty_bytes, after.dirty_bytes);
        change(
            &self.spilled_bytes,
            before.spilled_bytes,
            after.spilled_bytes,
        );
        change(&self.index_bytes, before.index_bytes, after.index_bytes);
    }
}

/// Replaces a part of a sum.
fn change(sum: &AtomicU64, before: u64, after: u64) {
    if after != before {
        // Adding the wrapped difference subtracts.
        sum.fetch_add(after.wrapping_sub(before), Relaxed);
    }
}

/// The block that [`Cache::coldest_of_both`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coldest {
    /// A clean block, for [`FileBlocks::evict`](crate::FileBlocks::evict).
    Clean(BlockKey),
    /// A dirty block, for [`FileBlocks::spill`](crate::FileBlocks::spill).
    Dirty(BlockKey),
}

impl Source for Cache {
    fn collect(&self, samples: &mut Samples) {
        samples.counter_of(&table::EVICTIONS, "memory", &self.evictions);
        samples.counter_of(&table::EVICTED, "memory", &self.evicted_bytes);
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.pool.close();
    }
}

/// Bytes of the budget in use outside the block buffers. See [`Cache::try_lease`] and [`Cache::draw`].
#[derive(Debug)]
pub struct Lease {
    pool: Arc<Pool>,
    bytes: u64,
    /// Whether they were drawn, so that they may come from the reserve.
    drawn: bool,
}

impl Lease {
    /// The number of bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives back some of the bytes; all of them if there are fewer.
    pub fn give_back(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.pool.take_back(bytes, self.drawn);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.take_back(self.bytes, self.drawn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_leased_takes_room_until_it_is_given_back() {
        let cache = Cache::new(1 << 20);
        let mut lease = cache.try_lease(3 << 18).unwrap();
        assert_eq!(cache.allocated_bytes(), 0, "it is no block buffer");
        assert_eq!(cache.leased_bytes(), 3 << 18);
        assert!(cache.try_lease(1 << 19).is_none());
        lease.give_back(1 << 18);
        assert_eq!((lease.bytes(), cache.leased_bytes()), (1 << 19, 1 << 19));
        assert!(cache.has_room(1 << 19));
        assert!(!cache.has_room((1 << 19) + 1));
        lease.give_back(u64::MAX);
        assert_eq!(cache.leased_bytes(), 0);
        drop(lease);
        assert!(cache.has_room(1 << 20));
    }

    #[test]
    fn memory_goes_with_the_cache_though_a_thread_has_a_reference_to_its_pool() {
        let cache = Cache::new(1 << 20);
        drop(cache.pool.take(crate::pool::Class::Whole));
        let pool = cache.pool.clone();
        drop(cache);
        assert_eq!(pool.idle_bytes(), 0);
    }

    #[test]
    fn the_reserve_is_only_for_writers_that_may_use_it() {
        let cache = Cache::with_reserve(1 << 20, 1 << 18);
        assert!(cache.has_room(3 << 18));
        assert!(!cache.has_room((3 << 18) + 1));
        assert!(cache.try_lease((3 << 18) + 1).is_none());
        let lease = cache.try_lease(3 << 18).unwrap();
        // The reserve is available to it whatever is leased, and is not counted twice.
        let drawn = cache.try_draw(1 << 18).unwrap();
        assert!(cache.has_room(0));
        assert!(cache.try_draw(1).is_none(), "it is used up");
        let beyond = cache.draw(1);
        assert!(!cache.has_room(0));
        drop((lease, beyond));
        assert!(cache.has_room(3 << 18));
        drop(drawn);
        assert_eq!(cache.leased_bytes(), 0);
        assert!(!cache.has_room((3 << 18) + 1), "it is held back again");
    }

    #[test]
    fn several_leases_at_once_do_not_exceed_what_there_is() {
        let cache = Cache::new(100);
        let taken = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        (0..1000)
                            .filter_map(|_| cache.try_lease(1))
                            .collect::<Vec<_>>()
                    })
                })
                .collect();
            let leases = threads.into_iter().map(|thread| thread.join().unwrap());
            leases.collect::<Vec<_>>()
        });
        assert_eq!(taken.iter().map(Vec::len).sum::<usize>(), 100);
        drop(taken);
        assert_eq!(cache.leased_bytes(), 0);
    }

    #[test]
    fn idle_buffers_make_way_for_what_is_drawn_and_are_not_kept_beside_it() {
        let cache = Cache::new(128 << 10);
        drop(cache.pool.take(crate::pool::Class::Whole));
        assert_eq!(cache.pooled_bytes(), 64 << 10);
        let drawn = cache.draw(96 << 10);
        assert_eq!(cache.pooled_bytes(), 0);
        drop(cache.pool.take(crate::pool::Class::Whole));
        assert_eq!(cache.pooled_bytes(), 0);
        drop(drawn);
        drop(cache.pool.take(crate::pool::Class::Whole));
        assert_eq!(cache.pooled_bytes(), 64 << 10);
    }
}
