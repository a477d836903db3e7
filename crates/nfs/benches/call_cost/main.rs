//! The cost of a call, and the parts of it that the replay cache, the rules and the permissions cause.
//! `cargo bench -p forebay-nfs --bench call_cost`.
//!
//! Times vary on a machine with other load. So all compared builds are measured alternately in one run, each round
//! in a process of its own. The program prints medians of the rounds; for ratios, the median of the rounds'
//! ratios. Valgrind, where it is installed, counts instructions, which do not vary.
//!
//! * `--rounds N`: number of rounds, 9 by default.
//! * `--beside FILE`: also measures this other build of the benchmark, alternating with this one.
//! * `--update FILE`: replaces the tables in this text, between their marks.
//!
//! Under `cargo test` it makes only a few calls of each kind, to show that it works.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers here are small"
)]
// A program that prints its results.
#![allow(clippy::print_stdout)]

mod clock;
mod instructions;
mod paths;
mod records;
mod report;
mod rounds;
mod socket;

use std::env;
use std::error::Error;

use forebay_measure::{Arguments, Machine, Rounds};
use instructions::Counts;
use rounds::Effort;

/// Names of the tables' marks in a text.
const NAME: &str = "call_cost";
const NAME_BESIDE: &str = "call_cost beside another build";

/// The commands that make the tables.
const COMMAND: &str = "cargo bench -p forebay-nfs --bench call_cost";
const COMMAND_BESIDE: &str = "cargo bench -p forebay-nfs --bench call_cost -- --beside FILE";

fn main() -> Result<(), Box<dyn Error>> {
    // Arguments for the processes that the program starts itself.
    let own: Vec<String> = env::args().skip(1).collect();
    match own
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        [instructions::LOOP, key, count] => return instructions::run(key, count.parse()?),
        [rounds::RAW] => {
            print!("{}", rounds::measure(Effort::FULL)?);
            return Ok(());
        }
        _ => {}
    }
    let arguments = Arguments::of_this(&["--rounds", "--beside"], &[])?;
    if !arguments.chooses("call_cost") {
        return Ok(());
    }
    if !arguments.full() {
        let quick = rounds::measure(Effort::QUICK)?;
        print!(
            "{}",
            report::tables(&Rounds::new(vec![quick]), &Counts::default())
        );
        return Ok(());
    }

    let count = arguments.after("--rounds").map_or(Ok(9), str::parse)?;
    let (own, other) = rounds::in_turns(count, arguments.after("--beside"))?;
    let figures = format!("medians of {count} rounds, quartiles in brackets");
    let machine = Machine::this();
    let show = |name: &str, command: &str, tables: String| {
        let caption = machine.caption(command, &figures);
        arguments.show(name, &format!("{caption}\n\n{tables}"))
    };
    show(NAME, COMMAND, report::tables(&own, &Counts::take()?))?;
    if let Some(other) = other {
        show(NAME_BESIDE, COMMAND_BESIDE, report::beside(&own, &other))?;
    }
    Ok(())
}
