//! Memory in which packs are put together, used again and again.
//!
//! Memory that the system has just given is cleared page by page when it is first touched, which takes as long as
//! copying a pack's bytes into it, or several times as long where the system itself has to ask for it. So the memory of a pack
//! that has arrived is kept for the next one, as long as nobody needs the room and packs are begun.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_cache::Lease;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::FsConfig;

/// Packs that are put together, or wait for their turn, beside those that are on their way.
pub(crate) const AT_ONCE_BESIDE: usize = 2;

/// For how long it is kept after the last pack was begun: longer than from one checkpoint to the next, and from one burst of
/// a build's writes to the next.
const KEPT_FOR: Duration = Duration::from_secs(10);

/// The memory of how many packs is kept: of as many as are put together or on their way at once, for all of them may arrive in
/// the same moment; but no more than an eighth of all memory, unless it is that of those which are put together.
pub(crate) fn most(config: &FsConfig) -> usize {
    let fit = config.memory_limit / 8 / config.pack_bytes.max(1);
    let at_once = config.upload_parallel + AT_ONCE_BESIDE;
    at_once.min(fit as usize).max(AT_ONCE_BESIDE)
}

/// What is kept for the next packs. It counts as memory that is leased.
#[derive(Clone)]
pub(crate) struct PackBuffers {
    kept: Arc<Mutex<Kept>>,
}

struct Kept {
    buffers: Vec<Buffer>,
    /// No more than that.
    most: usize,
    /// When the last pack was begun; none if none was since they were freed. Then what comes back late, when its
    /// request has ended, is freed too.
    begun: Option<Instant>,
}

/// Memory for a pack, and what it counts.
pub(crate) struct Buffer {
    pub(crate) bytes: Vec<u8>,
    pub(crate) lease: Lease,
}

impl PackBuffers {
    /// Keeps the memory of so many packs.
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

    /// Memory for a pack of so many bytes, if some is kept.
    pub(crate) fn take(&self, bytes: usize) -> Option<Buffer> {
        let mut kept = self.kept.lock();
        kept.begun = Some(Instant::now());
        let fits = kept
            .buffers
            .iter()
            .rposition(|buffer| buffer.bytes.capacity() >= bytes)?;
        Some(kept.buffers.swap_remove(fits))
    }

    /// The bytes of a pack, whose memory is kept when nobody has them any more. It counts until it is freed.
    pub(crate) fn lend(&self, buffer: Buffer) -> Bytes {
        Bytes::from_owner(Lent {
            buffer: Some(buffer),
            home: self.clone(),
        })
    }

    /// When what is kept is to be freed, unless a further pack is begun; none if nothing is kept, nor will be.
    pub(crate) fn stale_at(&self) -> Option<Instant> {
        self.kept.lock().begun.map(|begun| begun + KEPT_FOR)
    }

    /// Frees what is kept, and what comes back before the next pack is begun. Says whether anything was kept.
    pub(crate) fn clear(&self) -> bool {
        let mut kept = self.kept.lock();
        kept.begun = None;
        let freed = std::mem::take(&mut kept.buffers);
        // Before they are freed.
        drop(kept);
        !freed.is_empty()
    }
}

struct Lent {
    /// Taken when it is dropped.
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
        // The largest serve the most packs.
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
