//! Runs the benchmark programs of two revisions, each in a folder of its own, in turns.
//!
//! ```text
//!  instructions        prints "key <tab> count": run once, because counts do not vary
//!  call_cost --raw     prints "key <tab> value" for a round
//!  all others          are criterion's, and leave samples in CRITERION_HOME
//! ```

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use forebay_measure::{Comparison, Round, Samples, in_turns};

const INSTRUCTIONS: &str = "instructions";
const CALL_COST: &str = "call_cost";

/// Shorter than criterion's defaults, because there are several rounds.
const SHORT: [&str; 6] = [
    "--warm-up-time",
    "0.2",
    "--measurement-time",
    "0.5",
    "--sample-size",
    "10",
];

/// Keys of call_cost that are compared: processor time of a call alone, through the socket, and where two threads
/// share everything. Its rates show the same again, and its other keys are for its own tables.
fn is_compared(key: &str) -> bool {
    let mut words = key.split(' ');
    match words.next() {
        Some("alone" | "socket" | "socket-one-at-a-time") => true,
        Some("shared") => words.next_back() == Some("2"),
        _ => false,
    }
}

/// The folders with the programs of the two revisions.
pub(crate) struct Revisions {
    base: PathBuf,
    own: PathBuf,
}

impl Revisions {
    pub(crate) fn new(base: &str, own: &str) -> Revisions {
        Revisions {
            base: base.into(),
            own: own.into(),
        }
    }

    /// Runs the programs that both have, and adds their results to the comparison.
    pub(crate) fn run(&self, rounds: usize, to: &mut Comparison) -> Result<(), Box<dyn Error>> {
        for program in programs(&self.own)? {
            let (base, own) = (self.base.join(&program), self.own.join(&program));
            if !base.is_file() {
                eprintln!("{program}: the base has no such benchmark");
                continue;
            }
            eprintln!("{program} ...");
            if program == INSTRUCTIONS {
                to.instructions(&counts(&base)?, &counts(&own)?);
                continue;
            }
            let mut base = || round(&program, &base);
            let mut own = || round(&program, &own);
            if let [base, own] = in_turns(rounds, &mut [&mut base, &mut own])?.as_slice() {
                to.times(base, own);
            }
        }
        Ok(())
    }
}

/// The names in a folder; the program with the firmest figures comes first.
fn programs(folder: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort_by_key(|name| (name != INSTRUCTIONS, name != CALL_COST, name.clone()));
    Ok(names)
}

fn counts(program: &Path) -> Result<Round, Box<dyn Error>> {
    let printed = output(Command::new(program).arg("--bench"))?;
    let counted = printed.parse();
    // Without Valgrind it prints that instead.
    counted.map_err(|_| format!("{}: {printed}", program.display()).into())
}

/// One round of a program that measures times.
fn round(name: &str, program: &Path) -> Result<Round, Box<dyn Error>> {
    if name == CALL_COST {
        let printed = output(Command::new(program).arg("--raw"))?;
        return Ok(printed.parse::<Round>()?.only(is_compared));
    }
    let left = program.with_extension("criterion");
    output(
        Command::new(program)
            .arg("--bench")
            .args(SHORT)
            .env("CRITERION_HOME", &left),
    )?;
    let round = Samples::read(&left)?.round();
    // The next round must leave its own samples.
    fs::remove_dir_all(&left)?;
    Ok(round)
}

/// The output of a program, if it succeeds.
fn output(command: &mut Command) -> Result<String, Box<dyn Error>> {
    let output = command.stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout)?),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Mutex;

    use forebay_measure::Limits;

    /// A program can be started only while no process has it open for writing; and a process that starts one has, for a
    /// moment, all files open that its parent has.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    /// Makes a program that prints this.
    fn program(folder: &Path, name: &str, prints: &str) {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\nprintf '{prints}'\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn compared(base: &[(&str, &str)], own: &[(&str, &str)]) -> Result<Comparison, String> {
        let _alone = ONE_AT_A_TIME.lock();
        let folders = [base, own].map(|programs| {
            let folder = tempfile::tempdir().unwrap();
            for (name, prints) in programs {
                program(folder.path(), name, prints);
            }
            folder
        });
        let path = |index: usize| folders[index].path().to_str().unwrap().to_owned();
        let mut comparison = Comparison::new(Limits::default());
        let done = Revisions::new(&path(0), &path(1)).run(3, &mut comparison);
        done.map_err(|error| error.to_string())?;
        Ok(comparison)
    }

    fn worse(comparison: &Comparison) -> Vec<&str> {
        let worse = comparison.rows().iter().filter(|row| row.is_worse);
        worse.map(|row| row.key.as_str()).collect()
    }

    #[test]
    fn a_slower_call_and_a_higher_count_are_found() {
        let base = [
            (INSTRUCTIONS, "cache/write\\t100\\ncache/read\\t100\\n"),
            (
                CALL_COST,
                "alone getattr\\t100\\nsocket 1\\t100\\nrate getattr 1\\t5\\n",
            ),
        ];
        let own = [
            (INSTRUCTIONS, "cache/write\\t120\\ncache/read\\t105\\n"),
            (
                CALL_COST,
                "alone getattr\\t110\\nsocket 1\\t130\\nrate getattr 1\\t9\\n",
            ),
        ];
        let comparison = compared(&base, &own).unwrap();
        assert_eq!(worse(&comparison), ["cache/write", "socket 1"]);
        assert_eq!(comparison.rows().len(), 4);
        assert!(compared(&base, &base).unwrap().passes());
    }

    #[test]
    fn a_program_that_the_base_has_not_is_left_out() {
        let own = [(INSTRUCTIONS, "a\\t1\\n"), (CALL_COST, "alone a\\t1\\n")];
        let comparison = compared(&own[1..], &own).unwrap();
        assert_eq!(comparison.rows().len(), 1);
    }

    #[test]
    fn a_program_that_counts_nothing_ends_the_comparison() {
        let none = [(INSTRUCTIONS, "valgrind is not installed\\n")];
        let error = compared(&none, &none).unwrap_err();
        assert!(error.contains("valgrind is not installed"), "{error}");
    }

    #[test]
    fn of_call_cost_only_times_are_compared() {
        for key in [
            "alone getattr",
            "socket 64",
            "socket-one-at-a-time",
            "shared getattr 2",
        ] {
            assert!(is_compared(key), "{key}");
        }
        for key in [
            "rate getattr 2",
            "socket-rate 64",
            "unshared getattr 2",
            "shared getattr 32",
        ] {
            assert!(!is_compared(key), "{key}");
        }
    }
}
