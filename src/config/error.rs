//! What can be wrong with a configuration.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::{SETTINGS, Setting, Source};

/// One fault of a configuration. Nothing can be done about any of them but to change what the
/// message names.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The configuration file cannot be read.
    #[error("cannot read the configuration file {path} ({named_by}): {error}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Who named it.
        named_by: String,
        /// Why not.
        error: io::Error,
    },
    /// The configuration file is not TOML.
    #[error("{place}: not valid TOML: {problem}")]
    Syntax {
        /// File and line.
        place: Source,
        /// What the parser says.
        problem: String,
    },
    /// A key of the file that means nothing.
    #[error("{place}: unknown key `{key}`{hint}")]
    UnknownKey {
        /// Where it stands.
        place: Source,
        /// As written.
        key: String,
        /// What might have been meant, as the end of the sentence.
        hint: String,
    },
    /// Something about the exports in the file.
    #[error("{place}: {problem}")]
    Export {
        /// Where it stands.
        place: Source,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// An environment variable that begins like ours and means nothing.
    #[error("unknown environment variable `{name}`{hint}")]
    UnknownVariable {
        /// Its name.
        name: String,
        /// What might have been meant, as the end of the sentence.
        hint: String,
    },
    /// A value that cannot be read as what it should be, or is out of bounds.
    #[error("{place}: {key} = `{value}`: {reason}; expected {expected}")]
    BadValue {
        /// The setting.
        key: &'static str,
        /// Where it was set.
        place: Source,
        /// As written.
        value: String,
        /// What is wrong with it.
        reason: String,
        /// What would be right.
        expected: String,
    },
    /// A value without which the gateway cannot run, and for which there is no default here.
    #[error("{key} is not set and has no default here: {reason}")]
    Missing {
        /// The setting.
        key: &'static str,
        /// Why there is none, and what to do.
        reason: &'static str,
    },
    /// Two values that cannot both be.
    #[error("{key} = {value} ({place}) {problem}")]
    Conflict {
        /// One of them.
        key: &'static str,
        /// Its value.
        value: String,
        /// Where it was set.
        place: Source,
        /// The rule, the other value, and the way out.
        problem: String,
    },
}

/// All faults of a configuration, one a line.
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

/// Similarity (0 to 1) below which a suggestion would rather confuse.
const NEAR: f64 = 0.75;

/// The end of a sentence about an unknown name: the nearest right one, if one is near.
pub(super) fn nearest(name: &str, spell: impl Fn(&Setting) -> String) -> String {
    match nearest_of(name, SETTINGS.iter().map(spell)) {
        Some(right) => format!("; did you mean `{right}`?"),
        None => "; `forebay config --markdown` lists all settings".to_owned(),
    }
}

/// That of the right names which is nearest to `name`, if one is near.
pub(crate) fn nearest_of(name: &str, right: impl Iterator<Item = String>) -> Option<String> {
    let rated = right.map(|right| (strsim::jaro_winkler(name, &right), right));
    let near = rated.filter(|(similarity, _)| *similarity >= NEAR);
    let nearest = near.max_by(|(a, _), (b, _)| a.total_cmp(b));
    nearest.map(|(_, right)| right)
}
