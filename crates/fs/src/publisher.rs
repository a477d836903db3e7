//! The publisher: brings logged changes to the bucket, one checkpoint after the other.
//!
//! ```text
//!   open ------------> closed ------------> uploaded ------------> published
//!    | collects         | its end LSN       | frames of its         | one metadata batch, durable
//!    | changes          | is fixed          | dirty ranges are      | in the bucket; log recycled,
//!    |                  |                   | in packs              | blocks clean
//!    |   closes when its oldest change is `checkpoint_interval` old, when
//!    |   `checkpoint_bytes` are dirty, when names take half of their memory, when a writer waits
//!    |   for room, or on demand
//! ```
//!
//! One task, the publisher, drives the checkpoints one after the other. While it works on one, the next one is open
//! already (or closed and waiting, where a snapshot ended it), and blocks of the open one that streams have filled are uploaded eagerly. The publisher waits out errors
//! of the bucket: it tries again until it succeeds or the volume stops.
//!
//! Only the publisher commits metadata. Other engines see its commits as [observers](Observer), and have it commit their
//! changes [between two checkpoints](BetweenCheckpoints).

mod account_updates;
mod between_checkpoints;
mod committer;
mod content;
mod context;
mod defragment;
mod deletions;
mod dirty;
mod eager;
mod loading;
mod observer;
pub(crate) mod pack_plan;
mod progress;
mod proof;
mod publications;
mod publish;
mod put_pack;
mod reclaim;
mod share;
mod snapshot;
mod times;
mod truncated;
mod upload;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use forebay_reduction::compression::{CompressionStatus, Packs};
use forebay_types::{CheckpointId, Lsn};
use forebay_vfs::Error;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::state::{Closed, EFFORT_LOOK, Stopped};

pub(crate) use account_updates::AccountUpdates;
pub(crate) use between_checkpoints::BetweenCheckpoints;
pub(crate) use committer::Committer;
pub(crate) use context::{CheckpointSource, Context};
use deletions::Deletions;
pub(crate) use observer::{AccountChange, Observer};
pub(crate) use progress::Progress;
pub use progress::Stage;
pub(crate) use proof::Proof;
pub use publications::Since;
pub(crate) use put_pack::{PutPack, address, known_frame};
pub(crate) use snapshot::{kept_name, load as load_snapshots};
use times::CheckpointTimes;

/// The volume has stopped: nothing more can be published.
#[derive(Debug)]
pub(crate) struct Halted;

/// Why a flush cannot confirm that the bucket holds everything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlushError {
    /// The volume has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// Objects of the metadata, or the descriptor, are missing in the bucket. Nothing is published before they are
    /// put back.
    #[error("{0}")]
    Gone(String),
    /// Everything is published, but a pack that files need is missing in the bucket.
    #[error("{0}; `forebay scrub --status` lists the lost bytes")]
    PackGone(String),
}

/// Brings closed checkpoints to the bucket, one after the other.
pub(crate) struct Publisher {
    context: Context,
    committer: Arc<Committer>,
    progress: Arc<Progress>,
    proof: Arc<Proof>,
    /// Engines whose changes are committed between two checkpoints.
    between: Vec<Arc<dyn BetweenCheckpoints>>,
    /// Decides how packs are compressed.
    compressing: Arc<Packs>,
    /// Flushes that wait for everything to be published.
    flushes: Mutex<Vec<oneshot::Sender<Result<Lsn, FlushError>>>>,
    /// Packs in the bucket that were uploaded eagerly, and whose checkpoints are not published yet.
    eager_packs: Mutex<BTreeMap<CheckpointId, Vec<PutPack>>>,
    deletions: Deletions,
    /// Whether bytes were lost because the log could not return them, and it has returned none since.
    loses: AtomicBool,
    pub(crate) times: CheckpointTimes,
}

impl Publisher {
    pub(crate) fn new(
        context: Context,
        committer: Arc<Committer>,
        proof: Arc<Proof>,
        between: Vec<Arc<dyn BetweenCheckpoints>>,
    ) -> Publisher {
        Publisher {
            compressing: Packs::new(context.config.upload_parallel),
            progress: committer.progress.clone(),
            context,
            committer,
            proof,
            between,
            flushes: Mutex::default(),
            eager_packs: Mutex::default(),
            deletions: Deletions::default(),
            loses: AtomicBool::new(false),
            times: CheckpointTimes::default(),
        }
    }

    /// The last published checkpoint.
    pub(crate) fn last(&self) -> CheckpointId {
        self.progress.last()
    }

    pub(crate) fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    pub(crate) fn compression_status(&self) -> CompressionStatus {
        self.compressing.status()
    }

    /// The objects of the volume that are known to be missing in the bucket, and what to do; `None` if there are
    /// none.
    pub(crate) fn gone(&self) -> Option<String> {
        let gone = self.context.trouble.gone()?;
        Some(self.committer.explain_gone(&gone.what))
    }

    /// Returns when the bucket holds everything before `end`.
    pub(crate) async fn wait_for(&self, end: Lsn) -> forebay_vfs::Result<()> {
        let _waits = self.context.signals.wait_for_bucket();
        let mut published = self.progress.watch_published();
        let mut stopped = self.context.signals.watch_stopped();
        if *published.borrow_and_update() < end {
            self.context.signals.press();
        }
        tokio::select! {
            biased;
            _ = published.wait_for(|published| *published >= end) => Ok(()),
            _ = stopped.wait_for(Option::is_some) => Err(Error::Delay),
        }
    }

    /// Publishes all changes that were made before the call. Returns the LSN up to which the bucket is complete.
    /// `Err` if the volume stops before, or objects of the volume are missing.
    pub(crate) async fn flush(&self) -> Result<Lsn, FlushError> {
        let _waits = self.context.signals.wait_for_bucket();
        let (done, published) = oneshot::channel();
        let gone = self.context.trouble.next_gone();
        self.flushes.lock().push(done);
        self.context.signals.wake_publisher();
        let mut stopped = self.context.signals.watch_stopped();
        tokio::select! {
            biased;
            Ok(answer) = published => answer,
            Ok(why) = stopped.wait_for(Option::is_some) => {
                let why = why.clone().unwrap_or(Stopped::Failed("stopping".into()));
                Err(why.into())
            }
            what = gone => Err(FlushError::Gone(self.committer.explain_gone(&what))),
        }
    }

    /// Returns when this checkpoint, which is or was not empty, is published, with the published LSN. Has it closed if it
    /// `is_open`.
    pub(crate) async fn wait_for_checkpoint(
        &self,
        id: CheckpointId,
        is_open: bool,
    ) -> Result<Lsn, FlushError> {
        let _waits = self.context.signals.wait_for_bucket();
        let gone = self.context.trouble.next_gone();
        let mut published = self.progress.watch_published();
        let mut stopped = self.context.signals.watch_stopped();
        if is_open {
            self.context.signals.press();
        }
        tokio::select! {
            biased;
            Ok(published) = published.wait_for(|_| self.progress.last() >= id) => Ok(*published),
            Ok(why) = stopped.wait_for(Option::is_some) => {
                let why = why.clone().unwrap_or(Stopped::Failed("stopping".into()));
                Err(why.into())
            }
            what = gone => Err(FlushError::Gone(self.committer.explain_gone(&what))),
        }
    }

    /// The publisher's task: closes checkpoints when they are due and brings them to the bucket, until the volume
    /// stops.
    pub(crate) async fn publish_forever(self: Arc<Self>) {
        while self.context.signals.is_stopped().is_none() {
            let wake = self.context.signals.publisher_needed();
            let flushes = std::mem::take(&mut *self.flushes.lock());
            if !flushes.is_empty() || self.is_due() {
                let before = self.progress.last();
                let brought = match flushes.is_empty() {
                    true => self.publish_next().await,
                    false => self.publish_open().await,
                };
                if brought.is_err() {
                    return;
                }
                // One step in each round: under a load without pauses there would be no other time for it.
                if self.progress.has_garbage() && self.reclaim().await.is_err() {
                    return;
                }
                for engine in &self.between {
                    if engine.has_work() && engine.step(&self.committer).await.is_err() {
                        return;
                    }
                    engine.over();
                }
                if !flushes.is_empty() {
                    let just_proven = self.progress.last() != before;
                    let Ok(proven) = self.prove_all(just_proven).await else {
                        return;
                    };
                    for flush in flushes {
                        let answer = proven.clone().map(|()| self.progress.published());
                        // A caller that has stopped waiting needs no answer.
                        let _ = flush.send(answer);
                    }
                }
                continue;
            }
            if self.progress.has_garbage() {
                if self.reclaim().await.is_err() {
                    return;
                }
                continue;
            }
            if let Some(engine) = self.between.iter().find(|engine| engine.has_work()) {
                if engine.step(&self.committer).await.is_err() {
                    return;
                }
                continue;
            }
            self.between.iter().for_each(|engine| engine.over());
            let since = self.context.source.open_since();
            let buffers = &self.context.memory.pack_buffers;
            if buffers.stale_at().is_some_and(|at| at <= Instant::now()) {
                buffers.clear();
            }
            let due = since.map(|since| since + self.context.config.checkpoint_interval);
            let held_back = self.is_held_back().then(|| Instant::now() + EFFORT_LOOK);
            let own = [
                due,
                held_back,
                self.context.source.next_log_attempt(),
                buffers.stale_at(),
            ];
            let of_engines = self.between.iter().map(|engine| engine.next_at());
            match own.into_iter().chain(of_engines).flatten().min() {
                Some(due) => {
                    tokio::select! {
                        biased;
                        () = wake => {}
                        () = tokio::time::sleep_until(due) => {}
                    }
                }
                None => wake.await,
            }
        }
    }

    /// Whether the open checkpoint should close now.
    fn is_due(&self) -> bool {
        // A failed log restarts when everything is in the bucket.
        let restart = self.context.source.next_log_attempt();
        if restart.is_some_and(|at| at <= Instant::now()) {
            return true;
        }
        if self.context.source.waiting() > 0 {
            return true;
        }
        let Some(since) = self.context.source.open_since() else {
            return false;
        };
        since.elapsed() >= self.context.config.checkpoint_interval
            || (self.is_large() && self.context.foreground.effort().uploads > 0)
            || self.context.signals.is_pressed()
            || self.context.source.wants_to_close()
    }

    /// Whether there are as many dirty bytes as one checkpoint should have.
    fn is_large(&self) -> bool {
        self.context.memory.cache.dirty_bytes() >= self.context.config.checkpoint_bytes
    }

    /// Whether the open checkpoint would close if clients paused.
    fn is_held_back(&self) -> bool {
        self.is_large() && self.context.source.open_since().is_some()
    }

    /// Closes the open checkpoint and brings it to the bucket, after those that were closed before; does nothing if
    /// nothing changed.
    pub(crate) async fn publish_open(self: &Arc<Self>) -> Result<(), Halted> {
        self.context.signals.relieve();
        for _ in 0..=self.context.source.waiting() {
            if let Some(closed) = self.context.source.close() {
                self.bring(closed).await?;
            }
        }
        self.context.source.restart_log().await;
        Ok(())
    }

    /// Brings the oldest closed checkpoint to the bucket, or closes the open one for that; does nothing if nothing changed.
    async fn publish_next(self: &Arc<Self>) -> Result<(), Halted> {
        // Who has pressed waits for changes of the open one, which is next when no other waits.
        if self.context.source.waiting() == 0 {
            self.context.signals.relieve();
        }
        if let Some(closed) = self.context.source.close() {
            self.bring(closed).await?;
        }
        self.context.source.restart_log().await;
        Ok(())
    }

    /// Brings a closed checkpoint to the bucket.
    async fn bring(self: &Arc<Self>, closed: Closed) -> Result<(), Halted> {
        let closed_at = Instant::now();
        self.progress.publications().closing(closed.at);
        self.progress.set_stage(Stage::Uploading);
        self.all_arrived(&closed.under_way).await?;
        let uploaded = self.upload(&closed).await?;
        let uploaded_at = Instant::now();
        self.progress.set_stage(Stage::Publishing);
        self.publish(closed, uploaded).await?;
        self.times.published(closed_at, uploaded_at);
        self.progress.set_stage(Stage::Idle);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
