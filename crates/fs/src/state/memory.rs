//! Memory of block buffers, packs and fetched frames: one limit, and the tasks that wait for it.
//!
//! ```text
//!   writers      admitted one by one; wait while dirty blocks fill the limit that can not be spilled
//!   frames       leased before they are fetched
//!   packs        leased before they are put together, out of a reserve if need be
//!   evicted      clean blocks, least recently used first
//!   spilled      dirty blocks in the same order, if the log has them: they stay dirty, and are read from there
//! ```

use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use forebay_cache::{Cache, Coldest, Lease};
use forebay_types::{BlockKey, CheckpointId, Lsn};
use forebay_vfs::{ClientId, Error, Result, Trouble, Troubles, Waiting};
use forebay_waits::{For, waiting};
use futures_util::future::BoxFuture;

use super::client_shares::ClientShares;
use super::eager_queue::EagerUploads;
use super::node_table::NodeTable;
use super::pack_buffers::PackBuffers;
use super::signals::Signals;

/// The longest time that a call waits for room before it checks again, and asks for a checkpoint again.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How long an unused buffer is kept for the next use; up to twice that.
const UNUSED_FOR: Duration = Duration::from_secs(5);

/// The parts of [`Memory::new`].
pub(crate) struct MemoryParts {
    /// Bytes of all block buffers, packs and frames.
    pub(crate) limit: u64,
    /// Bytes of these that neither writers nor readers ahead may take.
    pub(crate) reserve: u64,
    /// How long a call waits for room.
    pub(crate) room_wait: Duration,
    pub(crate) nodes: Arc<NodeTable>,
    pub(crate) eager: Arc<EagerUploads>,
    pub(crate) pack_buffers: PackBuffers,
    pub(crate) signals: Arc<Signals>,
    pub(crate) troubles: Arc<Troubles>,
}

/// The log, as far as memory needs it.
pub(crate) trait SafeLog: Send + Sync {
    /// Dirty bytes whose records begin before may leave memory.
    fn settled_lsn(&self) -> Lsn;

    /// Flushes what is in the log now. Ready when that is done, or when the log has failed.
    fn flush(&self) -> BoxFuture<'static, ()>;
}

/// The memory of one volume for file data.
pub(crate) struct Memory {
    pub(crate) cache: Arc<Cache>,
    /// Buffers for packs.
    pub(crate) pack_buffers: PackBuffers,
    limit: u64,
    room_wait: Duration,
    /// The nodes whose blocks are evicted.
    nodes: Arc<NodeTable>,
    eager: Arc<EagerUploads>,
    signals: Arc<Signals>,
    troubles: Arc<Troubles>,
    /// Bytes that admitted writers are about to take from the cache.
    admitted: AtomicU64,
    /// Which clients have written to block buffers.
    shares: ClientShares,
    /// Writers that wait for memory.
    writers_waiting: AtomicUsize,
    /// Set if dirty bytes may leave memory while the log has them.
    log: OnceLock<Arc<dyn SafeLog>>,
    /// Number of the checkpoint that is being uploaded.
    uploading: AtomicU64,
}

impl Memory {
    pub(crate) fn new(parts: MemoryParts) -> Memory {
        Memory {
            cache: Cache::with_reserve(parts.limit, parts.reserve),
            pack_buffers: parts.pack_buffers,
            limit: parts.limit,
            room_wait: parts.room_wait,
            nodes: parts.nodes,
            eager: parts.eager,
            signals: parts.signals,
            troubles: parts.troubles,
            admitted: AtomicU64::new(0),
            shares: ClientShares::new(),
            writers_waiting: AtomicUsize::new(0),
            log: OnceLock::new(),
            uploading: AtomicU64::new(0),
        }
    }

    /// Dirty bytes may leave memory from now on, while this log has them.
    pub(crate) fn spill_to(&self, log: Arc<dyn SafeLog>) {
        // Called once, when the log begins.
        let _ = self.log.set(log);
    }

    /// The publisher uploads this checkpoint now, for which its blocks should stay in memory.
    pub(crate) fn uploading(&self, checkpoint: CheckpointId) {
        self.uploading.store(checkpoint.0, Ordering::Relaxed);
    }

    /// Waits for room, at most [`FsConfig::room_wait`](crate::FsConfig::room_wait).
    pub(crate) async fn bounded<T>(&self, room: impl Future<Output = Result<T>>) -> Result<T> {
        let waited = tokio::time::timeout(self.room_wait, room).await;
        waited.unwrap_or(Err(Error::Delay))
    }

    /// Waits until `bytes` of data may be written to the cache, evicting clean blocks and spilling dirty ones. After
    /// [`FsConfig::room_wait`](crate::FsConfig::room_wait) the call fails with [`Error::Delay`]: a longer wait would keep
    /// other calls from the memory that this one holds.
    pub(crate) async fn admit(&self, client: ClientId, bytes: u64) -> Result<Admission<'_>> {
        self.signals.check_running()?;
        let admission = match self.try_admit(client, bytes) {
            Some(admission) => admission,
            None => waiting(For::Memory, self.bounded(self.room(client, bytes))).await?,
        };
        self.shares.count(client, bytes.max(1));
        Ok(admission)
    }

    async fn room(&self, client: ClientId, bytes: u64) -> Result<Admission<'_>> {
        let _waiting = WaitingWriter::new(self);
        let mut is_flushed = self.log.get().is_none();
        loop {
            let freed = self.signals.freed();
            tokio::pin!(freed);
            // Registered before the last check, so that no wake-up falls in between.
            freed.as_mut().enable();
            if let Some(admission) = self.try_admit(client, bytes) {
                return Ok(admission);
            }
            // A flush of the disk may make room without the bucket.
            if let Some(log) = self.log.get().filter(|_| !is_flushed) {
                is_flushed = true;
                let _ = tokio::time::timeout(LOOK_AGAIN, log.flush()).await;
                continue;
            }
            is_flushed = self.log.get().is_none();
            // Eager uploads make room without a checkpoint.
            if !self.eager.is_busy() {
                self.signals.press();
            }
            // A reader that evicts may hold all evictable blocks at the moment of this check, and wakes no other
            // task: check again without a wake-up.
            let _ = tokio::time::timeout(LOOK_AGAIN, freed).await;
            self.signals.check_running()?;
        }
    }

    /// Dirty bytes that are not in the log alone.
    fn dirty_in_memory(&self) -> u64 {
        let (dirty, spilled) = (self.cache.dirty_bytes(), self.cache.spilled_bytes());
        dirty.saturating_sub(spilled)
    }

    /// Bytes that admitted writers are about to take from the cache.
    pub(crate) fn admitted_bytes(&self) -> u64 {
        self.admitted.load(Ordering::Acquire)
    }

    fn try_admit(&self, client: ClientId, bytes: u64) -> Option<Admission<'_>> {
        // For the incomplete pieces at both ends, 64 KiB each.
        let bytes = bytes + (128 << 10);
        let withheld = self.shares.withheld(client, self.limit);
        loop {
            // A writer that is not admitted is not counted either: two that fail at the same moment must not both
            // wait for room that one of them could have.
            let before = self.admitted.load(Ordering::Acquire);
            // A lone writer is always admitted: no limit may be too small for one call.
            let alone = before == 0 && self.dirty_in_memory() == 0;
            if !self.make_room(before + bytes + withheld) && !alone {
                return None;
            }
            let taken = self.admitted.compare_exchange(
                before,
                before + bytes,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if taken.is_ok() {
                return Some(Admission {
                    memory: self,
                    bytes,
                });
            }
        }
    }

    /// Evicts clean blocks, and spills dirty ones that the log has, least recently used first, until `bytes` more fit in the
    /// cache.
    pub(crate) fn make_room(&self, bytes: u64) -> bool {
        self.evict_until(|| self.cache.has_room(bytes))
    }

    /// Leases `bytes` for something other than block buffers, evicting clean blocks, if that leaves all admitted
    /// writers the memory that they need, and clients that have written little their part.
    pub(crate) fn try_lease(&self, bytes: u64) -> Option<Lease> {
        let mut lease = None;
        let reserved = match self.dirty_in_memory() > self.limit / 2 {
            true => self.shares.reserved(self.limit),
            // Evicted memory is for all clients.
            false => 0,
        };
        self.evict_until(|| {
            if self
                .cache
                .has_room(bytes + self.admitted_bytes() + reserved)
            {
                lease = self.cache.try_lease(bytes);
            }
            lease.is_some()
        });
        lease
    }

    /// The same for uploads and for readers that wait, without which nothing makes progress: takes from the reserve
    /// if there is no other room.
    pub(crate) fn try_lease_reserve(&self, bytes: u64) -> Option<Lease> {
        self.try_lease(bytes).or_else(|| self.cache.try_draw(bytes))
    }

    /// The same for callers that cannot wait: exceeds the limit if there is no room.
    pub(crate) fn lease(&self, bytes: u64) -> Lease {
        self.try_lease_reserve(bytes)
            .unwrap_or_else(|| self.cache.draw(bytes))
    }

    /// The same for callers that can do without: `None` while writers wait, and after a short time in which nothing
    /// became free.
    pub(crate) async fn lease_spare(&self, bytes: u64) -> Option<Lease> {
        let spare = || match self.writers_waiting.load(Ordering::Relaxed) {
            0 => self.try_lease(bytes),
            _ => None,
        };
        let freed = self.signals.freed();
        tokio::pin!(freed);
        freed.as_mut().enable();
        if let Some(lease) = spare() {
            return Some(lease);
        }
        let _ = tokio::time::timeout(LOOK_AGAIN, freed).await;
        spare()
    }

    fn spill(&self, key: BlockKey, settled: Lsn) {
        if let Some(node) = self.nodes.peek(key.inode) {
            let blocks = &mut node.lock().blocks;
            let uploading = CheckpointId(self.uploading.load(Ordering::Relaxed));
            if !blocks.spare(key.block, uploading) {
                blocks.spill(key.block, settled);
            }
        }
    }

    /// Drops the memory of all dirty bytes that the log has in records before `settled`; for tests.
    pub(crate) fn spill_all(&self, settled: Lsn) {
        // A block that was used since it was queued is queued once more.
        for _ in 0..2 * self.cache.candidates_to_spill() {
            if let Some(key) = self.cache.coldest_dirty()
                && let Some(node) = self.nodes.peek(key.inode)
            {
                node.lock().blocks.spill(key.block, settled);
            }
        }
    }

    /// Frees buffers that were unused for [`UNUSED_FOR`], for as long as the volume runs.
    pub(crate) async fn free_unused_forever(self: Arc<Self>) {
        loop {
            tokio::time::sleep(UNUSED_FOR).await;
            self.cache.free_unused();
        }
    }

    /// Whether this client has written little beside others.
    pub(crate) fn is_light(&self, client: ClientId) -> bool {
        self.shares.is_light(client, self.limit)
    }

    /// Whether writers wait for memory.
    pub(crate) fn writers_wait(&self) -> bool {
        self.writers_waiting.load(Ordering::Relaxed) > 0
    }

    /// A checkpoint has closed.
    pub(super) fn checkpoint_closed(&self) {
        self.shares.checkpoint_closed();
    }

    fn evict_until(&self, mut enough: impl FnMut() -> bool) -> bool {
        let log = self.log.get();
        let spillable = log.map_or(0, |_| self.cache.candidates_to_spill());
        let mut rounds = self.cache.candidates() + 2 * spillable + 1;
        while !enough() {
            let coldest = match log {
                Some(_) => self.cache.coldest_of_both(),
                None => self.cache.coldest().map(Coldest::Clean),
            };
            match (coldest, log) {
                (Some(Coldest::Clean(key)), _) => {
                    if let Some(node) = self.nodes.peek(key.inode) {
                        node.lock().blocks.evict(key.block);
                    }
                }
                (Some(Coldest::Dirty(key)), Some(log)) => self.spill(key, log.settled_lsn()),
                _ if self.pack_buffers.clear() => continue,
                _ => return false,
            }
            if rounds == 0 {
                return self.pack_buffers.clear() && enough();
            }
            rounds -= 1;
        }
        true
    }
}

/// Counts a writer that waits for memory; its drop ends the count, also when the wait is cancelled.
struct WaitingWriter<'a> {
    writers: &'a AtomicUsize,
    _trouble: Waiting<'a>,
}

impl WaitingWriter<'_> {
    fn new(memory: &Memory) -> WaitingWriter<'_> {
        memory.writers_waiting.fetch_add(1, Ordering::Relaxed);
        WaitingWriter {
            writers: &memory.writers_waiting,
            _trouble: memory.troubles.wait(Trouble::MemoryFull),
        }
    }
}

impl Drop for WaitingWriter<'_> {
    fn drop(&mut self) {
        self.writers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Room in the cache that a writer may take. Dropping it gives the room back; by then the cache itself counts the
/// written bytes.
pub(crate) struct Admission<'a> {
    memory: &'a Memory,
    bytes: u64,
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        self.memory.admitted.fetch_sub(self.bytes, Ordering::AcqRel);
        // It may have been dropped unused.
        self.memory.signals.memory_freed();
    }
}
