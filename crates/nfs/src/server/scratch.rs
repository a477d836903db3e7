//! Buffers that sockets are read into, and the part of their bytes that is not consumed yet.

use std::ops::Range;
use std::sync::Arc;

/// Size of the buffers that sockets are read into.
pub(super) const SCRATCH_BYTES: usize = 64 << 10;

/// A buffer that sockets are read into. Records in it may be used in place.
#[derive(Clone)]
pub(super) struct Scratch(Arc<Vec<u8>>);

impl Scratch {
    pub(super) fn new() -> Scratch {
        Scratch(Arc::new(Vec::with_capacity(SCRATCH_BYTES)))
    }

    /// The bytes that were read.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The buffer to read into. It has no other reference: the pool returns only unshared ones.
    pub(super) fn target(&mut self) -> &mut Vec<u8> {
        Arc::make_mut(&mut self.0)
    }

    /// Returns the buffer emptied, if there is no other reference to it.
    pub(super) fn emptied(mut self) -> Option<Scratch> {
        Arc::get_mut(&mut self.0)?.clear();
        Some(self)
    }
}

/// Bytes that a connection has read and not consumed.
#[derive(Default)]
pub(super) struct Unread {
    /// `None` when everything is consumed: an idle connection holds no scratch buffer.
    scratch: Option<Scratch>,
    /// Number of its bytes that are consumed.
    taken: usize,
}

impl Unread {
    /// All bytes in `scratch`.
    pub(super) fn new(scratch: Scratch) -> Unread {
        let scratch = Some(scratch);
        Unread { scratch, taken: 0 }
    }

    /// Bytes of memory that it holds.
    pub(super) fn held_bytes(&self) -> usize {
        self.scratch.as_ref().map_or(0, |_| SCRATCH_BYTES)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        let read = self.scratch.as_ref().map(Scratch::bytes);
        read.and_then(|read| read.get(self.taken..))
            .unwrap_or_default()
    }

    /// Consumes the first `bytes` bytes.
    pub(super) fn take(&mut self, bytes: usize) {
        self.taken += bytes;
    }

    /// Consumes the first `bytes` bytes in place: returns the buffer and their range in it.
    pub(super) fn take_in_place(&mut self, bytes: usize) -> Option<(Scratch, Range<usize>)> {
        let scratch = self.scratch.clone()?;
        let start = self.taken;
        self.take(bytes);
        Some((scratch, start..self.taken))
    }

    /// Returns the buffer when everything is consumed.
    pub(super) fn finish(&mut self) -> Option<Scratch> {
        self.taken = 0;
        self.scratch.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_taken_up_from_the_front() {
        let mut unread = Unread::default();
        assert!(unread.bytes().is_empty() && unread.take_in_place(0).is_none());
        let mut scratch = Scratch::new();
        scratch.target().extend(0..100);
        unread = Unread::new(scratch);
        unread.take(4);
        let (held, range) = unread.take_in_place(10).unwrap();
        assert_eq!(held.bytes()[range], [4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
        assert_eq!(unread.bytes(), Vec::from_iter(14..100));
        unread.take(86);
        assert!(unread.bytes().is_empty());
        assert!(unread.finish().unwrap().emptied().is_none(), "held");
        assert!(unread.finish().is_none());
        assert!(held.emptied().unwrap().bytes().is_empty());
    }
}
