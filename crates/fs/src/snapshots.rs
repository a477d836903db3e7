//! Snapshots: lists what they hold, and deletes them.
//!
//! A snapshot is [made](crate::files::snapshots) as a record in the log that ends a checkpoint, and is
//! [published](crate::publisher) with that. Its deletion goes in steps between two checkpoints:
//!
//! ```text
//!   its record says that it is being deleted  -> its name is free
//!   no clone needs it                         -> it holds no pack that dies from now on
//!   its state is no longer kept               -> tables that only it needs are deleted in the background
//!   each pack that it holds                   -> is held by the next older snapshot that refers to it, or is dead
//!   its record is deleted
//! ```
//!
//! A crash between two steps loses nothing: the record says that the deletion has begun, and each step may be repeated.

mod deferred;
mod delete;
mod opened;
mod sizes;
mod space;

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_clones::holds;
pub use forebay_meta::held::Holds;
use forebay_meta::record::{MAX_SNAPSHOTS, SnapshotRecord, Timestamp};
use forebay_meta::{Catalog, StoreError};
use forebay_object::Store;
use forebay_pack_store::PackStore;
use forebay_types::{CommitNumber, Lsn, SnapshotId, VolumeId};
use forebay_vfs::Error;
use forebay_view::View;
use parking_lot::Mutex;
use tokio::sync::watch;

use deferred::Deferred;
use opened::Opened;
pub(crate) use space::SpaceOfSnapshots;

use crate::publisher::{Progress, kept_name};
use crate::state::{BadSnapshotName, Signals, SnapshotList};

/// The rooms that snapshots use.
pub(crate) struct Context {
    pub(crate) store: Store,
    pub(crate) volume: VolumeId,
    pub(crate) packs: Arc<PackStore>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) list: Arc<SnapshotList>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) signals: Arc<Signals>,
}

/// A snapshot of the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its number.
    pub id: SnapshotId,
    /// Its name.
    pub name: String,
    /// When it was made, in UTC.
    pub made: Timestamp,
    /// The person or schedule that asked for it.
    pub made_by: String,
    /// Whether the bucket has it. If not, the log has it, and it is published with the changes before it.
    pub is_published: bool,
    /// Its counts; `None` before it is published.
    pub counts: Option<SnapshotCounts>,
}

/// The counts of a published snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotCounts {
    /// It has the changes before this position of the log.
    pub lsn: Lsn,
    /// The commit that published it.
    pub commit: CommitNumber,
    /// Bytes of its files.
    pub used_bytes: u64,
    /// Number of its objects.
    pub used_inodes: u64,
    /// The dead packs that it holds; `None` if the metadata cannot be read now.
    pub holds: Option<Holds>,
}

/// Why an operator's request for a snapshot fails. Each message says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The name cannot be one.
    #[error("{0}; use up to 128 bytes such as 2026-11-27T09:00Z or before-upgrade")]
    Name(#[from] BadSnapshotName),
    /// There is a snapshot with that name.
    #[error("there is a snapshot {0:?} already; choose another name, or delete it first")]
    Exists(String),
    /// There is no snapshot with that name.
    #[error("there is no snapshot {0:?}; `forebay snapshot list` lists all")]
    NotFound(String),
    /// The volume has as many snapshots as it may have.
    #[error("the volume has {MAX_SNAPSHOTS} snapshots, and may not have more; delete some first")]
    Full,
    /// Too many snapshots wait for the bucket.
    #[error(
        "too many snapshots wait to be published: the bucket does not keep up; see `forebay status`, and try again later"
    )]
    TooMany,
    /// It is not in the bucket yet.
    #[error(
        "snapshot {0:?} is not in the bucket yet; try again when `forebay snapshot list` shows that it is"
    )]
    NotPublished(String),
    /// Its state is gone from the bucket.
    #[error(
        "the state of snapshot {0:?} is gone from the bucket: something else has deleted it; delete the snapshot"
    )]
    Gone(String),
    /// Clones need it.
    #[error(
        "snapshot {name:?} is held by {clones}, which reads what it has; `forebay clone detach` makes a clone a volume of its own, and `forebay clone list` shows all clones"
    )]
    Cloned {
        /// The snapshot.
        name: String,
        /// The clones.
        clones: String,
    },
    /// The metadata cannot be read.
    #[error("the metadata in the bucket cannot be read: {0}; see `forebay status`")]
    Store(String),
    /// The notes on clones cannot be read.
    #[error("it is not known whether a clone needs the snapshot: {0}; try again later")]
    Bucket(String),
    /// The volume could not do it.
    #[error("the volume cannot do it now: {0}; see `forebay status` and the gateway's messages")]
    Volume(#[from] Error),
}

impl From<StoreError> for SnapshotError {
    fn from(error: StoreError) -> SnapshotError {
        SnapshotError::Store(error.to_string())
    }
}

/// Packs that the deletion of a snapshot has freed since the start of this gateway: no other snapshot refers to them.
#[derive(Clone, Copy, Debug)]
struct Freed {
    snapshot: SnapshotId,
    packs: u64,
    bytes: u64,
}

/// The snapshots of one volume.
pub(crate) struct Snapshots {
    context: Context,
    /// Snapshots whose deletion is ordered, and has not begun.
    ordered: Mutex<BTreeSet<SnapshotId>>,
    /// Snapshots that a clone has got hold of when their deletion had begun.
    deferred: Deferred,
    /// What the deletion that goes on has freed.
    freed: Mutex<Option<Freed>>,
    /// Counts the steps of deletions.
    steps: watch::Sender<u64>,
    opened: Opened,
}

impl Snapshots {
    pub(crate) fn new(context: Context) -> Snapshots {
        Snapshots {
            context,
            ordered: Mutex::default(),
            deferred: Deferred::default(),
            freed: Mutex::default(),
            steps: watch::Sender::new(0),
            opened: Opened::default(),
        }
    }

    /// The snapshot with this name, or with this number if none has that name.
    pub(crate) async fn open(&self, name_or_number: &str) -> Result<Arc<View>, SnapshotError> {
        let (id, name) = self.published(name_or_number)?;
        self.opened.get(id, || self.view(id, &name)).await
    }

    /// A snapshot that the bucket has, and its name.
    fn published(&self, name_or_number: &str) -> Result<(SnapshotId, String), SnapshotError> {
        let found = self.context.list.given(name_or_number);
        let not_found = || SnapshotError::NotFound(name_or_number.to_owned());
        let (id, found) = found.ok_or_else(not_found)?;
        match found.is_published {
            true => Ok((id, found.record.name)),
            false => Err(SnapshotError::NotPublished(found.record.name)),
        }
    }

    async fn view(&self, id: SnapshotId, name: &str) -> Result<View, SnapshotError> {
        let store = self.context.catalog.store();
        let opened = store.open_kept(&kept_name(id)).await?;
        let meta = opened.ok_or_else(|| SnapshotError::Gone(name.to_owned()))?;
        let packs = self.context.packs.clone();
        Ok(View::of(self.context.volume, None, meta, packs))
    }

    /// The snapshot with this number, for a client. One that is not published yet is published soon: the client tries
    /// again.
    pub(crate) async fn image(&self, id: SnapshotId) -> Result<Arc<View>, Error> {
        let (name, is_published) = self.context.list.name(id).ok_or(Error::Stale)?;
        if !is_published {
            self.context.signals.wake_publisher();
            return Err(Error::Delay);
        }
        let opened = self.opened.get(id, || self.view(id, &name)).await;
        opened.map_err(|error| match error {
            _ if !self.context.list.has(id) => Error::Stale,
            SnapshotError::Gone(_) => {
                tracing::error!("{error}");
                Error::Io
            }
            error => {
                tracing::debug!("cannot open snapshot {name:?}: {error}; the client tries again");
                Error::Delay
            }
        })
    }

    /// A snapshot that was just made.
    pub(crate) fn made(id: SnapshotId, record: SnapshotRecord) -> SnapshotInfo {
        SnapshotInfo {
            id,
            name: record.name,
            made: record.made,
            made_by: record.made_by,
            is_published: false,
            counts: None,
        }
    }

    /// Deletes the snapshot with this name, or with this number if none has that name. Returns when the bucket has a state in which its deletion has begun, which
    /// goes on in the background: its name is free, and nothing can be read from it.
    pub(crate) async fn delete(&self, name_or_number: &str) -> Result<(), SnapshotError> {
        let (id, name) = self.published(name_or_number)?;
        let holders = holds::holders(&self.context.store, self.context.volume, id).await;
        let holders = holders.map_err(|error| SnapshotError::Bucket(error.to_string()))?;
        if !holders.is_empty() {
            return Err(SnapshotError::Cloned {
                name,
                clones: holders.join(", "),
            });
        }
        let mut steps = self.steps.subscribe();
        let mut stopped = self.context.signals.watch_stopped();
        self.ordered.lock().insert(id);
        self.context.signals.wake_publisher();
        loop {
            steps.mark_unchanged();
            if !self.context.list.has(id) {
                return Ok(());
            }
            tokio::select! {
                biased;
                _ = steps.changed() => {}
                _ = stopped.wait_for(Option::is_some) => return Err(Error::Delay.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
