//! `soak`: see the library.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use forebay_crash::server::find_program;
use forebay_soak::rude::{self, KINDS, Kind};
use forebay_soak::run::{Options, Outcome, run};

fn command() -> Command {
    let path = |name: &'static str| {
        Arg::new(name)
            .long(name)
            .value_parser(value_parser!(PathBuf))
    };
    Command::new("soak")
        .about("Rude and hostile clients beside a well-behaved one, on a gateway with 64 MiB of memory")
        .arg(
            Arg::new("seconds")
                .default_value("1800")
                .help("How long the rude clients are at work")
                .value_parser(value_parser!(u64).range(1..)),
        )
        .arg(
            Arg::new("only")
                .long("only")
                .value_delimiter(',')
                .help("These kinds of rude clients; without it all of them"),
        )
        .arg(
            Arg::new("without")
                .long("without")
                .value_delimiter(',')
                .help("All kinds but these"),
        )
        .arg(
            Arg::new("each")
                .long("each")
                .action(ArgAction::SetTrue)
                .help("One run for each kind alone: which one hurts, and how much"),
        )
        .arg(
            Arg::new("kinds")
                .long("kinds")
                .action(ArgAction::SetTrue)
                .help("Print the table of kinds, and do nothing else"),
        )
        .arg(
            Arg::new("store")
                .long("store")
                .help("URL of an empty place, such as s3://BUCKET/PREFIX, whose link is then slow; without it a folder"),
        )
        .arg(path("program").help("The program `forebay`; else $FB_BINARY, else the one beside this program"))
        .arg(path("folder").help(
            "Where the work folder is made, instead of the system's place for temporary files; not in memory",
        ))
        .arg(
            Arg::new("flag")
                .long("flag")
                .action(ArgAction::Append)
                .allow_hyphen_values(true)
                .help("A further flag of the gateway, such as --flag=--commit=async"),
        )
}

fn main() -> ExitCode {
    let matches = command().get_matches();
    if matches.get_flag("kinds") {
        say(rude::table().trim_end());
        return ExitCode::SUCCESS;
    }
    match soak(&matches) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::from(2)
        }
    }
}

fn say(text: &str) {
    use std::io::Write as _;
    // A closed standard output loses nothing that the exit code does not report.
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// The kinds that `--only` and `--without` leave.
fn kinds(matches: &ArgMatches) -> Result<Vec<&'static Kind>, String> {
    let names = |flag: &str| -> Result<Vec<&'static Kind>, String> {
        let names = matches.get_many::<String>(flag).into_iter().flatten();
        let kinds = names.map(|name| {
            rude::named(name)
                .ok_or_else(|| format!("no such kind: {name}; `soak --kinds` lists them"))
        });
        kinds.collect()
    };
    let (only, without) = (names("only")?, names("without")?);
    let is_in = |kind: &Kind, list: &[&Kind]| list.iter().any(|other| other.name == kind.name);
    let kinds = KINDS
        .iter()
        .filter(|kind| (only.is_empty() || is_in(kind, &only)) && !is_in(kind, &without));
    Ok(kinds.collect())
}

fn soak(matches: &ArgMatches) -> Result<bool, String> {
    let seconds = matches.get_one::<u64>("seconds").copied().unwrap_or(1800);
    let folder = matches.get_one::<PathBuf>("folder").cloned();
    let flags = matches.get_many::<String>("flag").into_iter().flatten();
    let options = Options {
        program: find_program(matches.get_one::<PathBuf>("program").cloned())?,
        folder: folder.unwrap_or_else(std::env::temp_dir),
        store: matches.get_one::<String>("store").cloned(),
        time: Duration::from_secs(seconds),
        alone: Duration::from_secs((seconds / 10).clamp(2, 30)),
        kinds: kinds(matches)?,
        flags: flags.cloned().collect(),
    };
    if !matches.get_flag("each") {
        let outcome = run(&options, &|text| say(text)).map_err(|error| error.to_string())?;
        return Ok(report(&outcome));
    }
    let mut good = true;
    for kind in &options.kinds {
        say(&format!("== {}: {}", kind.name, kind.does));
        let options = Options {
            kinds: vec![kind],
            store: options
                .store
                .as_ref()
                .map(|store| format!("{store}/{}", kind.name)),
            ..options.clone()
        };
        match run(&options, &|_| {}) {
            Ok(outcome) => good &= report(&outcome),
            Err(error) => {
                say(&format!("FAILED  {error}"));
                good = false;
            }
        }
    }
    Ok(good)
}

/// Prints the result of a run; true if no check failed.
fn report(outcome: &Outcome) -> bool {
    say(&format!("\nmilliseconds:\n\n{}", outcome.table()));
    for note in &outcome.notes {
        say(note);
    }
    let mut failed = 0;
    for (name, wrong) in &outcome.checks {
        if wrong.is_empty() {
            say(&format!("ok      {name}"));
            continue;
        }
        failed += 1;
        say(&format!("FAILED  {name}"));
        for what in wrong.iter().take(20) {
            say(&format!("        {what}"));
        }
    }
    if let Some(kept) = &outcome.kept {
        say(&format!("kept: {}", kept.display()));
    }
    say(&format!(
        "{} passed, {failed} failed",
        outcome.checks.len() - failed
    ));
    failed == 0
}
