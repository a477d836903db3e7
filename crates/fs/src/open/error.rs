//! Reasons why a volume cannot be formatted or opened.

use std::io;
use std::path::PathBuf;

use forebay_environment::state_file::LocalError;
use forebay_meta::StoreError;
use forebay_meta::volume::VolumeError;
use forebay_object::Refusal;
use forebay_types::{Epoch, Lsn, VolumeId};

use super::held::HeldVolume;
use crate::state::Stopped;

/// Why a volume cannot be formatted or opened. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The volume itself: it does not exist, is damaged, or is newer than this program.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The metadata in the bucket cannot be used.
    #[error("the volume's metadata cannot be opened: {0}")]
    Metadata(#[from] StoreError),
    /// The store refuses a request, until a person acts.
    #[error("{url}: {refusal}")]
    Refused {
        /// The store.
        url: String,
        /// Its message and the remedy.
        refusal: Refusal,
    },
    /// The volume has a descriptor but no metadata.
    #[error(
        "the volume at {url} has no metadata. If `forebay format` was interrupted, delete the object {object} and format again; otherwise the metadata were deleted: put them back from a copy of the bucket"
    )]
    NoMetadata {
        /// The store.
        url: String,
        /// The descriptor's name.
        object: String,
    },
    /// The bucket is older than the state that this gateway has seen.
    #[error(
        "the bucket at {url} has epoch {found}, but the gateway of {folder} has seen epoch {seen} there: the bucket holds an earlier state of the volume. Restore the latest state, and find out who can write to the bucket. To serve the earlier state, give the gateway a new data_dir, and keep this one until `forebay log salvage` has saved the content of its log",
        found = found.0, seen = seen.0
    )]
    PutBack {
        /// The store.
        url: String,
        /// The local folder.
        folder: PathBuf,
        /// The epoch of the bucket.
        found: Epoch,
        /// The highest epoch that it was known to have.
        seen: Epoch,
    },
    /// Another gateway holds the volume.
    #[error(transparent)]
    Held(#[from] Box<HeldVolume>),
    /// The bucket did not take the holder's note.
    #[error(
        "cannot read or write the object {object}, which names the gateway that holds the volume: {source}; the gateway needs the permissions to get and put it"
    )]
    Holder {
        /// The note's name.
        object: String,
        /// The store's error.
        source: object_store::Error,
    },
    /// The gateway's own state file.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// There is no volume, and this gateway has served one: a new one in its place would cover the old one, which may
    /// come back.
    #[error(
        "{url} has no volume, but {folder} holds the log and state of volume {volume}: the store was emptied, or it is another store. Name the right store, or restore the volume; a new volume needs a data_dir of its own"
    )]
    Gone {
        /// The store.
        url: String,
        /// The local folder.
        folder: PathBuf,
        /// The volume to which it belongs.
        volume: VolumeId,
    },
    /// The local folder belongs to another volume.
    #[error(
        "{folder} holds the log and state of volume {found}, not of {expected}; give this volume a data_dir of its own"
    )]
    OtherVolume {
        /// The local folder.
        folder: PathBuf,
        /// The volume to which it belongs.
        found: VolumeId,
        /// The volume to open.
        expected: VolumeId,
    },
    /// The log folder cannot be used.
    #[error("the log in {folder} cannot be used: {source}")]
    LogFolder {
        /// The local folder.
        folder: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The log of an earlier epoch must be archived, and there is no room for it.
    #[error(
        "the log in {folder} was overtaken by another gateway's epoch and has to be archived, and the archived logs there take {archived} bytes of {limit} (log_limit): `forebay log list` shows them, `forebay log salvage LABEL --to FOLDER` writes their changes as files, and `forebay log forget --all-salvaged` makes room"
    )]
    ArchiveFull {
        /// The local folder.
        folder: PathBuf,
        /// Bytes of archived logs.
        archived: u64,
        /// The most bytes that they may have.
        limit: u64,
    },
    /// The log cannot be replayed.
    #[error(transparent)]
    Log(#[from] forebay_wal::OpenError),
    /// A record of the log does not fit what the bucket holds.
    #[error(
        "cannot replay the log record at LSN {lsn}: {why}; the bucket holds a consistent file system as of LSN {published}: to continue with that state, move the log folder away, and keep it for salvage"
    )]
    Replay {
        /// The LSN of the record.
        lsn: Lsn,
        /// What does not fit.
        why: String,
        /// The published LSN of the bucket.
        published: Lsn,
    },
    /// The volume was taken over, or the bucket failed for good, while it was being opened.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl OpenError {
    /// Whether there is nothing at all where the volume should be.
    pub fn is_not_formatted(&self) -> bool {
        matches!(self, OpenError::Volume(VolumeError::NotFormatted { .. }))
    }

    /// Whether another gateway has opened the volume meanwhile.
    pub(super) fn is_fenced(&self) -> bool {
        matches!(
            self,
            OpenError::Metadata(StoreError::Fenced) | OpenError::Stopped(Stopped::Fenced)
        )
    }

    /// Whether another gateway holds the volume.
    pub fn is_held(&self) -> bool {
        matches!(self, OpenError::Held(_))
    }
}
