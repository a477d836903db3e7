//! The collector: gives the bucket back what nothing refers to.
//!
//! ```text
//!   survey ------------> copy ----------------> redirect ------------------> delete
//!    | the accounts:      | live bytes of        | in the publisher's turn:   | packs without live
//!    | which packs are    | sparse packs go      | maps that still say so     | bytes, as always
//!    | mostly dead        | into a new pack      | say the new place          | (reclaim.rs)
//!    |
//!    +-- after an opening: packs of earlier epochs that no account knows (orphans.rs)
//!    +-- after an upload without an answer: packs that come back when they were deleted (late.rs)
//! ```
//!
//! One task beside the publisher copies; the publisher alone changes maps and accounts, in one batch. It takes part in
//! what writers have the bucket for only where they leave room, and rests after each step so long that it stays within
//! its rate. It begins after a commit, or when an operator asks for it, and with nothing to do it makes no request.

mod late;
mod moves;
mod orders;
mod orphans;
mod pace;
mod rewrite;
mod survey;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use forebay_meta::KeyRange;
use forebay_meta::record::PackRecord;
use forebay_types::PackId;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Halted;
use crate::FsConfig;
use crate::core::Core;
use crate::status::Stage;
use late::Late;
use orders::Orders;
pub use orders::{CollectRefusal, CollectorWait};
use orphans::Looks;
use pace::{Pace, Work};
use rewrite::Rewritten;
pub use survey::Space;
pub(crate) use survey::Survey;

/// Accounts that are read at a time.
const PAGE: usize = 1024;
/// How long who is kept from working waits before he looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// What the collector has done and has to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectorStatus {
    /// All packs together; none before their accounts were read, which begins with the first commit.
    pub space: Option<Space>,
    /// Packs whose live share is below `rewrite_below`.
    pub to_rewrite: u64,
    /// Bytes of the bucket that rewriting them would free, about.
    pub to_rewrite_bytes: u64,
    /// Packs that were rewritten since the opening.
    pub rewritten: u64,
    /// Live bytes that were copied for that, before compression.
    pub copied_bytes: u64,
    /// Packs that could not be rewritten, and are left as they are until the next opening.
    pub left_alone: u64,
    /// Packs that nothing knew, and that were deleted since the opening.
    pub orphans_deleted: u64,
    /// Whether what an operator has asked for is being done.
    pub is_ordered: bool,
    /// What it waits for then.
    pub waits_for: Option<CollectorWait>,
}

/// What the collector's task and the publisher tell each other.
pub(crate) struct Collector {
    pub(super) survey: Mutex<Survey>,
    /// Something was committed, or handed back.
    wake: Notify,
    /// A copy that waits for the publisher's turn.
    copied: Mutex<Option<Rewritten>>,
    /// Something was committed or read since the collector was woken.
    changed: AtomicBool,
    /// Something was committed since the opening: accounts are read from then on.
    begun: AtomicBool,
    /// How often in a row the bucket did not answer well.
    failures: AtomicU32,
    /// When packs that nothing knows are to be looked for.
    looks: Mutex<Looks>,
    /// Packs of this gateway that may come back.
    late: Mutex<Late>,
    /// What operators have asked for.
    orders: Orders,
    rewritten: AtomicU64,
    copied_bytes: AtomicU64,
    orphans_deleted: AtomicU64,
}

/// How a step of the collector ended.
enum Step {
    /// It did something, and may go on.
    Worked(Work),
    /// There is nothing to do before the next commit.
    Idle,
    /// Others need what it would need.
    Busy,
    /// The bucket does not answer well: not again before the next commit.
    Later(String),
}

impl Collector {
    pub(crate) fn new(config: &FsConfig) -> Collector {
        Collector {
            survey: Mutex::new(Survey::new(config.rewrite_below)),
            wake: Notify::new(),
            copied: Mutex::new(None),
            changed: AtomicBool::new(false),
            begun: AtomicBool::new(false),
            failures: AtomicU32::new(0),
            looks: Mutex::default(),
            late: Mutex::default(),
            orders: Orders::default(),
            rewritten: AtomicU64::new(0),
            copied_bytes: AtomicU64::new(0),
            orphans_deleted: AtomicU64::new(0),
        }
    }

    /// A commit has changed these accounts.
    pub(super) fn committed(&self, changes: &[AccountChange]) {
        let mut survey = self.survey.lock();
        for change in changes {
            survey.changed(change.pack, change.before.as_ref(), change.after.as_ref());
        }
        drop(survey);
        self.begun.store(true, Ordering::Release);
        self.changed.store(true, Ordering::Release);
    }

    /// The publisher has done what it had to do: it is the collector's turn, if anything has changed.
    pub(super) fn turn_over(&self) {
        if self.changed.swap(false, Ordering::AcqRel) {
            self.wake.notify_one();
        }
    }

    /// Whether the publisher has something to do for it.
    pub(super) fn has_work(&self) -> bool {
        let surveys = self.begun.load(Ordering::Acquire) && self.survey.lock().rest().is_some();
        surveys || self.copied.lock().is_some()
    }

    fn status(&self) -> CollectorStatus {
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
            is_ordered: self.orders.is_open(),
            waits_for: self.orders.waits_for(),
        }
    }
}

/// How a commit has changed the account of a pack.
pub(super) struct AccountChange {
    pub(super) pack: PackId,
    pub(super) before: Option<PackRecord>,
    pub(super) after: Option<PackRecord>,
}

impl Core {
    /// Collects whenever there is something, for as long as there is a publisher.
    pub(crate) async fn collect_forever(self: Arc<Core>) {
        let collector = &self.checkpoints.collector;
        let pace = Pace::of(&self.config);
        // Nothing before the first commit: who only reads makes no requests by it.
        collector.wake.notified().await;
        loop {
            while !self.may_collect() {
                collector.orders.wait_for(CollectorWait::Others);
                let _ = tokio::time::timeout(LOOK_AGAIN, collector.wake.notified()).await;
            }
            match self.collect_step().await {
                Step::Worked(work) => {
                    collector.orders.goes_on();
                    pace.rest_after(work).await;
                }
                Step::Idle => collector.wake.notified().await,
                Step::Busy => {
                    collector.orders.wait_for(CollectorWait::Others);
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                Step::Later(why) => {
                    tracing::debug!("collecting goes on later: {why}");
                    self.collect_later(why).await;
                }
            }
        }
    }

    /// What the collector has done and has to do.
    pub(crate) fn collector_status(&self) -> CollectorStatus {
        let mut status = self.checkpoints.collector.status();
        let trouble = self.checkpoints.store_trouble();
        if let Some((why, _)) = trouble.filter(|_| status.is_ordered) {
            status.waits_for = Some(CollectorWait::Bucket(why));
        }
        status
    }

    /// Whether writers and the bucket leave room for it.
    fn may_collect(&self) -> bool {
        let checkpoints = &self.checkpoints;
        let is_busy = checkpoints.uploads() >= self.config.upload_parallel
            || checkpoints.garbage.load(Ordering::Acquire)
            || checkpoints.stage() == Stage::Publishing
            || self.writers_wait();
        !is_busy && checkpoints.store_trouble().is_none() && self.is_stopped().is_none()
    }

    async fn collect_step(self: &Arc<Self>) -> Step {
        let collector = &self.checkpoints.collector;
        let is_ordered = collector.orders.is_open();
        let (group, surveyed) = {
            let mut survey = collector.survey.lock();
            let group = match is_ordered {
                true => survey.next_group_of_all(self.copy_bytes()),
                false => survey.next_group(self.copy_bytes()),
            };
            (group, survey.rest().is_none())
        };
        if !surveyed {
            // The publisher reads them, and says when it has: between two commits a page and the sums belong together.
            self.checkpoints.wake();
            return Step::Idle;
        }
        if !group.is_empty() {
            return self.rewrite(group).await;
        }
        if is_ordered {
            collector.orders.done();
        }
        match self.look_for_late_packs().await {
            Some(step) => step,
            None => self.look_for_orphans().await,
        }
    }

    /// Live bytes that are copied into one pack: as many as fill it, and as memory has room for beside everything else.
    fn copy_bytes(&self) -> u64 {
        self.config.pack_bytes.min(self.config.memory_limit / 8)
    }

    /// What is the publisher's part of collecting: one page of the survey, and one copy that becomes what maps refer to.
    pub(super) async fn collect_in_turn(&self) -> Result<(), Halted> {
        let collector = &self.checkpoints.collector;
        let rest = collector.survey.lock().rest();
        if let Some(from) = rest {
            let range = KeyRange::packs_from(from);
            let page = self.insist(|| self.catalog.records::<PackRecord>(&range, PAGE));
            let page = page.await?.into_iter();
            let accounts: Vec<_> = page.filter_map(account).collect();
            collector.survey.lock().page(&accounts, PAGE);
            collector.changed.store(true, Ordering::Release);
        }
        let copied = collector.copied.lock().take();
        match copied {
            Some(copied) => self.redirect(copied).await,
            None => Ok(()),
        }
    }
}

fn account((key, record): (forebay_meta::Key, PackRecord)) -> Option<(PackId, PackRecord)> {
    match key {
        forebay_meta::Key::Pack(pack) => Some((pack, record)),
        _ => None,
    }
}
