//! Breaks the program on purpose, one defect at a time, and checks that the suites notice.
//!
//! ```text
//!  tests/mutants/NAME.mutant --> Mutant: the defect, suites, edits (mutant.rs, edit.rs)
//!                                   |
//!  src, crates/*/src --> Sources -- the place of each edit (sources.rs), or the nearest one (nearest.rs)
//!                                   |
//!  copy of the checkout (checkout.rs) <-- changes (change.rs) -- suites (suite.rs, run.rs)
//!                                   |
//!                                results.tsv (results.rs) --> table in docs/mutants.md (table.rs)
//! ```
//!
//! Many mutants can be tried with one build (together.rs): the copy gets sources that have all of them (switch.rs), cargo
//! builds all tests once (compile.rs), and suites start those programs (direct.rs).
//!
//! An [`Edit`] names no file and no line. It is a hunk of a diff: lines that are kept, removed and added. The kept and
//! removed ones must be adjacent at one place of the [`Sources`], with any indentation. So code may move to another
//! file or another module, and the defect moves with it.

#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_wrap, reason = "numbers here are small")]

mod change;
mod checkout;
mod compile;
mod direct;
mod edit;
mod mutant;
mod nearest;
mod project;
mod results;
mod run;
mod sources;
mod suite;
mod switch;
mod table;
mod together;

pub use change::{Change, MisfitError, changes};
pub use edit::{Edit, EditError, Kind, Line};
pub use mutant::{Mutant, MutantError};
pub use nearest::Nearest;
pub use project::{MutantsError, Project};
pub use results::{Outcome, Results, ResultsError, State, Trial};
pub use run::{Options, run};
pub use sources::{Place, Sources};
pub use table::{NAME as TABLE, table};
