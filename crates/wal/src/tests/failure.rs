//! A flush that fails.

use super::*;
use crate::AppendError;

fn poisoned() -> (MemoryStorage, Wal, Appended) {
    let storage = MemoryStorage::new();
    let wal = open(&storage);
    wait(wal.durable(append(&wal, b"safe").end)).expect("durable");
    let lost = append(&wal, b"lost");
    storage.fail_flushes(true);
    assert!(wait(wal.durable(lost.end)).is_err());
    (storage, wal, lost)
}

#[test]
fn failed_flush_poisons_and_is_never_acknowledged() {
    both(|| {
        let (storage, wal, lost) = poisoned();
        let failure = wal.failure().expect("poisoned");
        assert_eq!(failure.durable, lost.lsn);
        assert!(failure.reason.contains("flush"), "{failure}");
        // The disk works again, but the log stays failed.
        storage.fail_flushes(false);
        let flushes = storage.flushes();
        assert!(wait(wal.durable(lost.end)).is_err());
        assert!(matches!(
            wal.append(RecordKind::Data, &[b"x"]),
            Err(AppendError::Failed(_))
        ));
        assert!(wait(wal.room(1)).is_err());
        wal.recycle(lost.end);
        assert!(wal.durable_lsn() <= lost.lsn);
        assert!(wal.close().is_err());
        assert_eq!(
            storage.flushes(),
            flushes,
            "a failed flush is not tried again"
        );
        assert!(
            is_ready(wal.durable(lost.lsn)),
            "what was durable before still is"
        );
    });
}

#[test]
fn all_waiters_learn_of_a_failed_flush() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        let end = append(&wal, b"a").end;
        storage.fail_flushes(true);
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| wait(wal.durable(end))))
                .collect();
            for waiter in waiters {
                assert!(waiter.join().expect("joined").is_err());
            }
        });
        assert_eq!(storage.flushes(), 1);
    });
}

#[test]
fn restart_begins_again_in_a_fresh_segment() {
    both(|| {
        let (storage, wal, lost) = poisoned();
        let old = names(&storage, ".seg");
        assert!(wal.restart(lost.end).is_err(), "the disk does not work yet");
        assert!(wal.failure().is_some());
        storage.fail_flushes(false);
        assert!(wal.restart(lost.lsn).is_err(), "before the next LSN");
        let at = lost.end.advance(4096);
        wal.restart(at).expect("restarted");
        assert!(wal.restart(at).is_err(), "it has not failed");
        assert_eq!(
            (wal.failure(), wal.durable_lsn(), wal.next_lsn()),
            (None, at, at)
        );
        assert!(is_ready(wal.durable(lost.end)));
        assert!(
            old.iter()
                .all(|name| !names(&storage, ".seg").contains(name))
        );
        let written = append_many(&wal, 0..40, 900);
        wait(wal.durable(wal.next_lsn())).expect("durable");
        let image = storage.power_cut_losing_all();
        assert_eq!(replay(&image, at), written);
        assert_eq!(
            replay(&image, lost.end),
            written,
            "there is nothing in between"
        );
        assert!(
            Recovery::scan(Arc::new(image), VOLUME, lost.lsn).is_err(),
            "the lost record is missing"
        );
        wal.close().expect("flushed");
    });
}

#[test]
fn restart_that_fails_for_want_of_space_can_be_repeated() {
    both(|| {
        let (storage, wal, lost) = poisoned();
        storage.fail_flushes(false);
        storage.limit_capacity(Some(0));
        assert!(wal.restart(lost.end).is_err());
        assert!(wal.append(RecordKind::Data, &[]).is_err());
        storage.limit_capacity(None);
        wal.restart(lost.end).expect("restarted");
        wait(wal.durable(append(&wal, b"new").end)).expect("durable");
    });
}

#[test]
fn what_a_failed_flush_left_behind_is_written_again_after_a_kill() {
    both(|| {
        let (storage, wal, lost) = poisoned();
        wal.abandon();
        let killed = storage.kill();
        // The kernel has the record and regards it as written.
        let wal = scan(&killed, Lsn::ZERO)
            .into_wal(options())
            .expect("opened");
        assert!(wal.durable_lsn() >= lost.end);
        let found = replay(&killed.power_cut_losing_all(), Lsn::ZERO);
        assert_eq!(found.last(), Some(&(lost.lsn, b"lost".to_vec())));
    });
}

#[test]
fn a_failure_is_told_to_whoever_asks_for_it_without_waiting_for_a_flush() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        assert!(!is_ready(wal.failed()));
        storage.fail_flushes(true);
        let end = append(&wal, b"a").end;
        std::thread::scope(|scope| {
            let told = scope.spawn(|| wait(wal.failed()));
            assert!(wait(wal.durable(end)).is_err());
            assert_eq!(told.join().expect("joined").durable, Lsn::ZERO);
        });
    });
}
