//! `crash`: see the library.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use forebay_crash::options::{Mode, Options};
use forebay_crash::power::{Loss, cut_power};
use forebay_crash::run::run;
use forebay_crash::server::find_program;

fn command() -> Command {
    let run = Command::new("run")
        .about("Load, kill, compare")
        .arg(
            Arg::new("mode")
                .long("mode")
                .default_value("kill")
                .help("The failure of the program; `all` runs all modes one after the other")
                .value_parser(PossibleValuesParser::new(
                    Mode::ALL.map(Mode::name).into_iter().chain(["all"]),
                )),
        )
        .arg(number("kills", "20", "Kills in each mode, at least"))
        .arg(number(
            "seconds",
            "600",
            "No further kill in a mode after this many seconds",
        ))
        .arg(
            Arg::new("seed")
                .long("seed")
                .help("Repeats the random choices of a run; the clock decides the rest")
                .value_parser(value_parser!(u64)),
        )
        .arg(number(
            "writers",
            "4",
            "Number of writers, 1 to 200; the first is a sequencer",
        ))
        .arg(Arg::new("store").long("store").help(
            "URL below which buckets are made, such as s3://BUCKET/PREFIX; without it a folder",
        ))
        .arg(
            Arg::new("sealed")
                .long("sealed")
                .action(ArgAction::SetTrue)
                .help("Seal the volume, with a key file"),
        )
        .arg(
            path("program")
                .help("The program `forebay`; else $FB_BINARY, else the one beside this program"),
        )
        .arg(path("folder").help(
            "Where the work folder is made, instead of the system's place for temporary files",
        ));
    let cut = Command::new("cut-power")
        .about("Changes the local folder of a killed gateway as a power cut could have done")
        .arg(path("data-dir").required(true).help("The local folder"))
        .arg(
            Arg::new("durable")
                .long("durable")
                .required(true)
                .help("durable_lsn of `forebay status`: all before it stays")
                .value_parser(value_parser!(u64)),
        );
    Command::new("crash")
        .about("Kills the real program under load, and compares the volume with the acknowledged changes")
        .subcommand_required(true)
        .subcommand(run)
        .subcommand(cut)
}

fn number(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .default_value(default)
        .help(help)
        .value_parser(value_parser!(u64))
}

fn path(name: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_parser(value_parser!(PathBuf))
}

fn main() -> ExitCode {
    let matches = command().get_matches();
    let done = match matches.subcommand() {
        Some(("run", matches)) => run_modes(matches),
        Some(("cut-power", matches)) => cut(matches),
        _ => Ok(false),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("crash: {error}");
            ExitCode::from(2)
        }
    }
}

fn say(text: &str) {
    use std::io::Write as _;
    // A closed standard output loses nothing that the exit code does not report.
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn run_modes(matches: &ArgMatches) -> Result<bool, String> {
    let get = |name: &str| matches.get_one::<u64>(name).copied().unwrap_or_default();
    let writers = get("writers");
    if !(1..=200).contains(&writers) {
        return Err("--writers takes 1 to 200".to_owned());
    }
    let seed = matches.get_one::<u64>("seed").copied();
    let seed = seed.unwrap_or_else(|| {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        since.as_nanos() as u64 % 1_000_000_000
    });
    let wanted = matches
        .get_one::<String>("mode")
        .map_or("all", String::as_str);
    let folder = matches.get_one::<PathBuf>("folder").cloned();
    let folder = folder.unwrap_or_else(std::env::temp_dir);
    let program = find_program(matches.get_one::<PathBuf>("program").cloned())?;
    let (mut passed, mut failed) = (0, 0);
    for mode in Mode::ALL {
        if wanted != "all" && wanted != mode.name() {
            continue;
        }
        let options = Options {
            program: program.clone(),
            mode,
            kills: get("kills"),
            limit: Duration::from_secs(get("seconds")),
            seed,
            writers: writers as usize,
            sealed: matches.get_flag("sealed"),
            store: matches.get_one::<String>("store").cloned(),
            folder: folder.clone(),
        };
        say(&format!("mode {mode}, seed {seed}, {writers} writers"));
        let outcome = run(&options).map_err(|error| error.to_string())?;
        say(&outcome.figures.to_string());
        passed += outcome.figures.comparisons;
        if let Some((failure, kept)) = outcome.failure {
            failed += 1;
            say(&format!("FAILED  {mode}: {failure}"));
            say(&format!("        kept: {}", kept.display()));
            say(&format!(
                "        again: crash run --mode {mode} --seed {seed} --kills {} --writers {writers}{}",
                options.kills,
                if options.sealed { " --sealed" } else { "" }
            ));
        }
    }
    say(&format!("{passed} passed, {failed} failed"));
    Ok(failed == 0 && passed > 0)
}

fn cut(matches: &ArgMatches) -> Result<bool, String> {
    let folder = matches
        .get_one::<PathBuf>("data-dir")
        .ok_or("no --data-dir")?;
    let durable = matches
        .get_one::<u64>("durable")
        .copied()
        .unwrap_or_default();
    let cut = cut_power(folder, durable, Loss::All).map_err(|error| error.to_string())?;
    say(&format!(
        "{} bytes of the log were not durable and are gone",
        cut.lost
    ));
    Ok(true)
}
