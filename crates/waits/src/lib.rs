//! What the current call waits for, and the requests to the bucket that it causes.
//!
//! A front end polls each call first under [`FirstPoll`]. A call that is done then has mostly waited for nothing, and costs
//! no more than that. One that is not done gets a [`Call`], the record of its waits, and is polled under it from then on
//! ([`Call::scope`]). Below, at any depth, [`waiting`] and [`blocking`] mark the places where a call may wait. They note the
//! time in the record of the call that the thread works on, and do nothing outside of calls: what a task of its own does, such as a
//! fetch for several readers, belongs to no call. The readers note that they wait for it.
//!
//! ```text
//!   nfs     FirstPoll -> Call::scope ............ summary: waits, requests
//!             |                                        ^
//!   fs, ...   waiting(For::Bucket, future) ------------+
//!   object    current() -> Call::requested ------------+
//! ```
//!
//! * `record`: the waits and requests of a call. Times are arguments.
//! * `current`: which call a thread works on.
//! * `wait`: the places where a call may wait.

#![forbid(unsafe_code)]

mod current;
mod record;
mod wait;

pub use current::{FirstPoll, Scoped, current, noted};
pub use record::{Call, For, Requested, Summary};
pub use wait::{WaitingFor, add, blocking, waiting, waiting_by};
