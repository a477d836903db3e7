//! Bytes on their way to a reader, in the memory where they lie: passing them on copies nothing and allocates
//! nothing.

use std::borrow::Borrow;
use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use smallvec::SmallVec;

use crate::bounded_u32;

/// Number of lists that a thread keeps for the next long reads, and the longest list that it keeps: 1 MiB in pieces
/// of 64 KiB has at most 18 entries.
const KEPT_LISTS: usize = 32;
const KEPT_LEN: usize = 32;

thread_local! {
    static LISTS: Cell<Vec<Vec<Lent>>> = const { Cell::new(Vec::new()) };
}

/// The owner of the lent memory: the same bytes at the same place for as long as it lives.
type Lender = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A stretch of bytes that is lent to its sender. The bytes do not change as long as this lives.
#[derive(Clone)]
pub struct Lent(Memory);

#[derive(Clone)]
enum Memory {
    Bytes(Bytes),
    Shared {
        lender: Lender,
        // 32 bits, so that this is no larger than `Bytes`: lists of both are moved with each read.
        start: u32,
        end: u32,
    },
}

const _: () = assert!(size_of::<Lent>() == size_of::<Bytes>());

impl Lent {
    /// The bytes `range` of shared memory, without an allocation for a handle such as that of [`Bytes::from_owner`].
    ///
    /// # Panics
    /// When `lender` has no such range, or the range ends beyond 4 GiB.
    pub fn shared(lender: Lender, range: Range<usize>) -> Lent {
        assert!(range.start <= range.end && range.end <= (*lender).as_ref().len());
        assert!(u32::try_from(range.end).is_ok());
        Lent(Memory::Shared {
            lender,
            start: bounded_u32(range.start),
            end: bounded_u32(range.end),
        })
    }

    /// Drops the first `count` bytes.
    ///
    /// # Panics
    /// When there are fewer bytes.
    pub fn advance(&mut self, count: usize) {
        match &mut self.0 {
            Memory::Bytes(bytes) => bytes.advance(count),
            Memory::Shared { start, end, .. } => {
                assert!(count <= (*end - *start) as usize);
                *start += bounded_u32(count);
            }
        }
    }
}

impl Deref for Lent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Bytes(bytes) => bytes,
            Memory::Shared { lender, start, end } => {
                &(**lender).as_ref()[*start as usize..*end as usize]
            }
        }
    }
}

impl Borrow<[u8]> for Lent {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl From<Bytes> for Lent {
    fn from(bytes: Bytes) -> Lent {
        Lent(Memory::Bytes(bytes))
    }
}

impl PartialEq for Lent {
    fn eq(&self, other: &Lent) -> bool {
        **self == **other
    }
}

impl Eq for Lent {}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lent").field(&&**self).finish()
    }
}

/// The result of a read: consecutive stretches. The list of a short read needs no memory of its own, and that of a
/// long one reuses the memory of an earlier list of its thread.
#[derive(Default, PartialEq, Eq)]
pub struct Pieces(SmallVec<[Lent; 2]>);

impl Pieces {
    /// An empty list with room for `count` stretches.
    pub fn with_capacity(count: usize) -> Pieces {
        let mut pieces = Pieces::default();
        if count > pieces.0.inline_size() {
            // A thread that is ending keeps none.
            let kept = LISTS.try_with(|lists| {
                let mut own = lists.take();
                let kept = own.pop();
                lists.set(own);
                kept
            });
            pieces.0 = kept.ok().flatten().unwrap_or_default().into();
            pieces.0.reserve(count);
        }
        pieces
    }

    /// Appends a stretch.
    pub fn push(&mut self, lent: impl Into<Lent>) {
        self.0.push(lent.into());
    }

    /// Passes all stretches to `give`, in order.
    pub fn give(mut self, give: impl FnMut(Lent)) {
        if self.0.spilled() {
            // The memory of the list remains, to be kept.
            self.0.drain(..).for_each(give);
        } else {
            std::mem::take(&mut self.0).into_iter().for_each(give);
        }
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        if !self.0.spilled() || self.0.capacity() > KEPT_LEN {
            return;
        }
        self.0.clear();
        let list = std::mem::take(&mut self.0).into_vec();
        let _ = LISTS.try_with(|lists| {
            let mut own = lists.take();
            if own.len() < KEPT_LISTS {
                own.push(list);
            }
            lists.set(own);
        });
    }
}

impl Deref for Pieces {
    type Target = [Lent];

    fn deref(&self) -> &[Lent] {
        &self.0
    }
}

impl DerefMut for Pieces {
    fn deref_mut(&mut self) -> &mut [Lent] {
        &mut self.0
    }
}

impl Clone for Pieces {
    fn clone(&self) -> Pieces {
        self.iter().cloned().collect()
    }
}

impl fmt::Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: Into<Lent>> FromIterator<T> for Pieces {
    fn from_iter<I: IntoIterator<Item = T>>(stretches: I) -> Pieces {
        let stretches = stretches.into_iter();
        let mut pieces = Pieces::with_capacity(stretches.size_hint().0);
        stretches.for_each(|lent| pieces.push(lent));
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_cut_from_the_front_and_keeps_its_lender() {
        let lender = Arc::new(b"0123456789".to_vec());
        let mut lent = Lent::shared(lender.clone(), 2..7);
        assert_eq!(lent[..], *b"23456");
        lent.advance(2);
        assert_eq!(lent, Lent::from(Bytes::from_static(b"456")));
        let again = lent.clone();
        drop(lent);
        assert_eq!((&again[..], Arc::strong_count(&lender)), (&b"456"[..], 2));
        drop(again);
        assert_eq!(Arc::strong_count(&lender), 1);
    }

    #[test]
    #[should_panic]
    fn a_stretch_beyond_what_is_shared_is_refused() {
        Lent::shared(Arc::new([0; 4]), 2..5);
    }

    #[test]
    #[should_panic]
    fn more_than_there_is_cannot_be_taken_off() {
        Lent::shared(Arc::new([0; 4]), 2..4).advance(3);
    }

    #[test]
    fn the_list_of_a_long_read_is_used_again_and_empty_then() {
        let text = b"0123456789";
        let long = || (0..10).map(|at| Bytes::from_static(&text[at..=at]));
        let first: Pieces = long().collect();
        assert_eq!(first.concat(), text);
        let place = first.as_ptr();
        let other: Pieces = long().collect();
        assert_ne!(other.as_ptr(), place);
        drop(first);
        let second = Pieces::with_capacity(5);
        assert_eq!((second.as_ptr(), second.len()), (place, 0));
        // An emptied one as well.
        let place = other.as_ptr();
        let mut given = Vec::new();
        other.give(|lent| given.extend_from_slice(&lent));
        assert_eq!(given, text);
        assert_eq!(Pieces::with_capacity(10).as_ptr(), place);
    }

    #[test]
    fn a_thread_keeps_some_lists_and_no_very_long_ones() {
        let lists = |count: usize, len| {
            let lists: Vec<_> = (0..count).map(|_| Pieces::with_capacity(len)).collect();
            drop(lists);
            let kept = LISTS.take();
            let len = kept.len();
            LISTS.set(kept);
            len
        };
        assert_eq!(lists(1, 2), 0, "it needs no memory");
        assert_eq!(lists(1, KEPT_LEN + 1), 0);
        assert_eq!(lists(KEPT_LISTS + 5, 20), KEPT_LISTS);
    }
}
