//! Where a value came from.

use std::fmt;
use std::path::PathBuf;

/// Where a value came from; its text is what errors and `forebay config` say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nobody set it.
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
