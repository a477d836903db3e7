//! The locks, waiters and share reservations of one file.
//!
//! What an owner holds is kept as few ranges as can be: those that touch or overlap, of one mode and one
//! incarnation, are one. The number of entries is bounded ([`crate::Limits::per_file`]), so looking through
//! them is.

use std::collections::VecDeque;

use crate::table::{GrantId, Share, Wanted};
use crate::{Client, Incarnation, Owner, Range};

/// See the module's documentation. `T` is what the caller wants to be told with a grant.
pub(crate) struct FileLocks<T> {
    /// By the first byte.
    held: Vec<Wanted>,
    granted: Vec<(GrantId, Wanted)>,
    /// In the order of arrival.
    waiting: VecDeque<(Wanted, T)>,
    shares: Vec<Share>,
    /// Something has become free since waiters were last looked at.
    freed: bool,
}

/// A change of what is held: what goes, by position, rising; and what comes.
pub(crate) struct Plan {
    removed: Vec<usize>,
    added: Vec<Wanted>,
}

impl Plan {
    /// By how many the entries grow, and shrink.
    pub(crate) fn growth(&self) -> (usize, usize) {
        (self.added.len(), self.removed.len())
    }
}

impl<T> Default for FileLocks<T> {
    fn default() -> Self {
        FileLocks {
            held: Vec::new(),
            granted: Vec::new(),
            waiting: VecDeque::new(),
            shares: Vec::new(),
            freed: false,
        }
    }
}

impl<T> FileLocks<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries() == 0
    }

    /// Everything that takes memory.
    pub(crate) fn entries(&self) -> usize {
        self.held.len() + self.granted.len() + self.waiting.len() + self.shares.len()
    }

    /// What keeps `wanted` from being locked: held, or granted and not confirmed.
    pub(crate) fn conflict(&self, wanted: &Wanted) -> Option<&Wanted> {
        // Those beyond begin behind the range's end.
        let end = self
            .held
            .partition_point(|held| held.range.first() <= wanted.range.last());
        let granted = self.granted.iter().map(|(_, granted)| granted);
        let held = self.held.iter().take(end);
        granted.chain(held).find(|other| other.excludes(wanted))
    }

    /// How what is held changes when `wanted` is locked.
    pub(crate) fn plan_lock(&self, wanted: &Wanted) -> Plan {
        let mut whole = wanted.clone();
        let mut plan = self.plan(&wanted.owner, wanted.range, |held, removed| {
            let same = held.exclusive == wanted.exclusive && held.incarnation == wanted.incarnation;
            if same && (held.range.overlaps(wanted.range) || held.range.touches(wanted.range)) {
                whole.range = whole.range.union(held.range);
                *removed = true;
            }
            same
        });
        plan.added.push(whole);
        plan
    }

    /// How what is held changes when a range is unlocked.
    pub(crate) fn plan_unlock(&self, owner: &Owner, range: Range) -> Plan {
        self.plan(owner, range, |_, _| false)
    }

    /// Cuts `range` out of what `owner` holds, except where `merged` says that it deals with a lock itself;
    /// it also says whether such a lock goes.
    fn plan(
        &self,
        owner: &Owner,
        range: Range,
        mut merged: impl FnMut(&Wanted, &mut bool) -> bool,
    ) -> Plan {
        let (mut removed, mut added) = (Vec::new(), Vec::new());
        for (position, held) in self.held.iter().enumerate() {
            // The next one may still touch.
            if held.range.first() > range.last().saturating_add(1) {
                break;
            }
            if *held.owner != *owner {
                continue;
            }
            let mut goes = false;
            if !merged(held, &mut goes) && held.range.overlaps(range) {
                goes = true;
                added.extend(held.range.without(range).map(|range| Wanted {
                    range,
                    ..held.clone()
                }));
            }
            if goes {
                removed.push(position);
            }
        }
        Plan { removed, added }
    }

    pub(crate) fn apply(&mut self, plan: Plan) {
        self.freed |= !plan.removed.is_empty();
        for position in plan.removed.into_iter().rev() {
            self.held.remove(position);
        }
        for lock in plan.added {
            let at = self
                .held
                .partition_point(|held| held.range.first() <= lock.range.first());
            self.held.insert(at, lock);
        }
    }

    // ---- those who wait ------------------------------------------------------------------------

    /// Lets `wanted` wait; who waits for it already keeps its place.
    pub(crate) fn wait(&mut self, wanted: &Wanted, tag: T) {
        match self.waiting.iter_mut().find(|(w, _)| w.is_same(wanted)) {
            Some((waiting, old)) => {
                waiting.incarnation = wanted.incarnation;
                *old = tag;
            }
            None => self.waiting.push_back((wanted.clone(), tag)),
        }
    }

    pub(crate) fn is_waiting(&self, wanted: &Wanted) -> bool {
        self.waiting
            .iter()
            .any(|(waiting, _)| waiting.is_same(wanted))
    }

    /// Whoever waits for exactly this does so no longer.
    pub(crate) fn stop_waiting(&mut self, wanted: &Wanted) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|(waiting, _)| !waiting.is_same(wanted));
        self.waiting.len() < before
    }

    /// The owner waits for nothing in this range any longer.
    pub(crate) fn stop_waiting_in(&mut self, owner: &Owner, range: Range) {
        self.waiting
            .retain(|(waiting, _)| *waiting.owner != *owner || !waiting.range.overlaps(range));
    }

    /// Grants what can be granted, in the order of arrival.
    pub(crate) fn promote(&mut self, mut id: impl FnMut() -> GrantId) -> Vec<(GrantId, Wanted, T)> {
        let mut grants = Vec::new();
        if !std::mem::take(&mut self.freed) {
            return grants;
        }
        let mut position = 0;
        while let Some((waiting, _)) = self.waiting.get(position) {
            if self.conflict(waiting).is_some() {
                position += 1;
            } else if let Some((wanted, tag)) = self.waiting.remove(position) {
                let id = id();
                self.granted.push((id, wanted.clone()));
                grants.push((id, wanted, tag));
            }
        }
        grants
    }

    pub(crate) fn is_granted(&self, id: GrantId) -> bool {
        self.granted.iter().any(|(granted, _)| *granted == id)
    }

    /// Takes a grant out, to be confirmed or given up.
    pub(crate) fn take_granted(
        &mut self,
        is_it: impl Fn(GrantId, &Wanted) -> bool,
    ) -> Option<Wanted> {
        let position = self.granted.iter().position(|(id, w)| is_it(*id, w))?;
        self.freed = true;
        Some(self.granted.swap_remove(position).1)
    }

    // ---- share reservations --------------------------------------------------------------------

    /// Whether another owner's reservation forbids this one, or the other way round.
    pub(crate) fn share_conflict(&self, share: &Share) -> bool {
        let mut others = self
            .shares
            .iter()
            .filter(|other| !other.is_same_owner(share));
        others.any(|other| other.access & share.deny != 0 || share.access & other.deny != 0)
    }

    /// Sets the owner's reservation, in place of one that it may have.
    pub(crate) fn set_share(&mut self, share: Share) {
        self.unshare(&share);
        self.shares.push(share);
    }

    pub(crate) fn has_share(&self, share: &Share) -> bool {
        self.shares.iter().any(|other| other.is_same_owner(share))
    }

    pub(crate) fn unshare(&mut self, share: &Share) {
        self.shares.retain(|other| !other.is_same_owner(share));
    }

    // ---- the end of a client -------------------------------------------------------------------

    /// Drops all that `client` has, except what is from its life `but`.
    pub(crate) fn free(&mut self, client: &Client, but: Option<Incarnation>) {
        self.freed = true;
        let stays = |of: &Client, incarnation| of != client || but == Some(incarnation);
        self.held
            .retain(|held| stays(&held.owner.client, held.incarnation));
        self.granted
            .retain(|(_, granted)| stays(&granted.owner.client, granted.incarnation));
        self.waiting
            .retain(|(waiting, _)| stays(&waiting.owner.client, waiting.incarnation));
        self.shares
            .retain(|share| stays(&share.client, share.incarnation));
    }
}
