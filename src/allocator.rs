//! The allocator of the program: mimalloc, told to give memory back, with huge pages for data alone.
//!
//! Frames and records are buffers of up to some MiB that come and go at a high rate. Under the C library's allocator what
//! was freed stayed with the process: it peaked at 517 MiB where 308 MiB were in use. With the settings below it was
//! 330 MiB, and a third faster than with a C library that was made to map and unmap each buffer (`tests/memory.sh`).
//!
//! # Huge pages
//!
//! With huge pages the system takes 2 MiB where the program touches 4 KiB, and knows of nothing that is given back below
//! that size. Block buffers gain from them: they are many, of a few sizes, and used again. Names, attributes and metadata gain
//! nothing and lose memory: 600,000 files that were made as fast as possible took 304 MiB with huge pages and 201 MiB
//! without. So data have an arena of their own, which asks for huge pages, and nothing else does.
//!
//! ```text
//!   bytes, 64 KiB or more, or a block buffer --> arena of `memory_limit` bytes, huge pages   if it is full, or there is none:
//!   everything else -------------------------> arenas of the allocator, small pages     <----------------------------------'
//! ```

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
    /// Where an arena lies, and its bytes. The crate does not declare it.
    fn mi_arena_area(arena: mi_arena_id_t, size: *mut usize) -> *mut c_void;
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Where block buffers come from; null for where everything else does.
static BUFFERS: AtomicPtr<mi_heap_t> = AtomicPtr::new(ptr::null_mut());

/// Bytes of the largest block buffer.
const LARGE: usize = 64 << 10;

/// The largest arena that mimalloc makes.
const MOST_FOR_BUFFERS: u64 = 16 << 30;

struct Allocator;

/// Whether it is of the size and alignment of block buffers (`forebay_cache`), or of what they are filled from and put
/// into: calls, frames and packs.
fn is_of_data(layout: Layout) -> bool {
    layout.align() == 1 && (layout.size() >= LARGE || matches!(layout.size(), 0x1000 | 0x4000))
}

// SAFETY: each call goes to mimalloc, which frees and grows what any of its heaps gave. `mi_heap_malloc`,
// `mi_heap_zalloc` and `mi_heap_realloc` give at least the size that is asked for, aligned to more than 1, or null.
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
                // SAFETY: as below; where it gives null, nothing has changed.
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

/// Has freed memory returned to the system after 10 ms: at once costs a fifth of the processor time of small reads, for
/// memory that is asked for again right away. Has nothing committed before it is needed, and no huge pages taken by what did
/// not ask for them. To be called before the first thread is started.
pub(crate) fn give_back_soon() {
    /// Numbers of the enumeration `mi_option_t` in `mimalloc.h`, which the crate does not name.
    const ARENA_EAGER_COMMIT: mi_option_t = 4;
    const PURGE_DELAY: mi_option_t = 15;
    // SAFETY: both set a number in a table of the allocator, which is there from the start of the
    // process; no other thread runs yet.
    unsafe {
        mi_option_set(PURGE_DELAY, 10);
        mi_option_set(ARENA_EAGER_COMMIT, 0);
    }
    no_huge_pages_unasked();
}

/// mimalloc is built so that it asks for none. A system that gives them to everybody is told not to: since Linux 6.18 to what
/// does not ask, before that to the whole program.
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
    // That it fails costs memory, and nothing else.
    let _ = disable(EXCEPT_ADVISED) || disable(0);
}

/// Gives block buffers huge pages, as many as `bytes` take. Without them, as the system may have none, nothing is lost but
/// some time. To be called once.
pub(crate) fn huge_pages_for_buffers(bytes: u64) {
    // What is committed is not there before it is touched. Some of it is for what mimalloc knows of the arena.
    let bytes = (bytes + bytes / 8 + (64 << 20)).min(MOST_FOR_BUFFERS);
    let Ok(bytes) = usize::try_from(bytes) else {
        return;
    };
    let mut arena: mi_arena_id_t = ptr::null_mut();
    // SAFETY: the arena stays for ever; its area is memory of this process, which the advice does not change.
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

/// How often it is looked for what should have been given back: the allocator notices that the time has come only when it
/// is asked for something.
const LOOK: Duration = Duration::from_secs(1);

/// Has memory given back also while nothing is allocated. Never returns.
pub(crate) async fn give_back_while_idle() {
    loop {
        tokio::time::sleep(LOOK).await;
        // SAFETY: it may be called at any time, from any thread.
        unsafe { mi_collect(false) };
    }
}
