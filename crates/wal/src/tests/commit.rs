//! Flushes: as few as possible, and none that does not keep its promise.

use super::*;
use forebay_metrics::{Samples, Source, Value};

#[test]
fn many_waiters_share_one_flush() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        let first = append(&wal, b"first");
        storage.hold_flushes(true);
        let ask = |end| {
            let mut waiter = Box::pin(wal.durable(end));
            assert!(
                waiter
                    .as_mut()
                    .poll(&mut Context::from_waker(Waker::noop()))
                    .is_pending()
            );
            waiter
        };
        let mut waiters = vec![ask(first.end)];
        eventually(|| storage.flushes() == 1);
        // These waiters come while a flush is under way; the next flush is for all of them.
        let ends: Vec<_> = (0..64).map(|_| append(&wal, b"more").end).collect();
        waiters.extend(ends.into_iter().map(ask));
        storage.hold_flushes(false);
        for waiter in waiters {
            wait(waiter).expect("durable");
        }
        assert_eq!(storage.flushes(), 2);
        assert_eq!((wal.stats().flushes, wal.stats().flush_waiters), (2, 65));
        let samples = Samples::of([wal.instruments() as &dyn Source]);
        let number = |name, labels: &[&str]| samples.number(name, labels);
        assert_eq!(number("log_flush_duration_seconds", &["ok"]), Some(2.0));
        assert_eq!(number("log_flush_duration_seconds", &["failed"]), None);
        let sum = |name| {
            let mut found = samples.iter().filter(|sample| sample.family.name == name);
            match found.next().map(|sample| &sample.value) {
                Some(Value::Histogram(observed)) => (observed.count(), observed.sum()),
                other => panic!("{name}: {other:?}"),
            }
        };
        assert_eq!(sum("log_flush_records"), (2, 65.0));
        let bytes = wal.stats().appended_bytes as f64;
        assert_eq!(sum("log_flush_bytes"), (2, bytes));
    });
}

#[test]
fn whoever_asked_before_the_record_was_there_is_woken_by_its_append() {
    both(|| {
        // Polled only once: without a wake-up they would never become ready.
        struct Woken(std::sync::atomic::AtomicBool);
        impl Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.store(true, std::sync::atomic::Ordering::SeqCst);
            }
        }
        // One record that is copied under the lock, and one that is not.
        for bytes in [100, 2000] {
            let storage = MemoryStorage::new();
            let wal = open(&storage);
            let upto = append(&wal, &payload(1, bytes)).end.advance(1);
            let woken = || Arc::new(Woken(false.into()));
            let (complete, durable) = (woken(), woken());
            let mut asked = Box::pin(wal.complete(upto));
            let waker = Waker::from(Arc::clone(&complete));
            assert!(
                asked
                    .as_mut()
                    .poll(&mut Context::from_waker(&waker))
                    .is_pending()
            );
            let mut asked_more = Box::pin(wal.durable(upto));
            let waker = Waker::from(Arc::clone(&durable));
            let poll = asked_more.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(poll.is_pending());
            append(&wal, &payload(2, bytes));
            assert!(
                complete.0.load(std::sync::atomic::Ordering::SeqCst),
                "{bytes}"
            );
            eventually(|| durable.0.load(std::sync::atomic::Ordering::SeqCst));
            assert!(wal.durable_lsn() >= upto);
        }
    });
}

#[test]
fn what_is_durable_costs_no_flush() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        let end = append(&wal, b"a").end;
        wait(wal.durable(end)).expect("durable");
        let flushes = storage.flushes();
        for _ in 0..10 {
            assert!(is_ready(wal.durable(end)) && is_ready(wal.durable(Lsn::ZERO)));
        }
        assert_eq!(storage.flushes(), flushes);
    });
}

#[test]
fn appends_alone_cost_no_flush() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        append_many(&wal, 0..50, 100);
        assert_eq!((storage.flushes(), wal.durable_lsn()), (0, Lsn::ZERO));
        wal.close().expect("flushed");
        assert_eq!(storage.flushes(), 1);
    });
}

#[test]
fn what_durable_has_answered_survives_the_loss_of_everything_else() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        for round in 0..40 {
            append(&wal, &payload(round, 1000));
            let end = append(&wal, &payload(round, 77)).end;
            wait(wal.durable(end)).expect("durable");
            assert!(
                scan(&storage.power_cut_losing_all(), Lsn::ZERO).end() >= end,
                "round {round}"
            );
        }
    });
}

#[test]
fn what_nobody_waits_for_survives_a_kill_and_is_flushed_once_segments_are_full() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        let end = append(&wal, b"a").end;
        assert!(is_ready(wal.complete(end)));
        assert_eq!((storage.flushes(), wal.durable_lsn()), (0, Lsn::ZERO));
        assert_eq!(replay(&storage.kill(), Lsn::ZERO).len(), 1);
        append_many(&wal, 0..120, 1000);
        let backlog = options().flush_backlog() + SEGMENT;
        eventually(|| wal.durable_lsn().advance(backlog) > wal.next_lsn());
        assert!(wal.durable_lsn() > Lsn::ZERO);
    });
}

#[test]
fn a_waiter_that_gives_up_is_forgotten() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        assert!(!is_ready(wal.durable(Lsn(100))) && !is_ready(wal.complete(Lsn(100))));
        // A flush for the two would begin with this record, and would not end before the next waiter has come.
        storage.hold_flushes(true);
        let end = append(&wal, &[7; 500]).end;
        let mut waiter = Box::pin(wal.durable(end));
        let polled = waiter
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        storage.hold_flushes(false);
        wait(waiter).expect("durable");
        let stats = wal.stats();
        assert_eq!(
            (storage.flushes(), stats.flush_waiters),
            (1, 1),
            "only the last task waits"
        );
    });
}

#[test]
fn closing_flushes_ends_the_threads_and_refuses_the_rest() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        let written = append_many(&wal, 0..30, 1000);
        let beyond = Box::pin(wal.durable(wal.next_lsn().advance(1)));
        wal.close().expect("flushed");
        wal.close().expect("flushed before");
        assert_eq!(wal.durable_lsn(), wal.next_lsn());
        assert!(wait(beyond).is_err());
        assert!(matches!(
            wal.append(RecordKind::Data, &[]),
            Err(crate::AppendError::Failed(_))
        ));
        assert!(wait(wal.room(1)).is_err());
        assert_eq!(replay(&storage.power_cut_losing_all(), Lsn::ZERO), written);
    });
}
