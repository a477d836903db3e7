//! Forebay: a world in memory that stops at every I/O step, and a model that says what must be left.
//!
//! ```text
//!   seed -> plan -> lives -> stops -> crash states -> recoveries, each compared with the model
//!
//!   plan        what clients, disk and store do; drawn up before, and cut down when it fails
//!   world       bucket, machines, clock and chance, in memory; tells of every step outside
//!   life        a gateway that opens the volume and does what the plan says, in one thread
//!   model       what a file system must hold; history has its state after every record
//!   ledger      what clients were told
//!   run         after each life: at every step, what each kind of crash would have left
//!   recovery    opens what is left, and compares names, attributes and bytes
//!   audit       looks at the bucket without the product's file system
//!   suite       many runs, in threads; shrink: the part of a plan that matters
//! ```
//!
//! What it shows and what it cannot is told in `docs/simulation.md`.

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
