//! Limits the bytes of calls and replies that clients may hold.
//!
//! A connection has a small allowance of its own, so that small calls proceed regardless of other clients. Beyond it,
//! its client takes from a budget that all clients share: a share for each [`ClientNetwork`], and in it one for each
//! [`Part`]. So waiting WRITEs leave room for READs, and READs that wait for the bucket leave some for READs of data in
//! memory. [`Shares`] decides which holder gets how much, and which one is next.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use forebay_metrics::Gauge;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::shares::{Shares, Ticket};
use crate::address::ClientNetwork;
use crate::engine::Lane;

/// Bytes that a connection may hold without a permit from the budget.
pub(super) const OWN_BYTES: usize = 64 << 10;

/// Part of them that is reserved for calls that only look at names and attributes.
const OWN_FOR_LOOKING: usize = 16 << 10;

/// Divisor of a budget: this fraction is for holders that have little.
const RESERVED_PART: usize = 4;

/// The parts of a client's budget; each has a share of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// The calls of a lane, and their replies.
    Call(Lane),
    /// Replies that lend data in memory, to calls that found no room in their lane.
    Memory,
    /// Other memory that its connections hold while they wait.
    Rest,
}

/// The owner of permits.
type Holder = (ClientNetwork, Part);

/// The bytes that all clients share.
pub(super) struct Budget {
    state: Mutex<State>,
    /// Whether a holder waits, as of the last change.
    short: AtomicBool,
    /// The bytes of all permits, of this budget and of others.
    held: Arc<Gauge>,
}

struct State {
    shares: Shares<Holder>,
    waiting: HashMap<Ticket, oneshot::Sender<BudgetPermit>>,
}

impl Budget {
    /// `most` is the largest amount requested at once; every holder can have that much, as long as it is free.
    /// `held` counts the bytes that were taken.
    pub(super) fn new(bytes: usize, most: usize, held: Arc<Gauge>) -> Budget {
        Budget {
            state: Mutex::new(State {
                shares: Shares::new(bytes, bytes / RESERVED_PART, most),
                waiting: HashMap::new(),
            }),
            short: AtomicBool::new(false),
            held,
        }
    }

    /// Takes bytes if they are available to this holder.
    pub(super) fn take(self: &Arc<Self>, holder: Holder, bytes: usize) -> Option<BudgetPermit> {
        let mut state = self.state.lock();
        let bytes = bytes.min(state.shares.most());
        let taken = state.shares.take(holder, bytes);
        taken.then(|| self.permit(holder, bytes))
    }

    /// Waits for bytes until this holder is served.
    pub(super) fn wait(self: &Arc<Self>, holder: Holder, bytes: usize) -> Waiting {
        let (sender, granted) = oneshot::channel();
        let mut state = self.state.lock();
        let ticket = state.shares.ask(holder, bytes);
        state.waiting.insert(ticket, sender);
        // Free bytes may be for this request, if no other holder was served since.
        self.serve(state);
        Waiting {
            budget: self.clone(),
            holder,
            ticket,
            granted,
        }
    }

    /// Whether a holder waits.
    pub(super) fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed)
    }

    fn permit(self: &Arc<Self>, holder: Holder, bytes: usize) -> BudgetPermit {
        self.held.add(bytes as u64);
        BudgetPermit {
            budget: self.clone(),
            holder,
            bytes,
        }
    }

    fn give(self: &Arc<Self>, holder: Holder, bytes: usize) {
        self.held.subtract(bytes as u64);
        let mut state = self.state.lock();
        state.shares.give(holder, bytes);
        if state.shares.is_short() {
            self.serve(state);
        }
    }

    fn cancel(self: &Arc<Self>, holder: Holder, ticket: Ticket) {
        let mut state = self.state.lock();
        // If the request was served already, its permit comes back when it is dropped.
        if state.waiting.remove(&ticket).is_some() {
            state.shares.cancel(holder, ticket);
            self.serve(state);
        }
    }

    /// Serves the waiting holders with the free bytes.
    fn serve(self: &Arc<Self>, mut state: parking_lot::MutexGuard<'_, State>) {
        let mut served = Vec::new();
        while let Some((holder, ticket, bytes)) = state.shares.serve() {
            let permit = self.permit(holder, bytes);
            served.extend(state.waiting.remove(&ticket).map(|sender| (sender, permit)));
        }
        self.short.store(state.shares.is_short(), Ordering::Relaxed);
        // A permit whose receiver was dropped comes back, and that takes the lock.
        drop(state);
        for (sender, permit) in served {
            drop(sender.send(permit));
        }
    }
}

/// Bytes taken from a budget; given back when dropped.
pub(super) struct BudgetPermit {
    budget: Arc<Budget>,
    holder: Holder,
    bytes: usize,
}

impl BudgetPermit {
    /// Gives back all except the first `bytes`.
    pub(super) fn keep(&mut self, bytes: usize) {
        if let Some(rest) = self.bytes.checked_sub(bytes).filter(|rest| *rest > 0) {
            self.bytes = bytes;
            self.budget.give(self.holder, rest);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds another permit of the same holder.
    pub(super) fn join(&mut self, mut other: BudgetPermit) {
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for BudgetPermit {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.give(self.holder, self.bytes);
        }
    }
}

/// A request for a permit. Dropping it cancels the request.
pub(super) struct Waiting {
    budget: Arc<Budget>,
    holder: Holder,
    ticket: Ticket,
    granted: oneshot::Receiver<BudgetPermit>,
}

impl Future for Waiting {
    type Output = BudgetPermit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<BudgetPermit> {
        match ready!(Pin::new(&mut self.granted).poll(context)) {
            Ok(permit) => Poll::Ready(permit),
            // The sender is not dropped before it has sent.
            Err(_) => Poll::Pending,
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.budget.cancel(self.holder, self.ticket);
    }
}

/// Bytes that a call or reply holds.
pub(super) enum Charge {
    /// Bytes of the connection's own allowance.
    Own(usize),
    /// Bytes of the shared budget.
    Shared(BudgetPermit),
}

/// A connection's own allowance.
#[derive(Debug, Default)]
pub(super) struct Allowance {
    own: usize,
}

impl Allowance {
    /// Charges the connection's own allowance, if there is room.
    pub(super) fn charge(&mut self, bytes: usize, lane: Lane) -> Option<Charge> {
        let limit = match lane {
            Lane::Looking => OWN_BYTES,
            Lane::Reading | Lane::Changing => OWN_BYTES - OWN_FOR_LOOKING,
        };
        (self.own + bytes <= limit).then(|| self.force(bytes))
    }

    /// Charges the connection's own allowance even if there is no room.
    pub(super) fn force(&mut self, bytes: usize) -> Charge {
        self.own += bytes;
        Charge::Own(bytes)
    }

    /// Charged bytes of the own allowance.
    pub(super) fn own(&self) -> usize {
        self.own
    }

    /// Adjusts the charge of a call that is done to the `bytes` bytes of its reply. They may exceed the
    /// original charge only if that was small.
    pub(super) fn settle(&mut self, charge: Charge, bytes: usize) -> Charge {
        match charge {
            Charge::Own(charged) => {
                self.own = self.own - charged + bytes;
                Charge::Own(bytes)
            }
            Charge::Shared(mut permit) => {
                permit.keep(bytes);
                Charge::Shared(permit)
            }
        }
    }

    /// Gives a charge back.
    pub(super) fn release(&mut self, charge: Charge) {
        match charge {
            Charge::Own(bytes) => self.own -= bytes,
            Charge::Shared(permit) => drop(permit),
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
        Arc::new(Budget::new(1000, 400, Arc::default()))
    }

    #[test]
    fn what_is_taken_comes_back() {
        let budget = budget();
        let permit = budget.take(client(1), 400).unwrap();
        let other = budget.take(client(1), 350).unwrap();
        assert!(budget.take(client(1), 1).is_none());
        drop((permit, other));
        assert!(budget.take(client(1), 400).is_some());
    }

    #[test]
    fn only_the_bytes_of_the_reply_stay_charged() {
        let budget = budget();
        let mut allowance = Allowance::default();
        let charge = Charge::Shared(budget.take(client(1), 400).unwrap());
        let rest = budget.take(client(1), 350).unwrap();
        assert!(budget.take(client(1), 100).is_none());
        let charge = allowance.settle(charge, 100);
        let other = budget.take(client(1), 300).unwrap();
        assert!(budget.take(client(1), 1).is_none());
        allowance.release(charge);
        assert!(budget.take(client(1), 100).is_some());
        drop((other, rest));

        let charge = allowance.charge(OWN_BYTES, Lane::Looking).unwrap();
        assert!(allowance.charge(1, Lane::Looking).is_none());
        let charge = allowance.settle(charge, 1);
        assert!(allowance.charge(OWN_BYTES - 1, Lane::Looking).is_some());
        allowance.release(charge);
        assert!(allowance.charge(1, Lane::Looking).is_some());
    }

    #[test]
    fn a_part_of_the_own_allowance_is_for_those_that_only_look() {
        let mut allowance = Allowance::default();
        let most = OWN_BYTES - OWN_FOR_LOOKING;
        assert!(allowance.charge(most + 1, Lane::Changing).is_none());
        assert!(allowance.charge(most, Lane::Changing).is_some());
        assert!(allowance.charge(1, Lane::Reading).is_none());
        assert!(allowance.charge(OWN_FOR_LOOKING, Lane::Looking).is_some());
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
        // It was served but never polled.
        drop(second);
        assert!(!budget.is_short());
        let all = [400, 350].map(|bytes| budget.take(client(1), bytes));
        assert!(all.iter().all(Option::is_some));
    }

    #[test]
    fn shares_that_are_joined_come_back_once() {
        let budget = budget();
        let mut permit = budget.take(client(1), 300).unwrap();
        permit.join(budget.take(client(1), 300).unwrap());
        assert_eq!((permit.bytes(), budget.held.get()), (600, 600));
        permit.keep(100);
        assert_eq!(budget.held.get(), 100);
        assert!(budget.take(client(1), 400).is_some());
        drop(permit);
        let all = [400, 350].map(|bytes| budget.take(client(1), bytes));
        assert!(all.iter().all(Option::is_some));
    }
}
