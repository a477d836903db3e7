//! An open volume: its life, and the requests of operators.

mod backlog;
mod file_system;
mod metrics;
mod restore;
mod snapshots;
mod trash;

pub use backlog::Backlog;
pub use trash::Undeleted;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use forebay_environment::Environment;
use forebay_environment::state_file::{self, LocalState};
use forebay_object::Store;
use forebay_types::{Epoch, Inode, Lsn, VolumeId};
use forebay_vfs::{Timestamp, Troubles};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::collector::{CollectRefusal, CollectorStatus};
use crate::files::Files;
use crate::files::durability::CommitMode;
use crate::files::quota::{LimitChange, Quota, QuotaError};
use crate::files::whereabouts::{FlushedPath, PathError, Whereabouts};
use crate::open::{self, Hold, OpenError};
use crate::publisher::FlushError;
use crate::rooms::Rooms;
use crate::scrub::{ScrubRefusal, ScrubStatus};
use crate::state::Stopped;
use crate::tasks::{Engine, Tasks};
use crate::{Compression, Expected, FsConfig, Holder, Status};

/// How long closing waits at least for the metadata store, beyond the limit for publishing.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

/// A volume that this gateway serves. Clones share it.
///
/// Dropping it stops nothing at once and loses nothing that was stable: the log is replayed at the next opening.
/// [`Volume::close`] is the orderly way.
#[derive(Clone)]
pub struct Volume {
    /// The room that operations need; a field of [`Rooms`], kept here to reach it directly.
    files: Arc<Files>,
    rooms: Arc<Rooms>,
    commit: CommitMode,
    /// The compression of files that are written through this clone.
    compression: Compression,
    shared: Arc<Shared>,
}

struct Shared {
    volume: VolumeId,
    handle_key: [u8; 32],
    state: Arc<Mutex<LocalState>>,
    hold: Hold,
    tasks: Tasks,
}

/// The result of closing a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The bucket holds everything.
    Published,
    /// Time ran out or the bucket did not answer: the rest is in the log, and is published after the next opening by
    /// this gateway.
    InLog,
}

impl Volume {
    /// Makes the empty prefix of `store` a volume and returns its identity.
    ///
    /// # Errors
    ///
    /// If there is a volume already, the prefix holds other objects, or the store fails.
    pub async fn format(store: &Store) -> std::result::Result<VolumeId, OpenError> {
        Volume::format_as(store, &Expected::NotSealed).await
    }

    /// Like [`Volume::format`], for a volume that `expected` describes: sealed, if that is expected, with a new key
    /// ring that the same `expected` opens.
    ///
    /// # Errors
    ///
    /// As of [`Volume::format`].
    pub async fn format_as(
        store: &Store,
        expected: &Expected,
    ) -> std::result::Result<VolumeId, OpenError> {
        // The local folder is not used.
        open::format(store, &Environment::real(PathBuf::new()), expected).await
    }

    /// Like [`Volume::format`], in an environment of the caller's choice.
    ///
    /// # Errors
    ///
    /// As of [`Volume::format`].
    pub async fn format_in(
        store: &Store,
        environment: &Environment,
    ) -> std::result::Result<VolumeId, OpenError> {
        open::format(store, environment, &Expected::NotSealed).await
    }

    /// Opens a volume for writing and replays the changes that the local log has and the bucket has not.
    ///
    /// This takes a new epoch: a gateway that had the volume open can no longer write to it.
    ///
    /// # Errors
    ///
    /// See [`OpenError`]; nothing is lost by a failed opening, and a volume that was free is free again.
    pub async fn open(store: &Store, config: FsConfig) -> std::result::Result<Volume, OpenError> {
        let environment = Environment::real(config.data_dir.clone());
        Volume::open_in(store, config, environment).await
    }

    /// Like [`Volume::open`], in an environment of the caller's choice (`config.data_dir` is then ignored).
    ///
    /// # Errors
    ///
    /// As of [`Volume::open`].
    pub async fn open_in(
        store: &Store,
        config: FsConfig,
        environment: Environment,
    ) -> std::result::Result<Volume, OpenError> {
        let opened = open::open(store, config, environment, None).await?;
        Ok(Volume::begin(opened))
    }

    /// Makes the empty prefix of `store` a volume, as [`Volume::format_as`] does with the expectation of `config`,
    /// and opens it, with fewer requests than the two calls.
    ///
    /// # Errors
    ///
    /// As of [`Volume::format`] and [`Volume::open`].
    pub async fn format_and_open(
        store: &Store,
        config: FsConfig,
    ) -> std::result::Result<Volume, OpenError> {
        let environment = Environment::real(config.data_dir.clone());
        let (expected, cache) = (config.expected.clone(), config.metadata_cache);
        let made = open::make(store, &environment, &expected, cache);
        let made = open::unless_refused(store, made).await?;
        drop(expected);
        let first = made.first.clone();
        match open::open(store, config, environment, Some(made)).await {
            Ok(opened) => Ok(Volume::begin(opened)),
            Err(error) => {
                first.commit_if_missing().await;
                Err(error)
            }
        }
    }

    /// Starts the tasks of a volume that was opened.
    fn begin(opened: open::Opened) -> Volume {
        Volume::begin_with(opened, |engine| engine)
    }

    /// The same, with each engine replaced by the result of `change`.
    fn begin_with(opened: open::Opened, change: impl Fn(Engine) -> Engine) -> Volume {
        let rooms = opened.rooms;
        let progress = rooms.publisher.progress();
        progress
            .publications()
            .begin(rooms.state.now(), progress.published());
        let state = Arc::new(Mutex::new(opened.state));
        let tasks = Tasks::new(rooms.state.signals.clone());
        for engine in rooms.engines(&state) {
            tasks.start(change(engine));
        }
        Volume {
            compression: rooms.state.config.compression,
            files: rooms.files.clone(),
            rooms: Arc::new(rooms),
            commit: CommitMode::default(),
            shared: Arc::new(Shared {
                volume: opened.volume,
                handle_key: opened.handle_key,
                state,
                hold: opened.hold,
                tasks,
            }),
        }
    }

    /// The same volume for callers that want their changes as safe as `commit` says before the reply.
    pub fn with_commit_mode(&self, commit: CommitMode) -> Volume {
        Volume {
            commit,
            ..self.clone()
        }
    }

    /// The same volume for callers whose files are to be compressed in this way. It holds for whole files, from the
    /// next write on, and also for their bytes that are not in the bucket yet; a restart forgets it.
    pub fn with_compression(&self, compression: Compression) -> Volume {
        Volume {
            compression,
            ..self.clone()
        }
    }

    /// Identity of the volume.
    pub fn id(&self) -> VolumeId {
        self.shared.volume
    }

    /// The epoch that this gateway holds.
    pub fn epoch(&self) -> Epoch {
        self.rooms.publisher.progress().state().epoch
    }

    /// Key with which front ends authenticate their handles. It is the same on every gateway of this volume, so that
    /// handles survive a restart and a takeover.
    pub fn handle_key(&self) -> [u8; 32] {
        self.shared.handle_key
    }

    /// Publishes all changes that were made before the call. Returns when the bucket holds them, with the published
    /// LSN.
    ///
    /// # Errors
    ///
    /// If the volume stops before that, or objects of the volume are missing in the bucket. While the bucket does not
    /// answer, it waits.
    pub async fn flush(&self) -> std::result::Result<Lsn, FlushError> {
        self.rooms.publisher.flush().await
    }

    /// Publishes the file or tree at `path` (within the volume, from its root): all of its changes that were made before
    /// the call. Returns when the bucket has them; at once if it has them already.
    ///
    /// # Errors
    ///
    /// See [`PathError`]. While the bucket does not answer, it waits, as [`flush`](Volume::flush) does.
    pub async fn flush_path(&self, path: &[u8]) -> std::result::Result<FlushedPath, PathError> {
        self.files.publish_path(path).await
    }

    /// Where the bytes of the file or tree at `path` (within the volume, from its root) are. Adds each object of it that
    /// was looked at to `seen`. Reads metadata; dropping the future ends the walk. While the bucket does not answer, the
    /// result has what is known here.
    ///
    /// # Errors
    ///
    /// See [`PathError`].
    pub async fn whereabouts(
        &self,
        path: &[u8],
        seen: &AtomicU64,
    ) -> std::result::Result<Whereabouts, PathError> {
        self.files.whereabouts(path, seen).await
    }

    /// Drops the memory of all dirty bytes that the log has. Only for tests: it takes what is durable for settled, as no flush
    /// fails after it. Does nothing without a log.
    #[doc(hidden)]
    pub async fn spill_all(&self) {
        let state = &self.rooms.state;
        let Some(wal) = state.journal().wal() else {
            return;
        };
        let end = wal.next_lsn();
        if wal.durable(end).await.is_ok() {
            state.memory.spill_all(end);
        }
    }

    /// The counts of waiting calls, by their reason; they stay valid when the volume is dropped.
    pub fn troubles(&self) -> Arc<Troubles> {
        self.rooms.state.troubles.clone()
    }

    /// The time by the clock of this gateway.
    pub fn now(&self) -> Timestamp {
        self.rooms.state.now()
    }

    /// The objects of the volume that are known to be missing in the bucket, and what to do, for the operator to
    /// read; `None` if there are none.
    pub fn gone(&self) -> Option<String> {
        self.rooms.publisher.gone()
    }

    /// The status: what is not in the bucket yet, and how full the limits are.
    pub fn status(&self) -> Status {
        Status::of(&self.rooms, self.shared.volume)
    }

    /// Limits what the directory `path` (within the volume, from its root) and everything below it may hold: from now
    /// on for objects that are made or written there. Objects that exist already are counted in the background
    /// ([`Quota::counting`]). Stable when it returns.
    ///
    /// # Errors
    ///
    /// See [`QuotaError`].
    pub async fn set_quota(
        &self,
        path: &[u8],
        bytes: LimitChange,
        files: LimitChange,
    ) -> std::result::Result<Quota, QuotaError> {
        let (_, end) = self.files.set_quota(path, bytes, files).await?;
        self.files.stable(end, self.commit).await?;
        self.files.quota_at(path).await
    }

    /// Removes the quota of a directory. Stable when it returns; the existing objects are counted out of its tree in
    /// the background.
    ///
    /// # Errors
    ///
    /// See [`QuotaError`].
    pub async fn remove_quota(&self, path: &[u8]) -> std::result::Result<(), QuotaError> {
        let end = self.files.remove_quota(path).await?;
        Ok(self.files.stable(end, self.commit).await?)
    }

    /// The quota in which a directory counts: its own, or that of the nearest directory above it.
    ///
    /// # Errors
    ///
    /// See [`QuotaError`].
    pub async fn quota(&self, path: &[u8]) -> std::result::Result<Quota, QuotaError> {
        self.files.quota_at(path).await
    }

    /// All quotas, by path.
    ///
    /// # Errors
    ///
    /// If the metadata cannot be read.
    pub async fn quotas(&self) -> std::result::Result<Vec<Quota>, QuotaError> {
        self.files.quotas().await
    }

    /// Starts to rewrite all packs that are mostly dead, within the rate of background work, also those that free
    /// little. Returns the collector's status; the work is done when [`CollectorStatus::is_ordered`] is false again.
    /// After a restart the rest is rewritten as usual, beginning with the first commit.
    ///
    /// # Errors
    ///
    /// See [`CollectRefusal`].
    pub fn collect_now(&self) -> std::result::Result<CollectorStatus, CollectRefusal> {
        self.rooms.collector.collect_now()
    }

    /// Starts to read back and verify packs in the background: all that were not read within `age`, the one with the
    /// oldest check first.
    ///
    /// # Errors
    ///
    /// See [`ScrubRefusal`].
    pub fn start_scrub(&self, age: Duration) -> std::result::Result<(), ScrubRefusal> {
        self.rooms.scrub.start(age)
    }

    /// Ends the current round of scrubbing; returns whether there was one. Its results stay noted.
    pub fn stop_scrub(&self) -> bool {
        self.rooms.scrub.stop()
    }

    /// The checks of packs, the current round, and the damage. Reads accounts and checks of all packs.
    ///
    /// # Errors
    ///
    /// [`ScrubRefusal::Unreadable`].
    pub async fn scrub_status(&self) -> std::result::Result<ScrubStatus, ScrubRefusal> {
        self.rooms.scrub.status().await
    }

    /// A path from the volume's root for an object that clients use, as in `/home/ann`; empty for the root. Names
    /// are any bytes but `/` and NUL. `None` if no client has looked at a name of it since it came into memory, if that
    /// name is gone, or while directories are moved. Each name is read in its directory now. A path whose names are
    /// changed at the same time may have names of different moments.
    ///
    /// Takes a look-up for each level, which the bucket answers if nothing nearer can; the caller bounds the time.
    pub async fn path_of(&self, inode: Inode) -> Option<Vec<u8>> {
        self.rooms.files.seen_path(inode).await
    }

    /// Returns when the volume takes no more changes, with the reason.
    pub async fn stopped(&self) -> Stopped {
        let mut stopped = self.rooms.state.signals.watch_stopped();
        let why = stopped
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|why| why.clone());
        match why {
            Some(why) => why,
            // The sender lives as long as the rooms, which `self` holds.
            None => std::future::pending().await,
        }
    }

    /// The gateway that has taken the volume from this one, if it was taken and the bucket says so within a few
    /// seconds.
    pub async fn successor(&self) -> Option<Holder> {
        self.shared.hold.successor().await
    }

    /// Publishes for at most `limit`, then flushes the log, ends all background work, and notes in the bucket that
    /// the gateway has stopped. That may take the rest of `limit`, and 3 s in any case. Later calls wait forever or
    /// fail; front ends must have stopped before.
    pub async fn close(&self, limit: Duration) -> Closed {
        let began = Instant::now();
        let flushed = tokio::time::timeout(limit, self.rooms.publisher.flush()).await;
        let published = matches!(flushed, Ok(Ok(_)));
        let fenced = self.rooms.state.signals.is_stopped().is_some();
        self.rooms.state.signals.stop_quietly();
        self.shared.tasks.end().await;
        let volume = self.rooms.state.clone();
        let compute = volume.environment.compute;
        let flush = compute.run(move || volume.log().map(|log| log.close()));
        let log_flushed = matches!(flush.await, Ok(None | Some(Ok(()))));
        if log_flushed && !fenced {
            let mut state = self.shared.state.lock();
            state.clean = true;
            state.log_end = self.rooms.state.log().map(|log| log.next_lsn());
            state.verifier = self.rooms.state.verifier();
            if let Err(error) = state_file::store(&*self.rooms.state.environment.local, &state) {
                tracing::warn!("{error}");
            }
        }
        if let Some(disk) = self.rooms.packs.disk() {
            disk.close().await;
        }
        // Acknowledged changes are in the bucket or in the log: nothing depends on this.
        let meta = async {
            if let Err(error) = self.rooms.state.catalog.store().close().await {
                tracing::warn!("closing the metadata: {error}");
            }
            // The last request: from then on another gateway may open the volume.
            if !fenced {
                self.release(published).await;
            }
        };
        // A bucket that took everything answers, perhaps from far away: this takes 7 round trips, and those of a merge.
        let left = match published {
            true => limit.saturating_sub(began.elapsed()).max(CLOSE_LIMIT),
            false => CLOSE_LIMIT,
        };
        if tokio::time::timeout(left, meta).await.is_err() {
            tracing::warn!(
                "closing the volume: the bucket does not answer, so this gateway remains noted there as the holder; a start with another data_dir needs --take-over"
            );
        }
        if published {
            Closed::Published
        } else {
            Closed::InLog
        }
    }

    /// Notes in the bucket that this gateway has stopped.
    async fn release(&self, published: bool) {
        let unpublished = match published {
            true => 0,
            false => self.status().unpublished_bytes().max(1),
        };
        let now = self.rooms.state.now().seconds.unsigned_abs();
        if let Err(why) = self.shared.hold.release(now, unpublished).await {
            tracing::warn!(
                "cannot note in the bucket that this gateway has stopped ({why}); a start with another data_dir needs --take-over"
            );
            return;
        }
        let mut state = self.shared.state.lock();
        state.note = self.shared.hold.e_tag();
        if let Err(error) = state_file::store(&*self.rooms.state.environment.local, &state) {
            tracing::warn!("{error}");
        }
    }
}

#[cfg(test)]
mod tests;
