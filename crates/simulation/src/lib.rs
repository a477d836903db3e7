//! Forebay: a world in memory that stops at every I/O step, and a model of the state that must survive.
//!
//! ```text
//!   seed -> plan -> lives -> stops -> crash states -> recoveries, each compared with the model
//!
//!   plan        actions of clients, disk and store; made before the run, shrunk when it fails
//!   world       bucket, machines, clock and random numbers, in memory; reports every external step
//!   life        a gateway that opens the volume and executes the plan, in one thread
//!   model       the content that a file system must have; history has its state after every record
//!   ledger      the promises made to clients
//!   run         after each life: at every step, the state that each kind of crash leaves
//!   recovery    opens that state, and compares names, attributes and bytes
//!   audit       checks the bucket without the product's file system
//!   suite       many runs, in threads; shrink: the part of a plan that matters
//! ```
//!
//! `docs/simulation.md` explains what it shows and what it cannot show.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "numbers here are small"
)]

mod audit;
mod bucket;
mod history;
mod judge;
mod ledger;
mod life;
mod machine;
pub mod model;
pub mod operation;
pub mod plan;
mod random;
mod recovery;
mod run;
mod shrink;
mod suite;
mod totals;
mod world;

pub use bucket::StoreFaults;
pub use life::Trace;
pub use machine::DiskFaults;
pub use plan::{Perils, Plan};
pub use run::{Failure, Scope, run};
pub use shrink::shrink;
pub use suite::{Outcome, Suite};
pub use totals::Totals;
