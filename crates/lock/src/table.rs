//! The table of all files' locks.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_types::Inode;
use parking_lot::Mutex;

use crate::accounts::{Accounts, Bounds};
use crate::file::{FileLocks, Plan};
use crate::{Client, Incarnation, Owner, Range};

/// Independent parts, each with its own lock.
const SHARDS: usize = 64;

/// How much the table may hold: each lock, waiter and reservation counts as one, and takes about 200 bytes
/// and what its owner's name and handle have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of one address.
    pub per_host: usize,
    /// Of one file, by whomever; what a call looks through.
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

/// A lock: held, granted, or waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// By whom.
    pub owner: Arc<Owner>,
    /// Which bytes.
    pub range: Range,
    /// Whether it excludes every other lock, or only exclusive ones.
    pub exclusive: bool,
    /// From which life of the client.
    pub incarnation: Incarnation,
}

impl Wanted {
    /// Whether the two cannot be held at once.
    pub(crate) fn excludes(&self, other: &Wanted) -> bool {
        (self.exclusive || other.exclusive)
            && self.range.overlaps(other.range)
            && *self.owner != *other.owner
    }

    /// Whether the two are one request, sent again.
    pub(crate) fn is_same(&self, other: &Wanted) -> bool {
        self.range == other.range
            && self.exclusive == other.exclusive
            && *self.owner == *other.owner
    }
}

/// A share reservation: what its owner does with the file, and what it wants nobody else to do. Both are
/// bits, 1 for reading and 2 for writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Of which client.
    pub client: Arc<Client>,
    /// Of whom there.
    pub handle: Vec<u8>,
    /// What the owner does.
    pub access: u32,
    /// What others must not.
    pub deny: u32,
    /// From which life of the client.
    pub incarnation: Incarnation,
}

impl Share {
    pub(crate) fn is_same_owner(&self, other: &Share) -> bool {
        *self.client == *other.client && self.handle == other.handle
    }
}

/// A lock that is in the way, for who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its owner.
    pub owner: Arc<Owner>,
    /// Its bytes.
    pub range: Range,
    /// Its mode.
    pub exclusive: bool,
}

/// Number of a grant; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GrantId(u64);

/// A lock that was waited for and is there now: its owner is to be told, and then [`LockTable::confirm`]
/// or [`LockTable::refuse`] called.
#[derive(Clone, Debug)]
pub struct Grant<T> {
    /// Its number.
    pub id: GrantId,
    /// The file.
    pub file: Inode,
    /// The lock.
    pub lock: Wanted,
    /// What was given with the request.
    pub tag: T,
}

/// What became of a request for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOutcome {
    /// It is held.
    Granted,
    /// Another one is in the way.
    Denied,
    /// Another one is in the way; it is waited for.
    Blocked,
    /// A limit is reached.
    NoLocks,
}

type Shard<T> = HashMap<Inode, FileLocks<T>>;

/// See the crate's documentation. `T` is what a caller wants to have back with a grant.
///
/// Grants that a call gives back are to be told to their owners, whatever else the call says.
pub struct LockTable<T> {
    shards: [Mutex<Shard<T>>; SHARDS],
    accounts: Accounts,
    limits: Limits,
    next_grant: AtomicU64,
}

impl<T> LockTable<T> {
    /// An empty table.
    pub fn new(limits: Limits) -> LockTable<T> {
        LockTable {
            shards: std::array::from_fn(|_| Mutex::default()),
            accounts: Accounts::default(),
            limits,
            next_grant: AtomicU64::new(0),
        }
    }

    /// What keeps a lock from being held now.
    pub fn test(&self, file: Inode, wanted: &Wanted) -> Option<Holder> {
        let shard = self.shard(file).lock();
        let conflict = shard.get(&file)?.conflict(wanted)?;
        Some(Holder {
            owner: conflict.owner.clone(),
            range: conflict.range,
            exclusive: conflict.exclusive,
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
            locks.take_granted(|_, granted| granted.is_same(wanted));
            locks.apply(plan);
            LockOutcome::Granted
        })
    }

    /// Gives up waiting. `false` if nobody waits for exactly this. What was granted and not confirmed is given
    /// back as well; what is held stays.
    pub fn cancel(&self, file: Inode, wanted: &Wanted) -> (bool, Vec<Grant<T>>) {
        self.change(file, wanted.owner.client.host, |locks, _| {
            let granted = locks.take_granted(|_, granted| granted.is_same(wanted));
            locks.stop_waiting(wanted) || granted.is_some()
        })
    }

    /// Unlocks bytes, held by the owner or not, and ends its waiting for any of them. `false`, and nothing
    /// happens, when a lock would have to be split and a limit is reached.
    pub fn unlock(&self, file: Inode, owner: &Owner, range: Range) -> (bool, Vec<Grant<T>>) {
        self.change(file, owner.client.host, |locks, room| {
            // Who unlocks knows of the grant.
            while let Some(granted) =
                locks.take_granted(|_, g| *g.owner == *owner && g.range.overlaps(range))
            {
                let plan = locks.plan_lock(&granted);
                locks.apply(plan);
            }
            let plan = locks.plan_unlock(owner, range);
            if !room.for_plan(locks, &plan) {
                return false;
            }
            locks.apply(plan);
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
            if let Some(granted) = locks.take_granted(|id, _| id == grant.id) {
                let plan = locks.plan_lock(&granted);
                locks.apply(plan);
            }
        });
        grants
    }

    /// The owner does not want its grant, or is not to be reached. Nothing happens if the grant is
    /// settled already.
    pub fn refuse(&self, grant: &Grant<T>) -> Vec<Grant<T>> {
        let host = grant.lock.owner.client.host;
        let (_, grants) = self.change(grant.file, host, |locks, _| {
            locks.take_granted(|id, _| id == grant.id);
        });
        grants
    }

    /// Makes a share reservation, in place of one that the owner may have.
    pub fn share(&self, file: Inode, share: Share) -> LockOutcome {
        let (outcome, _) = self.change(file, share.client.host, |locks, room| {
            if locks.share_conflict(&share) {
                return LockOutcome::Denied;
            }
            if !locks.has_share(&share) && !room.for_entries(locks, (1, 0)) {
                return LockOutcome::NoLocks;
            }
            locks.set_share(share);
            LockOutcome::Granted
        });
        outcome
    }

    /// Ends the reservation of an owner, if there is one.
    pub fn unshare(&self, file: Inode, share: &Share) {
        self.change(file, share.client.host, |locks, _| locks.unshare(share));
    }

    /// Frees all that a client has, except what is from its life `but`: it is not there any more, or was booted
    /// anew.
    pub fn free(&self, client: &Client, but: Option<Incarnation>) -> Vec<Grant<T>> {
        let mut grants = Vec::new();
        for file in self.accounts.files(client.host) {
            let (_, freed) = self.change(file, client.host, |locks, _| locks.free(client, but));
            grants.extend(freed);
        }
        grants
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
        let granted = locks.promote(|| GrantId(self.next_grant.fetch_add(1, Ordering::Relaxed)));
        if locks.is_empty() {
            shard.remove(&file);
        }
        let grant = |(id, lock, tag)| Grant {
            id,
            file,
            lock,
            tag,
        };
        (result, granted.into_iter().map(grant).collect())
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
