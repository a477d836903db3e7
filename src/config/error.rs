//! The faults of a configuration.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::{SETTINGS, Setting, Source};

/// One fault of a configuration. The only remedy for each is to change the value that the message names.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The configuration file cannot be read.
    #[error("cannot read the configuration file {path} ({named_by}): {error}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The flag or variable that names it.
        named_by: String,
        /// The error of the system.
        error: io::Error,
    },
    /// The configuration file is not TOML.
    #[error("{place}: not valid TOML: {problem}")]
    Syntax {
        /// File and line.
        place: Source,
        /// The error of the parser.
        problem: String,
    },
    /// An unknown key in the file.
    #[error("{place}: unknown key `{key}`{hint}")]
    UnknownKey {
        /// Its place.
        place: Source,
        /// As written.
        key: String,
        /// A suggestion, as the end of the sentence.
        hint: String,
    },
    /// A fault in the exports of the file.
    #[error("{place}: {problem}")]
    Export {
        /// Its place.
        place: Source,
        /// The fault and the remedy.
        problem: String,
    },
    /// An unknown environment variable with the program's prefix.
    #[error("unknown environment variable `{name}`{hint}")]
    UnknownVariable {
        /// Its name.
        name: String,
        /// A suggestion, as the end of the sentence.
        hint: String,
    },
    /// A value that cannot be parsed, or is out of bounds.
    #[error("{place}: {key} = `{value}`: {reason}; expected {expected}")]
    BadValue {
        /// The setting.
        key: &'static str,
        /// Where it was set.
        place: Source,
        /// As written.
        value: String,
        /// The fault.
        reason: String,
        /// The form of a correct value.
        expected: String,
    },
    /// A required value that has no default here.
    #[error("{key} is not set and has no default here: {reason}")]
    Missing {
        /// The setting.
        key: &'static str,
        /// Why there is none, and the remedy.
        reason: &'static str,
    },
    /// Two values that contradict each other.
    #[error("{key} = {value} ({place}) {problem}")]
    Conflict {
        /// One of them.
        key: &'static str,
        /// Its value.
        value: String,
        /// Where it was set.
        place: Source,
        /// The rule, the other value, and the remedy.
        problem: String,
    },
}

/// All faults of a configuration, one per line.
#[derive(Debug)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Similarity (0 to 1) below which a suggestion would be confusing.
const NEAR: f64 = 0.75;

/// The end of a sentence about an unknown name: the nearest known one, if one is near.
pub(super) fn nearest(name: &str, spell: impl Fn(&Setting) -> String) -> String {
    match nearest_of(name, SETTINGS.iter().map(spell)) {
        Some(right) => format!("; did you mean `{right}`?"),
        None => "; `forebay config --markdown` lists all settings".to_owned(),
    }
}

/// The one of the known names that is nearest to `name`, if one is near.
pub(crate) fn nearest_of(name: &str, right: impl Iterator<Item = String>) -> Option<String> {
    let rated = right.map(|right| (strsim::jaro_winkler(name, &right), right));
    let near = rated.filter(|(similarity, _)| *similarity >= NEAR);
    let nearest = near.max_by(|(a, _), (b, _)| a.total_cmp(b));
    nearest.map(|(_, right)| right)
}
