//! Paths in messages.

use std::fmt;

/// A path, formatted for messages.
#[derive(Clone, PartialEq, Eq)]
pub struct DisplayPath(pub(crate) Vec<u8>);

impl fmt::Display for DisplayPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for DisplayPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
