//! The table of the locks of all files.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_types::{Inode, to_usize};
use parking_lot::Mutex;

use crate::file::{Budget, FileLocks, Plan};
use crate::host_counts::{Bounds, HostCounts};
use crate::request::{Grant, GrantId, Holder, LockOutcome, Share, Wanted};
use crate::{Client, Incarnation, Owner, Range};

/// Independent parts, each with its own lock.
const SHARDS: usize = 64;

/// Limits on the entries of the table. Each lock, waiter and reservation counts as one, and takes about 200 bytes
/// plus the owner's name and handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Entries of one address.
    pub per_host: usize,
    /// Entries of one file, of all owners.
    pub per_file: usize,
    /// Entries in total.
    pub total: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            per_host: 16_384,
            per_file: 16_384,
            total: 131_072,
        }
    }
}

type Shard<T> = HashMap<Inode, FileLocks<T>>;

/// See the crate's documentation. `T` is the tag that a caller gets back with a grant.
///
/// The caller has to notify the owners of the grants that a call returns, independent of the call's result. Where
/// many wait, a call visits only some of them: while there [is work left](Self::has_work_left), a task has to [go
/// on](Self::go_on).
pub struct LockTable<T> {
    shards: [Mutex<Shard<T>>; SHARDS],
    counts: HostCounts,
    limits: Limits,
    next_grant: AtomicU64,
    /// Files with waiters that still have to be visited. Locked after a shard.
    unfinished: Mutex<VecDeque<Inode>>,
}

impl<T> LockTable<T> {
    /// Creates an empty table.
    pub fn new(limits: Limits) -> LockTable<T> {
        LockTable {
            shards: std::array::from_fn(|_| Mutex::default()),
            counts: HostCounts::default(),
            limits,
            next_grant: AtomicU64::new(0),
            unfinished: Mutex::default(),
        }
    }

    /// Returns a lock that conflicts with `wanted` now, if any.
    pub fn test(&self, file: Inode, wanted: &Wanted) -> Option<Holder> {
        let shard = self.shard(file).lock();
        let (range, owner, exclusive) = shard.get(&file)?.conflict(wanted)?;
        Some(Holder {
            owner: owner.clone(),
            range,
            exclusive,
        })
    }

    /// Locks a range; the bytes that the owner holds already get the new mode. With `wait`, the owner waits for a
    /// conflicting lock, and the tag is returned with the grant. A repeated request gives the same result: a held lock
    /// stays held, a waiting owner keeps its place, and a grant that is not yet confirmed becomes held.
    pub fn lock(
        &self,
        file: Inode,
        wanted: &Wanted,
        wait: Option<T>,
    ) -> (LockOutcome, Vec<Grant<T>>) {
        let host = wanted.owner.client.host;
        self.change(file, host, |locks, room| {
            if locks.conflict(wanted).is_some() {
                let Some(tag) = wait else {
                    return LockOutcome::Denied;
                };
                if !locks.is_waiting(wanted) && !room.for_entries(locks, (1, 0)) {
                    return LockOutcome::NoLocks;
                }
                locks.wait(wanted, tag);
                return LockOutcome::Blocked;
            }
            let plan = locks.plan_lock(wanted);
            if !room.for_plan(locks, &plan) {
                return LockOutcome::NoLocks;
            }
            // Earlier waits and unconfirmed grants for the same request are obsolete now.
            locks.stop_waiting(wanted);
            for id in locks.granted_of(&wanted.owner, |granted| granted.is_same(wanted)) {
                locks.refuse(id);
            }
            locks.apply(&wanted.owner, plan);
            LockOutcome::Granted
        })
    }

    /// Cancels a wait. `false` if there is none for exactly this lock. Refuses a grant that is not confirmed
    /// as well; a held lock stays.
    pub fn cancel(&self, file: Inode, wanted: &Wanted) -> (bool, Vec<Grant<T>>) {
        self.change(file, wanted.owner.client.host, |locks, _| {
            let mut found = locks.stop_waiting(wanted);
            for id in locks.granted_of(&wanted.owner, |granted| granted.is_same(wanted)) {
                found |= locks.refuse(id);
            }
            found
        })
    }

    /// Unlocks a range, whether the owner holds it or not, and cancels its waits for any of the bytes. Returns `false`,
    /// and changes nothing, if a lock would have to be split and a limit is reached.
    pub fn unlock(&self, file: Inode, owner: &Arc<Owner>, range: Range) -> (bool, Vec<Grant<T>>) {
        self.change(file, owner.client.host, |locks, room| {
            // An owner that unlocks knows of its grant.
            for id in locks.granted_of(owner, |granted| granted.range.overlaps(range)) {
                locks.confirm(id);
            }
            let plan = locks.plan_unlock(owner, range);
            if !room.for_plan(locks, &plan) {
                return false;
            }
            locks.apply(owner, plan);
            locks.stop_waiting_in(owner, range);
            true
        })
    }

    /// Whether a grant is neither confirmed nor refused in any way: only then the owner may be notified.
    pub fn is_unsettled(&self, grant: &Grant<T>) -> bool {
        let shard = self.shard(grant.file).lock();
        let locks = shard.get(&grant.file);
        locks.is_some_and(|locks| locks.is_granted(grant.id))
    }

    /// Confirms a grant: the owner has acknowledged it and holds the lock. Does nothing if the grant is settled
    /// already.
    pub fn confirm(&self, grant: &Grant<T>) -> Vec<Grant<T>> {
        let host = grant.lock.owner.client.host;
        let (_, grants) = self.change(grant.file, host, |locks, _| {
            locks.confirm(grant.id);
        });
        grants
    }

    /// Refuses a grant: the owner does not want it, or is unreachable. Does nothing if the grant is
    /// settled already.
    pub fn refuse(&self, grant: &Grant<T>) -> Vec<Grant<T>> {
        let host = grant.lock.owner.client.host;
        let (_, grants) = self.change(grant.file, host, |locks, _| {
            locks.refuse(grant.id);
        });
        grants
    }

    /// Makes a share reservation; replaces an existing one of the owner.
    pub fn share(&self, file: Inode, share: Share) -> LockOutcome {
        let (outcome, _) = self.change(file, share.client.host, |locks, room| {
            if locks.shares.conflict(&share) {
                return LockOutcome::Denied;
            }
            if !locks.shares.has(&share) && !room.for_entries(locks, (1, 0)) {
                return LockOutcome::NoLocks;
            }
            locks.shares.set(share);
            LockOutcome::Granted
        });
        outcome
    }

    /// Removes the reservation of an owner, if there is one.
    pub fn unshare(&self, file: Inode, share: &Share) {
        self.change(file, share.client.host, |locks, _| {
            locks.shares.remove(share)
        });
    }

    /// Removes all entries of a client that has rebooted or no longer exists, except those of its incarnation
    /// `but`.
    pub fn free(&self, client: &Client, but: Option<Incarnation>) -> Vec<Grant<T>> {
        let mut grants = Vec::new();
        let mut budget = Budget::OF_A_CALL;
        for file in self.counts.files(client.host) {
            let free = |locks: &mut FileLocks<T>, _: &Room<'_>| locks.free(client, but);
            let (_, freed) = self.change_within(file, client.host, &mut budget, free);
            grants.extend(freed);
        }
        grants
    }

    /// Whether a range became free and its waiters were not all visited yet.
    pub fn has_work_left(&self) -> bool {
        !self.unfinished.lock().is_empty()
    }

    /// Visits some more waiters, as a call does; `None` if there is no work left.
    pub fn go_on(&self) -> Option<Vec<Grant<T>>> {
        let file = self.unfinished.lock().pop_front()?;
        let mut shard = self.shard(file).lock();
        let Some(locks) = shard.get_mut(&file) else {
            return Some(Vec::new());
        };
        locks.is_queued = false;
        Some(self.promote(file, locks, &mut Budget::OF_A_CALL.clone()))
    }

    /// Number of locks, waiters and reservations.
    pub fn entries(&self) -> usize {
        self.counts.total()
    }

    /// Number of entries of one host.
    pub fn entries_of(&self, host: IpAddr) -> usize {
        self.counts.entries(host)
    }

    fn shard(&self, file: Inode) -> &Mutex<Shard<T>> {
        // The index is taken modulo the length.
        &self.shards[to_usize(file.0) % SHARDS]
    }

    /// Changes the entries of `host` in a file, updates its account, and grants locks in the bytes that became free.
    fn change<R>(
        &self,
        file: Inode,
        host: IpAddr,
        change: impl FnOnce(&mut FileLocks<T>, &Room<'_>) -> R,
    ) -> (R, Vec<Grant<T>>) {
        self.change_within(file, host, &mut Budget::OF_A_CALL.clone(), change)
    }

    /// The same, with a budget for the waiters that it visits.
    fn change_within<R>(
        &self,
        file: Inode,
        host: IpAddr,
        budget: &mut Budget,
        change: impl FnOnce(&mut FileLocks<T>, &Room<'_>) -> R,
    ) -> (R, Vec<Grant<T>>) {
        let mut shard = self.shard(file).lock();
        let locks = shard.entry(file).or_default();
        let before = locks.entries();
        let room = Room {
            counts: &self.counts,
            limits: &self.limits,
            host,
        };
        let result = change(locks, &room);
        // Grants move entries and create none, so the difference belongs to the host.
        self.counts.change(host, file, before, locks.entries());
        let granted = self.promote(file, locks, budget);
        if locks.is_empty() {
            shard.remove(&file);
        }
        (result, granted)
    }

    /// Grants locks in the bytes that became free, and queues the file if the budget does not suffice for all of them.
    fn promote(&self, file: Inode, locks: &mut FileLocks<T>, budget: &mut Budget) -> Vec<Grant<T>> {
        let next = || GrantId(self.next_grant.fetch_add(1, Ordering::Relaxed));
        let granted = locks.promote(budget, next);
        if locks.is_unfinished() && !locks.is_queued {
            locks.is_queued = true;
            self.unfinished.lock().push_back(file);
        }
        let grant = |(id, lock, tag)| Grant {
            id,
            file,
            lock,
            tag,
        };
        granted.into_iter().map(grant).collect()
    }
}

/// The remaining room of one host.
struct Room<'a> {
    counts: &'a HostCounts,
    limits: &'a Limits,
    host: IpAddr,
}

impl Room<'_> {
    fn for_plan<T>(&self, locks: &FileLocks<T>, plan: &Plan) -> bool {
        self.for_entries(locks, plan.growth())
    }

    /// Whether there is room for the entries of the file to grow by `more` and shrink by `less`.
    fn for_entries<T>(&self, locks: &FileLocks<T>, (more, less): (usize, usize)) -> bool {
        let Some(growth) = more.checked_sub(less).filter(|growth| *growth > 0) else {
            return true;
        };
        let bounds = Bounds {
            host: self.limits.per_host,
            total: self.limits.total,
        };
        locks.entries() + growth <= self.limits.per_file
            && self.counts.has_room(self.host, growth, bounds)
    }
}
