//! The environment of Forebay: everything that differs from one run to the next, and comes from outside.
//!
//! | module | provides |
//! |---|---|
//! | [`environment`](Environment) | clock, random numbers, threads for computing, and the store of the metadata |
//! | [`folder`](LocalFolder) | the gateway's folder on its own disk; `disk_folder` is the real one, simulations have others |
//! | [`state_file`] | the text file in that folder: identity, epoch, write verifier |
//! | [`archived_log`] | logs that must not be replayed, and the notes beside them |
//! | [`backoff`](backoff()) | pauses between attempts |
//!
//! The layers above get time and random numbers only from here, so that a simulation can determine both.

#![forbid(unsafe_code)]

pub mod archived_log;
mod background;
mod backoff;
mod disk_folder;
mod environment;
mod folder;
pub mod state_file;

pub use background::Ended;
pub use backoff::backoff;
pub use environment::{
    Clock, Compute, Environment, META_PREFIX, Metadata, Randomness, SystemRandomness, draw,
    fraction,
};
pub use folder::{LOG_FOLDER, LocalFolder};
