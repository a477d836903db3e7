//! Runs the fuzz targets from the command line. `docs/fuzzing.md` explains them.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    reason = "what was run is the output of this program"
)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forebay_fuzz::{TARGETS, Target, corpus, find, harness};

const USAGE: &str = "\
forebay-fuzz TARGET|all [--seconds N] [--seed S] [--jobs J] [--out FOLDER]
                                mutate the corpus of a target for N seconds (60) in J threads (1)
forebay-fuzz repeat TARGET FILE run a target with one input
forebay-fuzz list               print the names of the targets
forebay-fuzz seeds              make the seeds of all corpora again";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match command(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::from(2)
        }
    }
}

/// Executes the command, and returns whether all properties held.
fn command(words: &[&str]) -> Result<bool, String> {
    match words {
        ["list"] => TARGETS
            .iter()
            .for_each(|target| println!("{}", target.name)),
        ["seeds"] => corpus::write_seeds().map_err(|error| error.to_string())?,
        ["repeat", name, file] => return repeat(target(name)?, Path::new(file)),
        ["all", options @ ..] => {
            let options = Options::read(options)?;
            let mut good = true;
            for target in TARGETS {
                good &= run(target, &options)?;
            }
            return Ok(good);
        }
        [name, options @ ..] if !name.starts_with('-') => {
            return run(target(name)?, &Options::read(options)?);
        }
        _ => return Err(USAGE.to_owned()),
    }
    Ok(true)
}

fn target(name: &str) -> Result<&'static Target, String> {
    find(name).ok_or_else(|| format!("there is no target {name}; `list` prints them\n{USAGE}"))
}

struct Options {
    time: Duration,
    seed: u64,
    jobs: usize,
    out: PathBuf,
}

impl Options {
    fn read(mut words: &[&str]) -> Result<Options, String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let mut options = Options {
            time: Duration::from_secs(60),
            seed: now.unwrap_or_default().as_secs(),
            jobs: 1,
            out: std::env::temp_dir().join("forebay-fuzz"),
        };
        while let [name, value, rest @ ..] = words {
            let number = || -> Result<u64, String> {
                let wrong = |_| format!("{name} takes a number, not {value}");
                value.parse().map_err(wrong)
            };
            match *name {
                "--seconds" => options.time = Duration::from_secs(number()?),
                "--seed" => options.seed = number()?,
                "--jobs" => options.jobs = number()?.clamp(1, 64) as usize,
                "--out" => options.out = value.into(),
                _ => return Err(USAGE.to_owned()),
            }
            words = rest;
        }
        if words.is_empty() {
            Ok(options)
        } else {
            Err(USAGE.to_owned())
        }
    }
}

fn repeat(target: &Target, file: &Path) -> Result<bool, String> {
    let input = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    match harness::attempt(target, &input) {
        Ok(()) => {
            println!("{}: all properties hold", target.name);
            Ok(true)
        }
        Err(failure) => {
            println!(
                "{}: {}\n  at {}",
                target.name, failure.message, failure.place
            );
            Ok(false)
        }
    }
}

fn run(target: &Target, options: &Options) -> Result<bool, String> {
    let inputs = corpus::load(target).map_err(|error| format!("{}: {error}", target.name))?;
    let inputs: Vec<_> = inputs.into_iter().map(|(_, bytes)| bytes).collect();
    let Options {
        time,
        seed,
        jobs,
        out,
    } = options;
    let outcome = harness::run_for(target, &inputs, *seed, *time, *jobs, out)
        .map_err(|error| format!("{}: {error}", out.display()))?;
    println!(
        "{}: {} executions in {} s from seed {seed}, {} findings",
        target.name,
        outcome.executions,
        time.as_secs(),
        outcome.failures.len(),
    );
    for (failure, path) in &outcome.failures {
        println!(
            "  {}\n  at {}\n  again: cargo run -p forebay-fuzz -- repeat {} {}",
            failure.message,
            failure.place,
            target.name,
            path.display(),
        );
    }
    Ok(outcome.failures.is_empty())
}
