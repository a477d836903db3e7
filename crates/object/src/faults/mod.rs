//! A store that fails on purpose: for tests of everything that stands on a store.
//!
//! [`FaultyStore`] stands before any store and does to its requests what [`Faults`] says: by chance, with a
//! probability for each [`FaultKind`]; by script, the next so many requests of a [`Request`] kind; or all of them, when
//! the store is down. Whether a request is hit by chance depends on the seed, on the object and on how often that
//! was asked for, and not on the order in which requests of different objects come: so a seed gives the same
//! faults however tasks are scheduled. What was injected is counted by kind. [`Gate`]s hold requests back until a
//! test lets them go.

mod gate;
mod plan;
mod store;

pub use gate::Gate;
pub use plan::{FaultKind, Faults, Injected, Request};
pub use store::FaultyStore;
