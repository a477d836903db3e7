//! A store that fails on purpose: for tests of all code that uses a store.
//!
//! [`FaultyStore`] wraps any store and injects the faults of [`Faults`]: at random, with a probability for each
//! [`FaultKind`]; by script, into the next requests of a [`Request`] kind; or into all of them, when the store is down.
//! Whether a request is hit at random depends on the seed, on the object and on how often that was requested, and not
//! on the order in which requests of different objects come: so a seed gives the same faults however tasks are
//! scheduled. Injected faults are counted by kind. [`Gate`]s hold requests back until a test releases them.

mod gate;
mod plan;
mod store;

pub use gate::Gate;
pub use plan::{FaultKind, Faults, Injected, Request};
pub use store::FaultyStore;
