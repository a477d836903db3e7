//! What sockets are read into, and what of it is still to be taken up.

use std::ops::Range;
use std::sync::Arc;

/// Size of the buffers that sockets are read into.
pub(super) const SCRATCH_BYTES: usize = 64 << 10;

/// What a socket is read into, and what records lie in that are used where they were read.
#[derive(Clone)]
pub(super) struct Scratch(Arc<Vec<u8>>);

impl Scratch {
    pub(super) fn new() -> Scratch {
        Scratch(Arc::new(Vec::with_capacity(SCRATCH_BYTES)))
    }

    /// What was read.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// To be read into. Nobody else has it: the pool gives no other ones.
    pub(super) fn target(&mut self) -> &mut Vec<u8> {
        Arc::make_mut(&mut self.0)
    }

    /// Empty, if nobody else has it.
    pub(super) fn emptied(mut self) -> Option<Scratch> {
        Arc::get_mut(&mut self.0)?.clear();
        Some(self)
    }
}

/// What a connection has read and not taken up.
#[derive(Default)]
pub(super) struct Unread {
    /// None when everything is taken up: an idle connection holds no scratch.
    scratch: Option<Scratch>,
    /// Bytes of it that are taken up.
    taken: usize,
}

impl Unread {
    /// All of what `scratch` holds.
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

    /// The first so many bytes are taken up.
    pub(super) fn take(&mut self, bytes: usize) {
        self.taken += bytes;
    }

    /// The first so many bytes are taken up, where they lie: in this range of that.
    pub(super) fn take_in_place(&mut self, bytes: usize) -> Option<(Scratch, Range<usize>)> {
        let scratch = self.scratch.clone()?;
        let start = self.taken;
        self.take(bytes);
        Some((scratch, start..self.taken))
    }

    /// What it was read into, when everything is taken up.
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
