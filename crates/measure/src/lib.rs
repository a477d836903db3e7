//! What the benchmarks of Forebay have in common: how they measure on a machine that others use too, and how their
//! tables come into the documentation.
//!
//! ```text
//!  programs in turns --> rounds: key, value --+--> medians, ratios --> table --> between two marks of a text
//!  criterion --> samples ---------------------+--> the same, beside published figures
//!  Valgrind --> instructions of an operation -+--> baseline, which the next change is held to
//! ```
//!
//! * Times wobble with what else a machine does. So what is compared is measured in turns ([`in_turns`]), and
//!   compared within a round ([`Rounds::ratio`], [`Rounds::ratio_to`]): what slows a whole round slows both. What is
//!   told is the [`Median`] of the rounds with the quartiles around it.
//! * [Instructions](instructions) do not wobble. A [`Baseline`] of them is kept in the repository; a change that needs
//!   a tenth more is refused.
//! * A [`Comparison`] holds one revision against another, with [`Limits`] for both.
//! * [`Published`] figures of others stand beside what [criterion](Samples) has measured.
//! * Tables are [printed by programs](marks), never typed, and say on which [`Machine`] and with which command they
//!   were made.

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
