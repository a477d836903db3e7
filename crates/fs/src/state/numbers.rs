//! Which inode numbers new objects get.
//!
//! A number is never used twice in the life of a volume: it is the generation of a file handle as well. The bucket
//! has the next number as of the published state. The numbers that a gateway has assigned since are in its log, and a
//! gateway that takes the volume over does not have that log. So each published state limits the numbers that may be
//! assigned before the next one is published, the *lease*; an opening that does not know which ones were assigned
//! skips the whole lease.
//!
//! In this way numbers stay dense, and below 2^32 for a long time: it takes 16,384 takeovers without an orderly stop
//! to use up 2^32 numbers. A number that was drawn for an object that was not made goes to the next object.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_types::Inode;
use forebay_vfs::{Error, Result};
use parking_lot::Mutex;

/// How many numbers may be assigned between two publications. Unpublished objects take a kilobyte each of the 64 MiB
/// for them, so writers wait for the publication long before this is used up.
pub(crate) const LEASE: u64 = 1 << 18;

/// The numbers of a volume that is open.
#[derive(Debug)]
pub(crate) struct InodeNumbers {
    next: AtomicU64,
    /// The first number beyond the lease.
    until: AtomicU64,
    /// Numbers that were drawn and belong to no object.
    unused: Mutex<Vec<Inode>>,
}

impl InodeNumbers {
    /// Continues after a published state whose next number is `next`.
    pub(crate) fn new(next: u64) -> InodeNumbers {
        InodeNumbers {
            next: AtomicU64::new(next),
            until: AtomicU64::new(next.saturating_add(LEASE)),
            unused: Mutex::default(),
        }
    }

    /// Draws a number.
    ///
    /// # Errors
    /// [`Error::Delay`] when the lease is used up.
    pub(crate) fn draw(&self) -> Result<Inode> {
        if let Some(unused) = self.unused.lock().pop() {
            return Ok(unused);
        }
        let until = self.until.load(Ordering::Acquire);
        let next = |next: u64| (next < until).then(|| next + 1);
        let drawn = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        drawn.map(Inode).map_err(|_| Error::Delay)
    }

    /// Gives back a number that was drawn and is in no record.
    pub(crate) fn put_back(&self, inode: Inode) {
        self.unused.lock().push(inode);
    }

    /// The next number.
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Recovery has found this inode: no new object may get its number.
    pub(crate) fn seen(&self, inode: Inode) {
        let after = inode.0.saturating_add(1);
        self.next.fetch_max(after, Ordering::Relaxed);
    }

    /// A state is published whose next number is `next`.
    pub(crate) fn published(&self, next: u64) {
        let until = next.saturating_add(LEASE);
        self.until.fetch_max(until, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_those_of_objects_that_were_not_made_are_used() {
        let numbers = InodeNumbers::new(2);
        assert_eq!(numbers.draw(), Ok(Inode(2)));
        let failed = numbers.draw().unwrap();
        assert_eq!(numbers.draw(), Ok(Inode(4)));
        numbers.put_back(failed);
        assert_eq!(numbers.draw(), Ok(Inode(3)));
        assert_eq!(numbers.draw(), Ok(Inode(5)));
        numbers.seen(Inode(9));
        numbers.seen(Inode(7));
        assert_eq!(numbers.draw(), Ok(Inode(10)));
        assert_eq!(numbers.next(), 11);
    }

    #[test]
    fn no_number_beyond_the_lease_is_given_out_before_the_next_publication() {
        let numbers = InodeNumbers::new(100);
        for number in 100..100 + LEASE {
            assert_eq!(numbers.draw(), Ok(Inode(number)));
        }
        assert_eq!(numbers.draw(), Err(Error::Delay));
        assert_eq!(numbers.next(), 100 + LEASE);
        numbers.published(101);
        assert_eq!(numbers.draw(), Ok(Inode(100 + LEASE)));
        assert_eq!(numbers.draw(), Err(Error::Delay));
        // Numbers that recovery has found may lie beyond the lease, and do not extend it.
        numbers.seen(Inode(1 << 40));
        assert_eq!(numbers.draw(), Err(Error::Delay));
        numbers.published(numbers.next());
        assert_eq!(numbers.draw(), Ok(Inode((1 << 40) + 1)));
    }
}
