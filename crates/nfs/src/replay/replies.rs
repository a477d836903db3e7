//! The bytes of replies that are kept: a ring, in which a new one takes the place of the oldest.
//!
//! ```text
//!                  written (modulo capacity)
//!                      v
//!  +-------------------+----+-------------------------+----+
//!  |  newest replies   |  oldest replies              | -- |   no reply goes round the end
//!  +-------------------+----+-------------------------+----+
//! ```

use forebay_types::{bounded_u32, to_usize};

/// Bytes before each reply, which hold its length.
const LENGTH_BYTES: usize = size_of::<u32>();

/// Position of a reply among all bytes ever written; the reply may have been overwritten since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begin(u64);

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Replies {
    capacity: usize,
    /// Grows up to the capacity on demand.
    ring: Vec<u8>,
    /// Bytes ever written, including those skipped at the end of the ring.
    written: u64,
}

impl Replies {
    pub(super) fn new(capacity: usize) -> Replies {
        Replies {
            capacity,
            ring: Vec::new(),
            written: 0,
        }
    }

    /// Keeps a reply; `None` if it is longer than the ring.
    pub(super) fn keep(&mut self, reply: &[u8]) -> Option<Begin> {
        let bytes = LENGTH_BYTES + reply.len();
        if bytes > self.capacity {
            return None;
        }
        let mut at = self.place(self.written)?;
        if at + bytes > self.capacity {
            self.written += (self.capacity - at) as u64;
            at = 0;
        }
        if self.ring.len() < at + bytes {
            if self.ring.capacity() < at + bytes {
                // Doubles, up to the capacity.
                let room = (2 * self.ring.capacity()).clamp(at + bytes, self.capacity);
                self.ring.reserve_exact(room - self.ring.len());
            }
            self.ring.resize(at + bytes, 0);
        }
        let place = self.ring.get_mut(at..at + bytes)?;
        let (length, data) = place.split_at_mut(LENGTH_BYTES);
        // The ring is much smaller than 4 GiB.
        length.copy_from_slice(&bounded_u32(reply.len()).to_ne_bytes());
        data.copy_from_slice(reply);
        let begin = Begin(self.written);
        self.written += bytes as u64;
        Some(begin)
    }

    /// Returns a reply that was kept, unless newer ones have overwritten it.
    pub(super) fn get(&self, begin: Begin) -> Option<&[u8]> {
        if self.written - begin.0 > self.capacity as u64 {
            return None;
        }
        let at = self.place(begin.0)?;
        let (length, rest) = self.ring.get(at..)?.split_first_chunk()?;
        rest.get(..u32::from_ne_bytes(*length) as usize)
    }

    /// Index in the ring of the byte at this position.
    fn place(&self, written: u64) -> Option<usize> {
        written.checked_rem(self.capacity as u64).map(to_usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_reply_is_there_until_its_place_is_taken() {
        let mut replies = Replies::new(18);
        let first = replies.keep(b"1234").unwrap();
        let second = replies.keep(b"5678").unwrap();
        assert_eq!(replies.get(first), Some(&b"1234"[..]));
        // Two bytes are left at the end: they are passed over.
        let third = replies.keep(b"abc").unwrap();
        assert_eq!(replies.get(first), None);
        assert_eq!(replies.get(second), Some(&b"5678"[..]));
        assert_eq!(replies.get(third), Some(&b"abc"[..]));
        assert_eq!(replies.keep(b"longer than the ring"), None);
        assert_eq!(replies.get(third), Some(&b"abc"[..]));
    }

    proptest! {
        #[test]
        fn what_is_given_is_what_was_kept_and_the_newest_are_kept(
            capacity in 1_usize..200,
            lengths in prop::collection::vec(0_usize..60, 1..100),
        ) {
            let mut replies = Replies::new(capacity);
            let mut kept = Vec::new();
            for (number, length) in lengths.into_iter().enumerate() {
                let reply = vec![number as u8; length];
                match replies.keep(&reply) {
                    Some(begin) => kept.push((begin, reply)),
                    None => prop_assert!(length + LENGTH_BYTES > capacity),
                }
                prop_assert!(replies.ring.len() <= capacity);
                prop_assert!(replies.ring.capacity() <= capacity.max(8));
                // Wherever the end of the ring falls, no more than the bytes of one reply are lost.
                let mut newest = 0;
                for (begin, reply) in kept.iter().rev() {
                    newest += reply.len() + LENGTH_BYTES;
                    match replies.get(*begin) {
                        Some(bytes) => prop_assert_eq!(bytes, &reply[..]),
                        None => prop_assert!(newest + 64 > capacity),
                    }
                }
            }
        }
    }
}
