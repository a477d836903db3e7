//! What the benchmarks of Forebay have in common: how they measure on a machine that others use too, and how their
//! tables come into the documentation.
//!
//! ```text
//!  programs in turns --> rounds: key, value --> medians, ratios --> table --> between two marks of a text
//!  Valgrind --> instructions of one operation --------------------^
//! ```
//!
//! * Times wobble with what else a machine does. So what is compared is measured in turns ([`in_turns`]), and
//!   compared within a round ([`Rounds::ratio`], [`Rounds::ratio_to`]): what slows a whole round slows both. What is
//!   told is the [`Median`] of the rounds with the quartiles around it.
//! * [Instructions](instructions) do not wobble.
//! * Tables are [printed by programs](marks), never typed, and say on which [`Machine`] and with which command they
//!   were made.

mod arguments;
mod date;
pub mod instructions;
mod machine;
pub mod marks;
mod median;
mod round;
pub mod table;

pub use arguments::Arguments;
pub use machine::Machine;
pub use median::Median;
pub use round::{InvalidRound, Round, Rounds, in_turns};
