//! `forebay-measure`: makes tables of results, and compares two revisions.

#![forbid(unsafe_code)]
// This program prints its results.
#![allow(clippy::print_stdout)]

mod revisions;

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use forebay_measure::table::{digits, head, line};
use forebay_measure::{Comparison, Limits, Machine, Median, Published, Samples, marks};
use revisions::Revisions;

const HELP: &str = "\
Tables out of results, and one revision beside another.

forebay-measure published [--rows FILE]   figures that others have published, beside what `cargo bench` has left
forebay-measure results [BEGINNING]       what `cargo bench` has left of benchmarks whose names begin so
    --criterion DIR   where it is [target/criterion]
    --update FILE     puts the table between its marks in that text

forebay-measure compare BASE OWN          the benchmark programs in two folders, in turns (benches/compare.sh)
    --rounds N        how often [5]
";

/// The arguments: those without options, and the values of options.
struct Arguments {
    alone: Vec<String>,
    options: Vec<(String, String)>,
}

impl Arguments {
    fn parse(mut given: impl Iterator<Item = String>, known: &[&str]) -> Result<Arguments, String> {
        let (mut alone, mut options) = (Vec::new(), Vec::new());
        while let Some(argument) = given.next() {
            if !argument.starts_with("--") {
                alone.push(argument);
            } else if known.contains(&argument.as_str()) {
                let value = given.next();
                let value = value.ok_or_else(|| format!("{argument} needs a value"))?;
                options.push((argument, value));
            } else {
                return Err(format!("unknown: {argument}\n\n{HELP}"));
            }
        }
        Ok(Arguments { alone, options })
    }

    fn get(&self, option: &str) -> Option<&str> {
        let mut options = self.options.iter().rev();
        let found = options.find(|(name, _)| name == option);
        found.map(|(_, value)| value.as_str())
    }

    fn samples(&self) -> Result<Samples, Box<dyn Error>> {
        let folder = match self.get("--criterion") {
            Some(folder) => PathBuf::from(folder),
            None => {
                let target = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
                Path::new(&target).join("criterion")
            }
        };
        Ok(Samples::read(&folder)?)
    }

    /// Prints a table, or puts it into the file after `--update`.
    fn put(&self, name: &str, table: &str) -> Result<ExitCode, Box<dyn Error>> {
        let caption = Machine::this().caption(
            "cargo bench",
            "medians of the samples of criterion, quartiles in brackets",
        );
        let text = format!("{caption}\n\n{table}");
        match self.get("--update") {
            None => print!("{text}"),
            Some(file) => marks::update(file.as_ref(), name, &text)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn published(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let file = arguments.get("--rows").unwrap_or("benches/published.tsv");
    let named = |error: &dyn Error| format!("{file}: {error}");
    let text = fs::read_to_string(file).map_err(|error| named(&error))?;
    let rows = Published::parse(&text).map_err(|error| named(&error))?;
    let table = rows.table(&arguments.samples()?)?;
    arguments.put("`forebay-measure published`", &table)
}

fn results(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let beginning = arguments.alone.first().map_or("", String::as_str);
    let mut table = head(&["", "us", "MB/s", "thousand/s"]);
    let shown = |median: Option<Median>| median.map(digits).unwrap_or_default();
    for (name, bench) in arguments.samples()?.beginning(beginning) {
        let per_element = |elements: u64| bench.time_ns.reversed(|ns| elements as f64 / ns * 1e6);
        table.push_str(&line([
            name,
            &digits(bench.time_ns.map(|time_ns| time_ns / 1e3)),
            &shown(bench.megabytes_a_second()),
            &shown(bench.elements.map(per_element)),
        ]));
    }
    let name = format!("`forebay-measure results {beginning}`");
    arguments.put(&name, &table)
}

fn compare(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let [base, own] = arguments.alone.as_slice() else {
        return Err(HELP.into());
    };
    let rounds = arguments.get("--rounds").map_or(Ok(5), str::parse)?;
    let mut comparison = Comparison::new(Limits::default());
    Revisions::new(base, own).run(rounds, &mut comparison)?;
    println!(
        "{}\n",
        Machine::this().caption(
            "just bench-compare",
            &format!("medians of {rounds} rounds, quartiles in brackets")
        )
    );
    print!("{}", comparison.table());
    let Limits { instructions, time } = Limits::default();
    match comparison.passes() {
        true => println!("\nnothing is worse"),
        false => println!(
            "\nWORSE, or nothing to compare: an instruction count above {instructions} times that of the base, or a \
             time above {time} times in the median of the rounds and above it in three quarters of them"
        ),
    }
    Ok(match comparison.passes() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("forebay-measure: {error}");
        ExitCode::from(2)
    })
}

fn run() -> Result<ExitCode, Box<dyn Error>> {
    let mut given = env::args().skip(1);
    let command = given.next().unwrap_or_default();
    let tables = ["--rows", "--criterion", "--update"];
    match command.as_str() {
        "published" => published(&Arguments::parse(given, &tables)?),
        "results" => results(&Arguments::parse(given, &tables)?),
        "compare" => compare(&Arguments::parse(given, &["--rounds"])?),
        _ => {
            print!("{HELP}");
            Ok(ExitCode::FAILURE)
        }
    }
}
