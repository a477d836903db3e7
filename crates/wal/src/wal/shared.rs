//! The state that a log's handle, threads and futures share: its lock, and the condition variables and wakers for its
//! changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use forebay_seal::Sealing;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::instruments::Instruments;
use crate::position::Position;
use crate::seal::LogKeys;
use crate::state::{Closing, State};
use crate::storage::Storage;

/// The part that the log, its threads and its futures share.
pub(crate) struct Shared {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) state: Mutex<State>,
    /// Seals new segments, if the log is sealed.
    pub(super) sealing: Option<Sealing>,
    /// Opens the records of sealed segments.
    pub(super) keys: LogKeys,
    /// Bytes that sealing adds to each payload.
    pub(super) seal_bytes: u64,
    pub(super) largest_payload: u64,
    pub(super) limit_bytes: u64,
    /// Copies of the state's numbers, read without the lock.
    pub(super) complete: AtomicU64,
    pub(super) durable: AtomicU64,
    pub(super) settled: AtomicU64,
    /// The same numbers in the position file, for recovery after a crash.
    pub(super) position: Option<Position>,
    pub(super) syncer: Condvar,
    pub(super) preparer: Condvar,
    pub(super) writer: Condvar,
    /// Notified when an event has happened that a restart waits for.
    pub(super) restarter: Condvar,
    pub(super) instruments: Instruments,
}

impl Shared {
    /// Changes the state, publishes its numbers, and wakes the threads and tasks that the change concerns.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State, &mut Vec<Waker>) -> T) -> T {
        let mut due = Vec::new();
        let mut state = self.state.lock();
        let result = change(&mut state, &mut due);
        self.publish(&state);
        self.wake(state, due);
        result
    }

    /// Publishes the state's numbers to readers without the lock.
    #[inline]
    pub(super) fn publish(&self, state: &State) {
        self.complete.store(state.complete.0, Ordering::Release);
        self.durable.store(state.durable.0, Ordering::Release);
        if let Some(position) = &self.position {
            position.set(state.reached());
        }
    }

    /// Announces an append: to the preparer if the append has begun a segment or found none, and to waiting tasks.
    #[cold]
    pub(super) fn announce(&self, mut state: MutexGuard<'_, State>, turned: bool) {
        if turned {
            self.preparer.notify_one();
        }
        let mut due = Vec::new();
        state.take_complete(&mut due);
        self.wake(state, due);
    }

    /// Wakes the syncer if a flush is due, the writer if it may begin to write, and the tasks in `due`.
    pub(super) fn wake(&self, state: MutexGuard<'_, State>, due: Vec<Waker>) {
        if state.flush_may_begin() || state.closing > Closing::Open {
            self.syncer.notify_one();
        }
        if state.write_back_is_due() || state.closing > Closing::Open {
            self.writer.notify_one();
        }
        if state.failure.is_some() {
            self.restarter.notify_all();
        }
        drop(state);
        for waker in due {
            waker.wake();
        }
    }

    /// Makes the preparer request a segment again that the disk has refused.
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
