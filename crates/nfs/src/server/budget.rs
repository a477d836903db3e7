//! How many bytes of calls and replies connections may hold.
//!
//! A connection has a small allowance of its own, so that small calls go on whatever others do.
//! Beyond it, it takes from one budget that all share, and waits, first come first served, when
//! that is used up.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a connection may hold without asking.
pub(super) const OWN_BYTES: usize = 64 << 10;

/// The bytes that all connections share.
pub(super) struct Budget {
    bytes: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// Bytes taken from the shared budget; given back when dropped.
pub(super) type Share = OwnedSemaphorePermit;

/// A share that is waited for.
pub(super) type Waiting = Pin<Box<dyn Future<Output = Option<Share>> + Send>>;

impl Budget {
    pub(super) fn new(bytes: usize) -> Budget {
        Budget {
            bytes: Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Takes bytes if they are there.
    pub(super) fn take(&self, bytes: usize) -> Option<Share> {
        let permits = u32::try_from(bytes).ok()?;
        self.bytes.clone().try_acquire_many_owned(permits).ok()
    }

    /// Takes bytes when they are there. Never `None` in practice: the semaphore is never closed.
    pub(super) fn wait(self: &Arc<Self>, bytes: usize) -> Waiting {
        /// Counts who waits, also when the wait is given up.
        struct Counted(Arc<Budget>);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.waiting.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(self.clone());
        Box::pin(async move {
            let permits = u32::try_from(bytes).ok()?;
            let bytes = counted.0.bytes.clone();
            bytes.acquire_many_owned(permits).await.ok()
        })
    }

    /// Whether somebody waits.
    pub(super) fn is_short(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

/// What a call or reply holds.
#[derive(Debug)]
pub(super) enum Charge {
    /// Bytes of the connection's own allowance.
    Own(usize),
    /// Bytes of the shared budget.
    Shared(Share),
}

/// A connection's account.
#[derive(Debug, Default)]
pub(super) struct Account {
    own: usize,
}

impl Account {
    /// Charges the connection's own allowance, if there is room.
    pub(super) fn charge(&mut self, bytes: usize) -> Option<Charge> {
        if self.own + bytes > OWN_BYTES {
            return None;
        }
        self.own += bytes;
        Some(Charge::Own(bytes))
    }

    /// The call is done and its reply has `bytes` bytes: those stay charged. They may exceed what was
    /// charged for the call only if that was small.
    pub(super) fn settle(&mut self, charge: Charge, bytes: usize) -> Charge {
        match charge {
            Charge::Own(charged) => {
                self.own = self.own - charged + bytes;
                Charge::Own(bytes)
            }
            Charge::Shared(mut share) => match share.split(bytes) {
                Some(kept) => Charge::Shared(kept),
                None => Charge::Shared(share),
            },
        }
    }

    /// Gives a charge back.
    pub(super) fn release(&mut self, charge: Charge) {
        match charge {
            Charge::Own(bytes) => self.own -= bytes,
            Charge::Shared(share) => drop(share),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_comes_back() {
        let budget = Arc::new(Budget::new(1000));
        let share = budget.take(900).unwrap();
        assert!(budget.take(200).is_none());
        drop(share);
        assert!(budget.take(1000).is_some());
    }

    #[test]
    fn only_the_bytes_of_the_reply_stay_charged() {
        let budget = Arc::new(Budget::new(1000));
        let mut account = Account::default();
        let charge = Charge::Shared(budget.take(900).unwrap());
        let charge = account.settle(charge, 100);
        let other = budget.take(900).unwrap();
        assert!(budget.take(1).is_none());
        account.release(charge);
        assert!(budget.take(100).is_some());
        drop(other);

        let charge = account.charge(OWN_BYTES).unwrap();
        assert!(account.charge(1).is_none());
        let charge = account.settle(charge, 1);
        assert!(account.charge(OWN_BYTES - 1).is_some());
        account.release(charge);
        assert!(account.charge(1).is_some());
    }

    #[tokio::test]
    async fn whoever_waits_is_seen_and_served() {
        let budget = Arc::new(Budget::new(1000));
        let share = budget.take(900).unwrap();
        let waiting = budget.wait(500);
        assert!(budget.is_short());
        drop(share);
        assert!(waiting.await.is_some());
        assert!(!budget.is_short());
    }
}
