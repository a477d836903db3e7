//! The part of a log that its handle, its threads and its futures share: the state under its lock, and who is woken when
//! it changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use forebay_seal::Sealing;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::position::Position;
use crate::state::{Closing, State};
use crate::storage::Storage;

/// What the log, its threads and its futures share.
pub(crate) struct Shared {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) state: Mutex<State>,
    /// What records are sealed with, if they are.
    pub(super) sealing: Option<Sealing>,
    /// Bytes that this adds to each payload.
    pub(super) seal_bytes: u64,
    pub(super) largest_payload: u64,
    pub(super) limit_bytes: u64,
    /// Copies of the state's numbers, to be read without the lock.
    pub(super) complete: AtomicU64,
    pub(super) durable: AtomicU64,
    /// The same, for recovery after a crash.
    pub(super) position: Option<Position>,
    pub(super) syncer: Condvar,
    pub(super) preparer: Condvar,
    /// Signalled when something that a restart waits for has ended.
    pub(super) settled: Condvar,
}

impl Shared {
    /// Changes the state, publishes its numbers, wakes whom the change concerns.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State, &mut Vec<Waker>) -> T) -> T {
        let mut due = Vec::new();
        let mut state = self.state.lock();
        let result = change(&mut state, &mut due);
        self.publish(&state);
        self.wake(state, due);
        result
    }

    /// Makes the state's numbers known to whoever reads them without the lock.
    #[inline]
    pub(super) fn publish(&self, state: &State) {
        self.complete.store(state.complete.0, Ordering::Release);
        self.durable.store(state.durable.0, Ordering::Release);
        if let Some(position) = &self.position {
            position.set(state.reached());
        }
    }

    /// Tells of an append: the preparer if it has begun a segment or found none, and whom it concerns.
    #[cold]
    pub(super) fn tell(&self, mut state: MutexGuard<'_, State>, turned: bool) {
        if turned {
            self.preparer.notify_one();
        }
        let mut due = Vec::new();
        state.take_complete(&mut due);
        self.wake(state, due);
    }

    /// Wakes the syncer if a flush is due, and whoever else is due.
    pub(super) fn wake(&self, state: MutexGuard<'_, State>, due: Vec<Waker>) {
        if state.flush_may_begin() || state.closing > Closing::Open {
            self.syncer.notify_one();
        }
        if state.failure.is_some() {
            self.settled.notify_all();
        }
        drop(state);
        for waker in due {
            waker.wake();
        }
    }

    /// Has the disk asked once more for a segment that it has refused.
    pub(super) fn look_again(&self) {
        let mut state = self.state.lock();
        if state.shortage.is_some() && !state.preparing {
            state.try_again = true;
            self.preparer.notify_one();
        }
    }

    pub(super) fn close(&self, how: Closing) {
        self.change(|state, due| state.close(how, due));
        self.preparer.notify_one();
    }
}
