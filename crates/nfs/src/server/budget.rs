//! How many bytes of calls and replies clients may hold.
//!
//! A connection has a small allowance of its own, so that small calls go on whatever others do. Beyond it, its client takes
//! from a budget that all clients share: a share for each [`ClientNetwork`], and in it one for each [`Part`], so that WRITEs that
//! wait leave room for READs, and READs that wait for the bucket leave some for those of what is in memory. [`Shares`] decides who gets how much, and who is next.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::shares::{Shares, Ticket};
use crate::address::ClientNetwork;
use crate::engine::Lane;

/// What a connection may hold without asking.
pub(super) const OWN_BYTES: usize = 64 << 10;

/// Of that, calls that only look at names and attributes have so much for themselves.
const OWN_FOR_LOOKING: usize = 16 << 10;

/// Of a budget, the part for holders that have little: one in so many.
const RESERVED_PART: usize = 4;

/// What a client has shares of its own for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// The calls of a lane, and their replies.
    Call(Lane),
    /// Replies that lend what is in memory, to calls that found no room in their lane.
    Memory,
    /// What its connections hold beside them while they wait.
    Rest,
}

/// What has a share of its own.
type Holder = (ClientNetwork, Part);

/// The bytes that all clients share.
pub(super) struct Budget {
    state: Mutex<State>,
    /// Whether somebody waits, as of the last change.
    short: AtomicBool,
}

struct State {
    shares: Shares<Holder>,
    waiting: HashMap<Ticket, oneshot::Sender<Share>>,
}

impl Budget {
    /// `most` is the most that is asked for at once; every holder can have that much, as long as there is any.
    pub(super) fn new(bytes: usize, most: usize) -> Budget {
        Budget {
            state: Mutex::new(State {
                shares: Shares::new(bytes, bytes / RESERVED_PART, most),
                waiting: HashMap::new(),
            }),
            short: AtomicBool::new(false),
        }
    }

    /// Takes bytes if they are there for this holder.
    pub(super) fn take(self: &Arc<Self>, holder: Holder, bytes: usize) -> Option<Share> {
        let mut state = self.state.lock();
        let bytes = bytes.min(state.shares.most());
        let taken = state.shares.take(holder, bytes);
        taken.then(|| self.share(holder, bytes))
    }

    /// Takes bytes when it is this holder's turn.
    pub(super) fn wait(self: &Arc<Self>, holder: Holder, bytes: usize) -> Waiting {
        let (sender, granted) = oneshot::channel();
        let mut state = self.state.lock();
        let ticket = state.shares.ask(holder, bytes);
        state.waiting.insert(ticket, sender);
        // What is there may be for it, if others were not asked since.
        self.serve(state);
        Waiting {
            budget: self.clone(),
            holder,
            ticket,
            granted,
        }
    }

    /// Whether somebody waits.
    pub(super) fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed)
    }

    fn share(self: &Arc<Self>, holder: Holder, bytes: usize) -> Share {
        Share {
            budget: self.clone(),
            holder,
            bytes,
        }
    }

    fn give(self: &Arc<Self>, holder: Holder, bytes: usize) {
        let mut state = self.state.lock();
        state.shares.give(holder, bytes);
        if state.shares.is_short() {
            self.serve(state);
        }
    }

    fn cancel(self: &Arc<Self>, holder: Holder, ticket: Ticket) {
        let mut state = self.state.lock();
        // It was served already, and what it got comes back by itself.
        if state.waiting.remove(&ticket).is_some() {
            state.shares.cancel(holder, ticket);
            self.serve(state);
        }
    }

    /// Gives those that wait what is there for them.
    fn serve(self: &Arc<Self>, mut state: parking_lot::MutexGuard<'_, State>) {
        let mut served = Vec::new();
        while let Some((holder, ticket, bytes)) = state.shares.serve() {
            let share = self.share(holder, bytes);
            served.extend(state.waiting.remove(&ticket).map(|sender| (sender, share)));
        }
        self.short.store(state.shares.is_short(), Ordering::Relaxed);
        // A share that nobody takes any more comes back, and that takes the lock.
        drop(state);
        for (sender, share) in served {
            drop(sender.send(share));
        }
    }
}

/// Bytes taken from a budget; given back when dropped.
pub(super) struct Share {
    budget: Arc<Budget>,
    holder: Holder,
    bytes: usize,
}

impl Share {
    /// Gives back all but the first `bytes`.
    pub(super) fn keep(&mut self, bytes: usize) {
        if let Some(rest) = self.bytes.checked_sub(bytes).filter(|rest| *rest > 0) {
            self.bytes = bytes;
            self.budget.give(self.holder, rest);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds another one of the same holder.
    pub(super) fn join(&mut self, mut other: Share) {
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.give(self.holder, self.bytes);
        }
    }
}

/// A share that is waited for. Whoever does not want it any more drops this.
pub(super) struct Waiting {
    budget: Arc<Budget>,
    holder: Holder,
    ticket: Ticket,
    granted: oneshot::Receiver<Share>,
}

impl Future for Waiting {
    type Output = Share;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Share> {
        match ready!(Pin::new(&mut self.granted).poll(context)) {
            Ok(share) => Poll::Ready(share),
            // The sender stays until it has sent.
            Err(_) => Poll::Pending,
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.budget.cancel(self.holder, self.ticket);
    }
}

/// What a call or reply holds.
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
    pub(super) fn charge(&mut self, bytes: usize, lane: Lane) -> Option<Charge> {
        let limit = match lane {
            Lane::Looking => OWN_BYTES,
            Lane::Reading | Lane::Changing => OWN_BYTES - OWN_FOR_LOOKING,
        };
        (self.own + bytes <= limit).then(|| self.force(bytes))
    }

    /// Charges the connection's own allowance though there may be no room.
    pub(super) fn force(&mut self, bytes: usize) -> Charge {
        self.own += bytes;
        Charge::Own(bytes)
    }

    /// Bytes of the own allowance that are charged.
    pub(super) fn own(&self) -> usize {
        self.own
    }

    /// The call is done and its reply has `bytes` bytes: those stay charged. They may exceed what was
    /// charged for the call only if that was small.
    pub(super) fn settle(&mut self, charge: Charge, bytes: usize) -> Charge {
        match charge {
            Charge::Own(charged) => {
                self.own = self.own - charged + bytes;
                Charge::Own(bytes)
            }
            Charge::Shared(mut share) => {
                share.keep(bytes);
                Charge::Shared(share)
            }
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

    const PART: Part = Part::Call(Lane::Changing);

    fn client(number: u8) -> Holder {
        (ClientNetwork::of([10, 0, 0, number].into()), PART)
    }

    fn budget() -> Arc<Budget> {
        Arc::new(Budget::new(1000, 400))
    }

    #[test]
    fn what_is_taken_comes_back() {
        let budget = budget();
        let share = budget.take(client(1), 400).unwrap();
        let other = budget.take(client(1), 350).unwrap();
        assert!(budget.take(client(1), 1).is_none());
        drop((share, other));
        assert!(budget.take(client(1), 400).is_some());
    }

    #[test]
    fn only_the_bytes_of_the_reply_stay_charged() {
        let budget = budget();
        let mut account = Account::default();
        let charge = Charge::Shared(budget.take(client(1), 400).unwrap());
        let rest = budget.take(client(1), 350).unwrap();
        assert!(budget.take(client(1), 100).is_none());
        let charge = account.settle(charge, 100);
        let other = budget.take(client(1), 300).unwrap();
        assert!(budget.take(client(1), 1).is_none());
        account.release(charge);
        assert!(budget.take(client(1), 100).is_some());
        drop((other, rest));

        let charge = account.charge(OWN_BYTES, Lane::Looking).unwrap();
        assert!(account.charge(1, Lane::Looking).is_none());
        let charge = account.settle(charge, 1);
        assert!(account.charge(OWN_BYTES - 1, Lane::Looking).is_some());
        account.release(charge);
        assert!(account.charge(1, Lane::Looking).is_some());
    }

    #[test]
    fn a_part_of_the_own_allowance_is_for_those_that_only_look() {
        let mut account = Account::default();
        let most = OWN_BYTES - OWN_FOR_LOOKING;
        assert!(account.charge(most + 1, Lane::Changing).is_none());
        assert!(account.charge(most, Lane::Changing).is_some());
        assert!(account.charge(1, Lane::Reading).is_none());
        assert!(account.charge(OWN_FOR_LOOKING, Lane::Looking).is_some());
    }

    #[tokio::test]
    async fn whoever_waits_is_seen_and_served() {
        let budget = budget();
        let shares = [400, 350].map(|bytes| budget.take(client(1), bytes).unwrap());
        let waiting = budget.wait(client(1), 300);
        assert!(budget.is_short());
        drop(shares);
        assert_eq!(waiting.await.bytes(), 300);
        assert!(!budget.is_short());
    }

    #[tokio::test]
    async fn whoever_gives_up_is_not_served_and_holds_nothing() {
        let budget = budget();
        let shares = [400, 350].map(|bytes| budget.take(client(1), bytes).unwrap());
        let waiting = budget.wait(client(1), 300);
        let second = budget.wait(client(1), 300);
        drop(waiting);
        assert!(budget.is_short());
        drop(shares);
        // It was served and does not look.
        drop(second);
        assert!(!budget.is_short());
        let all = [400, 350].map(|bytes| budget.take(client(1), bytes));
        assert!(all.iter().all(Option::is_some));
    }

    #[test]
    fn shares_that_are_joined_come_back_once() {
        let budget = budget();
        let mut share = budget.take(client(1), 300).unwrap();
        share.join(budget.take(client(1), 300).unwrap());
        assert_eq!(share.bytes(), 600);
        share.keep(100);
        assert!(budget.take(client(1), 400).is_some());
        drop(share);
        let all = [400, 350].map(|bytes| budget.take(client(1), bytes));
        assert!(all.iter().all(Option::is_some));
    }
}
