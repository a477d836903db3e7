//! Requests to the table and its answers: plain data, which the [table](crate::table) passes on to the
//! [locks](crate::file) and the [share reservations](crate::shares) of a file.

use std::sync::Arc;

use forebay_types::Inode;

use crate::{Client, Incarnation, Owner, Range};

/// A lock: held, granted, or waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its owner.
    pub owner: Arc<Owner>,
    /// Its bytes.
    pub range: Range,
    /// Whether it excludes every other lock, or only exclusive ones.
    pub exclusive: bool,
    /// The client's incarnation that asked for it.
    pub incarnation: Incarnation,
}

impl Wanted {
    /// Whether both are the same request, sent again.
    pub(crate) fn is_same(&self, other: &Wanted) -> bool {
        self.range == other.range
            && self.exclusive == other.exclusive
            && *self.owner == *other.owner
    }
}

/// A share reservation: the access that its owner has, and the access that it denies to others. Both are
/// bits, 1 for reading and 2 for writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The client that has it.
    pub client: Arc<Client>,
    /// The owner on that client (`oh`).
    pub handle: Vec<u8>,
    /// Access of the owner.
    pub access: u32,
    /// Access that is denied to others.
    pub deny: u32,
    /// The client's incarnation that asked for it.
    pub incarnation: Incarnation,
}

/// A lock that conflicts with the request: the answer to a test.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantId(pub(crate) u64);

/// A lock that was waited for and is now granted. The caller has to notify its owner, and then to call
/// [`LockTable::confirm`](crate::LockTable::confirm) or [`LockTable::refuse`](crate::LockTable::refuse).
#[derive(Clone, Debug)]
pub struct Grant<T> {
    /// Its number.
    pub id: GrantId,
    /// The file.
    pub file: Inode,
    /// The lock.
    pub lock: Wanted,
    /// The value that the request carried.
    pub tag: T,
}

/// Result of a lock request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOutcome {
    /// The lock is held.
    Granted,
    /// Another lock conflicts.
    Denied,
    /// Another lock conflicts; the owner waits.
    Blocked,
    /// A limit is reached.
    NoLocks,
}
