//! Memory in which packs are put together, used again and again.
//!
//! Memory that the system has just given is cleared page by page when it is first touched, which takes as long as
//! copying a pack's bytes into it. So the memory of a pack that has arrived is kept for the next one, as long as there
//! is something to upload, nobody needs the room, and packs are begun: a checkpoint may stay open for an hour after
//! the last block has left early.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_cache::Lease;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::upload::AT_ONCE_BESIDE;

/// As many as are put together beside those that are on their way.
const KEPT: usize = AT_ONCE_BESIDE;
/// For how long they are kept after the last pack was begun: longer than from one checkpoint to the next, if writers
/// go on.
const KEPT_FOR: Duration = Duration::from_secs(10);

/// What is kept for the next packs. It counts as memory that is leased.
#[derive(Clone, Default)]
pub(crate) struct PackBuffers {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    buffers: Vec<Buffer>,
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
        let freed = std::mem::take(&mut *self.kept.lock());
        !freed.buffers.is_empty()
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
        kept.buffers.truncate(KEPT);
    }
}

#[cfg(test)]
mod tests {
    use forebay_cache::Cache;

    use super::*;

    #[test]
    fn memory_is_used_again_and_counts_until_it_is_freed() {
        let cache = Cache::new(64 << 20);
        let buffers = PackBuffers::default();
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
        let packs: Vec<_> = (0..2 * KEPT).map(|_| full().0).collect();
        drop((again, packs));
        assert_eq!(cache.leased_bytes(), (KEPT as u64) << 20);
        // The largest ones are.
        drop(buffers.lend(of(3 << 20)));
        drop(buffers.lend(of(2 << 20)));
        assert_eq!(cache.leased_bytes(), ((KEPT as u64 - 1) << 20) + (3 << 20));
        assert!(buffers.stale_at().is_some_and(|at| at > Instant::now()));
        let (late, _) = full();
        assert!(buffers.clear());
        assert_eq!(buffers.stale_at(), None);
        drop(late);
        assert_eq!(cache.leased_bytes(), 0, "what comes back late is freed");
    }
}
