//! When the trash has work, and the order of those that change it.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// The schedule of the trash.
#[derive(Default)]
pub(crate) struct Trash {
    /// No entry ends before this, in seconds since 1970. 0 until the entries were looked at.
    next: AtomicU64,
    added: Notify,
    /// Objects that were deleted because their time was over, and because room was needed.
    pub(crate) expired: AtomicU64,
    pub(crate) displaced: AtomicU64,
    /// Held by everything that takes entries out of the trash, from the look at them to the change.
    pub(crate) changing: tokio::sync::Mutex<()>,
}

impl Trash {
    /// Notes a new entry.
    pub(crate) fn added(&self, until: u64) {
        self.not_before(until);
        self.added.notify_one();
    }

    /// Returns when something was added since the last call.
    pub(crate) async fn wait(&self) {
        self.added.notified().await;
    }

    /// No entry ends before this.
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// Begins a look at the entries: those that are there end at the returned time or later. The caller notes what it
    /// finds by [`not_before`](Trash::not_before); entries that are added meanwhile note themselves.
    pub(crate) fn begin(&self) -> u64 {
        self.next.swap(u64::MAX, Ordering::AcqRel)
    }

    /// Notes that there is an entry that ends then, or may be.
    pub(crate) fn not_before(&self, until: u64) {
        self.next.fetch_min(until, Ordering::AcqRel);
    }
}
