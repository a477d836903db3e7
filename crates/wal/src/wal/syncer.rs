//! The thread that flushes: one flush for all who wait.
//!
//! Who was woken by a flush often commits again at once. The next flush would begin with the first of them, and leave
//! the others to the one after it, so that each took a part of them only. So it is held back until as many wait as did
//! before, for a small share of the time that a flush takes at the most: who commits alone waits for nobody, and
//! who waits in vain does not wait for long.

use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::shared::Shared;
use crate::state::{Closing, Flush, State};

/// The share of a flush's time for which the next one may be held back.
const PATIENCE: u32 = 8;
/// What it comes to at the most, on a disk that is slow for once.
const LONGEST_PATIENCE: Duration = Duration::from_millis(1);

pub(super) fn run(shared: &Shared) {
    let mut patience = Duration::ZERO;
    let mut expected = 0;
    loop {
        let mut state = shared.state.lock();
        loop {
            let rest = state.complete < state.next || state.flush_is_due();
            match state.closing {
                Closing::Abandon => return,
                Closing::Flush if state.failure.is_some() || !rest => return,
                _ if state.flush_is_due() => break,
                _ => shared.syncer.wait(&mut state),
            }
        }
        if state.for_durable.count() < expected && !state.for_durable.is_empty() {
            gather(shared, &mut state, expected, patience);
            if state.closing == Closing::Abandon || !state.flush_is_due() {
                continue;
            }
        }
        let began = Instant::now();
        expected = flush(shared, state);
        patience = (began.elapsed() / PATIENCE).min(LONGEST_PATIENCE);
    }
}

/// Waits until so many wait for the flush that is due, or patience is at its end.
fn gather(shared: &Shared, state: &mut MutexGuard<'_, State>, expected: usize, patience: Duration) {
    let until = Instant::now() + patience;
    state.gathering = Some(expected);
    while state.closing == Closing::Open && !state.flush_may_begin() {
        if shared.syncer.wait_until(state, until).timed_out() {
            break;
        }
    }
    state.gathering = None;
}

/// Flushes if somebody waits for it; says whether there was something to do.
pub(super) fn turn(shared: &Shared) -> bool {
    let state = shared.state.lock();
    let due = state.closing != Closing::Abandon && state.flush_is_due();
    if due {
        flush(shared, state);
    }
    due
}

/// Flushes, and tells how many wait or have waited at its end.
fn flush(shared: &Shared, mut state: MutexGuard<'_, State>) -> usize {
    let Flush { upto, parts } = state.begin_flush();
    drop(state);

    // In the order of the log, so that what a later segment's header claims is true.
    let outcome = parts
        .iter()
        .try_for_each(|(map, range)| map.flush(range.clone()));
    // Before recycling, which takes over maps that nobody else holds.
    drop(parts);

    let (unmap, waiters) = shared.change(|state, due| {
        let waiters = state.for_durable.count();
        state.flush_done(upto, outcome, due);
        (std::mem::take(&mut state.unmap), waiters)
    });
    drop(unmap);
    shared.preparer.notify_one();
    waiters
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Durable, Hand, MemoryStorage, Options, RecordKind, Recovery, Wal};
    use forebay_types::{Epoch, Lsn, VolumeId};
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Waker};

    fn open() -> (Wal, Hand) {
        let volume = VolumeId([1; 16]);
        let storage = Arc::new(MemoryStorage::new());
        let recovery = Recovery::scan(storage, volume, Lsn::ZERO).expect("scanned");
        let options = Options::new(volume, Epoch(1));
        recovery.into_wal_by_hand(options).expect("opened")
    }

    /// Appends, and waits for what it has appended until the future is dropped.
    fn commit(wal: &Wal) -> Pin<Box<Durable>> {
        let appended = wal.append(RecordKind::Data, &[b"committed"]);
        let mut waiting = Box::pin(wal.durable(appended.expect("room").end));
        let poll = waiting
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll.is_pending());
        waiting
    }

    #[test]
    fn the_flush_of_those_who_come_back_begins_with_the_last_of_them() {
        let (wal, _hand) = open();
        let _first = commit(&wal);
        let (shared, over) = (Arc::clone(&wal.shared), Arc::new(AtomicBool::new(false)));
        let gathered = Arc::clone(&over);
        std::thread::spawn(move || {
            let mut state = shared.state.lock();
            gather(&shared, &mut state, 3, Duration::from_secs(3600));
            gathered.store(true, Ordering::SeqCst);
        });
        crate::tests::eventually(|| wal.shared.state.lock().gathering == Some(3));
        let _second = commit(&wal);
        assert!(!wal.shared.state.lock().flush_may_begin(), "one is missing");
        assert!(!over.load(Ordering::SeqCst));
        let _third = commit(&wal);
        crate::tests::eventually(|| over.load(Ordering::SeqCst));
        assert!(wal.shared.state.lock().flush_may_begin());
    }

    #[test]
    fn patience_with_those_who_do_not_come_back_ends() {
        let (wal, _hand) = open();
        let _first = commit(&wal);
        let mut state = wal.shared.state.lock();
        gather(&wal.shared, &mut state, 64, Duration::from_millis(1));
        assert!(state.flush_may_begin());
    }

    #[test]
    fn a_log_that_is_closed_waits_for_nobody() {
        let (wal, _hand) = open();
        let _first = commit(&wal);
        wal.shared.close(Closing::Flush);
        let mut state = wal.shared.state.lock();
        gather(&wal.shared, &mut state, 64, Duration::from_secs(3600));
        assert!(state.flush_is_due());
    }
}
