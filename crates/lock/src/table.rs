//! The table of all files' locks.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_types::Inode;
use parking_lot::Mutex;

use crate::accounts::{Accounts, Bounds};
use crate::file::{Budget, FileLocks, Plan};
use crate::request::{Grant, GrantId, Holder, LockOutcome, Share, Wanted};
use crate::{Client, Incarnation, Owner, Range};

/// Independent parts, each with its own lock.
const SHARDS: usize = 64;

/// How much the table may hold: each lock, waiter and reservation counts as one, and takes about 200 bytes
/// and what its owner's name and handle have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of one address.
    pub per_host: usize,
    /// Of one file, by whomever.
    pub per_file: usize,
    /// All together.
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

/// See the crate's documentation. `T` is what a caller wants to have back with a grant.
///
/// The caller has to report the grants that a call returns to their owners, independent of the call's result. Where
/// many wait, a call looks at some of them only: while there [is work left](Self::has_work_left), a task has to [go
/// on](Self::go_on).
pub struct LockTable<T> {
    shards: [Mutex<Shard<T>>; SHARDS],
    accounts: Accounts,
    limits: Limits,
    next_grant: AtomicU64,
    /// Files with waiters that are still to be looked at. Locked after a shard.
    unfinished: Mutex<VecDeque<Inode>>,
}

impl<T> LockTable<T> {
    /// An empty table.
    pub fn new(limits: Limits) -> LockTable<T> {
        LockTable {
            shards: std::array::from_fn(|_| Mutex::default()),
            accounts: Accounts::default(),
            limits,
            next_grant: AtomicU64::new(0),
            unfinished: Mutex::default(),
        }
    }

    /// What keeps a lock from being held now.
    pub fn test(&self, file: Inode, wanted: &Wanted) -> Option<Holder> {
        let shard = self.shard(file).lock();
        let (range, owner, exclusive) = shard.get(&file)?.conflict(wanted)?;
        Some(Holder {
            owner: owner.clone(),
            range,
            exclusive,
        })
    }

    /// Locks; the bytes that the owner holds already get the new mode. With `wait`, a lock that is in the way
    /// is waited for, and the tag comes back with the grant. Asked again, it gives the same answer: what is
    /// held is held, who waits keeps the place, and a grant not yet confirmed is.
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
            // It does not matter any more that it was waited for, nor who was about to be told.
            locks.stop_waiting(wanted);
            for id in locks.granted_of(&wanted.owner, |granted| granted.is_same(wanted)) {
                locks.refuse(id);
            }
            locks.apply(&wanted.owner, plan);
            LockOutcome::Granted
        })
    }

    /// Gives up waiting. `false` if nobody waits for exactly this. What was granted and not confirmed is given
    /// back as well; what is held stays.
    pub fn cancel(&self, file: Inode, wanted: &Wanted) -> (bool, Vec<Grant<T>>) {
        self.change(file, wanted.owner.client.host, |locks, _| {
            let mut found = locks.stop_waiting(wanted);
            for id in locks.granted_of(&wanted.owner, |granted| granted.is_same(wanted)) {
                found |= locks.refuse(id);
            }
            found
        })
    }

    /// Unlocks bytes, held by the owner or not, and ends its waiting for any of them. `false`, and nothing
    /// happens, when a lock would have to be split and a limit is reached.
    pub fn unlock(&self, file: Inode, owner: &Arc<Owner>, range: Range) -> (bool, Vec<Grant<T>>) {
        self.change(file, owner.client.host, |locks, room| {
            // Who unlocks knows of the grant.
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

    /// Whether a grant is neither confirmed nor given back, in whatever way: only then the owner may be told.
    pub fn is_unsettled(&self, grant: &Grant<T>) -> bool {
        let shard = self.shard(grant.file).lock();
        let locks = shard.get(&grant.file);
        locks.is_some_and(|locks| locks.is_granted(grant.id))
    }

    /// The owner knows of its grant: it holds the lock. Nothing happens if the grant is settled already.
    pub fn confirm(&self, grant: &Grant<T>) -> Vec<Grant<T>> {
        let host = grant.lock.owner.client.host;
        let (_, grants) = self.change(grant.file, host, |locks, _| {
            locks.confirm(grant.id);
        });
        grants
    }

    /// The owner does not want its grant, or is not to be reached. Nothing happens if the grant is
    /// settled already.
    pub fn refuse(&self, grant: &Grant<T>) -> Vec<Grant<T>> {
        let host = grant.lock.owner.client.host;
        let (_, grants) = self.change(grant.file, host, |locks, _| {
            locks.refuse(grant.id);
        });
        grants
    }

    /// Makes a share reservation, in place of one that the owner may have.
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

    /// Ends the reservation of an owner, if there is one.
    pub fn unshare(&self, file: Inode, share: &Share) {
        self.change(file, share.client.host, |locks, _| {
            locks.shares.remove(share)
        });
    }

    /// Frees all that a client has, except what is from its life `but`: it is not there any more, or was booted
    /// anew.
    pub fn free(&self, client: &Client, but: Option<Incarnation>) -> Vec<Grant<T>> {
        let mut grants = Vec::new();
        let mut budget = Budget::OF_A_CALL;
        for file in self.accounts.files(client.host) {
            let free = |locks: &mut FileLocks<T>, _: &Room<'_>| locks.free(client, but);
            let (_, freed) = self.change_within(file, client.host, &mut budget, free);
            grants.extend(freed);
        }
        grants
    }

    /// Whether a range became free whose waiters no call has reached yet.
    pub fn has_work_left(&self) -> bool {
        !self.unfinished.lock().is_empty()
    }

    /// Looks at some more waiters, as a call does; `None` if there is no work left.
    pub fn go_on(&self) -> Option<Vec<Grant<T>>> {
        let file = self.unfinished.lock().pop_front()?;
        let mut shard = self.shard(file).lock();
        let Some(locks) = shard.get_mut(&file) else {
            return Some(Vec::new());
        };
        locks.is_queued = false;
        Some(self.promote(file, locks, &mut Budget::OF_A_CALL.clone()))
    }

    /// Locks, waiters and reservations.
    pub fn entries(&self) -> usize {
        self.accounts.total()
    }

    /// The same of one host.
    pub fn entries_of(&self, host: IpAddr) -> usize {
        self.accounts.entries(host)
    }

    fn shard(&self, file: Inode) -> &Mutex<Shard<T>> {
        // The index is taken modulo the length.
        &self.shards[file.0 as usize % SHARDS]
    }

    /// Changes what `host` has in a file, keeps its account, and grants what became free.
    fn change<R>(
        &self,
        file: Inode,
        host: IpAddr,
        change: impl FnOnce(&mut FileLocks<T>, &Room<'_>) -> R,
    ) -> (R, Vec<Grant<T>>) {
        self.change_within(file, host, &mut Budget::OF_A_CALL.clone(), change)
    }

    /// The same, with a budget for the waiters that it looks at.
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
            accounts: &self.accounts,
            limits: &self.limits,
            host,
        };
        let result = change(locks, &room);
        // Granting moves entries and makes none; so this is all the host's.
        self.accounts.change(host, file, before, locks.entries());
        let granted = self.promote(file, locks, budget);
        if locks.is_empty() {
            shard.remove(&file);
        }
        (result, granted)
    }

    /// Grants locks in the bytes that became free, and queues the file if that is more than the budget allows.
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

/// The room that is left for one host.
struct Room<'a> {
    accounts: &'a Accounts,
    limits: &'a Limits,
    host: IpAddr,
}

impl Room<'_> {
    fn for_plan<T>(&self, locks: &FileLocks<T>, plan: &Plan) -> bool {
        self.for_entries(locks, plan.growth())
    }

    /// Whether the entries of the file may grow and shrink by so many.
    fn for_entries<T>(&self, locks: &FileLocks<T>, (more, less): (usize, usize)) -> bool {
        let Some(growth) = more.checked_sub(less).filter(|growth| *growth > 0) else {
            return true;
        };
        let bounds = Bounds {
            host: self.limits.per_host,
            total: self.limits.total,
        };
        locks.entries() + growth <= self.limits.per_file
            && self.accounts.has_room(self.host, growth, bounds)
    }
}
