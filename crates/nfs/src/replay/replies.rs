//! The bytes of replies that are kept: a ring, in which a new one takes the place of the oldest.
//!
//! ```text
//!                  written (modulo capacity)
//!                      v
//!  +-------------------+----+-------------------------+----+
//!  |  newest replies   |  oldest replies              | -- |   no reply goes round the end
//!  +-------------------+----+-------------------------+----+
//! ```

/// Where a reply is, while it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Place in all that was ever written.
    begin: u64,
    bytes: u32,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Replies {
    capacity: usize,
    /// Grows to the capacity as it is needed.
    ring: Vec<u8>,
    /// Bytes ever written, those included that were passed over at the end of the ring.
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
    pub(super) fn keep(&mut self, reply: &[u8]) -> Option<Span> {
        if reply.len() > self.capacity {
            return None;
        }
        let mut at = self.place(self.written)?;
        if at + reply.len() > self.capacity {
            self.written += (self.capacity - at) as u64;
            at = 0;
        }
        let end = at + reply.len();
        if self.ring.len() < end {
            self.ring.resize(end, 0);
        }
        self.ring.get_mut(at..end)?.copy_from_slice(reply);
        let span = Span {
            begin: self.written,
            bytes: reply.len() as u32,
        };
        self.written += reply.len() as u64;
        Some(span)
    }

    /// A reply that was kept, unless others have taken its place.
    pub(super) fn get(&self, span: Span) -> Option<&[u8]> {
        if self.written - span.begin > self.capacity as u64 {
            return None;
        }
        let at = self.place(span.begin)?;
        self.ring.get(at..at + span.bytes as usize)
    }

    /// Where in the ring something is that was written then.
    fn place(&self, written: u64) -> Option<usize> {
        written
            .checked_rem(self.capacity as u64)
            .map(|at| at as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_reply_is_there_until_its_place_is_taken() {
        let mut replies = Replies::new(10);
        let first = replies.keep(b"1234").unwrap();
        let second = replies.keep(b"5678").unwrap();
        assert_eq!(replies.get(first), Some(&b"1234"[..]));
        // Two bytes are left at the end: they are passed over.
        let third = replies.keep(b"abc").unwrap();
        assert_eq!(replies.get(first), None);
        assert_eq!(replies.get(second), Some(&b"5678"[..]));
        assert_eq!(replies.get(third), Some(&b"abc"[..]));
        assert_eq!(replies.keep(b"longer than it"), None);
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
                    Some(span) => kept.push((span, reply)),
                    None => prop_assert!(length > capacity),
                }
                prop_assert!(replies.ring.len() <= capacity);
                // However the end of the ring falls, half of it is of use.
                let mut newest = 0;
                for (span, reply) in kept.iter().rev() {
                    newest += reply.len();
                    match replies.get(*span) {
                        Some(bytes) => prop_assert_eq!(bytes, &reply[..]),
                        None => prop_assert!(newest + 60 > capacity / 2),
                    }
                }
            }
        }
    }
}
