//! One life of a gateway: it opens the volume, and executes the plan until the world stops.
//!
//! Everything runs in one thread. This module itself polls the calls of clients, one at a time, and reads the end of
//! the log before and after each poll: so it knows, without access to the product's internals, which call made which
//! record, and in which order.

mod afterwards;
mod backlog;
mod calls;
mod probe;
mod restoring;

use std::sync::Arc;
use std::time::Duration;

use forebay_fs::{Stopped, Volume};
use parking_lot::Mutex;

use crate::audit;
use crate::bucket::StoreFaults;
use crate::history::History;
use crate::ledger::{Ledger, Unstable};
use crate::machine::DiskFaults;
use crate::operation::Operation;
use crate::plan::{Action, Hidden, Journal, Plan, What};
use crate::recovery::{compare, open_to_serve};
use crate::totals::Totals;
use crate::world::{Step, World, WorldImage};
pub(crate) use afterwards::{alone, by_hand, collect, delete_snapshots, publish};
use calls::Calls;

/// A moment at which the world could have stopped.
pub(crate) struct Stop {
    pub(crate) step: Step,
    pub(crate) image: WorldImage,
    pub(crate) ledger: Ledger,
}

/// The result of a life.
pub(crate) struct Life {
    pub(crate) stops: Vec<Stop>,
    pub(crate) unstable: Vec<Unstable>,
    /// The machine of the gateway that holds the volume at the end.
    pub(crate) machine: usize,
}

/// The events of a run as text, if it is kept.
#[derive(Default)]
pub struct Trace(pub(crate) Option<Vec<String>>);

impl Trace {
    /// A trace that keeps its lines.
    pub fn kept() -> Trace {
        Trace(Some(Vec::new()))
    }

    /// The events, in order.
    pub fn lines(&self) -> &[String] {
        self.0.as_deref().unwrap_or_default()
    }

    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.0 {
            lines.push(line());
        }
    }
}

/// Collects stops while the gateway runs.
pub(crate) struct Recorder {
    stops: Vec<Stop>,
    ledger: Ledger,
    /// Reads of the log by calls of clients, and by uploads.
    log_reads: [u64; 2],
}

impl Recorder {
    /// Starts recording the steps of a world.
    pub(crate) fn watch(world: &World, ledger: Ledger) -> Arc<Mutex<Recorder>> {
        let recorder = Arc::new(Mutex::new(Recorder {
            stops: Vec::new(),
            ledger,
            log_reads: [0; 2],
        }));
        let (watched, shared) = (world.clone(), recorder.clone());
        world.observe(Some(Arc::new(move |step| {
            let image = watched.image();
            let mut recorder = shared.lock();
            let ledger = recorder.ledger.clone();
            // Before it is open it is compared, and so is a second gateway.
            if step == Step::LogRead && ledger.opened && !ledger.contested {
                recorder.log_reads[usize::from(!ledger.polling)] += 1;
            }
            recorder.stops.push(Stop {
                step,
                image,
                ledger,
            });
        })));
        recorder
    }

    pub(crate) fn take(&mut self) -> Vec<Stop> {
        std::mem::take(&mut self.stops)
    }
}

/// The start of a life.
pub(crate) struct Beginning<'a> {
    pub(crate) world: World,
    pub(crate) machine: usize,
    pub(crate) plan: &'a Plan,
    pub(crate) actions: &'a [(u32, Action)],
    pub(crate) ledger: Ledger,
    pub(crate) unstable: Vec<Unstable>,
}

/// A running gateway.
struct Gateway<'a> {
    world: World,
    machine: usize,
    plan: &'a Plan,
    volume: Volume,
    history: &'a mut History,
    recorder: Arc<Mutex<Recorder>>,
    /// Bytes that were in the log alone at the last look.
    spilled: u64,
    unstable: Vec<Unstable>,
    calls: Calls,
    /// Store or disk had faults in this life: "not now" is a valid answer.
    troubled: bool,
    /// The disk had faults in this life.
    disk_troubled: bool,
    /// The machine of the gateway that took over, the volume that it has open, and where it began.
    successor: Option<(usize, Volume, u64)>,
    totals: &'a mut Totals,
    trace: &'a mut Trace,
}

/// Runs a life.
pub(crate) async fn live(
    beginning: Beginning<'_>,
    history: &mut History,
    totals: &mut Totals,
    trace: &mut Trace,
) -> Result<Life, String> {
    let Beginning {
        world,
        machine,
        plan,
        actions,
        ledger,
        mut unstable,
    } = beginning;
    let expected = ledger.end;
    let known = ledger.verifier;
    let recorder = Recorder::watch(&world, ledger);
    // This history has lost what the crash has lost.
    let recovered = open_to_serve(&world, machine, plan, history, u64::MAX).await?;
    if recovered.end != expected {
        return Err(format!(
            "opened twice from the same image, once at {expected} and once at {}",
            recovered.end
        ));
    }
    trace.note(|| {
        format!(
            "opened on machine {machine}, recovered to {}",
            recovered.end
        )
    });
    {
        let ledger = &mut recorder.lock().ledger;
        ledger.verifier = recovered.verifier;
        ledger.opened = true;
        if known.is_some() && recovered.verifier != known {
            unstable.clear();
            ledger.unstable = 0;
        }
    }
    world.set_delays(25);
    totals.lives += 1;
    let mut gateway = Gateway {
        world: world.clone(),
        machine,
        plan,
        volume: recovered.volume,
        history,
        recorder,
        spilled: 0,
        unstable,
        calls: Calls::default(),
        troubled: false,
        disk_troubled: false,
        successor: None,
        totals,
        trace,
    };
    for (number, action) in actions {
        gateway
            .act(action)
            .await
            .map_err(|why| format!("action {number} ({action}): {why}"))?;
    }
    world.step(Step::Rest);
    world.observe(None);
    let stops = gateway.recorder.lock().take();
    gateway.count_faults();
    Ok(Life {
        stops,
        unstable: gateway.unstable,
        machine: gateway.machine,
    })
}

/// Time that passes between two looks at the volume: less than the pause of the task that empties the trash.
const SLICE_MS: u64 = 500;

impl Gateway<'_> {
    async fn act(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::Begin(draft) => {
                let serial = self.world.number();
                // One runs at a time; a second one is refused.
                if draft.what == What::Restore
                    && self.calls.is_restoring()
                    && !serial.is_multiple_of(4)
                {
                    self.poll_calls()?;
                    return self.notice();
                }
                let hidden = Hidden {
                    gone: &self.history.gone,
                    staged: &self.calls.staged(),
                };
                let operation = draft.resolve(self.history.newest(), hidden, serial);
                if self.calls.takes_target(&operation) {
                    self.poll_calls()?;
                    return self.notice();
                }
                self.begin(operation)?;
            }
            Action::Run(turns) => {
                // A restore has many steps.
                let turns = match self.calls.is_restoring() {
                    true => 4 * u32::from(*turns),
                    false => u32::from(*turns),
                };
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                    self.poll_calls()?;
                }
            }
            Action::Sync => {
                self.sync();
                self.poll_calls()?;
            }
            Action::Prepare => self.prepare(),
            Action::Advance { ms } => {
                let mut left = u64::from(*ms);
                while left > 0 {
                    let part = left.min(SLICE_MS);
                    left -= part;
                    if self.successor.is_none() {
                        self.world.pass(part);
                    }
                    tokio::time::sleep(Duration::from_millis(part)).await;
                    self.notice()?;
                }
                self.poll_calls()?;
            }
            Action::WriteBack(seed) => {
                let seed = *seed;
                self.world
                    .machine(self.machine, |machine| machine.write_back(seed));
            }
            Action::GiveUp(pick) => self.calls.give_up(*pick),
            Action::Store(faults) => {
                self.troubled |= *faults != StoreFaults::default();
                self.world.set_store_faults(*faults);
            }
            Action::Disk(faults) => {
                self.set_disk_faults(*faults);
            }
            Action::TakeOver => self.take_over().await?,
            Action::Close => self.close().await?,
            Action::Crash(crash) => {
                if self.successor.is_some() {
                    self.end_former().await?;
                } else if crash.stop.is_multiple_of(2) {
                    self.drain().await?;
                }
            }
        }
        self.notice()
    }

    /// Notes what the tasks have done between two polls.
    fn notice(&mut self) -> Result<(), String> {
        self.notice_backlog()?;
        self.notice_emptied()
    }

    /// The task that empties the trash makes one change in a second at most.
    fn notice_emptied(&mut self) -> Result<(), String> {
        let status = self.volume.status();
        if status.end.0 == self.history.end() {
            return Ok(());
        }
        let state = self.history.newest();
        let before = state.trash().count() as u64;
        let state = state.emptied(status.trash_entries, self.world.now())?;
        self.totals.records += 1;
        self.totals.trash_deleted += before - status.trash_entries;
        self.trace
            .note(|| format!("{}: {} left in the trash", status.end, status.trash_entries));
        self.history.push(status.end.0, state);
        self.recorder.lock().ledger.end = status.end.0;
        self.world.step(Step::Appended);
        Ok(())
    }

    fn set_disk_faults(&mut self, faults: DiskFaults) {
        if faults != DiskFaults::default() {
            self.troubled = true;
            self.disk_troubled = true;
            self.recorder.lock().ledger.verifier = None;
        }
        self.world.set_disk_faults(self.machine, faults);
    }

    fn sync(&self) {
        let hand = self
            .world
            .machine(self.machine, |machine| machine.hand.clone());
        if let Some(hand) = hand {
            hand.write_back();
            hand.sync();
        }
    }

    fn prepare(&self) {
        let hand = self
            .world
            .machine(self.machine, |machine| machine.hand.clone());
        if let Some(hand) = hand {
            hand.prepare();
        }
    }

    /// Repairs store and disk, and runs all tasks: every call must end.
    async fn drain(&mut self) -> Result<(), String> {
        /// Most rounds of a tenth of a second: an hour.
        const ROUNDS: usize = 36_000;
        self.world.set_store_faults(StoreFaults::default());
        self.world
            .set_disk_faults(self.machine, DiskFaults::default());
        for _ in 0..ROUNDS {
            self.sync();
            self.prepare();
            tokio::task::yield_now().await;
            self.poll_calls()?;
            if self.calls.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(format!(
            "no progress in an hour, with store and disk at work: {}",
            self.calls
        ))
    }

    /// Another gateway opens the volume on another machine, while this one keeps running.
    async fn take_over(&mut self) -> Result<(), String> {
        if self.recorder.lock().ledger.fenced {
            return Ok(());
        }
        // The changes that the new gateway makes by itself would be a life of their own.
        let published = audit::published(&self.world.image().bucket)?;
        let soon = self.world.now().seconds.cast_unsigned() + 60;
        if !self.history.trash_rests_since(published, soon) {
            return Ok(());
        }
        // The new gateway reads the bucket through a working store.
        self.world.set_store_faults(StoreFaults::default());
        self.recorder.lock().ledger.contested = true;
        let other = self.world.add_machine();
        let opening = open_to_serve(&self.world, other, self.plan, self.history, u64::MAX);
        let recovered = opening
            .await
            .map_err(|why| format!("the gateway that takes over: {why}"))?;
        self.trace
            .note(|| format!("taken over on machine {other}, at {}", recovered.end));
        self.totals.takeovers += 1;
        self.troubled = true;
        {
            let ledger = &mut self.recorder.lock().ledger;
            if recovered.end < ledger.bucket {
                return Err(format!(
                    "the gateway that took over is at {}, and {} was acknowledged as being in the bucket",
                    recovered.end, ledger.bucket
                ));
            }
            ledger.fenced = true;
            ledger.taken_at = recovered.end;
            ledger.verifier = recovered.verifier;
        }
        self.successor = Some((other, recovered.volume, recovered.end));
        Ok(())
    }

    /// Checks that the gateway that was taken over from has stopped when it tries to publish, and has changed nothing
    /// for its successor.
    async fn end_former(&mut self) -> Result<(), String> {
        let Some((other, successor, end)) = self.successor.take() else {
            return Ok(());
        };
        // First make room among the calls.
        self.drain().await?;
        self.begin(Operation::Flush)?;
        self.drain().await?;
        let status = self.volume.status();
        if status.unpublished_bytes() > 0 && status.stopped != Some(Stopped::Fenced) {
            return Err(format!(
                "a gateway that was taken over from does not stop: {:?}",
                status.stopped
            ));
        }
        let state = self.history.at(end).ok_or("no state to go back to")?;
        compare(&successor, state)
            .await
            .map_err(|why| format!("the gateway that took over, later: {why}"))?;
        self.machine = other;
        self.successor = Some((other, successor, end));
        Ok(())
    }

    async fn close(&mut self) -> Result<(), String> {
        if self.recorder.lock().ledger.fenced {
            return Ok(());
        }
        self.calls.drop_all();
        // The limit counts in simulated time; a close that waits longer than this waits for ever.
        let volume = self.volume.clone();
        let closing = volume.close(Duration::from_secs(30));
        let mut closing = std::pin::pin!(closing);
        let mut waited = 0;
        let closed = loop {
            let slice = Duration::from_millis(SLICE_MS);
            let closed = tokio::time::timeout(slice, closing.as_mut()).await;
            self.notice()?;
            match closed {
                Ok(closed) => break closed,
                Err(_) if waited > 3_600_000 => return Err("closing waits for ever".to_owned()),
                Err(_) => waited += SLICE_MS,
            }
        };
        self.trace.note(|| format!("closed: {closed:?}"));
        self.totals.closes += 1;
        let mut recorder = self.recorder.lock();
        recorder.ledger.closed = !self.disk_troubled && self.plan.journal != Journal::None;
        if closed == forebay_fs::Closed::Published {
            let end = recorder.ledger.end;
            recorder.ledger.promise_bucket(end);
        }
        Ok(())
    }

    fn count_faults(&mut self) {
        let status = self.volume.status();
        let collector = status.collector;
        self.totals.shared_bytes += status.dedup.map_or(0, |dedup| dedup.saved_bytes);
        self.totals.rewritten_packs += collector.rewritten;
        self.totals.defragmented_blocks += collector.defragmented_blocks;
        self.totals.orphans_deleted += collector.orphans_deleted;
        let (failed, ghosts) = self.world.bucket(|bucket| (bucket.failed, bucket.ghosts));
        self.totals.failed_requests += failed;
        self.totals.ghost_requests += ghosts;
        let totals = &mut *self.totals;
        self.world.machine(self.machine, |machine| {
            totals.failed_flushes += machine.failed_flushes;
            totals.full_disks += machine.full_disks;
            totals.failed_reads += machine.failed_reads;
            totals.dropped_pages += machine.dropped_pages;
        });
        let [reads, loads] = self.recorder.lock().log_reads;
        totals.log_reads += reads;
        totals.log_loads += loads;
    }
}
