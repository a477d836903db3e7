//! Puts files and directories of a snapshot back into the live tree. No byte is copied: the new files refer to the
//! frames that the snapshot holds.
//!
//! ```text
//!   stage   a new object `.forebay-restore-...` beside the target: names, attributes, and maps of the snapshot's frames,
//!     |     whose packs are pinned until their checkpoint is published
//!   flush   the bucket has all of it
//!     |
//!   place   it gets its name; what had that name gets another one
//! ```
//!
//! A crash before the last step leaves the staged object, and nothing else has changed. After it the restored tree is
//! whole, whatever becomes of the snapshot.

mod frames;
mod place;
mod tree;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_meta::StoreError;
use forebay_pack_store::PackStore;
use forebay_reduction::dedup::Sharing;
use forebay_types::{Inode, SnapshotId};
use forebay_vfs::{Credentials, Error, FileSystem};
use forebay_view::{View, ViewError};

use crate::display_path::DisplayPath;
use crate::files::Files;
use crate::files::durability::CommitMode;
use crate::files::whereabouts::{PathError, names};
use crate::publisher::{FlushError, Publisher};
use crate::snapshots::{SnapshotError, Snapshots};
use crate::state::State;
use place::Target;
use tree::Staging;

/// The pause before an operation is repeated.
const AGAIN: Duration = Duration::from_millis(100);

const ROOT: &Credentials = &Credentials::ROOT;

/// The rooms that a restore uses.
pub(crate) struct Context {
    pub(crate) state: Arc<State>,
    pub(crate) files: Arc<Files>,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) packs: Arc<PackStore>,
    pub(crate) sharing: Arc<Sharing>,
    pub(crate) snapshots: Arc<Snapshots>,
}

/// The object to put back. Paths begin at the volume's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreRequest {
    /// Name of the snapshot, or its number.
    pub snapshot: String,
    /// The file or directory in the snapshot.
    pub path: Vec<u8>,
    /// The path that it gets; the same one if `None`.
    pub to: Option<Vec<u8>>,
    /// Whether an object that has that path gets another name, beside it. If not, it is an error.
    pub replace: bool,
}

/// The result of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The path of the restored object.
    pub path: Vec<u8>,
    /// The path that the object has now that was there before, if there was one.
    pub moved_aside: Option<Vec<u8>>,
    /// Number of restored objects of all kinds. A file with several names is one.
    pub objects: u64,
    /// Bytes of their files, without holes.
    pub bytes: u64,
}

/// Why nothing was restored. Each message says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The snapshot cannot be read.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The place for the restored object is no path, or its directory does not exist.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The snapshot has no such object.
    #[error(
        "there is no {path} in snapshot {snapshot:?}; `forebay versions {path}` lists the snapshots that have it"
    )]
    NotInSnapshot {
        /// The path.
        path: DisplayPath,
        /// Name of the snapshot.
        snapshot: String,
    },
    /// The volume's root was to be replaced.
    #[error("/ is the whole volume: give a new directory for it with --to")]
    Root,
    /// There is something at that path.
    #[error(
        "there is a {0} already, which is not replaced: give another path with --to, or add --replace to have it renamed first"
    )]
    Exists(DisplayPath),
    /// The object at that path has another name now, and could not get its own back.
    #[error("nothing was restored, and the object that was there is {0} now: rename it")]
    LeftAside(DisplayPath),
    /// The bucket does not answer; tried again.
    #[error("the bucket does not answer: {0}")]
    Away(String),
    /// Another restore is running.
    #[error("another restore is running: try again when it is done")]
    Busy,
    /// The metadata or packs of the snapshot cannot be read.
    #[error("the snapshot cannot be read: {0}; nothing was restored; see `forebay status`")]
    Unreadable(String),
    /// The restored files cannot be published.
    #[error(transparent)]
    Flush(#[from] FlushError),
    /// The volume could not do it.
    #[error(
        "the volume cannot do it: {0}; nothing was restored; see `forebay status` and `forebay quota`"
    )]
    Volume(#[from] Error),
}

impl From<StoreError> for RestoreError {
    fn from(error: StoreError) -> RestoreError {
        match error {
            StoreError::Transient(why) => RestoreError::Away(why),
            error => RestoreError::Unreadable(error.to_string()),
        }
    }
}

impl From<ViewError> for RestoreError {
    fn from(error: ViewError) -> RestoreError {
        match error {
            ViewError::Metadata(error) => error.into(),
            ViewError::Unavailable(why) => RestoreError::Away(why),
            error => RestoreError::Unreadable(error.to_string()),
        }
    }
}

impl Context {
    /// Repeats an operation that clients would repeat as well, until it is done, fails in another way, or the volume stops.
    /// Others have their turn before each attempt: a tree may have millions of objects.
    async fn patiently<T, F>(&self, ask: impl Fn() -> F) -> Result<T, RestoreError>
    where
        F: Future<Output = Result<T, RestoreError>>,
    {
        loop {
            tokio::task::yield_now().await;
            match ask().await {
                Err(RestoreError::Away(_) | RestoreError::Volume(Error::Delay)) => {
                    self.state.signals.check_running()?;
                    tokio::time::sleep(AGAIN).await;
                }
                done => return done,
            }
        }
    }

    /// Returns when everything that was made is published.
    async fn publish(&self) -> Result<(), RestoreError> {
        match self.publisher.flush().await {
            // Of something else: packs that a snapshot refers to are read when they are restored.
            Ok(_) | Err(FlushError::PackGone(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Puts trees of snapshots back, one at a time.
pub(crate) struct Restore {
    context: Context,
    turn: tokio::sync::Mutex<()>,
    /// Objects that the restore that runs, or the last one, has made.
    made: AtomicU64,
}

impl Restore {
    pub(crate) fn new(context: Context) -> Restore {
        Restore {
            context,
            turn: tokio::sync::Mutex::default(),
            made: AtomicU64::new(0),
        }
    }

    /// Number of objects that the restore that runs has made so far.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Restores an object. It is in the bucket, and its name as stable as `mode` says, when this returns. After an
    /// error nothing has changed.
    pub(crate) async fn run(
        &self,
        request: &RestoreRequest,
        mode: CommitMode,
    ) -> Result<Restored, RestoreError> {
        let _turn = self.turn.try_lock().map_err(|_| RestoreError::Busy)?;
        self.made.store(0, Ordering::Relaxed);
        let context = &self.context;
        let given = &request.snapshot;
        let found = context.state.snapshots.given(given);
        let (snapshot, listed) = found.ok_or_else(|| SnapshotError::NotFound(given.clone()))?;
        let name = &listed.record.name;
        let view = context.snapshots.open(name).await?;
        let source = self.in_snapshot(&view, request).await?;
        let path = request.to.as_ref().unwrap_or(&request.path);
        let target = Target::find(context, path, request.replace).await?;
        let staged = target.staged_name(context).await?;
        let mut staging = Staging::new(context, &view, (snapshot, name), &self.made);
        let copied = staging.tree(source, target.directory, &staged).await;
        let placed = match copied {
            Ok(()) => self.place(&target, &staged, mode).await,
            Err(error) => Err(error),
        };
        match placed {
            Ok(moved_aside) => Ok(Restored {
                path: target.path(),
                moved_aside,
                ..staging.restored()
            }),
            Err(error) => {
                context.discard(target.directory, &staged).await;
                Err(error)
            }
        }
    }

    async fn place(
        &self,
        target: &Target,
        staged: &[u8],
        mode: CommitMode,
    ) -> Result<Option<Vec<u8>>, RestoreError> {
        self.context.publish().await?;
        let (end, moved_aside) = target.place(&self.context, staged).await?;
        self.context.files.stable(end, mode).await?;
        Ok(moved_aside)
    }

    /// The object at the path in the snapshot.
    async fn in_snapshot(
        &self,
        view: &View,
        request: &RestoreRequest,
    ) -> Result<Inode, RestoreError> {
        let mut at = Inode::ROOT;
        for name in names(&request.path)? {
            let look = || async {
                match view.lookup(ROOT, at, name).await {
                    Err(Error::NotFound | Error::NotDirectory) => {
                        Err(RestoreError::NotInSnapshot {
                            path: DisplayPath(request.path.clone()),
                            snapshot: request.snapshot.clone(),
                        })
                    }
                    found => found.map_err(of_snapshot),
                }
            };
            at = self.context.patiently(look).await?.inode;
        }
        Ok(at)
    }
}

/// The snapshot that a restore reads: its number and its name.
type Source<'a> = (SnapshotId, &'a str);

/// An error of a call on the snapshot.
fn of_snapshot(error: Error) -> RestoreError {
    match error {
        Error::Delay => RestoreError::Away("the snapshot cannot be read now".into()),
        error => RestoreError::Unreadable(error.to_string()),
    }
}
