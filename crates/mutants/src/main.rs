//! `mutants`: see the library.

#![forbid(unsafe_code)]

use std::env;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use forebay_mutants::{Mutant, MutantsError, Options, Project, changes, run};

fn command() -> Command {
    let names = || {
        Arg::new("names")
            .value_name("NAME")
            .num_args(0..)
            .help("Mutants; without names all")
    };
    Command::new("mutants")
        .about("Breaks the program on purpose, one defect at a time, and shows whether the suites notice")
        .subcommand_required(true)
        .subcommand(
            Command::new("run")
                .about("Try mutants in a copy of the checkout, and note the results")
                .arg(names())
                .arg(
                    Arg::new("every")
                        .long("every")
                        .action(ArgAction::SetTrue)
                        .help("Try all suites of these mutants on each of them; one that notices is enough"),
                )
                .arg(
                    Arg::new("together")
                        .long("together")
                        .action(ArgAction::SetTrue)
                        .conflicts_with("every")
                        .help("Build one program that has all mutants, and choose one for each trial"),
                )
                .arg(
                    Arg::new("untried")
                        .long("untried")
                        .action(ArgAction::SetTrue)
                        .help("Leave out mutants that have a result and have not changed since"),
                )
                .arg(
                    Arg::new("limit")
                        .long("limit")
                        .value_name("SECONDS")
                        .default_value("600")
                        .help("A suite that takes longer has noticed")
                        .value_parser(value_parser!(u64)),
                ),
        )
        .subcommand(
            Command::new("check")
                .about("Say which mutants do not fit the sources")
                .arg(names()),
        )
        .subcommand(
            Command::new("list")
                .about("List all mutants, with their suites and results")
                .arg(names()),
        )
        .subcommand(
            Command::new("apply")
                .about("Put a mutant into this checkout, to look at it")
                .arg(names().num_args(1).required(true).help("The mutant")),
        )
        .subcommand(
            Command::new("table").about("Write the table of docs/mutants.md from mutants and results"),
        )
}

fn main() -> ExitCode {
    let matches = command().get_matches();
    let Some((name, matches)) = matches.subcommand() else {
        return ExitCode::from(2);
    };
    match act(name, matches) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mutants: {error}");
            ExitCode::from(2)
        }
    }
}

fn say(text: &str) {
    // A closed standard output loses nothing that the exit code does not report.
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn act(name: &str, matches: &ArgMatches) -> Result<bool, MutantsError> {
    let here = env::current_dir().map_err(|error| MutantsError::Io(".".into(), error))?;
    let project = Project::around(&here)?;
    let chosen = || -> Result<Vec<Mutant>, MutantsError> {
        let names = matches.get_many::<String>("names").unwrap_or_default();
        let names: Vec<_> = names.cloned().collect();
        project.chosen(&names)
    };
    match name {
        "run" => {
            let options = Options {
                every: matches.get_flag("every"),
                together: matches.get_flag("together"),
                limit: Duration::from_secs(matches.get_one("limit").copied().unwrap_or(600)),
                cache: cache(),
            };
            let mut mutants = chosen()?;
            if matches.get_flag("untried") {
                mutants = project.untried(mutants)?;
                if mutants.is_empty() {
                    say("all have results");
                    return Ok(true);
                }
            }
            run(&project, &mutants, &options, &say)
        }
        "check" => check(&project, &chosen()?),
        "list" => list(&project, &chosen()?),
        "apply" => apply(&project, &chosen()?),
        _ => {
            project.publish(&mut project.results()?)?;
            Ok(true)
        }
    }
}

fn check(project: &Project, mutants: &[Mutant]) -> Result<bool, MutantsError> {
    let misfits = project.misfits(mutants)?;
    for misfit in &misfits {
        say(misfit);
    }
    let (fit, not) = (mutants.len() - misfits.len(), misfits.len());
    say(&format!("{fit} fit, {not} do not"));
    Ok(misfits.is_empty())
}

fn list(project: &Project, mutants: &[Mutant]) -> Result<bool, MutantsError> {
    let results = project.results()?;
    for mutant in mutants {
        let state = results.state(mutant).to_string();
        let state = state.trim_matches('*');
        say(&format!("{}: {} ({state})", mutant.name, mutant.defect));
        for suite in &mutant.suites {
            say(&format!("    {suite}"));
        }
    }
    Ok(true)
}

fn apply(project: &Project, mutants: &[Mutant]) -> Result<bool, MutantsError> {
    let sources = project.sources()?;
    for mutant in mutants {
        match changes(mutant, &sources) {
            Ok(changes) => {
                for change in changes {
                    change
                        .make(project.root())
                        .map_err(|error| MutantsError::Io(change.path.clone(), error))?;
                    say(&change.path.display().to_string());
                }
            }
            Err(error) => {
                say(&format!("{}: {error}", mutant.name));
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The folder for the copy of the checkout, whose builds later runs use again.
fn cache() -> PathBuf {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| env::home_dir().unwrap_or_default().join(".cache"));
    cache.join("forebay-tests/mutants")
}
