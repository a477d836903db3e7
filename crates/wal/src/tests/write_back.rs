//! Early write-back: it promises nothing, and its errors are those of a flush.

use super::crash::check_image;
use super::*;
use crate::layout::SEGMENT_HEADER;
use crate::storage::PIECE;
use crate::{Hand, WriteBack, WriteBacks};
use forebay_metrics::{Samples, Source, Value};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

const LARGE: u64 = 256 << 10;
const STEP: u64 = 64 << 10;

fn early() -> Options {
    Options {
        segment_bytes: LARGE,
        limit_bytes: 64 * LARGE,
        write_back: WriteBack::Early(STEP),
        ..options()
    }
}

fn by_hand(storage: &MemoryStorage, options: Options) -> (Wal, Hand) {
    let recovery = scan(storage, Lsn::ZERO);
    recovery.into_wal_by_hand(options).expect("opened")
}

/// Appends some bytes of payload. Segments are prepared when they are needed.
fn fill(wal: &Wal, hand: &Hand, numbers: Range<u64>, bytes: usize) -> Vec<(Lsn, Vec<u8>)> {
    let one = |number| {
        hand.prepare();
        (append_many(wal, number..number + 1, bytes)).remove(0)
    };
    numbers.map(one).collect()
}

/// A task that waits for everything so far to be durable.
fn commit(wal: &Wal) -> std::pin::Pin<Box<crate::Durable>> {
    let mut waiting = Box::pin(wal.durable(wal.next_lsn()));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut cx).is_pending());
    waiting
}

fn write_back_all(hand: &Hand) -> usize {
    std::iter::repeat_with(|| hand.write_back())
        .take_while(|worked| *worked)
        .count()
}

/// The end of the range in the first segment that is written back, as an LSN.
fn lsn_at(position: usize) -> Lsn {
    Lsn((position - SEGMENT_HEADER) as u64)
}

#[test]
fn steps_follow_complete_records_and_end_at_whole_pieces() {
    both(|| {
        let storage = MemoryStorage::new();
        let (wal, hand) = by_hand(&storage, early());
        let mut seen = 0;
        for number in 0..1000 {
            fill(&wal, &hand, number..number + 1, 1000);
            write_back_all(&hand);
            let steps = storage.written_back();
            if wal.complete_lsn() < Lsn(STEP) {
                assert!(steps.is_empty(), "less than a step is complete");
            }
            for (_, range) in &steps[seen..] {
                let all = wal.complete_lsn().0 as usize;
                // All segments have the same size, so the position within one tells how far complete records reach.
                let is_full = range.end + 2000 > LARGE as usize;
                assert!(is_full || range.end.is_multiple_of(PIECE), "{range:?}");
                assert!(range.len() <= STEP as usize + PIECE && range.end <= SEGMENT_HEADER + all);
            }
            seen = steps.len();
        }
        let steps = storage.written_back();
        assert!(steps.len() >= 12, "{steps:?}");
        for pair in steps.windows(2) {
            let [(name, range), (next_name, next)] = pair else {
                unreachable!("two each");
            };
            // A segment without a gap, from its header on, and then the next one.
            let begins = if name == next_name { range.end } else { 0 };
            assert_eq!(next.start, begins, "{steps:?}");
        }
        assert_eq!((storage.flushes(), wal.durable_lsn()), (0, Lsn::ZERO));
        assert_eq!(wal.stats().write_backs, steps.len() as u64);
    });
}

#[test]
fn a_step_does_not_pass_a_record_that_is_still_being_copied() {
    both(|| {
        let storage = MemoryStorage::new();
        let (wal, hand) = by_hand(&storage, early());
        fill(&wal, &hand, 0..100, 1000);
        let hole = wal.reserve(2000).expect("room");
        fill(&wal, &hand, 200..300, 1000);
        let complete = wal.complete_lsn();
        write_back_all(&hand);
        let steps = storage.written_back();
        let ends: Vec<_> = steps.iter().map(|(_, range)| lsn_at(range.end)).collect();
        assert!(ends.iter().all(|end| *end <= complete), "{ends:?}");
        hole.fill(RecordKind::Data, &[&[7; 2000]]);
        assert!(write_back_all(&hand) > 0);
    });
}

#[test]
fn small_commits_have_no_steps() {
    both(|| {
        let storage = MemoryStorage::new();
        let (wal, hand) = by_hand(&storage, early());
        for number in 0..60 {
            fill(&wal, &hand, number..number + 1, 10_000);
            let waiting = commit(&wal);
            assert!(!hand.write_back());
            assert!(hand.sync());
            wait(waiting).expect("durable");
        }
        assert!(storage.written_back().is_empty());
    });
}

#[test]
fn a_log_that_writes_late_has_no_steps() {
    both(|| {
        let storage = MemoryStorage::new();
        let late = Options {
            write_back: WriteBack::Late,
            ..early()
        };
        let (wal, hand) = by_hand(&storage, late);
        fill(&wal, &hand, 0..1400, 1000);
        assert!(!hand.write_back());
        // The backlog of full segments is a sixteenth of the limit.
        assert!(hand.sync() && wal.durable_lsn() > Lsn::ZERO);
    });
}

#[test]
fn what_was_written_back_is_durable_after_a_flush_alone() {
    both(|| {
        let storage = MemoryStorage::new();
        let (wal, hand) = by_hand(&storage, early());
        let written = fill(&wal, &hand, 0..400, 1000);
        assert!(write_back_all(&hand) > 2);
        let waiting = commit(&wal);
        assert_eq!(wal.durable_lsn(), Lsn::ZERO);
        let lost = replay(&storage.power_cut_losing_all(), Lsn::ZERO);
        assert!(lost.len() < written.len(), "it may be lost");
        assert_eq!(lost, written[..lost.len()]);
        while hand.sync() {}
        wait(waiting).expect("durable");
        assert_eq!(replay(&storage.power_cut_losing_all(), Lsn::ZERO), written);
    });
}

#[test]
fn power_cut_at_any_moment_keeps_what_was_durable_and_a_prefix_of_the_rest() {
    both(|| {
        let storage = MemoryStorage::new();
        let (wal, hand) = by_hand(&storage, early());
        let (wal, images) = (Arc::new(wal), Arc::new(Mutex::new(Vec::new())));
        let (disk, taken) = (storage.clone(), Arc::clone(&images));
        let durable = Arc::new(Mutex::new(Lsn::ZERO));
        let known = Arc::clone(&durable);
        storage.observe(move || {
            let mut taken = taken.lock();
            let seed = taken.len() as u64;
            taken.push((disk.power_cut(seed), *known.lock()));
        });
        let mut appended = Vec::new();
        for round in 0..14 {
            appended.extend(fill(&wal, &hand, round * 100..round * 100 + 25, 3000));
            hand.write_back();
            if round % 4 == 3 {
                let waiting = commit(&wal);
                while hand.sync() {}
                wait(waiting).expect("durable");
                *durable.lock() = wal.durable_lsn();
                hand.write_back();
            }
        }
        storage.observe(|| {});
        assert!(storage.written_back().len() > 8);
        for (step, (image, durable)) in std::mem::take(&mut *images.lock()).iter().enumerate() {
            let hint = format!("step {step}");
            check_image(image, *durable, &appended, early(), &hint);
        }
    });
}

#[test]
fn a_failed_write_back_poisons_and_the_flush_that_follows_is_not_tried() {
    both(|| {
        let storage = MemoryStorage::new();
        let (wal, hand) = by_hand(&storage, early());
        fill(&wal, &hand, 0..100, 1000);
        let waiting = commit(&wal);
        storage.set_write_backs(WriteBacks::Fail);
        assert!(hand.write_back());
        let failure = wal.failure().expect("poisoned");
        assert!(failure.reason.contains("writing records"), "{failure}");
        assert_eq!(failure.durable, Lsn::ZERO);
        assert!(wait(waiting).is_err());
        storage.set_write_backs(WriteBacks::Work);
        assert!(!hand.write_back() && !hand.sync());
        wal.recycle(wal.next_lsn());
        assert_eq!((storage.flushes(), wal.durable_lsn()), (0, Lsn::ZERO));
        assert!(wal.append(RecordKind::Data, &[b"x"]).is_err());
        let at = wal.next_lsn();
        wal.restart(at).expect("restarted");
        let written = fill(&wal, &hand, 0..100, 1000);
        assert!(hand.write_back());
        let waiting = commit(&wal);
        while hand.sync() {}
        wait(waiting).expect("durable");
        assert_eq!(replay(&storage.power_cut_losing_all(), at), written);
    });
}

#[test]
fn a_flush_during_which_a_write_back_fails_is_not_believed() {
    both(|| {
        let storage = MemoryStorage::new();
        let (wal, hand) = by_hand(&storage, early());
        let (wal, hand) = (Arc::new(wal), Arc::new(hand));
        fill(&wal, &hand, 0..10, 1000);
        let waiting = commit(&wal);
        storage.set_write_backs(WriteBacks::Fail);
        let (appends, writer, once) = (Arc::clone(&wal), Arc::clone(&hand), AtomicBool::new(false));
        storage.observe(move || {
            if !once.swap(true, Ordering::SeqCst) {
                append_many(&appends, 100..200, 1000);
                assert!(writer.write_back());
            }
        });
        assert!(hand.sync());
        storage.observe(|| {});
        assert!(wal.failure().is_some());
        assert!(wait(waiting).is_err());
        assert_eq!((storage.flushes(), wal.durable_lsn()), (1, Lsn::ZERO));
    });
}

#[test]
fn an_error_that_the_disk_reports_later_is_an_error_of_the_flush() {
    both(|| {
        let storage = MemoryStorage::new();
        let (wal, hand) = by_hand(&storage, early());
        // The first segment is full and written back.
        fill(&wal, &hand, 0..300, 1000);
        storage.set_write_backs(WriteBacks::FailLater);
        assert!(write_back_all(&hand) > 3);
        storage.set_write_backs(WriteBacks::Work);
        assert_eq!(wal.failure(), None);
        let waiting = commit(&wal);
        assert!(hand.sync());
        assert!(wait(waiting).is_err());
        assert_eq!(wal.durable_lsn(), Lsn::ZERO);
        wal.restart(wal.next_lsn()).expect("restarted");
    });
}

#[test]
fn a_storage_that_cannot_write_back_is_asked_once() {
    both(|| {
        let storage = MemoryStorage::new();
        storage.set_write_backs(WriteBacks::Unsupported);
        let (wal, hand) = by_hand(&storage, early());
        let written = fill(&wal, &hand, 0..1400, 1000);
        assert!(hand.write_back() && !hand.write_back());
        assert_eq!(storage.written_back().len(), 1);
        assert_eq!((wal.failure(), wal.stats().write_backs), (None, 0));
        // Like a log that writes late.
        assert!(hand.sync() && wal.durable_lsn() > Lsn::ZERO);
        fill(&wal, &hand, 2000..2100, 1000);
        assert!(!hand.write_back());
        let image = storage.power_cut_losing_all();
        assert_eq!(replay(&image, Lsn::ZERO)[..1400], written);
    });
}

#[test]
fn the_threads_of_a_log_write_back_and_flush_by_themselves() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open_with(&storage, Lsn::ZERO, early());
        // Records that are copied under the lock, and others.
        let mut written = append_many(&wal, 0..300, 500);
        eventually(|| !storage.written_back().is_empty());
        written.extend(append_many(&wal, 300..400, 5000));
        eventually(|| storage.written_back().len() > 2);
        wal.close().expect("flushed");
        assert_eq!(replay(&storage.power_cut_losing_all(), Lsn::ZERO), written);
    });
}

/// Fills a number of segments and some of the next one, and does all steps.
fn full_segments(wal: &Wal, hand: &Hand, count: usize) -> Vec<(Lsn, Vec<u8>)> {
    let mut written = Vec::new();
    let began = wal.stats().segments_made as usize;
    while wal.stats().segments_made as usize <= began + count {
        let number = written.len() as u64;
        written.extend(fill(wal, hand, number..number + 1, 3000));
        write_back_all(hand);
    }
    written
}

#[test]
fn full_segments_are_flushed_one_by_one_and_a_commit_then_flushes_one_file() {
    both(|| {
        let storage = MemoryStorage::new();
        let (wal, hand) = by_hand(&storage, early());
        let mut written = full_segments(&wal, &hand, 4);
        let mut reached = Lsn::ZERO;
        for flushes in 1..=4 {
            assert!(hand.sync());
            assert_eq!(storage.flushes(), flushes, "a segment each");
            let durable = wal.durable_lsn();
            assert!(durable.0 - reached.0 > LARGE - 4096 - 4000, "the oldest");
            reached = durable;
            let found = replay(&storage.power_cut_losing_all(), Lsn::ZERO);
            assert!(written[found.len()].0 >= durable);
        }
        // The current segment is nobody's request, also when a part of it is written back.
        written.extend(fill(&wal, &hand, 1000..1100, 1000));
        assert!(write_back_all(&hand) > 0);
        assert!(!hand.sync());
        let waiting = commit(&wal);
        assert!(hand.sync());
        wait(waiting).expect("durable");
        assert_eq!(storage.flushes(), 5);
        assert_eq!(replay(&storage.power_cut_losing_all(), Lsn::ZERO), written);
        let samples = Samples::of([wal.instruments() as &dyn Source]);
        let mut found = samples
            .iter()
            .filter(|it| it.family.name == "log_flush_records");
        let Some(Value::Histogram(records)) = found.next().map(|sample| &sample.value) else {
            panic!("no histogram");
        };
        assert_eq!((records.count(), records.sum()), (5, written.len() as f64));
    });
}

#[test]
fn small_full_segments_are_flushed_together() {
    let storage = MemoryStorage::new();
    let options = Options {
        // A fifth of the backlog is six segments and a part of the next.
        limit_bytes: 8 * early().limit_bytes,
        ..early()
    };
    let (wal, hand) = by_hand(&storage, options);
    for number in 0.. {
        fill(&wal, &hand, number..number + 1, 3000);
        write_back_all(&hand);
        if hand.sync() {
            break;
        }
    }
    assert_eq!(storage.flushes(), 7, "one of each file");
    let durable = wal.durable_lsn().0;
    assert!((6 * LARGE..=7 * LARGE).contains(&durable));
    assert!(!hand.sync(), "the rest is not enough");
}

#[test]
fn a_commit_that_comes_first_flushes_all_segments_in_order_and_nothing_twice() {
    both(|| {
        let storage = MemoryStorage::new();
        let (wal, hand) = by_hand(&storage, early());
        let written = full_segments(&wal, &hand, 3);
        let waiting = commit(&wal);
        assert!(hand.sync());
        wait(waiting).expect("durable");
        assert_eq!((storage.flushes(), wal.stats().flushes), (4, 1));
        assert_eq!(replay(&storage.power_cut_losing_all(), Lsn::ZERO), written);
        assert!(!hand.sync() && storage.flushes() == 4);
    });
}

#[test]
fn a_segment_that_is_not_full_or_not_written_back_is_not_flushed_without_a_request() {
    both(|| {
        let storage = MemoryStorage::new();
        let (wal, hand) = by_hand(&storage, early());
        fill(&wal, &hand, 0..200, 1000);
        assert!(write_back_all(&hand) > 1 && !hand.sync(), "it is not full");
        fill(&wal, &hand, 200..300, 1000);
        assert!(!hand.sync(), "its end is not written back");
        // A writer that does not keep up: the backlog is a sixteenth of the limit.
        fill(&wal, &hand, 300..1400, 1000);
        assert!(hand.sync());
        assert_eq!(storage.flushes(), 1, "the oldest segment alone");
    });
}

#[test]
fn a_failed_flush_of_a_full_segment_poisons_the_log_though_nobody_waits() {
    both(|| {
        let storage = MemoryStorage::new();
        let (wal, hand) = by_hand(&storage, early());
        full_segments(&wal, &hand, 2);
        storage.fail_flushes(true);
        assert!(hand.sync() && is_ready(wal.failed()));
        assert_eq!((storage.flushes(), wal.durable_lsn()), (1, Lsn::ZERO));
        assert!(!hand.sync() && !hand.write_back());
    });
}
