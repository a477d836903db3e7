//! The sources of values.

use std::fmt;
use std::path::PathBuf;

/// The source of a value; its text appears in errors and in `forebay config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The value was not set.
    Default,
    /// A line of the configuration file, counted from 1.
    File {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// The environment variable of this name.
    Variable(String),
    /// The flag of this name, with its dashes.
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::File { path, line } => write!(f, "{}:{line}", path.display()),
            Source::Variable(name) | Source::Flag(name) => f.write_str(name),
        }
    }
}
