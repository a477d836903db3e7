//! The command line of a benchmark that prints tables of its own.

use std::io::{self, Write};
use std::path::Path;

use crate::marks::{self, MarkError};

/// What a benchmark was called with. `cargo bench` adds `--bench`; `cargo test` does not, and then a benchmark shows in
/// little time that it works.
#[derive(Clone, Debug)]
pub struct Arguments(Vec<String>);

impl Arguments {
    /// Those of this program.
    pub fn of_this() -> Arguments {
        Arguments(std::env::args().skip(1).collect())
    }

    /// Whether it is to measure, and not only to show that it works.
    pub fn full(&self) -> bool {
        self.has("--bench")
    }

    /// Whether this option was given.
    pub fn has(&self, option: &str) -> bool {
        self.0.iter().any(|argument| argument == option)
    }

    /// What follows this option, if that was given.
    pub fn after(&self, option: &str) -> Option<&str> {
        let at = self.0.iter().position(|argument| argument == option)?;
        self.0.get(at + 1).map(String::as_str)
    }

    /// Each of these options and what follows it, in the order of the command line: options that may be given again
    /// and again.
    pub fn all_after<'a>(
        &'a self,
        options: &'a [&str],
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        let pairs = self.0.iter().zip(self.0.iter().skip(1));
        pairs
            .map(|(option, value)| (option.as_str(), value.as_str()))
            .filter(move |(option, _)| options.contains(option))
    }

    /// The command with those of these options that were given: what somebody types to measure the same.
    pub fn command(&self, command: &str, options: &[&str]) -> String {
        let given = self.all_after(options);
        given.fold(command.to_owned(), |command, (option, value)| {
            format!("{command} {option} {value}")
        })
    }

    /// Prints tables, or puts them between the marks of the benchmark of this name in the text after `--update`.
    pub fn show(&self, benchmark: &str, tables: &str) -> Result<(), MarkError> {
        match self.after("--update") {
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

    #[test]
    fn options_have_what_follows_them() {
        let arguments = Arguments(
            ["--rounds", "3", "--bench", "--update"]
                .map(str::to_owned)
                .into(),
        );
        assert_eq!(arguments.after("--rounds"), Some("3"));
        assert_eq!(arguments.after("--update"), None, "nothing follows");
        assert_eq!(arguments.after("--files"), None);
        assert!(arguments.full() && arguments.has("--rounds") && !arguments.has("--raw"));
        let command = arguments.command("cargo bench --", &["--files", "--rounds"]);
        assert_eq!(command, "cargo bench -- --rounds 3");
    }

    #[test]
    fn options_given_again_and_again_are_all_found_in_their_order() {
        let given = "--server a --folder b --rounds 3 --server c --server";
        let arguments = Arguments(given.split(' ').map(str::to_owned).collect());
        let found: Vec<_> = arguments.all_after(&["--server", "--folder"]).collect();
        let wanted = [("--server", "a"), ("--folder", "b"), ("--server", "c")];
        assert_eq!(found, wanted, "nothing follows the last one");
    }
}
