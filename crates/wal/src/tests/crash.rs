//! The log after a power cut.

use super::*;
use parking_lot::Mutex;

/// The invariants after any power cut: every durable record exists, the existing records are a prefix of the appended
/// ones, and the log can continue.
pub(super) fn check_image(
    image: &MemoryStorage,
    durable: Lsn,
    appended: &[(Lsn, Vec<u8>)],
    options: Options,
    hint: &str,
) {
    let mut recovery = scan(image, Lsn::ZERO);
    assert!(
        recovery.end() >= durable,
        "{hint}: {} of {durable}",
        recovery.end()
    );
    assert!(
        !matches!(recovery.tail(), Tail::Damaged { .. }),
        "{hint}: {:?}",
        recovery.tail()
    );
    let found = records(&mut recovery);
    assert_eq!(found, appended[..found.len()], "{hint}");
    let end = recovery.end();
    let wal = recovery.into_wal(options).expect("opened");
    let more = append_many(&wal, 1000..1030, 900);
    assert_eq!(more[0].0, end, "{hint}");
    wait(wal.durable(wal.next_lsn())).expect("durable");
    wal.abandon();
    // Both lives must survive a second cut right after.
    let expected = [found, more].concat();
    assert_eq!(
        replay(&image.power_cut_losing_all(), Lsn::ZERO),
        expected,
        "{hint}"
    );
}

#[test]
fn power_cut_keeps_what_was_durable_and_a_prefix_of_the_rest() {
    both(|| {
        for seed in 0..150 {
            let storage = MemoryStorage::new();
            let wal = open(&storage);
            let mut appended = append_many(&wal, 0..seed % 40, 300 + 7 * seed as usize);
            wait(wal.durable(wal.next_lsn())).expect("durable");
            storage.hold_flushes(true);
            appended.extend(append_many(&wal, 100..100 + seed % 23, 900));
            let durable = wal.durable_lsn();
            let image = storage.power_cut(seed);
            storage.hold_flushes(false);
            wal.abandon();
            let hint = format!("seed {seed}");
            check_image(&image, durable, &appended, options(), &hint);
        }
    });
}

#[test]
fn a_flush_of_several_segments_writes_the_rest_of_the_first_one() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        let mut appended = append_many(&wal, 0..3, 1000);
        wait(wal.durable(wal.next_lsn())).expect("durable");
        appended.extend(append_many(&wal, 3..30, 1000));
        wait(wal.durable(wal.next_lsn())).expect("durable");
        assert!(names(&storage, ".seg").len() > 2);
        let image = storage.power_cut_losing_all();
        assert_eq!(replay(&image, Lsn::ZERO), appended);
    });
}

#[test]
fn torn_tail_at_every_sector_ends_the_log_there() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        let appended = append_many(&wal, 0..14, 1000);
        wal.close().expect("flushed");
        let name = names(&storage, ".seg").remove(0);
        let bare = without_position(&storage);
        for cut in (0..SEGMENT as usize).step_by(512) {
            let image = bare.kill();
            image.edit(&name, |bytes| bytes[cut..].fill(0));
            let mut recovery = scan(&image, Lsn::ZERO);
            let whole = |(lsn, payload): &&(Lsn, Vec<u8>)| {
                4096 + lsn.0 + record_size(payload.len()) <= cut as u64
            };
            let found = records(&mut recovery);
            // The last record of the first segment is the last that a cut of that segment can keep: 11 of them fit,
            // sealed or not.
            let expected: Vec<_> = appended
                .iter()
                .take_while(whole)
                .take(11)
                .cloned()
                .collect();
            assert_eq!(found[..found.len().min(11)], expected, "cut {cut}");
        }
    });
}

#[test]
fn power_cut_at_every_step_of_a_life_with_recycling_and_recovery() {
    both(|| {
        let moments: Arc<Mutex<Vec<(MemoryStorage, Lsn, Lsn)>>> = Arc::default();
        // The state that is known outside the log: the published LSN, and the LSN that durable() has confirmed.
        let known = Arc::new(Mutex::new((Lsn::ZERO, Lsn::ZERO)));
        let storage = MemoryStorage::new();
        let (taken, seen, disk) = (Arc::clone(&moments), Arc::clone(&known), storage.clone());
        storage.observe(move || {
            let mut taken = taken.lock();
            let (published, durable) = *seen.lock();
            let seed = taken.len() as u64;
            taken.push((disk.power_cut(seed), published, durable));
        });
        let mut appended = Vec::new();
        for life in 0..3 {
            let published = known.lock().0;
            let wal = open_with(&storage, published, options());
            for round in 0..12 {
                appended.extend(append_many(
                    &wal,
                    life * 1000 + round * 10..life * 1000 + round * 10 + 7,
                    800,
                ));
                // No append runs while an image is taken: the test waits for the syncer and the preparer.
                wait(wal.durable(wal.next_lsn())).expect("durable");
                known.lock().1 = wal.next_lsn();
                if round % 3 == 2 {
                    known.lock().0 = wal.next_lsn();
                    wal.recycle(wal.next_lsn());
                }
                wait(wal.room(SEGMENT / 2)).expect("room");
            }
            wal.abandon();
        }
        let moments = std::mem::take(&mut *moments.lock());
        assert!(moments.len() > 50);
        for (step, (image, published, durable)) in moments.into_iter().enumerate() {
            let mut recovery = scan(&image, published);
            assert!(
                recovery.end() >= durable,
                "step {step}: {} of {durable}",
                recovery.end()
            );
            assert!(
                !matches!(recovery.tail(), Tail::Damaged { .. }),
                "step {step}"
            );
            let found = records(&mut recovery);
            let first = appended
                .iter()
                .position(|(lsn, _)| *lsn >= published)
                .unwrap_or(appended.len());
            assert_eq!(found, appended[first..first + found.len()], "step {step}");
        }
    });
}

#[test]
fn crash_at_every_step_of_recovery_and_recovery_again() {
    both(|| {
        for seed in 0..12 {
            let storage = MemoryStorage::new();
            let wal = open(&storage);
            append_many(&wal, 0..30, 900);
            wait(wal.durable(wal.next_lsn())).expect("durable");
            storage.hold_flushes(true);
            append_many(&wal, 30..70, 900);
            let cut = storage.power_cut(seed);
            storage.hold_flushes(false);
            wal.abandon();

            let found = replay(&cut, Lsn::ZERO);
            let images: Arc<Mutex<Vec<MemoryStorage>>> = Arc::default();
            let (taken, disk) = (Arc::clone(&images), cut.clone());
            cut.observe(move || taken.lock().push(disk.power_cut(seed)));
            open(&cut).abandon();
            cut.observe(|| {});
            assert!(!images.lock().is_empty());
            for image in images.lock().iter() {
                assert_eq!(replay(image, Lsn::ZERO), found, "seed {seed}");
                let again = open(image);
                let more = append_many(&again, 500..530, 900);
                wait(again.durable(again.next_lsn())).expect("durable");
                again.abandon();
                let both = [found.clone(), more].concat();
                assert_eq!(
                    replay(&image.power_cut_losing_all(), Lsn::ZERO),
                    both,
                    "seed {seed}"
                );
            }
        }
    });
}

#[test]
fn records_replayed_after_a_kill_are_durable_before_new_ones_are() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        let first = append_many(&wal, 0..3, 100);
        wal.abandon();
        let killed = storage.kill();
        let wal = open(&killed);
        let second = append_many(&wal, 10..13, 100);
        wait(wal.durable(wal.next_lsn())).expect("durable");
        let image = killed.power_cut_losing_all();
        assert_eq!(replay(&image, Lsn::ZERO), [first, second].concat());
    });
}

#[test]
fn a_hole_cuts_off_what_was_appended_after_it() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        let before = append(&wal, b"before");
        let hole = wal.reserve(3).expect("room");
        let after = append(&wal, b"after");
        assert_eq!(wal.complete_lsn(), before.end);
        assert!(is_ready(wal.complete(before.end)) && !is_ready(wal.complete(after.end)));
        assert!(!is_ready(wal.durable(after.end)));
        drop(hole);
        wal.abandon();

        let killed = storage.kill();
        let mut recovery = scan(&killed, Lsn::ZERO);
        let hole_only = Tail::Torn {
            at: before.end,
            beyond: Some(after.end),
        };
        assert_eq!(recovery.tail(), hole_only);
        assert_eq!(ended(&killed, WriterEnd::Kill).tail(), hole_only);
        assert_eq!(records(&mut recovery), [(before.lsn, b"before".to_vec())]);
        // Records behind the hole are never replayed, even when a record of the hole's size takes its place.
        let wal = recovery.into_wal(options()).expect("opened");
        append(&wal, b"new");
        wal.abandon();
        let expected = [
            (before.lsn, b"before".to_vec()),
            (before.end, b"new".to_vec()),
        ];
        assert_eq!(replay(&killed, Lsn::ZERO), expected);
    });
}

#[test]
fn a_record_behind_a_hole_does_not_come_back_when_the_bucket_has_what_lies_before_it() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        append(&wal, b"before");
        let hole = wal.reserve(3).expect("room");
        let after = append(&wal, b"after");
        drop(hole);
        wal.abandon();

        // The next process writes a record of the hole's size, which is published before it is flushed.
        let killed = storage.kill();
        let recovery = scan(&killed, Lsn::ZERO);
        let wal = recovery.into_wal(options()).expect("opened");
        let published = append(&wal, b"new").end;
        assert_eq!(published, after.lsn);
        wal.abandon();
        let cut = killed.power_cut_losing_all();
        assert_eq!(replay(&cut, published), []);
    });
}

#[test]
fn completion_waits_for_the_slower_append() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        let slow = wal.reserve(4).expect("room");
        let fast = append(&wal, b"fast");
        assert!(!is_ready(wal.complete(fast.end)));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait(wal.complete(fast.end)));
            slow.fill(RecordKind::Data, &[b"slow"]);
            waiting.join().expect("woken");
        });
        assert_eq!(wal.complete_lsn(), fast.end);
    });
}

#[test]
fn records_of_a_former_life_are_never_trusted() {
    both(|| {
        // All records have one size, so that earlier records lie exactly where new ones could.
        let storage = MemoryStorage::new();
        let wal = open_with(
            &storage,
            Lsn::ZERO,
            Options {
                limit_bytes: 3 * SEGMENT,
                ..options()
            },
        );
        for round in 0..12 {
            append_many(&wal, round * 10..round * 10 + 9, 1200);
            wait(wal.durable(wal.next_lsn())).expect("durable");
            wal.recycle(wal.next_lsn());
        }
        assert!(wal.stats().segments_recycled > 8 && wal.stats().segments_made <= 3);
        let published = wal.next_lsn();
        let written = append_many(&wal, 900..903, 1200);
        wal.abandon();
        assert_eq!(replay(&storage.kill(), published), written);
        let image = storage.power_cut_losing_all();
        assert_eq!(replay(&image, published), []);
    });
}

#[test]
fn records_with_the_right_lsn_and_crc_but_of_another_life_are_not_trusted() {
    use crate::layout::{HeaderBytes, SEGMENT_HEADER_USED, Salt, SegmentHeader};
    let storage = MemoryStorage::new();
    let wal = open(&storage);
    append_many(&wal, 0..5, 100);
    wal.close().expect("flushed");
    let name = names(&storage, ".seg").remove(0);
    storage.edit(&name, |bytes| {
        let head: &mut [u8; SEGMENT_HEADER_USED] = bytes.first_chunk_mut().expect("a header");
        let HeaderBytes::Valid(header) = SegmentHeader::decode(head) else {
            panic!("no header");
        };
        *head = SegmentHeader {
            salt: Salt(!header.salt.0),
            ..header
        }
        .encode();
    });
    assert_eq!(replay(&storage, Lsn::ZERO), []);
}

#[test]
fn trap_6_a_mark_covers_only_what_came_before_it() {
    both(|| {
        // "Removed" and "published" are positions in the sequence: records that are appended after a mark come back
        // after it, and recycling up to the mark loses nothing behind it.
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        append_many(&wal, 0..20, 900);
        let mark = wal
            .append(RecordKind::Checkpoint, &[b"published"])
            .expect("appended");
        let after = append_many(&wal, 20..25, 900);
        wal.recycle(mark.end);
        wal.close().expect("flushed");
        assert_eq!(replay(&storage.power_cut_losing_all(), mark.end), after);
        // Replay from an older published LSN within the same segment yields the order of the appends.
        let mut recovery = scan(&storage, mark.lsn);
        let first = recovery
            .next()
            .expect("readable")
            .map(|record| (record.kind, record.lsn));
        assert_eq!(first, Some((RecordKind::Checkpoint, mark.lsn)));
        assert_eq!(records(&mut recovery), after);
    });
}
