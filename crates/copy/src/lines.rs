//! Stores whole cache lines without fetching them.

use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};

/// Bytes of a cache line: two stores.
const LINE: usize = 64;
const STORE: usize = size_of::<__m256i>();
/// Lines per iteration of the unrolled loop.
const TURN_LINES: usize = 4;

const _: () = assert!(LINE == 2 * STORE);

/// Proof that the processor has AVX, and a guard for stores that other threads may see out of order: dropping it
/// orders them.
pub(crate) struct Lines(());

impl Lines {
    /// `None` if this processor has no AVX.
    #[inline]
    pub(crate) fn begin() -> Option<Lines> {
        std::arch::is_x86_feature_detected!("avx").then_some(Lines(()))
    }

    /// Copies `from` into `to` (equal lengths). Partial cache lines at either end use ordinary stores.
    #[inline]
    pub(crate) fn copy(&self, to: &mut [u8], from: &[u8]) {
        let before = to.as_ptr().align_offset(LINE).min(to.len());
        let (to_head, to) = to.split_at_mut(before);
        let (from_head, from) = from.split_at(before);
        to_head.copy_from_slice(from_head);
        let (to, to_tail) = to.split_at_mut(to.len() - to.len() % LINE);
        let (from, from_tail) = from.split_at(to.len());
        // SAFETY: `begin` has found AVX. The middle part of `to` begins at a line, and `from` has the same length;
        // dropping `self` is the fence.
        unsafe { copy_lines(to, from) };
        to_tail.copy_from_slice(from_tail);
    }
}

impl Drop for Lines {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: every x86-64 processor has this instruction.
        unsafe { _mm_sfence() }
    }
}

/// Copies whole lines.
///
/// # Safety
/// `to` begins at a cache line, and is as long as `from`. No other thread reads it before this thread has executed a
/// store fence.
#[target_feature(enable = "avx")]
unsafe fn copy_lines(to: &mut [u8], from: &[u8]) {
    let (to_turns, to) = to.as_chunks_mut::<{ TURN_LINES * LINE }>();
    let (from_turns, from) = from.as_chunks::<{ TURN_LINES * LINE }>();
    for (to, from) in to_turns.iter_mut().zip(from_turns) {
        for line in 0..TURN_LINES {
            let at = line * LINE..(line + 1) * LINE;
            // SAFETY: the conditions of this function.
            unsafe { copy_line(&mut to[at.clone()], &from[at]) }
        }
    }
    for (to, from) in to.chunks_exact_mut(LINE).zip(from.chunks_exact(LINE)) {
        // SAFETY: the conditions of this function.
        unsafe { copy_line(to, from) }
    }
}

/// Copies one line, under the conditions of [`copy_lines`].
#[inline]
#[target_feature(enable = "avx")]
unsafe fn copy_line(to: &mut [u8], from: &[u8]) {
    debug_assert!(to.len() == LINE && from.len() == LINE);
    let (to, from) = (to.as_mut_ptr(), from.as_ptr());
    // SAFETY: both are one line long, and `to` is aligned to a line, so both halves of it are aligned as well.
    unsafe {
        let first = _mm256_loadu_si256(from.cast());
        let second = _mm256_loadu_si256(from.add(STORE).cast());
        _mm256_stream_si256(to.cast(), first);
        _mm256_stream_si256(to.add(STORE).cast(), second);
    }
}
