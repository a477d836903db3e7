//! What a call costs, and what of that the replay cache and the rules and permissions cost.
//! `cargo bench -p forebay-nfs --bench call_cost`.
//!
//! Times of a machine that others use wobble. So all that is compared is measured in turns in one run, each round
//! in a process of its own; what is printed are medians of the rounds, and of ratios the median of each
//! round's own. Instructions are counted by Valgrind, where it is installed, and do not wobble.
//!
//! * `--rounds N`: 9 if it is not given.
//! * `--beside FILE`: also measures this other build of the benchmark, in turns with itself.
//! * `--update FILE`: puts the tables in that text, between their marks.
//!
//! Run by `cargo test`, it makes a few calls of each kind, and shows that it works.

// It is a program, and prints what it found.
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

/// What its tables are called in a text.
const NAME: &str = "call_cost";
const NAME_BESIDE: &str = "call_cost beside another build";

/// How the tables are made.
const COMMAND: &str = "cargo bench -p forebay-nfs --bench call_cost";
const COMMAND_BESIDE: &str = "cargo bench -p forebay-nfs --bench call_cost -- --beside FILE";

fn main() -> Result<(), Box<dyn Error>> {
    // What the program starts itself for.
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
