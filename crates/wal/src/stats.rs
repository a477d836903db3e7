//! Counters of a log: the [state](crate::state) keeps them, and [`Wal::stats`](crate::Wal::stats) returns them.

/// Counters since the log was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records appended.
    pub appends: u64,
    /// Bytes of these records, with headers and padding.
    pub appended_bytes: u64,
    /// Flushes that have succeeded. Each may take several system calls.
    pub flushes: u64,
    /// Steps of the write-back that have succeeded.
    pub write_backs: u64,
    /// Waiters whose flush has succeeded.
    pub flush_waiters: u64,
    /// Segment files created.
    pub segments_made: u64,
    /// Segments whose records were discarded.
    pub segments_recycled: u64,
}
