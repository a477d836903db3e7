//! The collector: frees the space of the bucket to which nothing refers.
//!
//! ```text
//!   survey ------------> copy ----------------> redirect ------------------> delete
//!    | the accounts:      | live bytes of        | between two checkpoints:   | packs without live
//!    | which packs are    | sparse packs go      | maps that still say so     | bytes, as always
//!    | mostly dead        | into a new pack      | say the new place          | (reclaim.rs)
//!    |
//!    +-- after an opening: packs of earlier epochs that no account knows (orphans.rs)
//!    +-- after an upload without an answer: packs that come back when they were deleted (late.rs)
//!    +-- mostly before all that: blocks whose bytes lie in many places (defragment.rs)
//! ```
//!
//! One task beside the publisher copies; the publisher alone changes maps and accounts, in one batch. The collector
//! uses the bucket only as far as writers leave room, and rests after each step long enough to stay within its rate.
//! It begins after a commit, or when an operator asks for it; with nothing to do it sends no request.

mod context;
mod defragment;
mod late;
mod moves;
mod orders;
mod orphans;
mod rate;
mod redirect;
mod rewrite;
mod survey;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use forebay_meta::KeyRange;
use forebay_meta::record::PackRecord;
use forebay_types::PackId;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::publisher::{AccountChange, BetweenCheckpoints, Committer, Halted, Observer};
use orders::Orders;
use orphans::Looks;
use rate::{Rate, Work};
use rewrite::Rewritten;
use survey::Survey;

pub(crate) use context::Context;
pub(crate) use late::LatePacks;
pub use orders::{CollectRefusal, CollectorWait};
pub use survey::Space;

/// How many accounts are read at a time.
const PAGE: usize = 1024;
/// In one of this many steps, packs are rewritten before fragmented blocks are copied.
const TURNS: u64 = 4;
/// How long the collector waits before it checks again, when other tasks need the bucket or memory.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The work that the collector has done, and the work that is left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectorStatus {
    /// The sums of all packs; none before their accounts were read, which begins with the first commit.
    pub space: Option<Space>,
    /// Packs whose live share is below `rewrite_below`.
    pub to_rewrite: u64,
    /// Approximate bytes of the bucket that rewriting them would free.
    pub to_rewrite_bytes: u64,
    /// Packs that were rewritten since the opening.
    pub rewritten: u64,
    /// Live bytes that were copied for that, before compression.
    pub copied_bytes: u64,
    /// Packs that could not be rewritten, and are left as they are until the next opening.
    pub left_alone: u64,
    /// Orphaned packs that were deleted since the opening.
    pub orphans_deleted: u64,
    /// Blocks of which a reader needs more than one GET for each MiB, as far as they are known.
    pub fragmented_blocks: u64,
    /// Blocks that were copied into one place since the opening.
    pub defragmented_blocks: u64,
    /// Bytes that were copied for that, before compression.
    pub defragmented_bytes: u64,
    /// Whether an operator's order is being carried out.
    pub is_ordered: bool,
    /// If so, what the collector waits for.
    pub waits_for: Option<CollectorWait>,
}

/// The garbage collector of one volume.
pub(crate) struct Collector {
    context: Context,
    survey: Mutex<Survey>,
    /// Notified after a step between checkpoints if something was committed or read.
    wake: Notify,
    /// A copy that waits for its step between checkpoints.
    copied: Mutex<Option<Rewritten>>,
    /// Something was committed or read since the collector was woken.
    changed: AtomicBool,
    /// Something was committed since the opening: accounts are read from then on.
    begun: AtomicBool,
    /// Number of failures of the bucket in a row.
    failures: AtomicU32,
    /// When to look for orphaned packs.
    looks: Mutex<Looks>,
    /// Packs that may come back.
    late: Arc<LatePacks>,
    /// The orders of operators.
    orders: Orders,
    rewritten: AtomicU64,
    copied_bytes: AtomicU64,
    orphans_deleted: AtomicU64,
    defragmented_blocks: AtomicU64,
    defragmented_bytes: AtomicU64,
    steps: AtomicU64,
}

/// How a step of the collector ended.
enum Step {
    /// It worked, and may go on.
    Worked(Work),
    /// There is nothing to do before the next commit, or before a fragmented block is due.
    Idle,
    /// The publisher has a step to do before, or the volume has stopped.
    Waits,
    /// Other tasks need the same resources.
    Busy,
    /// The bucket does not answer well: try again after the next commit.
    Later(String),
}

impl Collector {
    pub(crate) fn new(context: Context) -> Collector {
        Collector {
            survey: Mutex::new(Survey::new(context.config.rewrite_below)),
            context,
            wake: Notify::new(),
            copied: Mutex::new(None),
            changed: AtomicBool::new(false),
            begun: AtomicBool::new(false),
            failures: AtomicU32::new(0),
            looks: Mutex::default(),
            late: Arc::default(),
            orders: Orders::default(),
            rewritten: AtomicU64::new(0),
            copied_bytes: AtomicU64::new(0),
            orphans_deleted: AtomicU64::new(0),
            defragmented_blocks: AtomicU64::new(0),
            defragmented_bytes: AtomicU64::new(0),
            steps: AtomicU64::new(0),
        }
    }

    /// The packs that may come back, for engines that put packs.
    pub(crate) fn late_packs(&self) -> Arc<LatePacks> {
        self.late.clone()
    }

    /// Collects whenever there is garbage, for as long as there is a publisher.
    pub(crate) async fn run_forever(self: Arc<Self>) {
        let rate = Rate::of(&self.context.config);
        // Nothing before the first commit: a gateway that only reads sends no requests for this.
        self.wake.notified().await;
        loop {
            while !self.context.may_collect() || self.is_in_the_way() {
                self.orders.wait_for(CollectorWait::Others);
                let _ = tokio::time::timeout(LOOK_AGAIN, self.wake.notified()).await;
            }
            match self.collect_step().await {
                Step::Worked(work) => {
                    self.orders.goes_on();
                    rate.rest_after(work).await;
                }
                Step::Idle => self.wait_for_work().await,
                Step::Waits => self.wake.notified().await,
                Step::Busy => {
                    self.orders.wait_for(CollectorWait::Others);
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                Step::Later(why) => {
                    tracing::debug!("garbage collection continues later: {why}");
                    self.collect_later(why).await;
                }
            }
        }
    }

    /// Returns at the next commit, when a reader has found a fragmented block, or when one is due.
    async fn wait_for_work(&self) {
        let fragments = &self.context.fragments;
        let due = async {
            match fragments.next_due() {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.wake.notified() => {}
            () = fragments.found() => {}
            () = due => {}
        }
    }

    /// Whether clients change something at this moment. Not if a person waits for the collection.
    fn is_in_the_way(&self) -> bool {
        !self.orders.is_open() && !self.context.foreground.effort().background
    }

    /// The work that the collector has done, and the work that is left.
    pub(crate) fn current_status(&self) -> CollectorStatus {
        let mut status = self.counts();
        let trouble = self.context.trouble.current();
        if let Some((why, _)) = trouble.filter(|_| status.is_ordered) {
            status.waits_for = Some(CollectorWait::Bucket(why));
        }
        status
    }

    fn counts(&self) -> CollectorStatus {
        let survey = self.survey.lock();
        let (to_rewrite, to_rewrite_bytes) = survey.to_rewrite();
        CollectorStatus {
            space: survey.space(),
            to_rewrite,
            to_rewrite_bytes,
            rewritten: self.rewritten.load(Ordering::Relaxed),
            copied_bytes: self.copied_bytes.load(Ordering::Relaxed),
            left_alone: survey.left_alone(),
            orphans_deleted: self.orphans_deleted.load(Ordering::Relaxed),
            fragmented_blocks: self.context.fragments.len() as u64,
            defragmented_blocks: self.defragmented_blocks.load(Ordering::Relaxed),
            defragmented_bytes: self.defragmented_bytes.load(Ordering::Relaxed),
            is_ordered: self.orders.is_open(),
            waits_for: self.orders.waits_for(),
        }
    }

    async fn collect_step(self: &Arc<Self>) -> Step {
        let is_ordered = self.orders.is_open();
        let (group, surveyed) = {
            let mut survey = self.survey.lock();
            let group = match is_ordered {
                true => survey.next_group_of_all(self.copy_bytes()),
                false => survey.next_group(self.copy_bytes()),
            };
            (group, survey.rest().is_none())
        };
        if !surveyed {
            // The publisher reads them, and wakes the collector afterwards: between two commits a page and the sums
            // are consistent.
            self.context.signals.wake_publisher();
            return Step::Waits;
        }
        // A block that is copied leaves its packs, so fewer bytes of them are left to rewrite. But packs must not wait for ever.
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        let is_first = !is_ordered && !step.is_multiple_of(TURNS);
        if is_first {
            let step = self.defragment().await;
            if !matches!(step, Step::Idle) {
                return step;
            }
        }
        if !group.is_empty() {
            return self.rewrite(group).await;
        }
        if is_ordered {
            self.orders.done();
        }
        let step = match self.look_for_late_packs().await {
            Some(step) => step,
            None => self.look_for_orphans().await,
        };
        match step {
            Step::Idle if !is_first => self.defragment().await,
            step => step,
        }
    }

    /// How many live bytes are copied into one pack: as many as fill it, and as memory has room for beside everything
    /// else.
    fn copy_bytes(&self) -> u64 {
        self.context
            .config
            .pack_bytes
            .min(self.context.config.memory_limit / 8)
    }
}

impl Observer for Collector {
    fn committed(&self, changes: &[AccountChange], _dead: &BTreeSet<PackId>) {
        let mut survey = self.survey.lock();
        for change in changes {
            survey.changed(change.pack, change.before.as_ref(), change.after.as_ref());
        }
        drop(survey);
        self.begun.store(true, Ordering::Release);
        self.changed.store(true, Ordering::Release);
    }

    fn put_in_doubt(&self, pack: PackId) {
        self.late.may_come_again(pack);
    }

    fn pack_deleted(&self, pack: PackId) {
        let grace = self.context.config.orphan_grace;
        self.late.deleted(pack, Instant::now() + grace);
    }
}

#[async_trait]
impl BetweenCheckpoints for Collector {
    fn has_work(&self) -> bool {
        let surveys = self.begun.load(Ordering::Acquire) && self.survey.lock().rest().is_some();
        surveys || self.copied.lock().is_some()
    }

    /// One page of the survey, and one copy to which maps are redirected.
    async fn step(&self, committer: &Committer) -> Result<(), Halted> {
        let rest = self.survey.lock().rest();
        if let Some(from) = rest {
            let range = KeyRange::packs_from(from);
            let page = committer.insist(|| committer.catalog.records::<PackRecord>(&range, PAGE));
            let page = page.await?.into_iter();
            let accounts: Vec<_> = page.filter_map(account).collect();
            self.survey.lock().page(&accounts, PAGE);
            self.changed.store(true, Ordering::Release);
        }
        let copied = self.copied.lock().take();
        match copied {
            Some(copied) => self.redirect(committer, copied).await,
            None => Ok(()),
        }
    }

    fn over(&self) {
        if self.changed.swap(false, Ordering::AcqRel) {
            self.wake.notify_one();
        }
    }
}

fn account((key, record): (forebay_meta::Key, PackRecord)) -> Option<(PackId, PackRecord)> {
    match key {
        forebay_meta::Key::Pack(pack) => Some((pack, record)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
