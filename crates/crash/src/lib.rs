//! Kills the real program again and again, and compares its state with the acknowledged operations.
//!
//! ```text
//!   writers (writer.rs)  -- NFSv3 over TCP -->  forebay serve (server.rs)  -->  file:// or s3://
//!      |  random operations, several in flight       ^
//!      |  each records what was sent, answered,      |  SIGKILL at a random moment; then the same
//!      v  promised as stable (ledger.rs)             |  folder again, none, or one after a power cut
//!   histories (history.rs, tree.rs, content.rs)      |  (power.rs)
//!      |                                             |
//!      +-----> check.rs <-- names, bytes (observe.rs) ---- modes and rounds (run.rs)
//! ```
//!
//! Beside the writers, [`kept`] makes, deletes and restores snapshots.
//!
//! A check is not a guess about the last moments before a kill. Every object has a history whose steps carry the stamps
//! of one clock; the state found must be the state of all objects at *one* moment of it, and that moment must not be
//! earlier than the mode promises: see [`history`].

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

pub mod check;
pub mod content;
pub mod gate;
pub mod history;
pub mod kept;
pub mod ledger;
pub mod observe;
pub mod options;
pub mod power;
pub mod random;
pub mod run;
pub mod server;
pub mod tree;
pub mod writer;
