//! Holding requests back.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

/// A barrier that requests pass while it is open, as it is at first.
#[derive(Debug)]
pub struct Gate {
    closed: watch::Sender<bool>,
    held: AtomicUsize,
    arrived: AtomicUsize,
}

impl Default for Gate {
    fn default() -> Self {
        Gate {
            closed: watch::Sender::new(false),
            held: AtomicUsize::new(0),
            arrived: AtomicUsize::new(0),
        }
    }
}

impl Gate {
    /// From now on requests wait before it.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }

    /// All who wait go on.
    pub fn open(&self) {
        self.closed.send_replace(false);
    }

    /// Requests that wait before it.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    /// Requests that have come to it since it was made, held or not.
    pub fn arrived(&self) -> usize {
        self.arrived.load(Ordering::SeqCst)
    }

    pub(super) async fn pass(&self) {
        self.arrived.fetch_add(1, Ordering::SeqCst);
        let mut closed = self.closed.subscribe();
        if !*closed.borrow_and_update() {
            return;
        }
        self.held.fetch_add(1, Ordering::SeqCst);
        let _leave = Leave(&self.held);
        // The sender lives as long as `self`.
        let _ = closed.wait_for(|closed| !closed).await;
    }
}

struct Leave<'a>(&'a AtomicUsize);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
