//! The writer thread: begins to write records to the disk before they are flushed, so that a flush has little to do and the
//! disk's queue is never full of one burst.
//!
//! It is a thread of its own because a step may wait for room in the disk's queue: neither commits nor the next segment may
//! wait for that. The [state](crate::state) decides what is written and when.

use super::preparer;
use super::shared::Shared;
use crate::state::{Closing, WriteBackStep};

pub(super) fn run(shared: &Shared) {
    loop {
        let mut state = shared.state.lock();
        while state.closing == Closing::Open && !state.write_back_is_due() {
            shared.writer.wait(&mut state);
        }
        if state.closing > Closing::Open {
            return;
        }
        drop(state);
        turn(shared);
    }
}

/// Does a step if one is due. Returns whether there was work.
pub(super) fn turn(shared: &Shared) -> bool {
    let step = shared.state.lock().begin_write_back();
    let Some(WriteBackStep {
        map, range, upto, ..
    }) = step
    else {
        return false;
    };
    let outcome = map.write_back(range);
    // Before recycling, which takes over maps that have no other owner.
    drop(map);
    let is_due = shared.change(|state, due| {
        state.write_back_done(upto, outcome, due);
        preparer::is_due(state)
    });
    if is_due {
        shared.preparer.notify_one();
    }
    true
}

#[cfg(test)]
mod tests {
    use crate::tests::eventually;
    use crate::{Hand, MemoryStorage, Options, RecordKind, Recovery, Wal, WriteBack};
    use forebay_types::{Epoch, Lsn, VolumeId};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Waker};

    const SEGMENT: u64 = 128 << 10;

    fn recovery(storage: &MemoryStorage) -> (Recovery, Options) {
        let volume = VolumeId([1; 16]);
        let storage = Arc::new(storage.clone());
        let recovery = Recovery::scan(storage, volume, Lsn::ZERO).expect("scanned");
        let options = Options {
            segment_bytes: SEGMENT,
            limit_bytes: 64 * SEGMENT,
            write_back: WriteBack::Early(64 << 10),
            ..Options::new(volume, Epoch(1))
        };
        (recovery, options)
    }

    /// A log whose first segment is full, and of which a step is under way.
    fn with_a_step() -> (
        MemoryStorage,
        Arc<Wal>,
        Arc<Hand>,
        std::thread::JoinHandle<()>,
    ) {
        let storage = MemoryStorage::new();
        let (recovery, options) = recovery(&storage);
        let (wal, hand) = recovery.into_wal_by_hand(options).expect("opened");
        for _ in 0..5 {
            hand.prepare();
            let appended = wal.append(RecordKind::Data, &[&[7; 30_000]]);
            appended.expect("room");
        }
        storage.hold_write_backs(true);
        let (hand, steps) = (Arc::new(hand), storage.clone());
        let writer = Arc::clone(&hand);
        let step = std::thread::spawn(move || assert!(writer.write_back()));
        eventually(|| !steps.written_back().is_empty());
        (storage, Arc::new(wal), hand, step)
    }

    #[test]
    fn a_segment_is_not_recycled_during_a_step() {
        let (storage, wal, hand, step) = with_a_step();
        wal.recycle(wal.next_lsn());
        hand.prepare();
        assert_eq!(wal.stats().segments_recycled, 0);
        storage.hold_write_backs(false);
        step.join().expect("written");
        assert_eq!(wal.stats().segments_recycled, 1);
        // Its memory was kept, so it is used again without being mapped a second time.
        let state = wal.shared.state.lock();
        assert!(state.spares.iter().all(|spare| spare.memory.is_some()));
    }

    #[test]
    fn a_restart_waits_for_a_step() {
        let (storage, wal, hand, step) = with_a_step();
        let mut waiting = Box::pin(wal.durable(wal.next_lsn()));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
        storage.fail_flushes(true);
        assert!(hand.sync() && wal.failure().is_some());
        storage.fail_flushes(false);
        let restarted = Arc::clone(&wal);
        let restart = std::thread::spawn(move || restarted.restart(restarted.next_lsn()));
        // It waits again, as the step is not over.
        eventually(|| wal.shared.restarter.notify_all() > 0);
        storage.hold_write_backs(false);
        step.join().expect("written");
        restart.join().expect("over").expect("restarted");
        assert_eq!(wal.failure(), None);
    }

    #[test]
    fn closing_waits_for_a_step() {
        let storage = MemoryStorage::new();
        let (recovery, options) = recovery(&storage);
        let wal = Arc::new(recovery.into_wal(options).expect("opened"));
        storage.hold_write_backs(true);
        for _ in 0..4 {
            let appended = wal.append(RecordKind::Data, &[&[7; 30_000]]);
            appended.expect("room");
        }
        eventually(|| storage.written_back().len() == 1);
        let over = Arc::new(AtomicBool::new(false));
        let (closed, log) = (Arc::clone(&over), Arc::clone(&wal));
        let close = std::thread::spawn(move || {
            let closed_well = log.close();
            closed.store(true, Ordering::SeqCst);
            closed_well
        });
        eventually(|| wal.durable_lsn() == wal.next_lsn());
        assert!(!over.load(Ordering::SeqCst));
        storage.hold_write_backs(false);
        close.join().expect("over").expect("flushed");
        assert_eq!(storage.written_back().len(), 1);
    }
}
