//! Divides what all clients share: bytes of calls and replies, or connections. The code is a pure decision, without
//! sockets or time.
//!
//! ```text
//!  0                                            capacity - reserve      capacity
//!  +------------------------------------------------+----------------------+
//!  | any holder, however much it holds already      | up to its floor, any |
//!  +------------------------------------------------+----------------------+
//! ```
//!
//! * Only the reserve is left idle: a lone holder may have all of the rest.
//! * A holder that has less than its *floor* can also fill up to it from the reserve. So a newcomer does not wait for a
//!   holder that has taken everything, even if that holder never gives anything back.
//! * Returned amounts go to waiting holders, first to the one that would hold least. So the amounts held become equal
//!   as fast as amounts are returned. Requests of one holder are served in their order.
//! * A holder cannot overtake a waiting one that would hold no more than itself.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ticket(u64);

/// See the module's documentation. `K` names a holder.
#[derive(Debug)]
pub(super) struct Shares<K> {
    reserve: usize,
    floor: usize,
    free: usize,
    holders: HashMap<K, Holder>,
    /// Holders with requests that wait.
    waiting: Vec<K>,
    next: u64,
}

/// Exists only for holders that hold something or wait.
#[derive(Debug, Default)]
struct Holder {
    held: usize,
    queue: VecDeque<(Ticket, usize)>,
}

impl<K: Copy + Eq + Hash> Shares<K> {
    /// `floor` is also the largest amount of a request; a larger request counts as `floor`.
    pub(super) fn new(capacity: usize, reserve: usize, floor: usize) -> Shares<K> {
        Shares {
            reserve: reserve.min(capacity),
            floor: floor.min(capacity),
            free: capacity,
            holders: HashMap::new(),
            waiting: Vec::new(),
            next: 0,
        }
    }

    /// The largest amount of one request.
    pub(super) fn most(&self) -> usize {
        self.floor
    }

    /// Takes `amount` if it is available to `holder` now.
    pub(super) fn take(&mut self, holder: K, amount: usize) -> bool {
        let after = self.held(holder).saturating_add(amount);
        let is_overtaking = self.waiting.iter().any(|other| {
            let waiting = self.need(*other).map(|(need, _)| need);
            *other == holder || waiting.is_some_and(|need| need <= after)
        });
        let takes = !is_overtaking && self.has_room(after, amount);
        if takes {
            self.hold(holder, amount);
        }
        takes
    }

    /// Queues a request for `amount`, after [`Shares::take`] has failed.
    pub(super) fn ask(&mut self, holder: K, amount: usize) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        let queue = &mut self.holders.entry(holder).or_default().queue;
        queue.push_back((ticket, amount.min(self.floor)));
        if queue.len() == 1 {
            self.waiting.push(holder);
        }
        ticket
    }

    /// Gives `amount` back. Call [`Shares::serve`] afterwards to serve waiting requests with it.
    pub(super) fn give(&mut self, holder: K, amount: usize) {
        self.free += amount;
        if let Some(entry) = self.holders.get_mut(&holder) {
            entry.held -= amount;
            if entry.held == 0 && entry.queue.is_empty() {
                self.holders.remove(&holder);
            }
        }
    }

    /// Cancels a request.
    pub(super) fn cancel(&mut self, holder: K, ticket: Ticket) {
        let Some(entry) = self.holders.get_mut(&holder) else {
            return;
        };
        entry.queue.retain(|(other, _)| *other != ticket);
        if entry.queue.is_empty() {
            let is_empty = entry.held == 0;
            self.waiting.retain(|other| *other != holder);
            if is_empty {
                self.holders.remove(&holder);
            }
        }
    }

    /// Serves the next request that can be served; from now on it holds its amount. Call this until it returns `None`,
    /// after something was given back or a request was cancelled.
    pub(super) fn serve(&mut self) -> Option<(K, Ticket, usize)> {
        let needs = self.waiting.iter().filter_map(|holder| {
            let (need, ticket) = self.need(*holder)?;
            Some((need, ticket, *holder))
        });
        // Requests behind the first wait with it; otherwise a large request would never be served beside small ones.
        let (need, ticket, holder) = needs.min_by_key(|(need, ticket, _)| (*need, *ticket))?;
        let amount = need - self.held(holder);
        if !self.has_room(need, amount) {
            return None;
        }
        self.hold(holder, amount);
        self.cancel(holder, ticket);
        Some((holder, ticket, amount))
    }

    /// Whether any request waits.
    pub(super) fn is_short(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn held(&self, holder: K) -> usize {
        self.holders.get(&holder).map_or(0, |entry| entry.held)
    }

    /// The amount that a holder will have with its next request.
    fn need(&self, holder: K) -> Option<(usize, Ticket)> {
        let entry = self.holders.get(&holder)?;
        let (ticket, amount) = entry.queue.front()?;
        Some((entry.held + amount, *ticket))
    }

    fn has_room(&self, after: usize, amount: usize) -> bool {
        let left = self.free.checked_sub(amount);
        left.is_some_and(|left| after <= self.floor || left >= self.reserve)
    }

    fn hold(&mut self, holder: K, amount: usize) {
        self.free -= amount;
        self.holders.entry(holder).or_default().held += amount;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn served(shares: &mut Shares<u8>) -> Vec<u8> {
        std::iter::from_fn(|| shares.serve())
            .map(|(holder, ..)| holder)
            .collect()
    }

    #[test]
    fn one_alone_may_have_all_but_the_reserve() {
        let mut shares = Shares::new(100, 25, 10);
        let taken = (0..100).take_while(|_| shares.take(1, 5)).count();
        assert_eq!(taken, 15);
        shares.give(1, 75);
        assert!(shares.holders.is_empty());
    }

    #[test]
    fn newcomers_do_not_wait_for_one_that_gives_nothing_back() {
        let mut shares = Shares::new(100, 25, 10);
        while shares.take(1, 5) {}
        assert!(shares.take(2, 10) && shares.take(3, 10));
        // Beyond its floor a newcomer waits like all others.
        assert!(!shares.take(2, 5));
        assert!(shares.take(4, 5) && !shares.take(5, 5));
    }

    #[test]
    fn what_comes_back_goes_to_the_smallest_holder_until_all_hold_the_same() {
        let mut shares = Shares::new(100, 20, 10);
        while shares.take(1, 5) {}
        for _ in 0..20 {
            shares.ask(1, 5);
            shares.ask(2, 5);
        }
        served(&mut shares);
        for _ in 0..30 {
            shares.give(1, 5);
            served(&mut shares);
            if shares.held(1) == shares.held(2) {
                break;
            }
        }
        assert_eq!((shares.held(1), shares.held(2)), (40, 40));
    }

    #[test]
    fn small_requests_do_not_overtake_a_large_one_for_ever() {
        let mut shares = Shares::new(100, 0, 50);
        while shares.take(1, 10) {}
        let large = shares.ask(2, 50);
        for _ in 0..4 {
            shares.give(1, 10);
            assert_eq!(shares.serve(), None);
            // It would hold more than the waiting holder.
            assert!(!shares.take(1, 10));
        }
        shares.give(1, 10);
        assert_eq!(shares.serve(), Some((2, large, 50)));
        assert!(!shares.is_short());
    }

    #[test]
    fn requests_of_one_holder_are_served_in_their_order() {
        let mut shares = Shares::new(10, 0, 10);
        assert!(shares.take(1, 10));
        let [first, second] = [shares.ask(2, 4), shares.ask(2, 1)];
        assert!(!shares.take(2, 1));
        shares.give(1, 10);
        let order = std::iter::from_fn(|| shares.serve()).map(|(_, ticket, _)| ticket);
        assert_eq!(order.collect::<Vec<_>>(), [first, second]);
    }

    #[test]
    fn a_request_that_is_cancelled_lets_others_pass() {
        let mut shares = Shares::new(10, 0, 10);
        assert!(shares.take(1, 5));
        let large = shares.ask(2, 8);
        let small = shares.ask(3, 5);
        // The small request would hold less.
        assert_eq!(shares.serve(), Some((3, small, 5)));
        shares.cancel(2, large);
        assert!(!shares.is_short());
        shares.give(1, 5);
        shares.give(3, 5);
        assert!(shares.holders.is_empty() && shares.take(4, 10));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Take(u8, usize),
        Ask(u8, usize),
        GiveOne(usize),
        Cancel(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..6u8, 1..40usize).prop_map(|(holder, amount)| Step::Take(holder, amount)),
            (0..6u8, 1..40usize).prop_map(|(holder, amount)| Step::Ask(holder, amount)),
            any::<usize>().prop_map(Step::GiveOne),
            any::<usize>().prop_map(Step::Cancel),
        ]
    }

    proptest! {
        /// For any requests in any order: no more is held than exists, the reserve is for holders below their floor, no
        /// waiting holder is overtaken by one that then holds more, and every request is served in the end.
        #[test]
        fn shares_are_bounded_fair_and_never_lost(steps in proptest::collection::vec(step(), 1..200)) {
            const CAPACITY: usize = 200;
            const RESERVE: usize = 50;
            const FLOOR: usize = 40;
            let mut shares = Shares::new(CAPACITY, RESERVE, FLOOR);
            let mut held: Vec<(u8, usize)> = Vec::new();
            let mut asked: BTreeMap<Ticket, (u8, usize)> = BTreeMap::new();
            let of = |held: &[(u8, usize)], holder: u8| -> usize {
                held.iter().filter(|(other, _)| *other == holder).map(|(_, amount)| amount).sum()
            };
            for step in steps {
                match step {
                    Step::Take(holder, amount) => {
                        let free = CAPACITY - held.iter().map(|(_, amount)| amount).sum::<usize>();
                        let after = of(&held, holder) + amount;
                        let first = asked.values().map(|(other, amount)| of(&held, *other) + amount).min();
                        if shares.take(holder, amount) {
                            prop_assert!(after <= FLOOR || free - amount >= RESERVE);
                            prop_assert!(!asked.values().any(|(other, _)| *other == holder));
                            held.push((holder, amount));
                        } else {
                            // Work-conserving: a request fails only for lack of room, or because of a waiting one.
                            let has_room = free >= amount && (after <= FLOOR || free - amount >= RESERVE);
                            prop_assert!(!has_room || first.is_some());
                        }
                    }
                    Step::Ask(holder, amount) => {
                        asked.insert(shares.ask(holder, amount), (holder, amount));
                    }
                    Step::GiveOne(which) if !held.is_empty() => {
                        let (holder, amount) = held.swap_remove(which % held.len());
                        shares.give(holder, amount);
                    }
                    Step::Cancel(which) if !asked.is_empty() => {
                        let ticket = *asked.keys().nth(which % asked.len()).unwrap();
                        let (holder, _) = asked.remove(&ticket).unwrap();
                        shares.cancel(holder, ticket);
                    }
                    Step::GiveOne(_) | Step::Cancel(_) => {}
                }
                while let Some((holder, ticket, amount)) = shares.serve() {
                    prop_assert_eq!(asked.remove(&ticket), Some((holder, amount)));
                    held.push((holder, amount));
                }
                let all: usize = held.iter().map(|(_, amount)| amount).sum();
                prop_assert_eq!(all + shares.free, CAPACITY);
                prop_assert_eq!(shares.is_short(), !asked.is_empty());
            }
            // Everything that is held comes back in the end, and every request is served.
            while let Some((holder, amount)) = held.pop() {
                shares.give(holder, amount);
                while let Some((holder, ticket, amount)) = shares.serve() {
                    asked.remove(&ticket);
                    held.push((holder, amount));
                }
            }
            prop_assert!(asked.is_empty() && shares.holders.is_empty());
            prop_assert_eq!(shares.free, CAPACITY);
        }
    }
}
