//! The common code of Forebay's benchmarks: how they measure on a shared machine, and how their tables get into the
//! documentation.
//!
//! ```text
//!  programs in turns --> rounds: key, value --+--> medians, ratios --> table --> between two marks of a text
//!  criterion --> samples ---------------------+--> the same, beside published figures
//!  Valgrind --> instructions of an operation -+--> baseline, against which the next change is checked
//! ```
//!
//! * Times vary with the other load of a machine. So builds that are compared are measured in turns ([`in_turns`]), and
//!   compared within a round ([`Rounds::ratio`], [`Rounds::ratio_to`]): a cause that slows a whole round slows both.
//!   The result is the [`Median`] of the rounds with the quartiles around it.
//! * [Instructions](instructions) do not vary. A [`Baseline`] of them is kept in the repository; a change that needs
//!   a tenth more is refused.
//! * A [`Comparison`] compares one revision with another, with [`Limits`] for both.
//! * [`Published`] figures of other systems stand beside the results of [criterion](Samples).
//! * Tables are [printed by programs](marks), never typed, and name the [`Machine`] and the command that made them.

#![forbid(unsafe_code)]

mod arguments;
mod baseline;
mod comparison;
mod date;
pub mod instructions;
mod machine;
pub mod marks;
mod median;
mod published;
mod round;
mod samples;
pub mod table;

pub use arguments::{ArgumentError, Arguments};
pub use baseline::{Baseline, BaselineError, Finding, Verdict};
pub use comparison::{Comparison, Limits, Row};
pub use machine::Machine;
pub use median::Median;
pub use published::{Published, PublishedError, Unit};
pub use round::{InvalidRound, Round, Rounds, in_turns};
pub use samples::{Bench, Samples, SamplesError};
