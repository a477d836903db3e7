//! Barriers that hold requests back.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

/// A barrier that requests pass while it is open. It starts open.
#[derive(Debug)]
pub struct Gate {
    closed: watch::Sender<bool>,
    held: AtomicUsize,
    most_held: AtomicUsize,
    arrived: AtomicUsize,
}

impl Default for Gate {
    fn default() -> Self {
        Gate {
            closed: watch::Sender::new(false),
            held: AtomicUsize::new(0),
            most_held: AtomicUsize::new(0),
            arrived: AtomicUsize::new(0),
        }
    }
}

impl Gate {
    /// Holds requests back from now on.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Releases all held requests.
    pub fn open(&self) {
        self.closed.send_replace(false);
    }

    /// Number of requests that are held.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    /// Maximum number of requests that were held at once since it was made.
    pub fn most_held(&self) -> usize {
        self.most_held.load(Ordering::SeqCst)
    }

    /// Number of requests that have reached it since it was made, held or not.
    pub fn arrived(&self) -> usize {
        self.arrived.load(Ordering::SeqCst)
    }

    pub(super) async fn pass(&self) {
        self.pass_if(true).await;
    }

    /// Passes; if the gate is closed, only `is_held` ones wait.
    pub(super) async fn pass_if(&self, is_held: bool) {
        self.arrived.fetch_add(1, Ordering::SeqCst);
        let mut closed = self.closed.subscribe();
        if !*closed.borrow_and_update() || !is_held {
            return;
        }
        let held = self.held.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_held.fetch_max(held, Ordering::SeqCst);
        let _leave = Leave(&self.held);
        // The sender lives until `self` is dropped.
        let _ = closed.wait_for(|closed| !closed).await;
    }
}

struct Leave<'a>(&'a AtomicUsize);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
