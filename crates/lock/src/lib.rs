//! Forebay: the table of byte-range locks and share reservations.
//!
//! What clients lock lives here and nowhere else: which [`Owner`] holds which [`Range`] of which file, who
//! waits for what, and which share reservations there are. It is plain synchronous code without network,
//! clock or disk; what a lock manager does about it (calling clients back, noting them for the next start) is
//! its caller's.
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
//! A *granted* lock excludes others as a held one does, but its owner has not been told for certain; it
//! becomes part of what the owner holds only when it is confirmed, so that giving it back leaves what the
//! owner held before as it was.
//!
//! * [`Range`] is a stretch of bytes; [`Owner`] and [`Client`] say whose a lock is.
//! * [`LockTable`] is the table, in shards by file: a call looks at the locks of one file, and there at conflicting
//!   ones and its owner's. [`Limits`] bounds the entries of one host and of all hosts together. Where a range becomes
//!   free that has many waiters, they are handled in steps.
//! * [`Grace`] is the time after a restart in which only what was held before may be locked.

#![forbid(unsafe_code)]

mod accounts;
mod file;
mod grace;
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
