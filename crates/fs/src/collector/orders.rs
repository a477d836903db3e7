//! Rewriting that an operator asks for: at once and all that is below the threshold, within the rate as ever.

use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Collector, CollectorStatus};
use crate::state::Stopped;

/// How long an order waits before it is tried again when the bucket does not answer well.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Why packs are not rewritten though somebody asks for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollectRefusal {
    /// Rewriting is off.
    #[error(
        "the gateway rewrites no packs, for its rewrite_below is 0: set it to 50, say, and start it again"
    )]
    Off,
    /// The volume takes no more changes.
    #[error("the volume has stopped: {0}")]
    Stopped(Stopped),
}

/// What keeps the collector from doing what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectorWait {
    /// Writers, uploads, or commits.
    Others,
    /// The bucket does not answer well, and what it says.
    Bucket(String),
}

/// What operators have asked for, and what it waits for.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// None if there is nothing to be done for them.
    open: Mutex<Option<Order>>,
}

#[derive(Debug, Default)]
struct Order {
    waits_for: Option<CollectorWait>,
}

impl Orders {
    fn place(&self) {
        self.open.lock().get_or_insert_default();
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.lock().is_some()
    }

    /// Nothing is left to be rewritten.
    pub(super) fn done(&self) {
        *self.open.lock() = None;
    }

    pub(super) fn wait_for(&self, what: CollectorWait) {
        if let Some(order) = &mut *self.open.lock() {
            order.waits_for = Some(what);
        }
    }

    pub(super) fn goes_on(&self) {
        if let Some(order) = &mut *self.open.lock() {
            order.waits_for = None;
        }
    }

    pub(super) fn waits_for(&self) -> Option<CollectorWait> {
        self.open.lock().as_ref()?.waits_for.clone()
    }
}

impl Collector {
    /// Something is to be done before the next commit.
    fn begin(&self) {
        self.begun.store(true, Ordering::Release);
        self.changed.store(true, Ordering::Release);
    }
}

impl Collector {
    /// Has all packs rewritten that are mostly dead; says how the collector is then. What is asked for twice is done once.
    pub(crate) fn collect_now(&self) -> Result<CollectorStatus, CollectRefusal> {
        if self.context.config.rewrite_below == 0 {
            return Err(CollectRefusal::Off);
        }
        if let Some(why) = self.context.signals.is_stopped() {
            return Err(CollectRefusal::Stopped(why));
        }
        self.orders.place();
        self.begin();
        // The publisher reads the accounts, if that was not done, and then hands over.
        self.context.signals.wake_publisher();
        Ok(self.current_status())
    }

    /// Waits until it may work again: for the next commit, or, while an operator waits, for a moment.
    pub(super) async fn collect_later(&self, why: String) {
        if !self.orders.is_open() {
            return self.wake.notified().await;
        }
        self.orders.wait_for(CollectorWait::Bucket(why));
        let _ = tokio::time::timeout(TRY_AGAIN, self.wake.notified()).await;
    }
}
