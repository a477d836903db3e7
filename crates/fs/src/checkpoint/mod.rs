//! Checkpoints: how what is logged reaches the bucket.
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
//! One task, the publisher, drives them, one after the other; beside the checkpoint that it works
//! on the next one is open already, and what streams have filled leaves it early. An error of the bucket is waited out: the publisher tries again
//! until it succeeds or the volume stops.

mod anew;
mod buffers;
mod close;
mod collector;
mod dirty;
mod early;
mod pack_plan;
mod proof;
mod publish;
mod reclaim;
mod share;
mod truncated;
mod upload;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use forebay_meta::StoreError;
use forebay_meta::record::VolumeState;
use forebay_object::{Health, Store};
use forebay_types::{CheckpointId, Epoch, Lsn, PackId};
use forebay_vfs::Error;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

use crate::FsConfig;
use crate::compression::Packs;
use crate::core::{Core, FlushError, Stopped};
use crate::fetch::backoff;
use crate::status::Stage;
use collector::Collector;
use proof::Proof;

pub use collector::{CollectRefusal, CollectorStatus, CollectorWait, Space};

pub(crate) use upload::address;

/// The volume has stopped: there is nothing more to publish.
#[derive(Debug)]
pub(crate) struct Halted;

/// A reader had no answer.
#[derive(Clone)]
struct ReadError {
    why: String,
    since: Instant,
    last: Instant,
}

impl ReadError {
    fn is_over(&self, last_answer: Option<Instant>) -> bool {
        last_answer.is_some_and(|answer| answer > self.last)
    }
}

/// What operations and the publisher tell each other.
pub(crate) struct Checkpoints {
    wake: Notify,
    /// A writer waits for what a checkpoint gives back.
    pressed: AtomicBool,
    /// Who waits for everything to be published.
    flushes: Mutex<Vec<oneshot::Sender<Result<Lsn, FlushError>>>>,
    published: watch::Sender<Lsn>,
    /// Number of the last checkpoint that is published; 0 before the first one of this gateway.
    last: AtomicU64,
    /// The volume's state as the bucket has it.
    state: Mutex<VolumeState>,
    /// What the publisher waits for, and since when.
    store_error: Mutex<Option<(String, Instant)>>,
    read_error: Mutex<Option<ReadError>>,
    /// Whether anybody is answered.
    health: Health,
    /// Since when the oldest change of the closed checkpoint waits.
    closed: Mutex<Option<Instant>>,
    /// Memory that the nodes of the closed checkpoint take, with their publication; 0 if there is none.
    pub(crate) closed_bytes: AtomicU64,
    stage: Mutex<Stage>,
    uploads: AtomicUsize,
    /// There may be removed files to collect, dead packs to delete, or checks of packs to note.
    garbage: AtomicBool,
    /// Packs could not be deleted: to be tried again after the next publication.
    undeleted: AtomicBool,
    next_pack: AtomicU64,
    /// For packs.
    pub(crate) buffers: buffers::PackBuffers,
    /// How packs are compressed.
    pub(crate) compressing: Arc<Packs>,
    /// What leaves before its checkpoint closes.
    pub(crate) leaving: early::Leaving,
    /// What gives the bucket back what nothing refers to.
    pub(crate) collector: Collector,
    /// Whether the bucket has what the next publication builds on.
    pub(crate) proof: Proof,
}

impl Checkpoints {
    /// Goes on from the state that the bucket has.
    pub(crate) fn new(state: VolumeState, store: &Store, config: &FsConfig) -> Checkpoints {
        Checkpoints {
            wake: Notify::new(),
            pressed: AtomicBool::new(false),
            flushes: Mutex::default(),
            published: watch::Sender::new(state.published),
            last: AtomicU64::new(0),
            state: Mutex::new(state),
            store_error: Mutex::default(),
            read_error: Mutex::default(),
            health: store.health.clone(),
            closed: Mutex::default(),
            closed_bytes: AtomicU64::new(0),
            stage: Mutex::default(),
            uploads: AtomicUsize::new(0),
            garbage: AtomicBool::new(true),
            undeleted: AtomicBool::new(false),
            next_pack: AtomicU64::new(first_pack(&state)),
            buffers: buffers::PackBuffers::new(buffers::most(config)),
            compressing: Packs::new(config.upload_parallel),
            leaving: early::Leaving::default(),
            collector: Collector::new(config),
            proof: Proof::new(store),
        }
    }

    /// Bytes a second that may go to the bucket now; none for as many as there are.
    fn upload_rate(&self) -> Option<u64> {
        self.health.upload_rate()
    }

    /// The publisher should look whether there is something to do.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Somebody waits for room.
    pub(crate) fn press(&self) {
        self.pressed.store(true, Ordering::Release);
        self.wake();
    }

    /// The bucket holds everything before this.
    pub(crate) fn published(&self) -> Lsn {
        *self.published.borrow()
    }

    /// The last checkpoint that is published.
    pub(crate) fn last(&self) -> CheckpointId {
        CheckpointId(self.last.load(Ordering::Acquire))
    }

    pub(crate) fn state(&self) -> VolumeState {
        *self.state.lock()
    }

    /// Notes that the bucket does not answer. Whoever looks at the status tells the operator.
    pub(crate) fn store_error(&self, why: &str) {
        let mut error = self.store_error.lock();
        let since = error
            .as_ref()
            .map_or_else(Instant::now, |(_, since)| *since);
        *error = Some((why.to_owned(), since));
    }

    /// Notes that the bucket does what the publisher asks for.
    pub(crate) fn store_works(&self) {
        self.store_error.lock().take();
    }

    /// Notes that a reader had no answer from the bucket.
    pub(crate) fn read_error(&self, why: &str) {
        let now = Instant::now();
        let mut error = self.read_error.lock();
        let since = error
            .as_ref()
            .filter(|error| !error.is_over(self.health.last_read()))
            .map_or(now, |error| error.since);
        *error = Some(ReadError {
            why: why.to_owned(),
            since,
            last: now,
        });
    }

    /// What is wrong with the bucket, and for how long. What a reader met is over with the next answer to a read;
    /// what the publisher met, when the publisher is answered.
    pub(crate) fn store_trouble(&self) -> Option<(String, Duration)> {
        if let Some(gone) = self.proof.gone() {
            return Some((gone.what, gone.since.elapsed()));
        }
        let of_publisher = self.store_error.lock().clone();
        if let Some((why, since)) = of_publisher {
            // The publisher has waited in vain, perhaps, for what asks for ever; the store has said why.
            let why = match self.health.words_since(since) {
                Some(said) => said.added_to(&why),
                None => why,
            };
            return Some((why, since.elapsed()));
        }
        if let Some(away) = self.health.away() {
            return Some(away);
        }
        let answer = self.health.last_read();
        let error = self.read_error.lock().clone();
        let error = error.filter(|error| !error.is_over(answer))?;
        Some((error.why, error.since.elapsed()))
    }

    pub(crate) fn stage(&self) -> Stage {
        *self.stage.lock()
    }

    /// There is something to do beside checkpoints.
    pub(crate) fn tidy(&self) {
        self.garbage.store(true, Ordering::Release);
        self.wake();
    }

    fn set_stage(&self, stage: Stage) {
        *self.stage.lock() = stage;
    }

    /// Packs on their way to the bucket.
    pub(crate) fn uploads(&self) -> usize {
        self.uploads.load(Ordering::Relaxed)
    }

    fn new_pack(&self) -> PackId {
        PackId(self.next_pack.fetch_add(1, Ordering::Relaxed))
    }

    fn next_pack(&self) -> u64 {
        self.next_pack.load(Ordering::Relaxed)
    }
}

/// Stops the volume when the publisher ends by a panic: nobody must wait for it in vain.
struct Watch<'a>(&'a Core);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop(Stopped::Failed(
                "the publisher has ended by a fault of the program; what is not in the bucket is in the log, and published after a restart".into(),
            ));
        }
    }
}

/// The first number for packs of an epoch: the epoch is part of the number, so that a gateway that
/// was fenced and does not know it yet can never write over a pack of its successor.
fn first_pack(state: &VolumeState) -> u64 {
    (state.epoch.0 << PACK_COUNTER_BITS).max(state.next_pack)
}

/// Bits of a pack's number that count within an epoch.
const PACK_COUNTER_BITS: u32 = 40;

/// The epoch of the gateway that wrote a pack.
pub(crate) fn epoch_of(pack: PackId) -> Epoch {
    Epoch(pack.0 >> PACK_COUNTER_BITS)
}

impl Core {
    /// Returns when the bucket holds everything before `end`.
    pub(crate) async fn published(&self, end: Lsn) -> forebay_vfs::Result<()> {
        let mut published = self.checkpoints.published.subscribe();
        let mut stopped = self.watch_stopped();
        if *published.borrow_and_update() < end {
            self.checkpoints.press();
        }
        tokio::select! {
            biased;
            _ = published.wait_for(|published| *published >= end) => Ok(()),
            _ = stopped.wait_for(Option::is_some) => Err(Error::Delay),
        }
    }

    /// Publishes everything that was done before the call; gives the LSN up to which the bucket is
    /// complete. `Err` when the volume stops before, or objects that it consists of are gone.
    pub(crate) async fn flush(&self) -> Result<Lsn, FlushError> {
        let (done, published) = oneshot::channel();
        let gone = self.checkpoints.proof.next_gone();
        self.checkpoints.flushes.lock().push(done);
        self.checkpoints.wake();
        let mut stopped = self.watch_stopped();
        tokio::select! {
            biased;
            Ok(answer) = published => answer,
            Ok(why) = stopped.wait_for(Option::is_some) => {
                let why = why.clone().unwrap_or(Stopped::Failed("stopping".into()));
                Err(why.into())
            }
            what = gone => Err(self.gone(&what)),
        }
    }

    /// The publisher: closes checkpoints when they are due and brings them to the bucket, until
    /// the volume stops.
    pub(crate) async fn publish_forever(self: Arc<Core>) {
        let _watch = Watch(&self);
        while self.is_stopped().is_none() {
            let wake = self.checkpoints.wake.notified();
            let flushes = std::mem::take(&mut *self.checkpoints.flushes.lock());
            if !flushes.is_empty() || self.is_due() {
                let before = self.checkpoints.last();
                if self.publish_open().await.is_err() {
                    return;
                }
                // One step: under a load without pauses there would be no other time for it.
                if self.checkpoints.garbage.load(Ordering::Acquire) && self.reclaim().await.is_err()
                {
                    return;
                }
                if self.checkpoints.collector.has_work() && self.collect_in_turn().await.is_err() {
                    return;
                }
                self.checkpoints.collector.turn_over();
                if !flushes.is_empty() {
                    let just_proven = self.checkpoints.last() != before;
                    let Ok(proven) = self.prove_all(just_proven).await else {
                        return;
                    };
                    for flush in flushes {
                        let answer = proven.clone().map(|()| self.checkpoints.published());
                        // Whoever does not wait any more needs no answer.
                        let _ = flush.send(answer);
                    }
                }
                continue;
            }
            if self.checkpoints.garbage.load(Ordering::Acquire) {
                if self.reclaim().await.is_err() {
                    return;
                }
                continue;
            }
            if self.checkpoints.collector.has_work() {
                if self.collect_in_turn().await.is_err() {
                    return;
                }
                continue;
            }
            self.checkpoints.collector.turn_over();
            let since = self.gate.read().since();
            let buffers = &self.checkpoints.buffers;
            if buffers.stale_at().is_some_and(|at| at <= Instant::now()) {
                buffers.clear();
            }
            let due = since.map(|since| since + self.config.checkpoint_interval);
            match [due, self.log_health.next_attempt(), buffers.stale_at()]
                .into_iter()
                .flatten()
                .min()
            {
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
        let checkpoints = &self.checkpoints;
        // A log that has failed begins anew when everything is in the bucket.
        let restart = self.log_health.next_attempt();
        if restart.is_some_and(|at| at <= Instant::now()) {
            return true;
        }
        let Some(since) = self.gate.read().since() else {
            return false;
        };
        since.elapsed() >= self.config.checkpoint_interval
            || self.cache.dirty_bytes() >= self.config.checkpoint_bytes
            || checkpoints.pressed.load(Ordering::Acquire)
            || self.overlay_is_half_full()
    }

    /// Closes the open checkpoint and brings it to the bucket; does nothing if nothing changed.
    pub(crate) async fn publish_open(self: &Arc<Self>) -> Result<(), Halted> {
        self.checkpoints.pressed.store(false, Ordering::Release);
        if let Some(closed) = self.close_checkpoint() {
            self.checkpoints.set_stage(Stage::Uploading);
            self.all_arrived(&closed.under_way).await?;
            let uploaded = self.upload(&closed).await?;
            self.checkpoints.set_stage(Stage::Publishing);
            self.publish(closed, uploaded).await?;
            self.checkpoints.set_stage(Stage::Idle);
        }
        self.restart_log().await;
        Ok(())
    }

    /// Asks the metadata store until it answers; `Err` when that cannot help.
    async fn insist<T, F>(&self, mut ask: impl FnMut() -> F) -> Result<T, Halted>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let (mut attempt, mut was_gone) = (1, false);
        loop {
            match ask().await {
                Ok(answer) => {
                    self.checkpoints.store_works();
                    if was_gone {
                        self.what_was_gone_is_back();
                    }
                    return Ok(answer);
                }
                Err(StoreError::Gone(what)) => {
                    was_gone = true;
                    self.wait_for_what_is_gone(&what, attempt).await?;
                }
                Err(StoreError::Transient(why)) => self.wait_for_store(&why, attempt).await?,
                Err(StoreError::Fenced) => {
                    self.stop(Stopped::Fenced);
                    return Err(Halted);
                }
                Err(error @ (StoreError::Corrupt(_) | StoreError::Fatal(_))) => {
                    self.stop(Stopped::Failed(error.to_string()));
                    return Err(Halted);
                }
            }
            attempt += 1;
        }
    }

    /// Waits a while for the bucket; `Err` when the volume stops meanwhile.
    async fn wait_for_store(&self, why: &str, attempt: u32) -> Result<(), Halted> {
        self.checkpoints.store_error(why);
        let mut stopped = self.watch_stopped();
        tokio::select! {
            biased;
            () = tokio::time::sleep(backoff(attempt, &*self.environment.random)) => Ok(()),
            _ = stopped.wait_for(Option::is_some) => Err(Halted),
        }
    }
}
