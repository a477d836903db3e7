//! Errors, grouped by what the caller can do.

use std::io;

use forebay_seal::UnknownDataKey;
use forebay_types::{Epoch, Lsn, VolumeId};

/// The log cannot be opened. Nothing was changed on disk.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A segment was written for another volume.
    #[error(
        "log segment {segment} belongs to volume {found}, not to {expected}: give this volume a \
         log folder of its own, or move the old log away first"
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
         start the newer program, stop it cleanly (which publishes the log), or move the log away"
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
        "{what} is {number}, which is impossible: it was not written by this program, or is \
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
         records between are missing; restore the missing log segments, or move the log away and \
         continue with the state in the bucket"
    )]
    Missing {
        /// Where replay should have begun.
        from: Lsn,
        /// The first record that could be there.
        first: Lsn,
    },
    /// The log is sealed, and no keys were given.
    #[error(
        "log segment {segment} is sealed, and there are no keys for it: set encryption = \"aes-256-gcm\" \
         and a passphrase, key file or KMS key, or move the log away"
    )]
    Sealed {
        /// The file.
        segment: String,
    },
    /// The log must be sealed, but is not.
    #[error(
        "log segment {segment} is not sealed, and may hold changes that are not in the bucket: a sealed log has no \
         such segment, and it is unknown who has written it. If you switched sealing on after a stop that was not \
         clean, start once more with seal_log = \"off\" and shut down cleanly, which publishes all of the log; \
         otherwise somebody has put the segment there: move it out of the log folder"
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
        "{what} in log segment {segment} does not authenticate: its checksum is right, so neither a crash nor a bad \
         disk explains it; somebody has changed the log, or replaced parts of it. Nothing was replayed, and nothing \
         was changed. Find out who can write to that disk; then restore the true log, or, to continue with the state \
         in the bucket, move the log folder away and keep it: `forebay log salvage` reads its authentic part"
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

/// A record of an open log was not read. Other records may be readable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadFailed {
    /// The log has no such record: its segment was recycled, or the log has begun again.
    #[error("the log does not have it any more")]
    Gone,
    /// The bytes there are not that record any more.
    #[error("log segment {segment} is damaged: {why}")]
    Damaged {
        /// The file.
        segment: String,
        /// The defect.
        why: String,
    },
    /// The file cannot be opened, now or for good. That says nothing about its bytes.
    #[error("log segment {segment} cannot be opened: {why}")]
    NotOpened {
        /// The file.
        segment: String,
        /// The error.
        why: String,
    },
    /// The disk does not return the bytes, now or for good.
    #[error("log segment {segment} cannot be read: {why}")]
    Unreadable {
        /// The file.
        segment: String,
        /// The error of the operating system.
        why: String,
    },
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
