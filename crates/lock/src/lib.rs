//! Forebay: the table of byte-range locks and share reservations.
//!
//! The locks of clients are stored here and nowhere else: which [`Owner`] holds which [`Range`] of which file, which
//! owners wait for which locks, and the share reservations. This is plain synchronous code without network,
//! clock or disk; the lock manager that uses it does the rest (callbacks to clients, and the list of clients for the
//! next start).
//!
//! ```text
//!                lock, free of conflict                      unlock, client freed
//!   (nothing) ---------------------------------> held ------------------------------> (nothing)
//!       |                                         ^
//!       | lock, conflict, may wait                | confirm, or the owner asks again
//!       v              conflict gone              |
//!    waiting ---------------------------------> granted ----------------------------> (nothing)
//!       |                                                refuse, cancel, client freed
//!       +-- cancel, unlock, client freed --> (nothing)
//! ```
//!
//! A *granted* lock excludes others like a held one, but its owner has not acknowledged it. It
//! becomes part of the owner's held locks only when it is confirmed, so that refusing it leaves the locks that the
//! owner held before unchanged.
//!
//! * [`Range`] is a range of bytes; [`Owner`] and [`Client`] identify the owner of a lock.
//! * [`LockTable`] is the table, in shards by file: a call visits the locks of one file, and there only conflicting
//!   ones and its owner's. [`Limits`] bounds the entries of one host and of all hosts together. When a range with many
//!   waiters becomes free, they are handled in steps.
//! * [`Grace`] is the time after a restart in which only earlier locks may be reclaimed.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

mod file;
mod grace;
mod host_counts;
mod intervals;
mod owner;
mod range;
mod request;
mod shares;
mod table;

pub use grace::Grace;
pub use owner::{Client, Incarnation, Owner};
pub use range::{OutOfRange, Range};
pub use request::{Grant, GrantId, Holder, LockOutcome, Share, Wanted};
pub use table::{Limits, LockTable};
