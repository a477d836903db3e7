//! Copies of short stretches for readers, in memory that the thread has used for earlier copies: it is in the
//! processor's caches, and needs no call of the allocator or the kernel.

use std::cell::Cell;
use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Number of copies whose memory a thread keeps, and the longest copy that it keeps: at most 2 MiB together.
const KEPT: usize = 128;
const KEPT_BYTES: usize = 16 << 10;

/// Memory is reused only for copies of at least one part in this many of its length, so that a reader does not hold
/// much more than it reads.
const LEAST_PART: usize = 4;

thread_local! {
    /// The memory of copies, the oldest one first, whether or not their readers are done.
    static COPIES: Cell<VecDeque<BytesMut>> = const { Cell::new(VecDeque::new()) };
}

/// A copy of these bytes, for a later reader.
pub(crate) fn copied(bytes: &[u8]) -> Bytes {
    if bytes.len() > KEPT_BYTES {
        return Bytes::copy_from_slice(bytes);
    }
    let mut copies = COPIES.take();
    let mut memory =
        reused(&mut copies, bytes.len()).unwrap_or_else(|| BytesMut::with_capacity(bytes.len()));
    memory.extend_from_slice(bytes);
    let copy = memory.split().freeze();
    copies.push_back(memory);
    COPIES.set(copies);
    copy
}

/// The memory of the oldest copy, if no reader holds it any more, and it is neither too short for this many bytes nor
/// much too long.
fn reused(copies: &mut VecDeque<BytesMut>, bytes: usize) -> Option<BytesMut> {
    let mut oldest = copies.pop_front()?;
    if oldest.try_reclaim(bytes) && oldest.capacity() <= bytes.saturating_mul(LEAST_PART) {
        return Some(oldest);
    }
    // Most likely it is still being read. If its length does not fit, it is kept as well: there are not too many of
    // other lengths.
    if copies.len() < KEPT - 1 {
        copies.push_back(oldest);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> usize {
        let copies = COPIES.take();
        let count = copies.len();
        COPIES.set(copies);
        count
    }

    #[test]
    fn memory_is_used_again_once_its_reader_is_done() {
        let first = copied(&[1; 4096]);
        let place = first.as_ptr();
        let second = copied(&[2; 4096]);
        assert_ne!(second.as_ptr(), place);
        assert_eq!((&first[..], &second[..]), (&[1; 4096][..], &[2; 4096][..]));
        assert_eq!(kept(), 2);
        drop(first);
        let third = copied(&[3; 4000]);
        assert_eq!(third.as_ptr(), place);
        assert_eq!((&third[..], &second[..]), (&[3; 4000][..], &[2; 4096][..]));
        assert_eq!(kept(), 2);
    }

    #[test]
    fn memory_much_too_long_or_too_short_is_left_to_others() {
        drop(copied(&[1; 4096]));
        let short = copied(&[2; 1023]);
        assert_eq!(kept(), 2);
        drop(short);
        let long = copied(&[3; 8192]);
        assert_eq!((&long[..], kept()), (&[3; 8192][..], 3));
        drop(long);
        drop(copied(&[4; KEPT_BYTES + 1]));
        assert_eq!(kept(), 3);
    }

    #[test]
    fn no_more_is_kept_than_is_said_whoever_holds_it() {
        let held: Vec<Bytes> = (0..KEPT + 50)
            .map(|turn| copied(&[turn as u8; 2000]))
            .collect();
        assert_eq!(kept(), KEPT);
        for (turn, copy) in held.iter().enumerate() {
            assert_eq!(copy[..], [turn as u8; 2000]);
        }
        drop(held);
        let places: Vec<*const u8> = (0..KEPT).map(|_| copied(&[7; 2000]).as_ptr()).collect();
        for (turn, place) in places.iter().enumerate() {
            assert!(!places[..turn].contains(place));
        }
        assert_eq!(copied(&[]).len(), 0);
    }
}
