//! The scrub: reads every pack back in the background, slowly, and records the time.
//!
//! ```text
//!   survey: accounts, held packs, and checks of all packs -> the packs with the oldest checks
//!      |
//!   verify: index, header, frames; in pieces, at a rate, after all other work
//!      |                      |
//!      |                 damaged frames -> of snapshots: the pack is put again, if there are copies       mend.rs
//!      |                      |
//!      |                 the list of damages -> healing
//!      v
//!   results of the checks -> committed with the next batch of metadata, or as a batch of their own
//! ```
//!
//! A round ends when all of its packs were read. Its progress is in the metadata, so that the scrub goes on with the
//! oldest pack after a restart. Between rounds it sends no requests to the bucket.
//!
//! Packs of a clone that lie at a source are left to the gateway of the source, which holds them as long as the clone
//! needs them.

mod board;
mod context;
mod known;
mod mend;
mod plan;
mod report;
mod verify;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_environment::backoff;
use forebay_meta::record::{BlockMap, ScrubRecord};
use forebay_meta::{Batch, Key, KeyRange, Record, StoreError};
use forebay_pack::object_name;
use forebay_types::{Inode, PackId};

use crate::publisher::{AccountChange, Observer};
use board::Board;
use known::{Known, pack_of};
use plan::{Due, Queue, RateLimit, Survey};
use report::ScrubWait as Wait;

pub(crate) use context::Context;
pub use report::{CheckedPack, ScrubEnd, ScrubProgress, ScrubRefusal, ScrubStatus, ScrubWait};

/// How many packs are chosen at a time, some 40 bytes each.
const QUEUE: usize = 65_536;
/// How many accounts are read at a time.
const ACCOUNTS: usize = 4096;
/// How many block maps are read at a time.
const MAPS: usize = 1024;
/// How many checks may wait to be committed while the bucket takes none.
const MOST_CHECKS: usize = 4096;
/// How many packs without a readable index are looked up in all block maps at the end of a round.
const MOST_BLIND: usize = 4096;
/// How long the scrub waits after a failure that may last.
const LATER: Duration = Duration::from_secs(3600);

/// The reason why a round ended that an operator has stopped.
const STOPPED: &str = "it was stopped";

/// Whether a request waits while the bucket does not answer.
#[derive(Clone, Copy)]
enum OnOutage {
    Wait,
    Fail,
}

/// The reason why a round cannot go on.
#[derive(Debug)]
struct Broken(String);

/// The engine that scrubs the packs of one volume.
pub(crate) struct Scrub {
    context: Context,
    board: Board,
}

impl Observer for Scrub {
    fn has_records_due(&self) -> bool {
        self.board.has_due()
    }

    fn before_commit(&self, batch: &mut Batch, dead: &BTreeSet<PackId>) {
        self.board.enter(batch, dead);
    }

    fn committed(&self, _changes: &[AccountChange], dead: &BTreeSet<PackId>) {
        if !dead.is_empty() {
            self.context.damages.released(dead);
        }
        self.board.entered(dead);
    }

    fn pack_deleted(&self, pack: PackId) {
        self.context.damages.forget(pack);
    }

    /// Notes its frames as damaged.
    fn pack_missing(&self, pack: PackId) {
        self.board.is_gone(pack);
    }
}

impl Scrub {
    pub(crate) fn new(context: Context) -> Scrub {
        Scrub {
            context,
            board: Board::default(),
        }
    }

    /// Begins a round over all packs that were not read within `age`.
    pub(crate) fn start(&self, age: Duration) -> Result<(), ScrubRefusal> {
        if !self.board.begin(self.seconds()) {
            return Err(ScrubRefusal::Running);
        }
        *self.board.order.lock() = Some(age.as_secs());
        self.board.wake.notify_one();
        Ok(())
    }

    /// Ends the current round; returns whether there was one.
    pub(crate) fn stop(&self) -> bool {
        let runs = self.board.round.lock().running.is_some();
        if self.board.order.lock().take().is_some() {
            // The round has not begun yet.
            self.board.end(self.seconds(), Some(STOPPED.to_owned()));
        }
        self.board.stop.notify_waiters();
        runs
    }

    fn seconds(&self) -> u64 {
        self.context
            .environment
            .clock
            .now()
            .seconds
            .max(0)
            .unsigned_abs()
    }

    /// Runs rounds when they are due or ordered, for as long as the volume runs.
    pub(crate) async fn run_forever(self: Arc<Self>) {
        let interval = self.context.interval.as_secs();
        loop {
            // From here on no request to stop is lost.
            let stopped = self.board.stop.notified();
            let order = self.board.order.lock().take();
            let gone = std::mem::take(&mut *self.board.gone.lock());
            if !gone.is_empty() {
                self.note_gone(gone).await;
            }
            if let Some(age) = order {
                self.round(age, stopped).await;
                continue;
            }
            if interval == 0 {
                self.board.wake.notified().await;
                continue;
            }
            let next = match self.survey(0).await {
                Ok((survey, _)) => survey.next_round(self.seconds(), interval),
                Err(Broken(why)) => {
                    tracing::warn!("the scrub cannot read the list of packs: {why}");
                    self.seconds() + LATER.as_secs()
                }
            };
            self.board.round.lock().next = Some(next);
            if self.order_before(next).await {
                continue;
            }
            let stopped = self.board.stop.notified();
            if !self.board.begin(self.seconds()) {
                // An order came at this moment.
                continue;
            }
            if !self.round(interval / 2, stopped).await {
                // The cause of the failure may last.
                let later = self.seconds() + LATER.as_secs();
                self.order_before(later).await;
            }
        }
    }

    /// Notes the frames of missing packs as damaged.
    async fn note_gone(&self, gone: BTreeSet<PackId>) {
        let why = |pack| (pack, "the pack is gone from the bucket".to_owned());
        let gone: BTreeMap<PackId, String> = gone.into_iter().map(why).collect();
        let mut rate = RateLimit::new(self.context.rate);
        if let Err(Broken(why)) = self.look_up(&gone, &mut rate).await {
            tracing::warn!("cannot find the files of a pack that is gone: {why}");
        }
    }

    /// Waits until this time, or until a round is ordered; returns whether one was.
    async fn order_before(&self, next: u64) -> bool {
        loop {
            if self.board.order.lock().is_some() || !self.board.gone.lock().is_empty() {
                return true;
            }
            let left = next.saturating_sub(self.seconds());
            if left == 0 {
                return false;
            }
            // The clock may be adjusted meanwhile.
            let nap = Duration::from_secs(left).min(LATER);
            let _ = tokio::time::timeout(nap, self.board.wake.notified()).await;
        }
    }

    /// Reads all packs that were not read within `age` seconds, unless the round is stopped. Returns whether it was
    /// completed.
    async fn round(&self, age: u64, stopped: impl Future<Output = ()>) -> bool {
        tracing::info!("the scrub begins");
        let outcome = tokio::select! {
            biased;
            () = stopped => Err(Broken(STOPPED.to_owned())),
            outcome = self.read_packs(self.seconds().saturating_sub(age)) => outcome,
        };
        self.board.is_due.store(true, Ordering::Release);
        self.context.progress.tidy();
        let cut_short = outcome.err().map(|Broken(why)| why);
        let is_whole = cut_short.is_none();
        self.board.end(self.seconds(), cut_short);
        let last = self.board.round.lock().last.clone();
        if let Some(ScrubEnd {
            packs,
            bytes,
            damaged,
            cut_short,
            ..
        }) = last
        {
            let end =
                cut_short.map_or(String::new(), |why| format!(", and has ended early: {why}"));
            tracing::info!(
                "the scrub has read {packs} packs, {bytes} bytes, {damaged} of them damaged{end}"
            );
        }
        is_whole
    }

    /// Reads all packs whose last check was at this time or before, and those without a check.
    async fn read_packs(&self, before: u64) -> Result<(), Broken> {
        let mut rate = RateLimit::new(self.context.rate);
        let mut blind = BTreeMap::new();
        loop {
            let (_, queue) = self.survey(before).await?;
            self.board.chose(queue.packs, queue.bytes);
            let more = queue.has_more();
            for due in queue.into_order() {
                while self.board.checks.lock().pending.len() >= MOST_CHECKS {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                let verdict = self.verify(&due, &mut rate).await?;
                let record = verdict
                    .as_ref()
                    .map(|verdict| verdict.record(self.seconds()));
                if self.board.verified(due.pack, record) {
                    self.board.is_due.store(true, Ordering::Release);
                    self.context.progress.tidy();
                }
                if let Some(why) = verdict.and_then(|verdict| verdict.blind) {
                    tracing::error!("{} has no usable index: {why}", object_name(due.pack));
                    if blind.len() < MOST_BLIND {
                        blind.insert(due.pack, why);
                    }
                }
            }
            if !more {
                break;
            }
        }
        self.look_up(&blind, &mut rate).await
    }

    /// Finds in the block maps the frames of packs without a readable index, and checks each.
    async fn look_up(
        &self,
        blind: &BTreeMap<PackId, String>,
        rate: &mut RateLimit,
    ) -> Result<(), Broken> {
        if blind.is_empty() {
            return Ok(());
        }
        let mut rest = KeyRange::blocks_from(Inode(0));
        loop {
            let found = self
                .patiently(|| self.context.catalog.scan(&rest, MAPS))
                .await?;
            for (key, value) in &found {
                // The tasks that need an unreadable record report it, and so does fsck.
                let (Ok(Key::Block(block)), Ok(map)) =
                    (Key::decode(key), BlockMap::decode(key, value))
                else {
                    continue;
                };
                let mut seen = BTreeSet::new();
                for extent in map.extents() {
                    let frame = &extent.frame;
                    if blind.contains_key(&frame.pack) && seen.insert((frame.pack, frame.offset)) {
                        self.reserve(u64::from(frame.stored_len), rate).await;
                        if let Some(why) = self.check_alone(block, frame).await? {
                            self.context.damages.report(block, frame, &why);
                        }
                    }
                }
            }
            match found.last() {
                Some((last, _)) if found.len() == MAPS => rest = rest.after(last),
                _ => return Ok(()),
            }
        }
    }

    /// Surveys all packs; queues those whose last check was at this time or before.
    async fn survey(&self, before: u64) -> Result<(Survey, Queue), Broken> {
        let (mut survey, mut queue) = (Survey::default(), Queue::new(QUEUE));
        self.for_each_pack(OnOutage::Wait, |known, check| {
            survey.add(known, check);
            if check.is_none_or(|check| check.checked <= before) {
                queue.add(Due {
                    checked: check.map(|check| check.checked),
                    pack: known.pack,
                    bytes: known.life.bytes,
                    frames: known.frames,
                });
            }
        })
        .await?;
        Ok((survey, queue))
    }

    /// Reads the accounts of all packs, the packs that snapshots hold, and their last checks. A pack that changes
    /// between the two meanwhile may come twice, or not at all.
    async fn for_each_pack(
        &self,
        on_outage: OnOutage,
        mut each: impl FnMut(&Known, Option<&ScrubRecord>),
    ) -> Result<(), Broken> {
        for range in [KeyRange::packs(), KeyRange::held_packs()] {
            self.for_each_in(range, on_outage, &mut each).await?;
        }
        Ok(())
    }

    async fn for_each_in(
        &self,
        mut rest: KeyRange,
        on_outage: OnOutage,
        each: &mut impl FnMut(&Known, Option<&ScrubRecord>),
    ) -> Result<(), Broken> {
        loop {
            let accounts = self
                .ask(on_outage, || self.context.catalog.scan(&rest, ACCOUNTS))
                .await?;
            let Some((last, _)) = accounts.last() else {
                return Ok(());
            };
            let numbers = accounts.iter().filter_map(|(key, _)| pack_of(key));
            let (first, end) = numbers.fold((u64::MAX, 0), |(first, end), pack| {
                (first.min(pack.0), end.max(pack.0))
            });
            // The checks of these packs, and of those of the other kind among them.
            let range = KeyRange {
                end: Key::Scrub(PackId(end.saturating_add(1))).encode(),
                ..KeyRange::scrubs_from(PackId(first))
            };
            // Read before the metadata: a check is in the metadata before it leaves the pending ones.
            let pending: Vec<(PackId, ScrubRecord)> = {
                let checks = self.board.checks.lock();
                let pending = checks.pending.range(PackId(first)..=PackId(end));
                pending.map(|(pack, check)| (*pack, *check)).collect()
            };
            let own: BTreeSet<PackId> = accounts
                .iter()
                .filter_map(|(key, _)| pack_of(key))
                .collect();
            let mut checks = self.checks_of(range, &own, on_outage).await?;
            for (pack, check) in pending {
                let latest = checks.entry(pack).or_insert(check);
                if latest.checked <= check.checked {
                    *latest = check;
                }
            }
            for (key, value) in &accounts {
                let own = |known: &Known| !self.context.sources.have(known.pack);
                if let Some(known) = Known::decode(key, value).filter(own) {
                    each(&known, checks.get(&known.pack));
                }
            }
            if accounts.len() < ACCOUNTS {
                return Ok(());
            }
            rest = rest.after(last);
        }
    }

    /// The checks of these packs, out of a range of checks.
    async fn checks_of(
        &self,
        mut range: KeyRange,
        own: &BTreeSet<PackId>,
        on_outage: OnOutage,
    ) -> Result<BTreeMap<PackId, ScrubRecord>, Broken> {
        let mut checks = BTreeMap::new();
        loop {
            let found = self
                .ask(on_outage, || {
                    self.context.catalog.scan(&range, 2 * ACCOUNTS)
                })
                .await?;
            for (key, value) in &found {
                if let (Ok(Key::Scrub(pack)), Ok(check)) =
                    (Key::decode(key), ScrubRecord::decode(key, value))
                    && own.contains(&pack)
                {
                    checks.insert(pack, check);
                }
            }
            match found.last() {
                Some((last, _)) if found.len() == 2 * ACCOUNTS => range = range.after(last),
                _ => return Ok(checks),
            }
        }
    }

    /// Repeats a request to the metadata until it is answered.
    async fn patiently<T, F>(&self, ask: impl FnMut() -> F) -> Result<T, Broken>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        self.ask(OnOutage::Wait, ask).await
    }

    /// Sends a request to the metadata, and repeats it as `on_outage` says.
    async fn ask<T, F>(&self, on_outage: OnOutage, mut ask: impl FnMut() -> F) -> Result<T, Broken>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut attempt = 1;
        loop {
            match (ask().await, on_outage) {
                (Ok(answer), _) => return Ok(answer),
                (Err(StoreError::Transient(why)), OnOutage::Wait) => {
                    self.board.waits_for(Some(Wait::Bucket(why)));
                    tokio::time::sleep(backoff(attempt, &*self.context.environment.random)).await;
                    attempt += 1;
                }
                (Err(error), _) => return Err(Broken(error.to_string())),
            }
        }
    }
}

#[cfg(test)]
mod tests;
