//! Memory in which packs are built, reused from one pack to the next.
//!
//! The system clears new memory page by page at its first use, which takes as long as copying a pack's bytes into it,
//! or several times as long where the system itself must ask for the memory. So the memory of a pack that has arrived
//! is kept for the next one, while packs are begun and no other task needs the room.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_cache::Lease;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::FsConfig;

/// Packs that are being built, or wait for their turn, beside those in flight.
pub(crate) const AT_ONCE_BESIDE: usize = 2;

/// How long the memory is kept after the last pack was begun: longer than from one checkpoint to the next, and from
/// one burst of a build's writes to the next.
const KEPT_FOR: Duration = Duration::from_secs(10);

/// The memory of how many packs is kept: of as many as are being built or in flight at once, because all of them may
/// arrive at the same moment; but at most an eighth of all memory, unless the packs being built take more.
pub(crate) fn most(config: &FsConfig) -> usize {
    let fit = config.memory_limit / 8 / config.pack_bytes.max(1);
    let at_once = config.upload_parallel + AT_ONCE_BESIDE;
    at_once.min(fit as usize).max(AT_ONCE_BESIDE)
}

/// The memory that is kept for the next packs. It counts as leased.
#[derive(Clone)]
pub(crate) struct PackBuffers {
    kept: Arc<Mutex<Kept>>,
}

struct Kept {
    buffers: Vec<Buffer>,
    /// The most buffers that are kept.
    most: usize,
    /// When the last pack was begun; none if none was begun since the buffers were freed. Then buffers that come back
    /// late, when their request has ended, are freed too.
    begun: Option<Instant>,
}

/// Memory for a pack, and its lease.
pub(crate) struct Buffer {
    pub(crate) bytes: Vec<u8>,
    pub(crate) lease: Lease,
}

impl PackBuffers {
    /// Keeps the memory of at most this many packs.
    pub(crate) fn new(most: usize) -> PackBuffers {
        let kept = Kept {
            buffers: Vec::new(),
            most,
            begun: None,
        };
        PackBuffers {
            kept: Arc::new(Mutex::new(kept)),
        }
    }

    /// Kept memory for a pack of `bytes`, if there is some.
    pub(crate) fn take(&self, bytes: usize) -> Option<Buffer> {
        let mut kept = self.kept.lock();
        kept.begun = Some(Instant::now());
        let fits = kept
            .buffers
            .iter()
            .rposition(|buffer| buffer.bytes.capacity() >= bytes)?;
        Some(kept.buffers.swap_remove(fits))
    }

    /// The bytes of a pack, whose memory is kept when the last reference to them is dropped. It counts until it is
    /// freed.
    pub(crate) fn lend(&self, buffer: Buffer) -> Bytes {
        Bytes::from_owner(Lent {
            buffer: Some(buffer),
            home: self.clone(),
        })
    }

    /// When the kept memory must be freed, unless another pack is begun; none if nothing is kept, nor will be.
    pub(crate) fn stale_at(&self) -> Option<Instant> {
        self.kept.lock().begun.map(|begun| begun + KEPT_FOR)
    }

    /// Frees the kept memory, and memory that comes back before the next pack is begun. Returns whether anything was
    /// kept.
    pub(crate) fn clear(&self) -> bool {
        let mut kept = self.kept.lock();
        kept.begun = None;
        let freed = std::mem::take(&mut kept.buffers);
        // The lock is released before the buffers are freed.
        drop(kept);
        !freed.is_empty()
    }
}

struct Lent {
    /// `None` once it is dropped.
    buffer: Option<Buffer>,
    home: PackBuffers,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        match &self.buffer {
            Some(buffer) => &buffer.bytes,
            None => &[],
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else {
            return;
        };
        let mut kept = self.home.kept.lock();
        if kept.begun.is_none() {
            return;
        }
        kept.buffers.push(buffer);
        // The largest buffers fit the most packs.
        kept.buffers
            .sort_unstable_by_key(|buffer| Reverse(buffer.bytes.capacity()));
        let most = kept.most;
        kept.buffers.truncate(most);
    }
}

#[cfg(test)]
mod tests {
    use forebay_cache::Cache;

    use super::*;

    #[test]
    fn memory_is_kept_for_all_packs_that_may_arrive_at_once_and_little_of_a_little() {
        let most = |memory_limit| {
            most(&FsConfig {
                memory_limit,
                upload_parallel: 5,
                pack_bytes: 8 << 20,
                ..FsConfig::new("data".into())
            })
        };
        assert_eq!(most(1 << 30), 7);
        assert_eq!(most(256 << 20), 4);
        assert_eq!(most(64 << 20), AT_ONCE_BESIDE);
    }

    #[test]
    fn memory_is_used_again_and_counts_until_it_is_freed() {
        let cache = Cache::new(64 << 20);
        const MOST: usize = 3;
        let buffers = PackBuffers::new(MOST);
        assert!(!buffers.clear());
        let of = |bytes: usize| {
            buffers.take(bytes).unwrap_or_else(|| Buffer {
                bytes: Vec::with_capacity(bytes),
                lease: cache.try_lease(bytes as u64).unwrap(),
            })
        };
        let full = || {
            let mut buffer = of(1 << 20);
            buffer.bytes.clear();
            buffer.bytes.resize(1 << 20, 7);
            let address = buffer.bytes.as_ptr();
            (buffers.lend(buffer), address)
        };
        let (pack, address) = full();
        let body = pack.clone();
        drop(pack);
        assert_eq!(body[..], [7; 1 << 20]);
        assert!(buffers.kept.lock().buffers.is_empty(), "somebody has it");
        drop(body);
        assert_eq!(cache.leased_bytes(), 1 << 20);
        assert!(buffers.take((1 << 20) + 1).is_none(), "it is too small");
        let (again, same) = full();
        assert_eq!(address, same);
        // No more than that are kept.
        let packs: Vec<_> = (0..2 * MOST).map(|_| full().0).collect();
        drop((again, packs));
        assert_eq!(cache.leased_bytes(), (MOST as u64) << 20);
        // The largest ones are.
        drop(buffers.lend(of(3 << 20)));
        drop(buffers.lend(of(2 << 20)));
        assert_eq!(cache.leased_bytes(), ((MOST as u64 - 1) << 20) + (3 << 20));
        assert!(buffers.stale_at().is_some_and(|at| at > Instant::now()));
        let (late, _) = full();
        assert!(buffers.clear());
        assert_eq!(buffers.stale_at(), None);
        drop(late);
        assert_eq!(cache.leased_bytes(), 0, "what comes back late is freed");
    }
}
