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

use forebay_measure::{Machine, Rounds, marks};
use instructions::Counts;
use rounds::Effort;

/// What the two lines of a text name between which the tables are.
const MARKS: &str = "the benchmark call_cost";
const MARKS_BESIDE: &str = "the benchmark call_cost beside another build";

/// How the tables are made.
const COMMAND: &str = "cargo bench -p forebay-nfs --bench call_cost";
const COMMAND_BESIDE: &str = "cargo bench -p forebay-nfs --bench call_cost -- --beside FILE";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let after = |option: &str| {
        let at = arguments.iter().position(|argument| argument == option)?;
        arguments.get(at + 1).map(String::as_str)
    };
    let has = |option: &str| arguments.iter().any(|argument| argument == option);

    // What the program starts itself for.
    if let Some(key) = after(instructions::LOOP) {
        let count = arguments.last().ok_or("how often?")?.parse()?;
        return instructions::run(key, count);
    }
    if has(rounds::RAW) {
        print!("{}", rounds::measure(Effort::FULL)?);
        return Ok(());
    }
    if !has("--bench") {
        let quick = rounds::measure(Effort::QUICK)?;
        print!(
            "{}",
            report::tables(&Rounds::new(vec![quick]), &Counts::default())
        );
        return Ok(());
    }

    let count = after("--rounds").map_or(Ok(9), str::parse)?;
    let (own, other) = rounds::in_turns(count, after("--beside"))?;
    let figures = format!("medians of {count} rounds, quartiles in brackets");
    let machine = Machine::this();
    let put = |name: &str, command: &str, tables: String| match after("--update") {
        None => {
            println!("{tables}");
            Ok(())
        }
        Some(file) => {
            let caption = machine.caption(command, &figures);
            marks::update(file.as_ref(), name, &format!("{caption}\n\n{tables}"))
        }
    };
    put(MARKS, COMMAND, report::tables(&own, &Counts::take()?))?;
    if let Some(other) = other {
        put(MARKS_BESIDE, COMMAND_BESIDE, report::beside(&own, &other))?;
    }
    Ok(())
}
