//! Merging and deleting tables: after commits, and only then.
//!
//! SlateDB's compactor and garbage collector poll the bucket for as long as they run. So they are not part of the
//! opened database here: the compactor is started when there are enough tables to merge and stopped as soon as its
//! scheduler has nothing more to propose and no merge is under way; the [collector](super::collector) does single rounds.
//!
//! A worker notes the merge that it runs, and SlateDB leaves a noted merge alone until its worker has been silent for
//! half a minute. The worker of a killed gateway stays silent for good, and in that half minute tables pile up until
//! commits, also that of an opening, have to wait. But a gateway that has opened the volume for writing is the only
//! writer: before its first merge it takes all earlier notes back.
//!
//! ```text
//!          commit                  enough tables            nothing left to merge
//!   idle ---------> look at it  -----------------> merging ----------------------+
//!    ^                  |                                             or time is up |
//!    |                  |                                                        v
//!    |                  +--------- too few tables ----------------------> collection due?
//!    |                                                                 yes: one round
//!    +---------------------------------------------------------------------------+
//! ```
//!
//! [`Rounds`] decides how long merging continues and when the collector is due.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use forebay_types::to_usize;
use object_store::ObjectStore;
use object_store::path::Path;
use slatedb::compactor::{
    Compaction, CompactionScheduler, CompactionSchedulerSupplier, CompactionSpec, CompactionStatus,
    CompactorStateView, SizeTieredCompactionSchedulerSupplier, SourceId,
};
use slatedb::config::{CompactionWorkerOptions, CompactorOptions};
use slatedb::{CompactorBuilder, Db};
use tokio::sync::{Mutex, Notify, watch};
use tokio::task::JoinHandle;

use super::clock::VolumeClock;
use super::collector::Collector;
use super::engine::close_engine;
use super::own::Newest;
use super::presence::Suspect;
use super::rounds::Rounds;
use super::{NEVER, neighbours};
use crate::error::StoreError;

/// Number of tables at which merging begins. A higher one makes reads dearer, a lower one spreads
/// the requests of a merge over fewer commits.
pub(super) const COMPACT_AT_TABLES: usize = 12;

/// Number of merged runs up to which they are not merged again. Each run is one more place to look for a key.
pub(super) const MAX_RUNS: usize = 8;

/// Time limit for taking back the notes of former gateways. Notes outlast it only if a clock was set back; SlateDB then
/// takes the merges up later.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);

/// Interval at which the running compactor checks whether a step is done.
const STEP_INTERVAL: Duration = Duration::from_millis(100);

/// Settings of the task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Upkeep {
    /// Time for which replaced tables stay in the bucket.
    pub(super) retention: Duration,
    /// Length of the tables that merges write, in bytes.
    pub(super) table_bytes: usize,
}

/// Length of the tables that merges write, for a cache of this many bytes: an eighth of it, 8 to 32 MiB.
///
/// Up to two of them wait for a slow link in memory, and each in flight is copied once. A volume with very many names
/// needs a large cache for their filters, and large tables, which keep its manifest short.
pub(super) fn table_bytes(cache_bytes: u64) -> usize {
    to_usize((cache_bytes / 8).clamp(8 << 20, 32 << 20))
}

/// The housekeeping task; it ends, and closes SlateDB, when this is dropped or stopped.
pub(super) struct Housekeeper {
    stop: watch::Sender<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Housekeeper {
    /// Starts the task; it acts each time that `changed` is notified.
    pub(super) fn start(
        db: Db,
        clock: Arc<VolumeClock>,
        store: Arc<dyn ObjectStore>,
        path: Path,
        upkeep: Upkeep,
        changed: Arc<Notify>,
        (suspect, newest): (Suspect, Newest),
    ) -> Housekeeper {
        let (stop, stopped) = watch::channel(false);
        let house = House {
            db,
            clock,
            collector: Collector::new(store.clone(), path.clone(), upkeep.retention),
            store,
            path,
            upkeep,
            stopped,
            suspect,
            newest,
            alone: false,
        };
        let task = tokio::spawn(house.keep(changed));
        Housekeeper {
            stop,
            task: Mutex::new(Some(task)),
        }
    }

    /// Ends the task and closes SlateDB; waits for that at most for `timeout`.
    pub(super) async fn stop(&self, timeout: Duration) -> Result<(), StoreError> {
        self.stop.send_replace(true);
        let mut task = self.task.lock().await;
        let Some(running) = task.as_mut() else {
            return Ok(());
        };
        match tokio::time::timeout(timeout, running).await {
            Ok(_) => {
                *task = None;
                Ok(())
            }
            Err(_) => Err(StoreError::Transient(
                "the metadata store is still waiting for the bucket".into(),
            )),
        }
    }
}

struct House {
    db: Db,
    clock: Arc<VolumeClock>,
    store: Arc<dyn ObjectStore>,
    path: Path,
    collector: Collector,
    upkeep: Upkeep,
    stopped: watch::Receiver<bool>,
    /// The table that a request did not find last.
    suspect: Suspect,
    newest: Newest,
    /// Whether no merge is noted as being under way by a former gateway.
    alone: bool,
}

impl House {
    async fn keep(mut self, changed: Arc<Notify>) {
        let mut rounds = Rounds::new(self.upkeep.retention, Instant::now());
        let mut stopped = self.stopped.clone();
        loop {
            tokio::select! {
                // Also if the store was dropped.
                _ = stopped.wait_for(|stop| *stop) => break,
                () = changed.notified() => {}
            }
            let enough = self.wants_merge();
            if enough && !rounds.may_merge(Instant::now()) {
                tokio::select! {
                    _ = stopped.wait_for(|stop| *stop) => break,
                    () = tokio::time::sleep_until(rounds.due().into()) => {}
                }
                self.collect_if_due(&mut rounds).await;
            }
            if enough {
                let began = Instant::now();
                if let Err(error) = self.compact(rounds.merging_time()).await {
                    tracing::warn!(%error, "merging metadata tables failed; the next commit tries again");
                    // The state in memory names the tables that the merge may have replaced until the merge has ended
                    // well.
                    continue;
                }
                rounds.merged(began, Instant::now());
            }
            self.collect_if_due(&mut rounds).await;
        }
        close_engine(&self.db).await;
    }

    /// Whether there is something to merge. More runs than [`MAX_RUNS`] remain if the time for merges was over.
    fn wants_merge(&self) -> bool {
        let manifest = self.db.manifest();
        manifest.l0().len() >= COMPACT_AT_TABLES || manifest.compacted().len() > MAX_RUNS
    }

    /// Merges tables until there is nothing left to merge, and starts no further merge after `time`.
    async fn compact(&mut self, time: Duration) -> Result<(), slatedb::Error> {
        if !self.alone {
            self.release_merges().await?;
            self.alone = true;
        }
        self.log_shape("before");
        let options = compactor_options(self.upkeep);
        self.coordinate(options, NEVER, |settled| UntilSettled { settled, time })
            .await?;
        // Reads use the merged tables from now on, so the tables that they replace may be deleted.
        self.newest.forget();
        self.db.refresh_manifest().await?;
        self.log_shape("after");
        Ok(())
    }

    /// Logs how many tables there are, and the runs that tables were merged into, the newest first.
    fn log_shape(&self, moment: &str) {
        let manifest = self.db.manifest();
        let runs = manifest.compacted().iter();
        let runs: Vec<u64> = runs.map(|run| run.estimate_size() >> 10).collect();
        let tables = manifest.l0().len();
        tracing::debug!(tables, ?runs, "metadata {moment} merging, runs in KiB");
    }

    /// Takes back the merges that workers of former gateways have noted: these gateways are fenced or dead.
    async fn release_merges(&mut self) -> Result<(), slatedb::Error> {
        let options = CompactorOptions {
            worker_heartbeat_timeout: Duration::ZERO,
            // No worker here starts a merge meanwhile.
            worker: None,
            ..compactor_options(self.upkeep)
        };
        self.coordinate(options, RELEASE_LIMIT, UntilReleased::new)
            .await
    }

    /// Runs SlateDB's compactor until its scheduler has settled, for `limit` at most.
    async fn coordinate<S: CompactionSchedulerSupplier + 'static>(
        &mut self,
        options: CompactorOptions,
        limit: Duration,
        scheduler: impl FnOnce(Arc<Notify>) -> S,
    ) -> Result<(), slatedb::Error> {
        let settled = Arc::new(Notify::new());
        let compactor = CompactorBuilder::new(self.path.clone(), Arc::clone(&self.store))
            .with_options(options)
            .with_system_clock(self.clock.clone())
            .with_scheduler_supplier(Arc::new(scheduler(Arc::clone(&settled))))
            .with_sst_block_size(super::BLOCK_SIZE)
            .build();
        let mut run = std::pin::pin!(compactor.run());
        let mut missing = None;
        let ended = tokio::select! {
            biased;
            // SlateDB would repeat the merge without end.
            table = self.suspect.noted() => {
                missing = Some(table);
                None
            }
            ended = &mut run => Some(ended),
            () = settled.notified() => None,
            () = tokio::time::sleep(limit) => None,
            _ = self.stopped.wait_for(|stop| *stop) => None,
        };
        // The compactor runs in tasks of its own, which end only when told to. A stop before they
        // have begun has no effect, so it is repeated.
        let ended = match ended {
            Some(ended) => ended,
            None => loop {
                let stop = async {
                    compactor.stop().await?;
                    (&mut run).await
                };
                if let Ok(ended) = tokio::time::timeout(STEP_INTERVAL, stop).await {
                    break ended;
                }
            },
        };
        match missing {
            Some(table) => Err(slatedb::Error::data(format!(
                "{table} is gone from the bucket"
            ))),
            None => ended,
        }
    }

    async fn collect_if_due(&mut self, rounds: &mut Rounds) {
        if Instant::now() < rounds.due() {
            return;
        }
        let mut stopped = self.stopped.clone();
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => {}
            () = self.collector.collect() => rounds.deleted(Instant::now()),
        }
    }
}

/// One merge at a time, with little read-ahead: it shares memory and the link with the gateway.
fn compactor_options(upkeep: Upkeep) -> CompactorOptions {
    let scheduler = [
        ("min_compaction_sources", "4".to_owned()),
        ("max_compaction_sources", "16".to_owned()),
        // See [`neighbours`].
        ("sorted_run_consolidation_threshold", "0".to_owned()),
    ];
    CompactorOptions {
        poll_interval: STEP_INTERVAL,
        commit_compacted_interval: STEP_INTERVAL,
        max_concurrent_compactions: 1,
        checkpoint_lifetime: upkeep.retention,
        scheduler_options: HashMap::from(scheduler.map(|(key, value)| (key.into(), value))),
        worker: Some(CompactionWorkerOptions {
            max_concurrent_compactions: 1,
            compactions_poll_interval: STEP_INTERVAL,
            // With 8 MiB, one PUT (SlateDB buffers 10 MiB). A cold lookup reads a hundredth of it: filter and index.
            max_sst_size: upkeep.table_bytes,
            max_fetch_tasks: 1,
            bytes_to_fetch: 1 << 20,
            max_subcompactions: 1,
            ..CompactionWorkerOptions::default()
        }),
        ..CompactorOptions::default()
    }
}

/// SlateDB's size-tiered scheduler. It starts no merge after `time`, and signals when no merge is under way any more.
struct UntilSettled {
    settled: Arc<Notify>,
    time: Duration,
}

impl CompactionSchedulerSupplier for UntilSettled {
    fn compaction_scheduler(
        &self,
        options: &CompactorOptions,
    ) -> Box<dyn CompactionScheduler + Send + Sync> {
        Box::new(SettlingScheduler {
            inner: SizeTieredCompactionSchedulerSupplier::new().compaction_scheduler(options),
            settled: Arc::clone(&self.settled),
            time: self.time,
            began: OnceLock::new(),
        })
    }
}

struct SettlingScheduler {
    inner: Box<dyn CompactionScheduler + Send + Sync>,
    settled: Arc<Notify>,
    time: Duration,
    /// Time of the first call.
    began: OnceLock<Instant>,
}

impl CompactionScheduler for SettlingScheduler {
    fn propose(&self, state: &CompactorStateView) -> Vec<CompactionSpec> {
        let began = self.began.get_or_init(Instant::now);
        let mut proposed = Vec::new();
        if began.elapsed() < self.time {
            proposed = self.inner.propose(state);
            // One merge at a time: what it makes of the runs is known when it has ended.
            if proposed.is_empty() && !any_merge(state, Compaction::active) {
                proposed.extend(too_many_runs(state));
            }
        }
        if proposed.is_empty() && !any_merge(state, Compaction::active) {
            self.settled.notify_one();
        }
        proposed
    }

    fn validate(
        &self,
        state: &CompactorStateView,
        spec: &CompactionSpec,
    ) -> Result<(), slatedb::Error> {
        self.inner.validate(state, spec)
    }
}

/// The merge that brings the number of runs down, if there are too many.
fn too_many_runs(state: &CompactorStateView) -> Option<CompactionSpec> {
    let runs = state.manifest().compacted();
    let sizes: Vec<u64> = runs.iter().map(|run| run.estimate_size()).collect();
    let sources = runs.get(neighbours::cheapest(&sizes, MAX_RUNS)?)?;
    // The others are merged into the oldest of them.
    let destination = sources.last()?.id;
    let sources = sources.iter().map(|run| SourceId::SortedRun(run.id));
    Some(CompactionSpec::new(sources.collect(), destination))
}

/// A scheduler that proposes no merge, and signals when none is under way.
struct UntilReleased(Arc<Notify>);

impl UntilReleased {
    fn new(settled: Arc<Notify>) -> UntilReleased {
        UntilReleased(settled)
    }
}

impl CompactionSchedulerSupplier for UntilReleased {
    fn compaction_scheduler(
        &self,
        _: &CompactorOptions,
    ) -> Box<dyn CompactionScheduler + Send + Sync> {
        Box::new(UntilReleased(Arc::clone(&self.0)))
    }
}

impl CompactionScheduler for UntilReleased {
    fn propose(&self, state: &CompactorStateView) -> Vec<CompactionSpec> {
        if !any_merge(state, |one| one.status() == CompactionStatus::Running) {
            self.0.notify_one();
        }
        Vec::new()
    }

    fn validate(&self, _: &CompactorStateView, _: &CompactionSpec) -> Result<(), slatedb::Error> {
        Ok(())
    }
}

fn any_merge(state: &CompactorStateView, is: impl Fn(&Compaction) -> bool) -> bool {
    state
        .compactions()
        .is_some_and(|all| all.recent_compactions().any(is))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_small_where_the_cache_is() {
        let mib = |mib: u64| table_bytes(mib << 20) >> 20;
        assert_eq!([4, 64, 128, 256, 4096].map(mib), [8, 8, 16, 32, 32]);
    }
}
