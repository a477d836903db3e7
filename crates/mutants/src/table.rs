//! The table of all mutants in the documentation.

use forebay_measure::table::{head, line};

use crate::mutant::Mutant;
use crate::results::{Results, State};

/// The name in the marks around the table.
pub const NAME: &str = "`mutants table`";

/// The simulation's command is longer than the others, and always the same.
const SIMULATION: &str = "-p forebay-simulation --bin simulate";

/// The number of mutants in each state, and a line for each mutant.
pub fn table(mutants: &[Mutant], results: &Results) -> String {
    let states: Vec<_> = mutants.iter().map(|mutant| results.state(mutant)).collect();
    let count = |pattern: fn(&State) -> bool| states.iter().filter(|state| pattern(state)).count();
    let mut counts = format!("{} defects:", states.len());
    for (count, name) in [
        (count(|state| matches!(state, State::Caught(_))), "caught"),
        (count(|state| *state == State::Survived), "survived"),
        (
            count(|state| *state == State::DoesNotCompile),
            "do not compile",
        ),
        (
            count(|state| *state == State::Changed),
            "changed since they were tried",
        ),
        (count(|state| *state == State::NotTried), "not tried yet"),
    ] {
        if count > 0 {
            counts.push_str(&format!(" {count} {name},"));
        }
    }
    let mut table = format!("{}.\n\n", counts.trim_end_matches([',', ':']));
    table.push_str(&head(&[
        "mutant",
        "defect",
        "suites (`cargo test -p`, or 100,000 states of the simulation)",
        "result",
    ]));
    for (mutant, state) in mutants.iter().zip(states) {
        let suites: Vec<_> = mutant.suites.iter().map(|suite| shown(suite)).collect();
        table.push_str(&line([
            format!("`{}`", mutant.name),
            mutant.defect.replace('|', "\\|"),
            suites.join(", "),
            state.to_string(),
        ]));
    }
    table
}

/// A command as the table shows it.
fn shown(suite: &str) -> String {
    match suite.strip_prefix("cargo test -p ") {
        Some(rest) => format!("`{rest}`"),
        None if suite.contains(SIMULATION) => "`simulation`".to_owned(),
        None => format!("`{suite}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Outcome, Trial};

    #[test]
    fn each_mutant_has_its_line() {
        let mutant = |name, suites: &str| {
            let text = format!("a | b.\n{suites}\n- a\n");
            Mutant::parse(name, &text).unwrap()
        };
        let mutants = [
            mutant("one", "caught by: cargo test -p forebay-wal --lib\n"),
            mutant(
                "two",
                "caught by: cargo run -q -p forebay-simulation --bin simulate -- --seed 1\ncaught by: timeout 9 x\n",
            ),
        ];
        let mut results = Results::default();
        let trial = Trial {
            mark: mutants[0].mark(),
            outcome: Outcome::Caught,
            date: "2026-11-26".to_owned(),
            commit: "-".to_owned(),
        };
        results.note("one", "cargo test -p forebay-wal --lib", trial);
        let table = table(&mutants, &results);
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines[0], "2 defects: 1 caught, 1 not tried yet.");
        assert_eq!(lines[1], "");
        assert!(lines[3].starts_with("|---|"));
        assert_eq!(
            lines[4..],
            [
                "| `one` | a \\| b | `forebay-wal --lib` | caught, 2026-11-26 |",
                "| `two` | a \\| b | `simulation`, `timeout 9 x` | *not tried yet* |",
            ]
        );
    }

    #[test]
    fn no_mutants_are_counted_as_none() {
        assert!(table(&[], &Results::default()).starts_with("0 defects.\n"));
    }
}
