//! Requests to the table and its answers to them: plain data, which the [table](crate::table) hands on to the
//! [locks](crate::file) and the [share reservations](crate::shares) of a file.

use std::sync::Arc;

use forebay_types::Inode;

use crate::{Client, Incarnation, Owner, Range};

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

/// A lock that was waited for and is there now: its owner is to be told, and then
/// [`LockTable::confirm`](crate::LockTable::confirm) or [`LockTable::refuse`](crate::LockTable::refuse) called.
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
