//! Memory of the files of [`MemoryStorage`](super::MemoryStorage).

use std::alloc::{self, Layout};
use std::ops::Range;
use std::ptr::NonNull;

use super::PAGE;

/// Page-aligned memory that is shared like mapped memory: a writer excludes all other users of the same bytes.
pub(super) struct Pages(NonNull<[u8]>);

// SAFETY: plain memory without an owner thread; the users decide which thread may access which bytes, as with memory
// mapped from a file.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes.max(1), PAGE).unwrap_or(Layout::new::<u8>())
    }

    pub(super) fn holding(bytes: &[u8]) -> Pages {
        let layout = Pages::layout(bytes.len());
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else {
            alloc::handle_alloc_error(layout)
        };
        // SAFETY: freshly allocated with at least this many bytes, so it overlaps nothing.
        unsafe {
            start
                .as_ptr()
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        };
        Pages(NonNull::slice_from_raw_parts(start, bytes.len()))
    }

    pub(super) fn memory(&self) -> NonNull<[u8]> {
        self.0
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// All bytes. Only while nothing writes (the rule of [`MemoryStorage`]).
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: allocated and initialised as long as `self` lives; the rule of `MemoryStorage` excludes writers.
        unsafe { self.0.as_ref() }
    }

    /// Some bytes, which nothing is writing to.
    pub(super) fn part(&self, range: Range<usize>) -> Option<&[u8]> {
        if range.start > range.end || range.end > self.len() {
            return None;
        }
        // SAFETY: within the allocation (checked above); the log flushes only bytes that are completely written, so
        // nothing writes there.
        Some(unsafe {
            std::slice::from_raw_parts(self.0.cast::<u8>().as_ptr().add(range.start), range.len())
        })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated by `holding` with the layout of the same length, freed only here.
        unsafe { alloc::dealloc(self.0.cast().as_ptr(), Pages::layout(self.0.len())) }
    }
}
