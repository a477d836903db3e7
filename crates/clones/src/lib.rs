//! Clones of volumes, and the return of a volume to a snapshot. Both from the bucket alone.
//!
//! A clone begins with the state of a snapshot of its source, under a prefix of its own. What the snapshot has lies at
//! the source: packs, and tables of metadata. The clone reads it there and never changes it; the source keeps the
//! snapshot as long as it has the clone's [note](forebay_meta::volume::notes).
//!
//! | module | |
//! |---|---|
//! | [`layers`] | the clone's bucket: its own prefix, and what lies at its sources |
//! | [`holds`] | which clones hold snapshots of a volume |
//! | [`make`] | makes a clone |
//! | [`detach`] | copies what lies at the sources, and ends the holding |
//! | [`restore`] | takes a volume back to a snapshot |
//! | [`states`] | the states of metadata, which both copy as a whole |
//! | `patch` | the records that differ between a snapshot and the state that begins with it: pure functions |

#![forbid(unsafe_code)]

pub mod detach;
pub mod holds;
pub mod layers;
pub mod make;
mod patch;
pub mod restore;
pub mod states;
mod volume;

use forebay_meta::StoreError;
use forebay_meta::volume::VolumeError;
use forebay_object::OpenError;

/// Why a clone was not made or detached, or a volume not restored. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum CloneError {
    /// The volume, or the place of the new one.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// A folder cannot be used.
    #[error(transparent)]
    Place(#[from] OpenError),
    /// The metadata cannot be read or written.
    #[error("the metadata in the bucket cannot be used: {0}")]
    Metadata(StoreError),
    /// A request to the bucket failed.
    #[error("the bucket could not be used: {0}")]
    Bucket(#[from] object_store::Error),
    /// There is no such snapshot.
    #[error(
        "the bucket has no snapshot {0:?}; `forebay snapshot list --bucket` lists all that it has"
    )]
    NoSnapshot(String),
    /// It cannot be read any more.
    #[error("snapshot {0:?} is being deleted, and cannot be used any more")]
    BeingDeleted(String),
    /// Its record is in the bucket, and its state is not.
    #[error(
        "the state of snapshot {0:?} is not in the bucket: start the gateway, which publishes it, and try again"
    )]
    NotKept(String),
    /// The clone would not lie in the same bucket, apart from its source.
    #[error(
        "{to} is no other place of the same bucket as {from}: a clone shares the objects of its source; choose a prefix, or a folder, beside it"
    )]
    NotBeside {
        /// The source.
        from: String,
        /// The place.
        to: String,
    },
    /// The line of sources is too long.
    #[error(
        "a clone of this clone would have too many sources; run `forebay clone detach` for this one first"
    )]
    TooManySources,
    /// It is no clone, or is detached.
    #[error(
        "the volume at {0} is no clone, or is detached already: nothing of it lies anywhere else"
    )]
    NoClone(String),
    /// Objects at the source are missing.
    #[error(
        "{0} is missing at the source; `forebay fsck` for both volumes shows what is lost. Nothing was changed"
    )]
    Missing(String),
    /// Another program changed the volume meanwhile.
    #[error(
        "another program has opened or changed the volume meanwhile; nothing was restored. Stop all gateways of this volume, and try again"
    )]
    Overtaken,
    /// A gateway holds the volume.
    #[error(
        "{0} holds the volume: stop it first. If it does not run any more, --take-over goes on without it, and the changes in its log that the bucket does not have are not in the snapshot of the state before"
    )]
    Held(String),
    /// The bucket was put back.
    #[error(
        "the bucket has an earlier state of the volume than the one that this machine has seen: an earlier state was put back. Restore the latest state of the bucket first"
    )]
    PutBack,
    /// The volume has too many snapshots.
    #[error(
        "the volume has {0} snapshots, and the state before a restore becomes another one: delete some first"
    )]
    Full(usize),
    /// The accounts disagree.
    #[error(
        "pack {0}, to which the snapshot refers, has no account now; run `forebay fsck` first. Nothing was restored"
    )]
    Unaccounted(forebay_types::PackId),
}

impl From<StoreError> for CloneError {
    fn from(error: StoreError) -> CloneError {
        match error {
            StoreError::Fenced => CloneError::Overtaken,
            error => CloneError::Metadata(error),
        }
    }
}
