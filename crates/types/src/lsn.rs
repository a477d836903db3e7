//! Log sequence numbers.

use std::fmt;

/// Log sequence number: a byte position in the whole history of a volume's log. A record has the
/// LSN of its first byte; "durable up to L" means that every record that *ends* at or before L is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    /// The beginning of the log.
    pub const ZERO: Lsn = Lsn(0);

    /// The position `bytes` further on.
    pub fn advance(self, bytes: u64) -> Lsn {
        Lsn(self.0 + bytes)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
