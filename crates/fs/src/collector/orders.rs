//! Rewriting on an operator's order: at once, of everything below the threshold, and within the rate as always.

use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Collector, CollectorStatus};
use crate::state::Stopped;

/// How long an order waits for another attempt when the bucket does not answer well.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Why the gateway refuses an order to rewrite packs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollectRefusal {
    /// Rewriting is off.
    #[error(
        "the gateway rewrites no packs, because its rewrite_below is 0: set it to 50, for example, and restart the gateway"
    )]
    Off,
    /// The volume takes no more changes.
    #[error("the volume has stopped: {0}")]
    Stopped(Stopped),
}

/// What keeps the collector from carrying out an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectorWait {
    /// Writers, uploads, or commits.
    Others,
    /// The bucket does not answer well; with its answer.
    Bucket(String),
}

/// The orders of operators, and what they wait for.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// `None` if there is no open order.
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

    /// Ends the order: nothing is left to rewrite.
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
    /// Makes the collector work before the next commit.
    fn begin(&self) {
        self.begun.store(true, Ordering::Release);
        self.changed.store(true, Ordering::Release);
    }
}

impl Collector {
    /// Orders to rewrite all packs that are mostly dead; returns the collector's status. A second order while one is
    /// open changes nothing.
    pub(crate) fn collect_now(&self) -> Result<CollectorStatus, CollectRefusal> {
        if self.context.config.rewrite_below == 0 {
            return Err(CollectRefusal::Off);
        }
        if let Some(why) = self.context.signals.is_stopped() {
            return Err(CollectRefusal::Stopped(why));
        }
        self.orders.place();
        self.begin();
        // The publisher reads the accounts, if that was not done, and then wakes the collector.
        self.context.signals.wake_publisher();
        Ok(self.current_status())
    }

    /// Waits until the collector may work again: for the next commit, or, while an order is open, for a moment.
    pub(super) async fn collect_later(&self, why: String) {
        if !self.orders.is_open() {
            return self.wake.notified().await;
        }
        self.orders.wait_for(CollectorWait::Bucket(why));
        let _ = tokio::time::timeout(TRY_AGAIN, self.wake.notified()).await;
    }
}
