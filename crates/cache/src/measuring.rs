//! Internals of this crate for the benchmarks.

use std::sync::atomic::Ordering;

use crate::Cache;
use crate::pool::{Buffer, Class, RECYCLES};

/// Whether all pools of this process recycle buffers from now on, as they do by default, or return them to the
/// allocator.
pub fn recycle(recycled: bool) {
    RECYCLES.store(recycled, Ordering::Relaxed);
}

/// The buffer sizes, in bytes.
pub const BUFFER_SIZES: [usize; 3] = [
    Class::Small.size(),
    Class::Middle.size(),
    Class::Whole.size(),
];

/// A buffer that returns to its pool when dropped.
#[derive(Debug)]
pub struct TakenBuffer(#[allow(dead_code, reason = "it is there to be dropped")] Buffer);

/// The smallest buffer of at least `bytes`, or else the largest.
pub fn take_buffer(cache: &Cache, bytes: usize) -> TakenBuffer {
    let fits = |class: &Class| class.size() >= bytes;
    let class = Class::ALL.into_iter().find(fits).unwrap_or(Class::Whole);
    TakenBuffer(cache.pool.take(class))
}
