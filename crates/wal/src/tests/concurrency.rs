//! Many threads at once.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[test]
fn threads_append_commit_and_recycle_and_nothing_is_lost() {
    both(|| {
        let storage = MemoryStorage::new();
        let small = Options {
            limit_bytes: 8 * SEGMENT,
            ..options()
        };
        let wal = open_with(&storage, Lsn::ZERO, small);
        let published = AtomicU64::new(0);
        let done = AtomicBool::new(false);
        let mut written: Vec<(Lsn, Vec<u8>)> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4_u64)
                .map(|writer| {
                    let wal = &wal;
                    scope.spawn(move || {
                        let mut written = Vec::new();
                        for round in 0..400 {
                            let payload =
                                payload(writer << 32 | round, (round as usize * 37) % 1500);
                            let appended = append(wal, &payload);
                            if round % 20 == writer {
                                wait(wal.durable(appended.end)).expect("durable");
                                assert!(wal.durable_lsn() >= appended.end);
                            } else if round % 7 == 0 {
                                wait(wal.complete(appended.end));
                            }
                            written.push((appended.lsn, payload));
                        }
                        written
                    })
                })
                .collect();
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let complete = wal.complete_lsn();
                    if wal.used_bytes() > 3 * SEGMENT {
                        published.store(complete.0, Ordering::Relaxed);
                        wal.recycle(complete);
                    }
                    std::thread::yield_now();
                }
            });
            let written = writers
                .into_iter()
                .flat_map(|writer| writer.join().expect("no panic"));
            let written = written.collect();
            done.store(true, Ordering::Relaxed);
            written
        });
        wal.close().expect("flushed");
        written.sort();
        let mut next = Lsn::ZERO;
        for (lsn, payload) in &written {
            assert_eq!(*lsn, next, "LSNs have no gaps");
            next = lsn.advance(record_size(payload.len()));
        }
        let published = Lsn(published.into_inner());
        let first = written
            .iter()
            .position(|(lsn, _)| *lsn >= published)
            .unwrap_or(written.len());
        assert_eq!(
            replay(&storage.power_cut_losing_all(), published),
            written[first..]
        );
        assert_eq!(wal.stats().appends, 1600);
    });
}
