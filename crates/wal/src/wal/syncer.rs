//! The syncer thread: one flush for all waiting tasks.
//!
//! A task that a flush has woken often commits again at once. The next flush would begin with the first of these
//! tasks and leave the others to the flush after it, so that each flush served only a part of them. So the syncer
//! delays a flush until as many tasks wait as waited before, for at most a small fraction of a flush's time. A single
//! committing task never waits for others, and a delay for tasks that do not come is short.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::preparer;
use super::shared::Shared;
use crate::state::{Closing, Flush, State};

/// The next flush may be delayed by at most one part in this many of the time that the last one took.
const DELAY_DIVISOR: u32 = 8;
/// The longest delay, for a disk that is slow for a moment.
const MAX_DELAY: Duration = Duration::from_millis(1);

pub(super) fn run(shared: &Shared) {
    let mut delay = Duration::ZERO;
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
            gather(shared, &mut state, expected, delay);
            if state.closing == Closing::Abandon || !state.flush_is_due() {
                continue;
            }
        }
        let flushed = flush(shared, state);
        expected = flushed.waiters;
        delay = (flushed.time / DELAY_DIVISOR).min(MAX_DELAY);
    }
}

/// Waits until `expected` tasks wait for the flush that is due, or `delay` has elapsed.
fn gather(shared: &Shared, state: &mut MutexGuard<'_, State>, expected: usize, delay: Duration) {
    let until = Instant::now() + delay;
    state.gathering = Some(expected);
    while state.closing == Closing::Open && !state.flush_may_begin() {
        if shared.syncer.wait_until(state, until).timed_out() {
            break;
        }
    }
    state.gathering = None;
}

/// Flushes if a flush is due. Returns whether there was work.
pub(super) fn turn(shared: &Shared) -> bool {
    let state = shared.state.lock();
    let due = state.closing != Closing::Abandon && state.flush_is_due();
    if due {
        flush(shared, state);
    }
    due
}

/// A flush that is over.
struct Flushed {
    /// The number of tasks that waited for it or wait at its end.
    waiters: usize,
    time: Duration,
}

fn flush(shared: &Shared, mut state: MutexGuard<'_, State>) -> Flushed {
    let began = Instant::now();
    let Flush {
        upto,
        parts,
        records,
        bytes,
    } = state.begin_flush();
    drop(state);

    // In log order: of an error in the middle, what lies before it is durable. Early writing may have brought later parts to
    // the disk already, and recovery takes the longest unbroken beginning.
    let outcome = parts
        .iter()
        .try_for_each(|(map, range)| map.flush(range.clone()));
    // Before recycling, which takes over maps that have no other owner.
    drop(parts);
    match outcome {
        Ok(()) => shared.instruments.flushed(began.elapsed(), records, bytes),
        Err(_) => shared.instruments.failed(began.elapsed()),
    }

    let (unmap, waiters, is_due) = shared.change(|state, due| {
        let waiters = state.for_durable.count();
        state.flush_done(upto, outcome, due);
        shared
            .settled
            .store(state.settled.upto.0, Ordering::Release);
        let unmap = std::mem::take(&mut state.unmap);
        (unmap, waiters, preparer::is_due(state))
    });
    // A wake-up costs the caller of a commit its processor for a moment, so most flushes leave the preparer asleep.
    if is_due {
        shared.preparer.notify_one();
    }
    drop(unmap);
    Flushed {
        waiters,
        time: began.elapsed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Durable, Hand, MemoryStorage, Options, RecordKind, Recovery, Wal};
    use forebay_types::{Epoch, Lsn, VolumeId};
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::task::{Context, Waker};

    fn open() -> (Wal, Hand) {
        open_with(Arc::new(MemoryStorage::new()), 32 << 20, 4 << 30)
    }

    fn open_with(storage: Arc<MemoryStorage>, segment_bytes: u64, limit_bytes: u64) -> (Wal, Hand) {
        let volume = VolumeId([1; 16]);
        let recovery = Recovery::scan(storage, volume, Lsn::ZERO).expect("scanned");
        let options = Options {
            segment_bytes,
            limit_bytes,
            ..Options::new(volume, Epoch(1))
        };
        recovery.into_wal_by_hand(options).expect("opened")
    }

    /// Appends, and waits for the record to be durable until the future is dropped.
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
    fn the_flush_of_returning_tasks_begins_with_the_last_of_them() {
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
    fn a_flush_does_not_wait_long_for_tasks_that_do_not_come_back() {
        let (wal, _hand) = open();
        let _first = commit(&wal);
        let mut state = wal.shared.state.lock();
        gather(&wal.shared, &mut state, 64, Duration::from_millis(1));
        assert!(state.flush_may_begin());
    }

    /// Runs `work` while a thread waits in the place of the preparer. Returns whether `work` has woken it.
    fn wakes_the_preparer(wal: &Wal, work: impl FnOnce()) -> bool {
        let (shared, waits) = (Arc::clone(&wal.shared), Arc::new(AtomicBool::new(false)));
        let waiting = Arc::clone(&waits);
        let thread = std::thread::spawn(move || {
            let mut state = shared.state.lock();
            waiting.store(true, Ordering::SeqCst);
            shared.preparer.wait(&mut state);
        });
        crate::tests::eventually(|| {
            // A thread that waits has released the lock.
            let _state = wal.shared.state.lock();
            waits.load(Ordering::SeqCst)
        });
        work();
        // It finds the thread if nothing else has woken it.
        let was_woken = !wal.shared.preparer.notify_one();
        thread.join().expect("woken");
        was_woken
    }

    #[test]
    fn a_flush_that_leaves_nothing_to_prepare_does_not_wake_the_preparer() {
        let (wal, hand) = open();
        let _waiting = commit(&wal);
        hand.prepare();
        assert!(!wakes_the_preparer(&wal, || assert!(hand.sync())));
    }

    #[test]
    fn a_flush_after_which_a_segment_can_be_used_again_wakes_the_preparer() {
        let storage = Arc::new(MemoryStorage::new());
        let segment = 16 << 10;
        let (wal, hand) = open_with(Arc::clone(&storage), segment, 2 * segment);
        let wal = Arc::new(wal);
        let _waiting = commit(&wal);
        let published = wal.next_lsn();
        hand.prepare();
        let largest = vec![0; usize::try_from(wal.shared.largest_payload).expect("small")];
        let appended = wal.append(RecordKind::Data, &[&largest]);
        appended.expect("the second segment");
        // Published during the flush, which still reads the first segment.
        let during = Arc::clone(&wal);
        storage.observe(move || during.recycle(published));
        assert!(wakes_the_preparer(&wal, || assert!(hand.sync())));
        storage.observe(|| {});
        assert_eq!(wal.stats().segments_recycled, 1);
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
