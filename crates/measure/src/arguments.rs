//! The command line of a benchmark that prints tables of its own.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use crate::marks::{self, MarkError};

/// The option that all benchmarks with tables accept.
const UPDATE: &str = "--update";

/// The arguments of a benchmark. `cargo bench` adds `--bench`; `cargo test` does not, and then a benchmark only shows
/// in little time that it works.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    full: bool,
    flags: Vec<String>,
    /// Options, each with its value.
    options: Vec<(String, String)>,
    filters: Vec<String>,
}

/// Why the command line is refused.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// This option is not known, and would be ignored.
    #[error("{0} is unknown; there are: {1}")]
    Unknown(String, String),
    /// The command line ends with an option that needs a value.
    #[error("{0}: nothing follows it")]
    Missing(String),
    /// This table does not use an option that was given.
    #[error("{0} knows no {1}; name the tables that it is for")]
    NotForAll(String, String),
}

/// The message, because an error that `main` returns is printed with `Debug`.
impl fmt::Debug for ArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Arguments {
    /// The arguments of this program, which accepts these `options`, each with a value, and these `flags` without one.
    /// `--update FILE` is always accepted. Everything else is a filter.
    ///
    /// # Errors
    /// An unknown option, or one without its value. `cargo test` passes the same arguments to all tests of the
    /// workspace, so that unknown ones are ignored there.
    pub fn of_this(options: &[&str], flags: &[&str]) -> Result<Arguments, ArgumentError> {
        Arguments::read(std::env::args().skip(1), options, flags)
    }

    fn read(
        given: impl Iterator<Item = String>,
        options: &[&str],
        flags: &[&str],
    ) -> Result<Arguments, ArgumentError> {
        let (mut found, mut unknown) = (Arguments::default(), None);
        let mut given = given.peekable();
        while let Some(argument) = given.next() {
            match argument.as_str() {
                "--bench" => found.full = true,
                flag if flags.contains(&flag) => found.flags.push(argument),
                option if option == UPDATE || options.contains(&option) => {
                    // A value never begins like an option: then the value was forgotten.
                    match given.next_if(|value| !value.starts_with("--")) {
                        Some(value) => found.options.push((argument, value)),
                        None => return Err(ArgumentError::Missing(argument)),
                    }
                }
                option if option.starts_with("--") => unknown = unknown.or(Some(argument)),
                _ => found.filters.push(argument),
            }
        }
        match unknown.filter(|_| found.full) {
            Some(unknown) => {
                let known = [options, flags, &[UPDATE]].concat().join(", ");
                Err(ArgumentError::Unknown(unknown, known))
            }
            None => Ok(found),
        }
    }

    /// Whether to measure, and not only to show that the benchmark works.
    pub fn full(&self) -> bool {
        self.full
    }

    /// Whether this flag was given.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|given| given == flag)
    }

    /// Whether the benchmark `name` is selected: it contains one of the filters, or there are none.
    pub fn chooses(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| name.contains(filter))
    }

    /// The same, but a filter that is one of `all` the names selects that one alone.
    pub fn chooses_among(&self, name: &str, all: &[&str]) -> bool {
        let selects = |filter: &String| match all.contains(&filter.as_str()) {
            true => filter == name,
            false => name.contains(filter),
        };
        self.filters.is_empty() || self.filters.iter().any(selects)
    }

    /// Refuses options that the table `name`, which uses only these, would ignore.
    ///
    /// # Errors
    /// An option was given that is none of these.
    pub fn check_for(&self, name: &str, options: &[&str]) -> Result<(), ArgumentError> {
        let known = |option: &str| option == UPDATE || options.contains(&option);
        let mut given = self.options.iter().map(|(option, _)| option);
        match given.find(|option| !known(option)) {
            Some(option) => Err(ArgumentError::NotForAll(name.to_owned(), option.clone())),
            None => Ok(()),
        }
    }

    /// The value of this option, if it was given.
    pub fn after(&self, option: &str) -> Option<&str> {
        let given = self.options.iter().find(|(given, _)| given == option);
        given.map(|(_, value)| value.as_str())
    }

    /// Each of these options with its value, in the order of the command line, for options that may be repeated.
    pub fn all_after<'a>(
        &'a self,
        options: &'a [&str],
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        let given = self.options.iter();
        given
            .map(|(option, value)| (option.as_str(), value.as_str()))
            .filter(move |(option, _)| options.contains(option))
    }

    /// The command with those of these options that were given, to be typed for the same measurement.
    pub fn command(&self, command: &str, options: &[&str]) -> String {
        let given = self.all_after(options);
        given.fold(command.to_owned(), |command, (option, value)| {
            format!("{command} {option} {value}")
        })
    }

    /// Prints tables, or puts them between the marks of this benchmark in the file after `--update`.
    pub fn show(&self, benchmark: &str, tables: &str) -> Result<(), MarkError> {
        match self.after(UPDATE) {
            None => {
                let printed = io::stdout().write_all(tables.as_bytes());
                printed.map_err(|error| MarkError::Io("standard output".to_owned(), error))
            }
            Some(text) => marks::update(
                Path::new(text),
                &format!("the benchmark {benchmark}"),
                tables,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: [&str; 4] = ["--rounds", "--files", "--server", "--folder"];

    fn read(given: &str) -> Result<Arguments, ArgumentError> {
        let given = given.split(' ').map(str::to_owned);
        Arguments::read(given, &OPTIONS, &["--raw"])
    }

    #[test]
    fn options_have_what_follows_them() {
        let arguments = read("--rounds 3 --bench").unwrap();
        assert_eq!(arguments.after("--rounds"), Some("3"));
        assert_eq!(arguments.after("--files"), None);
        assert!(arguments.full() && !arguments.has("--raw"));
        let command = arguments.command("cargo bench --", &["--files", "--rounds"]);
        assert_eq!(command, "cargo bench -- --rounds 3");
        assert!(read("--raw").unwrap().has("--raw"));
    }

    #[test]
    fn options_given_again_and_again_are_all_found_in_their_order() {
        let arguments = read("--server a --folder b --rounds 3 --server c").unwrap();
        let found: Vec<_> = arguments.all_after(&["--server", "--folder"]).collect();
        let wanted = [("--server", "a"), ("--folder", "b"), ("--server", "c")];
        assert_eq!(found, wanted);
    }

    #[test]
    fn options_that_nobody_would_look_at_are_refused() {
        let refusal = read("--bench --round 3").unwrap_err().to_string();
        assert!(refusal.starts_with("--round is unknown; there are: --rounds, "));
        assert!(read("--nocapture").is_ok(), "cargo test gives it to all");
        for given in ["--bench --rounds", "--rounds --bench"] {
            let missing = ArgumentError::Missing("--rounds".into());
            assert_eq!(read(given), Err(missing));
        }
        let arguments = read("--bench --files 3 --update a").unwrap();
        assert_eq!(arguments.check_for("names", &["--files"]), Ok(()));
        let refusal = arguments.check_for("scale", &["--rounds"]).unwrap_err();
        assert!(refusal.to_string().starts_with("scale knows no --files"));
    }

    #[test]
    fn filters_choose_by_a_part_of_the_name_and_no_option_is_one() {
        let arguments = read("--bench --files names up").unwrap();
        assert!(arguments.chooses("uploads") && !arguments.chooses("names"));
        assert!(read("--bench").unwrap().chooses("names"));
    }

    #[test]
    fn a_whole_name_chooses_no_longer_one() {
        let chosen = |given: &str| {
            let all = ["cold_reads", "reads", "uploads"];
            let arguments = read(given).unwrap();
            all.map(|name| arguments.chooses_among(name, &all))
        };
        assert_eq!(chosen("reads"), [false, true, false]);
        assert_eq!(chosen("read"), [true, true, false]);
        assert_eq!(chosen("reads cold"), [true, true, false]);
        assert_eq!(chosen("--bench"), [true; 3]);
    }
}
