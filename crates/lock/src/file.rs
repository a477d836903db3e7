//! The locks, waiters and share reservations of one file.
//!
//! The locks of an owner are stored as the fewest possible ranges: ranges that touch or overlap, with the same mode and
//! incarnation, are merged. Locks that exclude others, held or granted, are found by their bytes ([`Intervals`]).
//! Exclusive and shared ones are stored separately, so that a search visits only conflicting locks and the owner's own.
//! Waiters are handled in the order of arrival, a few at a time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::intervals::Intervals;
use crate::request::{GrantId, Wanted};
use crate::shares::Shares;
use crate::{Client, Incarnation, Owner, Range};

/// Limits the work of one call on waiters: the number that it visits, and the number that it checks for
/// conflicts. Later calls of [`FileLocks::promote`] do the rest.
#[derive(Clone, Copy)]
pub(crate) struct Budget {
    pub(crate) looks: usize,
    pub(crate) tries: usize,
}

impl Budget {
    /// Takes some tens of microseconds.
    pub(crate) const OF_A_CALL: Budget = Budget {
        looks: 1024,
        tries: 64,
    };
}

/// See the module's documentation. `T` is the tag that the caller gets back with a grant.
pub(crate) struct FileLocks<T> {
    owners: BTreeMap<Arc<Owner>, Own>,
    /// Held and granted locks, with their owners, by mode.
    exclusive: Intervals<Arc<Owner>>,
    shared: Intervals<Arc<Owner>>,
    granted: HashMap<GrantId, Arc<Owner>>,
    /// Waiters by the order of arrival.
    waiting: BTreeMap<u64, (Wanted, T)>,
    pub(crate) shares: Shares,
    /// Number of locks that are held.
    held: usize,
    /// The next unused number, for waiters and for held and granted locks.
    next: u64,
    /// The current round of waiters.
    round: Option<Round>,
    /// The range that has become free since the round began.
    freed: Option<Range>,
    /// Whether the file is queued for the rest of the round.
    pub(crate) is_queued: bool,
}

/// The locks and waiters of one owner.
#[derive(Default)]
struct Own {
    /// By the first byte; the ranges do not overlap.
    held: BTreeMap<u64, Held>,
    granted: BTreeMap<GrantId, (Wanted, u64)>,
    /// The arrival numbers of the waiters, by range and mode.
    waiting: BTreeMap<(u64, u64, bool), u64>,
}

/// A held lock.
#[derive(Clone, Copy)]
struct Held {
    range: Range,
    exclusive: bool,
    incarnation: Incarnation,
    /// Its number in [`Intervals`].
    id: u64,
}

/// A pass over the waiters for any of these bytes, from this arrival number on.
struct Round {
    range: Range,
    from: u64,
}

/// A change of the locks of an owner: the removed ones, by first byte; the added ones; and the bytes that become free
/// for other owners.
pub(crate) struct Plan {
    removed: Vec<u64>,
    added: Vec<Held>,
    freed: Option<Range>,
}

impl Plan {
    /// Numbers of entries that the change adds and removes.
    pub(crate) fn growth(&self) -> (usize, usize) {
        (self.added.len(), self.removed.len())
    }
}

impl Own {
    fn is_empty(&self) -> bool {
        self.held.is_empty() && self.granted.is_empty() && self.waiting.is_empty()
    }

    /// The owner's locks that overlap or touch `range`.
    fn near(&self, range: Range) -> impl Iterator<Item = &Held> {
        let before = self.held.range(..range.first()).next_back();
        let from = self
            .held
            .range(range.first()..=range.last().saturating_add(1));
        let near = before.into_iter().chain(from).map(|(_, held)| held);
        near.filter(move |held| held.range.overlaps(range) || held.range.touches(range))
    }
}

fn waiting_key(wanted: &Wanted) -> (u64, u64, bool) {
    (wanted.range.first(), wanted.range.last(), wanted.exclusive)
}

/// The smallest range that holds both.
fn hull(one: Option<Range>, other: Range) -> Option<Range> {
    Some(one.map_or(other, |one| one.union(other)))
}

impl<T> Default for FileLocks<T> {
    fn default() -> Self {
        FileLocks {
            owners: BTreeMap::new(),
            exclusive: Intervals::default(),
            shared: Intervals::default(),
            granted: HashMap::new(),
            waiting: BTreeMap::new(),
            shares: Shares::default(),
            held: 0,
            next: 0,
            round: None,
            freed: None,
            is_queued: false,
        }
    }
}

impl<T> FileLocks<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries() == 0
    }

    /// Number of entries of all kinds, which all take memory.
    pub(crate) fn entries(&self) -> usize {
        self.held + self.granted.len() + self.waiting.len() + self.shares.len()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn of_mode(&mut self, exclusive: bool) -> &mut Intervals<Arc<Owner>> {
        match exclusive {
            true => &mut self.exclusive,
            false => &mut self.shared,
        }
    }

    /// Returns the lock, held or granted and not confirmed, that conflicts with `wanted`: its range, its owner, and
    /// whether it is exclusive.
    pub(crate) fn conflict(&self, wanted: &Wanted) -> Option<(Range, &Arc<Owner>, bool)> {
        let other = |owner: &Arc<Owner>| **owner != *wanted.owner;
        let found = self.exclusive.find(wanted.range, other);
        if let Some((range, owner)) = found {
            return Some((range, owner, true));
        }
        if !wanted.exclusive {
            return None;
        }
        let (range, owner) = self.shared.find(wanted.range, other)?;
        Some((range, owner, false))
    }

    /// Plans the change of the held locks when `wanted` is locked.
    pub(crate) fn plan_lock(&self, wanted: &Wanted) -> Plan {
        let mut whole = Held {
            range: wanted.range,
            exclusive: wanted.exclusive,
            incarnation: wanted.incarnation,
            id: 0,
        };
        let mut plan = self.plan(&wanted.owner, wanted.range, |held| {
            let same = held.exclusive == wanted.exclusive && held.incarnation == wanted.incarnation;
            if same {
                whole.range = whole.range.union(held.range);
            }
            same
        });
        if wanted.exclusive {
            plan.freed = None;
        }
        plan.added.push(whole);
        plan
    }

    /// Plans the change of the held locks when a range is unlocked.
    pub(crate) fn plan_unlock(&self, owner: &Owner, range: Range) -> Plan {
        self.plan(owner, range, |_| false)
    }

    /// Plans to remove `range` from the locks of `owner`; a lock that overlaps or touches it is removed as a whole if
    /// `merged` is true for it.
    fn plan(&self, owner: &Owner, range: Range, mut merged: impl FnMut(&Held) -> bool) -> Plan {
        let mut plan = Plan {
            removed: Vec::new(),
            added: Vec::new(),
            freed: None,
        };
        let near = self.owners.get(owner).into_iter();
        for held in near.flat_map(|own| own.near(range)) {
            if merged(held) {
                plan.removed.push(held.range.first());
            } else if held.range.overlaps(range) {
                plan.removed.push(held.range.first());
                let left = held.range.without(range);
                plan.added.extend(left.map(|range| Held { range, ..*held }));
                plan.freed = hull(plan.freed, held.range);
            }
        }
        plan
    }

    pub(crate) fn apply(&mut self, owner: &Arc<Owner>, plan: Plan) {
        for first in plan.removed {
            let own = self.owners.get_mut(owner);
            if let Some(held) = own.and_then(|own| own.held.remove(&first)) {
                self.of_mode(held.exclusive).remove(held.range, held.id);
                self.held -= 1;
            }
        }
        for held in plan.added {
            let id = self.number();
            let (key, own) = self.own(owner);
            own.held.insert(held.range.first(), Held { id, ..held });
            self.of_mode(held.exclusive).insert(held.range, id, key);
            self.held += 1;
        }
        if let Some(range) = plan.freed {
            self.freed = hull(self.freed, range);
        }
        self.tidy(owner);
    }

    /// Returns the entries of an owner, and the `Arc` that this file already has for it.
    fn own(&mut self, owner: &Arc<Owner>) -> (Arc<Owner>, &mut Own) {
        let known = self.owners.get_key_value(&**owner);
        let owner = known.map_or(owner, |(known, _)| known).clone();
        let own = self.owners.entry(owner.clone()).or_default();
        (owner, own)
    }

    /// Removes an owner without entries.
    fn tidy(&mut self, owner: &Owner) {
        if self.owners.get(owner).is_some_and(Own::is_empty) {
            self.owners.remove(owner);
        }
    }

    // ---- waiters -------------------------------------------------------------------------------

    /// Adds a waiter for `wanted`; an owner that already waits for it keeps its place.
    pub(crate) fn wait(&mut self, wanted: &Wanted, tag: T) {
        let arrival = self.number();
        let (_, own) = self.own(&wanted.owner);
        let arrival = *own.waiting.entry(waiting_key(wanted)).or_insert(arrival);
        self.waiting.insert(arrival, (wanted.clone(), tag));
    }

    pub(crate) fn is_waiting(&self, wanted: &Wanted) -> bool {
        let own = self.owners.get(&*wanted.owner);
        own.is_some_and(|own| own.waiting.contains_key(&waiting_key(wanted)))
    }

    /// Removes the waiter for exactly this lock, if there is one.
    pub(crate) fn stop_waiting(&mut self, wanted: &Wanted) -> bool {
        let own = self.owners.get_mut(&*wanted.owner);
        let arrival = own.and_then(|own| own.waiting.remove(&waiting_key(wanted)));
        let found = arrival.and_then(|arrival| self.waiting.remove(&arrival));
        self.tidy(&wanted.owner);
        found.is_some()
    }

    /// Removes all waiters of the owner in this range.
    pub(crate) fn stop_waiting_in(&mut self, owner: &Owner, range: Range) {
        let Some(own) = self.owners.get_mut(owner) else {
            return;
        };
        let waiting = &mut self.waiting;
        own.waiting.retain(|(first, last, _), arrival| {
            let stays = *first > range.last() || *last < range.first();
            if !stays {
                waiting.remove(arrival);
            }
            stays
        });
        self.tidy(owner);
    }

    /// Grants waiting locks in the bytes that became free, in the order of arrival, within the budget.
    pub(crate) fn promote(
        &mut self,
        budget: &mut Budget,
        mut id: impl FnMut() -> GrantId,
    ) -> Vec<(GrantId, Wanted, T)> {
        let mut grants = Vec::new();
        loop {
            // A round reaches all waiters before the next one begins, even if more bytes become free meanwhile.
            let freed = &mut self.freed;
            let begin = || freed.take().map(|range| Round { range, from: 0 });
            let Some(mut round) = self.round.take().or_else(begin) else {
                return grants;
            };
            let Some((&arrival, (wanted, _))) = self.waiting.range(round.from..).next() else {
                continue;
            };
            if budget.looks == 0 || budget.tries == 0 {
                self.round = Some(round);
                return grants;
            }
            budget.looks -= 1;
            round.from = arrival + 1;
            let is_free = wanted.range.overlaps(round.range) && {
                budget.tries -= 1;
                self.conflict(wanted).is_none()
            };
            self.round = Some(round);
            if is_free && let Some((wanted, tag)) = self.waiting.remove(&arrival) {
                let (id, place) = (id(), self.number());
                let (owner, own) = self.own(&wanted.owner);
                own.waiting.remove(&waiting_key(&wanted));
                own.granted.insert(id, (wanted.clone(), place));
                self.granted.insert(id, owner.clone());
                self.of_mode(wanted.exclusive)
                    .insert(wanted.range, place, owner);
                grants.push((id, wanted, tag));
            }
        }
    }

    /// Whether a round has not visited all waiters, or bytes became free that no round has covered.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.round.is_some() || self.freed.is_some()
    }

    pub(crate) fn is_granted(&self, id: GrantId) -> bool {
        self.granted.contains_key(&id)
    }

    /// The owner has acknowledged its grant: the lock is held from now on.
    pub(crate) fn confirm(&mut self, id: GrantId) {
        if let Some(granted) = self.take_granted(id) {
            let plan = self.plan_lock(&granted);
            self.apply(&granted.owner, plan);
        }
    }

    fn take_granted(&mut self, id: GrantId) -> Option<Wanted> {
        let owner = self.granted.remove(&id)?;
        let own = self.owners.get_mut(&*owner)?;
        let (wanted, place) = own.granted.remove(&id)?;
        self.of_mode(wanted.exclusive).remove(wanted.range, place);
        self.tidy(&owner);
        Some(wanted)
    }

    /// Removes a grant that is given up.
    pub(crate) fn refuse(&mut self, id: GrantId) -> bool {
        let Some(wanted) = self.take_granted(id) else {
            return false;
        };
        self.freed = hull(self.freed, wanted.range);
        true
    }

    /// The grants of an owner for which `is_it` is true.
    pub(crate) fn granted_of(
        &self,
        owner: &Owner,
        is_it: impl Fn(&Wanted) -> bool,
    ) -> Vec<GrantId> {
        let own = self.owners.get(owner).into_iter();
        let granted = own.flat_map(|own| &own.granted);
        let granted = granted.filter(|(_, (wanted, _))| is_it(wanted));
        granted.map(|(id, _)| *id).collect()
    }

    // ---- the end of a client -------------------------------------------------------------------

    /// Removes all entries of `client`, except those of its incarnation `but`.
    pub(crate) fn free(&mut self, client: &Client, but: Option<Incarnation>) {
        let goes = |incarnation: Incarnation| but != Some(incarnation);
        let lowest = Owner {
            client: Arc::new(client.clone()),
            process: i32::MIN,
            handle: Vec::new(),
        };
        let owners = self.owners.range(lowest..).map(|(owner, _)| owner);
        let owners = owners.take_while(|owner| *owner.client == *client);
        for owner in owners.cloned().collect::<Vec<_>>() {
            let Some(own) = self.owners.get(&owner) else {
                continue;
            };
            let held = own.held.values().filter(|held| goes(held.incarnation));
            let freed = held.clone().map(|held| held.range).reduce(Range::union);
            let plan = Plan {
                removed: held.map(|held| held.range.first()).collect(),
                added: Vec::new(),
                freed,
            };
            let granted = own.granted.iter();
            let granted = granted.filter(|(_, (wanted, _))| goes(wanted.incarnation));
            let granted: Vec<_> = granted.map(|(id, _)| *id).collect();
            let arrivals: Vec<_> = own.waiting.values().copied().collect();
            for id in granted {
                self.refuse(id);
            }
            for arrival in arrivals {
                let waiting = self.waiting.get(&arrival);
                if let Some((wanted, _)) = waiting.filter(|(wanted, _)| goes(wanted.incarnation)) {
                    let wanted = wanted.clone();
                    self.stop_waiting(&wanted);
                }
            }
            self.apply(&owner, plan);
        }
        self.shares.free(client, but);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::intervals::tests::VISITED;

    fn wanted(process: i32, first: u64, exclusive: bool) -> Wanted {
        let client = Client {
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            name: Vec::new(),
        };
        Wanted {
            owner: Arc::new(Owner {
                client: Arc::new(client),
                process,
                handle: Vec::new(),
            }),
            range: Range::new(first, 1).unwrap(),
            exclusive,
            incarnation: Incarnation(1),
        }
    }

    fn lock(locks: &mut FileLocks<()>, wanted: &Wanted) {
        let plan = locks.plan_lock(wanted);
        locks.apply(&wanted.owner, plan);
    }

    #[test]
    fn a_lock_meets_what_is_in_its_way_and_not_all_that_there_are() {
        let mut locks = FileLocks::<()>::default();
        for process in 0..8000 {
            // Each locks a byte of its own, and all together share one.
            lock(
                &mut locks,
                &wanted(process, 10 + 2 * u64::from(process.cast_unsigned()), true),
            );
            lock(&mut locks, &wanted(process, 3, false));
        }
        assert_eq!(locks.entries(), 16_000);
        let visits = |wanted: &Wanted| {
            VISITED.with(|visited| visited.set(0));
            let conflict = locks.conflict(wanted).is_some();
            (conflict, VISITED.with(std::cell::Cell::get))
        };
        for (wanted, expected) in [
            (wanted(-1, 3, false), false),
            (wanted(-1, 3, true), true),
            (wanted(-1, 10 + 8000, true), true),
            (wanted(-1, 11 + 8000, true), false),
            (wanted(7, 3, true), true),
            (wanted(-1, 1 << 40, false), false),
        ] {
            let (conflict, visited) = visits(&wanted);
            assert_eq!(conflict, expected, "{wanted:?}");
            assert!(visited <= 120, "{visited} nodes for {wanted:?}");
        }
        // The calls of an owner visit only its own locks.
        let plan = locks.plan_unlock(&wanted(7, 3, true).owner, Range::WHOLE);
        assert_eq!((plan.removed.len(), plan.added.len()), (2, 0));
    }
}
