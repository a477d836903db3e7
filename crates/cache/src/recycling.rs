//! Whether pools recycle buffers, which benchmarks switch off to measure what recycling gains.
//!
//! [`pool`](crate::pool) asks for it when a buffer comes back; [`measuring`](crate::measuring) lets benchmarks set it.

use std::sync::atomic::{AtomicBool, Ordering};

static RECYCLES: AtomicBool = AtomicBool::new(true);

/// Whether all pools of this process recycle buffers from now on, as they do by default, or give them to the allocator.
pub fn recycle(recycled: bool) {
    RECYCLES.store(recycled, Ordering::Relaxed);
}

/// Whether pools recycle buffers now.
pub(crate) fn recycles() -> bool {
    RECYCLES.load(Ordering::Relaxed)
}
