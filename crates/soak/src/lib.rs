//! Runs many kinds of rude and hostile clients at once beside a well-behaved one, on the real program with little
//! memory.
//!
//! ```text
//!   well-behaved client (polite.rs)            rude clients (rude.rs: the table of kinds; one file for each kind)
//!     one address, four connections              an address for each kind
//!     |          |                                  |            |
//!     |          |  latencies (latency.rs)          |            |  promises to some of them
//!     |          v                                  v            v
//!     |       the table                       forebay serve    ledger.rs
//!     |                                         |      ^          |
//!     +--> ledger.rs: acknowledged data         |      |  SIGKILL in the middle and at the end (run.rs)
//!                        |                      v      |
//!                        |            memory (memory.rs), messages, panics
//!                        +---> compared with the volume (compare.rs); then flush and fsck
//! ```
//!
//! A run fails if the program's own memory passes its bound, if acknowledged data are missing, if the program panics or
//! ends, if its messages grow without bound, if a call of the well-behaved client fails or has no answer, or if a rude
//! client gets a forbidden answer. Latencies are printed beside their goal and fail nothing: they depend on the
//! machine.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers here are small"
)]

pub mod compare;
pub mod latency;
pub mod ledger;
pub mod memory;
pub mod polite;
pub mod rude;
pub mod run;
pub mod wire;
pub mod world;
