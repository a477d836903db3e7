//! Errors, grouped by what the caller can do.

use std::io;

use forebay_seal::UnknownDataKey;
use forebay_types::{Epoch, Lsn, VolumeId};

/// The log cannot be opened. Nothing was changed on disk.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A segment was written for another volume.
    #[error(
        "log segment {segment} belongs to volume {found}, not to {expected}: point this volume at \
         a log folder of its own, or put the old log aside first"
    )]
    ForeignVolume {
        /// The file.
        segment: String,
        /// The volume that was asked for.
        expected: VolumeId,
        /// The volume that the segment names.
        found: VolumeId,
    },
    /// A segment was written by a later version of the program.
    #[error(
        "log segment {segment} has format version {found}, this program reads up to {supported}: \
         start the newer program, stop it cleanly (which publishes what is in the log), or put the \
         log aside"
    )]
    NewerFormat {
        /// The file.
        segment: String,
        /// Its version.
        found: u32,
        /// The highest version that this program reads.
        supported: u32,
    },
    /// The log was written under a later epoch than the one that was taken now: another gateway
    /// has opened the volume since.
    #[error(
        "the log was written in epoch {found:?}, later than ours ({ours:?}): this gateway has been \
         fenced; open the volume again to take a new epoch"
    )]
    NewerEpoch {
        /// The highest epoch in the log.
        found: Epoch,
        /// The epoch of the options.
        ours: Epoch,
    },
    /// A number that no log reaches, and that would overflow when counted on.
    #[error(
        "{what} is {number}, which no log reaches: it was not written by this program, or is \
         damaged; move that file out of the log folder, or restore the volume's metadata"
    )]
    OutOfRange {
        /// The meaning of the number, and its file.
        what: String,
        /// The number.
        number: u64,
    },
    /// Records that should be replayed no longer exist: the log begins after `from`.
    #[error(
        "the log begins at LSN {first}, but the volume is published only up to LSN {from}: the \
         records in between are missing; bring back the missing log segments, or put the log aside \
         and go on with what the bucket holds"
    )]
    Missing {
        /// Where replay should have begun.
        from: Lsn,
        /// The first record that could be there.
        first: Lsn,
    },
    /// The log is sealed, and no keys were given.
    #[error(
        "log segment {segment} is sealed, and there are no keys to open it with: open the volume with what \
         opens it (encryption = \"aes-256-gcm\"), or put the log aside"
    )]
    Sealed {
        /// The file.
        segment: String,
    },
    /// The log must be sealed, but is not.
    #[error(
        "log segment {segment} is not sealed, and holds what the bucket does not have, or may: a log that is \
         sealed from its beginning has no such segment, and nobody can tell who has written it. If sealing was just \
         switched on after a stop that was not in order, start once more with seal_log = \"off\" and stop in \
         order, which publishes all of the log; else somebody has put it there: move it out of the log folder"
    )]
    NotSealed {
        /// The file.
        segment: String,
    },
    /// The log was sealed with a key that is missing.
    #[error("log segment {segment}: {error}")]
    UnknownKey {
        /// The file.
        segment: String,
        /// The key that is missing.
        error: UnknownDataKey,
    },
    /// The bytes are whole, but are not what a gateway of this volume sealed for that place.
    #[error(
        "{what} in log segment {segment} does not authenticate: it is whole, so neither a crash nor a bad \
         disk has made it so; somebody has changed the log, or put parts of another one in its place. Nothing was \
         replayed, and nothing was changed. Find out who can write to that disk; then bring the true log back, or \
         move the log folder away, to go on with what the bucket holds, and keep it: `forebay log salvage` reads what is authentic"
    )]
    Forged {
        /// The file.
        segment: String,
        /// The part of the file.
        what: String,
    },
    /// The options contradict themselves or the log.
    #[error("log options: {0}")]
    Options(String),
    /// The operating system refused.
    #[error("log: {action}: {source}")]
    Io {
        /// The attempted action, with the name of the file.
        action: String,
        /// Why it failed.
        source: io::Error,
    },
}

impl OpenError {
    /// Adds the attempted action to an error of the operating system.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> OpenError {
        let action = action.into();
        move |source| OpenError::Io { action, source }
    }
}

/// A record was not appended. Nothing of it is in the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// No segment has room now. Wait for [`Wal::room`](crate::Wal::room), then try again.
    #[error("the log has no room now")]
    Full,
    /// The log is poisoned or closed.
    #[error(transparent)]
    Failed(#[from] LogFailed),
    /// The record can never fit into a segment.
    #[error("a record of {bytes} bytes exceeds the {limit} that fit into a log segment")]
    TooLarge {
        /// Payload bytes of the record.
        bytes: u64,
        /// Payload bytes of the largest possible record.
        limit: u64,
    },
}

/// The log takes no more records and promises nothing about those that are not durable yet: a
/// flush has failed, or the log was closed. [`Wal::restart`](crate::Wal::restart) is the way out of
/// the former.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the log has stopped after LSN {durable}: {reason}")]
pub struct LogFailed {
    /// The LSN up to which records are durable nevertheless.
    pub durable: Lsn,
    /// The reason.
    pub reason: String,
}
