//! The allocator of the program: mimalloc, configured to return memory to the system, with huge pages for data only.
//!
//! Frames and records are buffers of up to some MiB that are allocated and freed at a high rate. With the C library's
//! allocator, freed memory stayed with the process: it peaked at 517 MiB while 308 MiB were in use. With the settings
//! below it peaked at 330 MiB, and was a third faster than with a C library that was made to map and unmap each
//! buffer (`tests/memory.sh`).
//!
//! # Huge pages
//!
//! With huge pages the system provides 2 MiB where the program touches 4 KiB, and cannot take back any part of that
//! below this size. Block buffers benefit from them: they are many, of a few sizes, and reused. Names, attributes and
//! metadata do not benefit, and cost more memory: 600,000 files that were created as fast as possible took 304 MiB
//! with huge pages and 201 MiB without. So data have an arena of their own, which requests huge pages, and nothing
//! else does.
//!
//! ```text
//!   bytes, 64 KiB or more, or a block buffer --> arena of `memory_limit` bytes, huge pages   if full, or missing:
//!   everything else ---------------------------> arenas of the allocator, small pages       <-------------------'
//! ```
//!
//! # Large buffers
//!
//! mimalloc is built so that a buffer above 64 KiB has memory of its own (`.cargo/config.toml`,
//! docs/decisions/0056-large-buffers-are-given-back-alone.md): freed buffers of 80 to 512 KiB would otherwise stay
//! resident, in pages of 4 MiB of which a small part is in use.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_int, c_ulong, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;
use std::{fs, ptr};

use libmimalloc_sys::{
    mi_arena_id_t, mi_collect, mi_heap_malloc, mi_heap_new_in_arena, mi_heap_realloc, mi_heap_t,
    mi_heap_zalloc, mi_option_set, mi_option_t, mi_reserve_os_memory_ex,
};
use mimalloc::MiMalloc;

unsafe extern "C" {
    /// The address of an arena, and its size in bytes. The crate does not declare this function.
    fn mi_arena_area(arena: mi_arena_id_t, size: *mut usize) -> *mut c_void;
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// The heap of block buffers; null if they come from the same heap as everything else.
static BUFFERS: AtomicPtr<mi_heap_t> = AtomicPtr::new(ptr::null_mut());

/// Bytes of the largest block buffer.
const LARGE: usize = 64 << 10;

/// The largest arena that mimalloc makes.
const MOST_FOR_BUFFERS: u64 = 16 << 30;

struct Allocator;

/// Whether an allocation has the size and alignment of block buffers (`forebay_cache`), or of the buffers that fill
/// and empty them: calls, frames and packs.
fn is_of_data(layout: Layout) -> bool {
    layout.align() == 1 && (layout.size() >= LARGE || matches!(layout.size(), 0x1000 | 0x4000))
}

// SAFETY: each call is passed on to mimalloc, which frees and grows memory of any of its heaps. `mi_heap_malloc`,
// `mi_heap_zalloc` and `mi_heap_realloc` return at least the requested size, aligned to more than 1, or null.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_of_data(layout) {
            let heap = BUFFERS.load(Ordering::Acquire);
            if !heap.is_null() {
                // SAFETY: the heap is never deleted, and may be used by all threads.
                let buffer = unsafe { mi_heap_malloc(heap, layout.size()) };
                if !buffer.is_null() {
                    return buffer.cast();
                }
            }
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { MiMalloc.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_of_data(layout) {
            let heap = BUFFERS.load(Ordering::Acquire);
            if !heap.is_null() {
                // SAFETY: the heap is never deleted, and may be used by all threads.
                let buffer = unsafe { mi_heap_zalloc(heap, layout.size()) };
                if !buffer.is_null() {
                    return buffer.cast();
                }
            }
        }
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`; mimalloc finds the heap by itself.
        unsafe { MiMalloc.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if layout.align() == 1 && new_size >= LARGE {
            let heap = BUFFERS.load(Ordering::Acquire);
            if !heap.is_null() {
                // SAFETY: as below; if it returns null, nothing has changed.
                let buffer = unsafe { mi_heap_realloc(heap, pointer.cast(), new_size) };
                if !buffer.is_null() {
                    return buffer.cast();
                }
            }
        }
        // SAFETY: the caller keeps the contract of `realloc`; mimalloc finds the heap by itself.
        unsafe { MiMalloc.realloc(pointer, layout, new_size) }
    }
}

/// Returns freed memory to the system after 10 ms. At once would cost a fifth of the processor time of small reads,
/// for memory that is soon requested again. Commits no memory before it is needed, and keeps huge pages away from
/// memory that does not request them. Must be called before the first thread is started.
pub(crate) fn give_back_soon() {
    /// Numbers of the enumeration `mi_option_t` in `mimalloc.h`, which the crate does not define.
    const ARENA_EAGER_COMMIT: mi_option_t = 4;
    const PURGE_DELAY: mi_option_t = 15;
    // SAFETY: both set a number in a table of the allocator, which exists from the start of the process; no other
    // thread runs yet.
    unsafe {
        mi_option_set(PURGE_DELAY, 10);
        mi_option_set(ARENA_EAGER_COMMIT, 0);
    }
    no_huge_pages_unasked();
}

/// mimalloc is built so that it requests none. A system that gives them to all memory is told not to: since Linux
/// 6.18 for memory that does not request them, before that for the whole program.
fn no_huge_pages_unasked() {
    const EXCEPT_ADVISED: c_ulong = 1 << 1;
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    if !fs::read_to_string(path).is_ok_and(|enabled| enabled.contains("[always]")) {
        return;
    }
    let disable = |how: c_ulong| {
        // SAFETY: it sets flags of the process and reads no memory.
        unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1 as c_ulong, how, 0, 0) == 0 }
    };
    // A failure costs memory, and nothing else.
    let _ = disable(EXCEPT_ADVISED) || disable(0);
}

/// Gives block buffers huge pages, for `bytes` in total. If the system has none, only some time is lost. Must be
/// called at most once.
pub(crate) fn huge_pages_for_buffers(bytes: u64) {
    // Committed memory takes no space before it is touched. A part of it is for mimalloc's own data about the arena.
    let bytes = (bytes + bytes / 8 + (64 << 20)).min(MOST_FOR_BUFFERS);
    let Ok(bytes) = usize::try_from(bytes) else {
        return;
    };
    let mut arena: mi_arena_id_t = ptr::null_mut();
    // SAFETY: the arena is never freed; its area is memory of this process, which the advice does not change.
    unsafe {
        let failed: c_int = mi_reserve_os_memory_ex(bytes, true, false, true, &raw mut arena);
        if failed != 0 {
            return;
        }
        let mut size = 0;
        let start = mi_arena_area(arena, &raw mut size);
        if start.is_null() || libc::madvise(start, size, libc::MADV_HUGEPAGE) != 0 {
            return;
        }
        BUFFERS.store(mi_heap_new_in_arena(arena), Ordering::Release);
    }
}

/// Interval of the checks for memory that is due to be returned: the allocator notices that only when it is called.
const LOOK: Duration = Duration::from_secs(1);

/// Returns memory to the system while nothing is allocated as well. Never returns.
pub(crate) async fn give_back_while_idle() {
    loop {
        tokio::time::sleep(LOOK).await;
        // SAFETY: it may be called at any time, from any thread.
        unsafe { mi_collect(false) };
    }
}

#[cfg(test)]
mod tests {
    use libmimalloc_sys::mi_good_size;

    #[test]
    fn a_large_buffer_shares_its_memory_with_no_other() {
        // SAFETY: it computes a size.
        let size = unsafe { mi_good_size(100_000) };
        // In a page of 4 MiB it would have the next of the sizes of those pages, 112 KiB.
        assert_eq!(
            size,
            100 << 10,
            "mimalloc was built without -DMI_ENABLE_LARGE_PAGES=0: see .cargo/config.toml"
        );
    }
}
