//! Records that are read while the log is open, and how far they are settled.

use super::*;
use crate::{ReadFailed, RecordReader};

/// Reads these records, and returns their payloads.
fn read(reader: &RecordReader, lsns: &[Lsn]) -> Vec<(Lsn, Result<Vec<u8>, ReadFailed>)> {
    let mut found = Vec::new();
    reader.read(lsns, |lsn, record| {
        found.push((lsn, record.map(|record| record.payload.to_vec())));
    });
    found
}

fn lsns(written: &[(Lsn, Vec<u8>)]) -> Vec<Lsn> {
    written.iter().map(|(lsn, _)| *lsn).collect()
}

#[track_caller]
fn assert_reads(reader: &RecordReader, written: &[(Lsn, Vec<u8>)]) {
    let found = read(reader, &lsns(written));
    assert_eq!(found.len(), written.len());
    for ((lsn, found), (written_at, written)) in found.into_iter().zip(written) {
        assert_eq!((lsn, found.as_ref()), (*written_at, Ok(written)));
    }
}

#[test]
fn records_of_all_segments_are_read_in_any_selection_flushed_or_not() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        let written = append_many(&wal, 0..40, 1400);
        let reader = wal.reader();
        assert_reads(&reader, &written);
        let some: Vec<_> = written.iter().step_by(7).cloned().collect();
        assert_reads(&reader, &some);
        wait(wal.durable(wal.next_lsn())).expect("durable");
        assert_reads(&reader, &written);
        let more = append_many(&wal, 40..60, 100);
        assert_reads(&reader, &more);
        assert_reads(&reader, &written);
    });
}

#[test]
fn records_of_a_scanned_log_are_read_before_it_is_opened() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        let written = append_many(&wal, 0..40, 1400);
        wal.close().expect("flushed");
        let from = written[5].0;
        let mut recovery = scan(&storage, from);
        let reader = recovery.reader();
        // Beside the replay.
        recovery.next().expect("read").expect("a record");
        assert_reads(&reader, &written[5..]);
        let some: Vec<_> = written[5..].iter().step_by(7).cloned().collect();
        assert_reads(&reader, &some);
        let end = recovery.end();
        assert_eq!(read(&reader, &[end]), [(end, Err(ReadFailed::Gone))]);
        // The open log has the same records.
        let wal = recovery.into_wal(options()).expect("opened");
        assert_reads(&wal.reader(), &written[5..]);
    });
}

#[test]
fn records_of_an_earlier_run_are_read() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        let written = append_many(&wal, 0..20, 1400);
        wal.close().expect("flushed");
        let wal = scan(&storage, Lsn::ZERO)
            .into_wal(options())
            .expect("opened");
        let more = append_many(&wal, 20..30, 1400);
        assert_reads(&wal.reader(), &[written, more].concat());
        assert!(wal.settled_lsn() >= Lsn::ZERO);
    });
}

#[test]
fn what_the_log_does_not_have_is_gone_and_hinders_no_other_record() {
    let storage = MemoryStorage::new();
    let wal = open(&storage);
    let written = append_many(&wal, 0..40, 1400);
    wait(wal.durable(wal.next_lsn())).expect("durable");
    let middle = written[20].0;
    wal.recycle(middle);
    let mut asked = lsns(&written);
    asked.push(wal.next_lsn());
    asked.push(Lsn(u64::MAX));
    let found = read(&wal.reader(), &asked);
    for (at, (lsn, record)) in found.into_iter().enumerate() {
        match written.get(at) {
            Some((_, payload)) if lsn >= middle => assert_eq!(record.as_ref(), Ok(payload)),
            Some((_, payload)) => {
                assert!(matches!(&record, Err(ReadFailed::Gone)) || record.as_ref() == Ok(payload))
            }
            None => assert_eq!(record, Err(ReadFailed::Gone)),
        }
    }
    let first = read(&wal.reader(), &asked[..1]);
    assert_eq!(first[0].1, Err(ReadFailed::Gone));
}

#[test]
fn a_record_is_not_there_before_those_before_it_are_complete() {
    let storage = MemoryStorage::new();
    let wal = open(&storage);
    let hole = wal.reserve(100).expect("room");
    let written = append_many(&wal, 0..1, 100);
    let read_now = || read(&wal.reader(), &lsns(&written)).remove(0).1;
    assert_eq!(read_now(), Err(ReadFailed::Gone));
    hole.fill(RecordKind::Data, &[&[0; 100]]);
    assert_eq!(read_now().as_ref(), Ok(&written[0].1));
}

#[test]
fn every_damaged_byte_of_a_record_is_found() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        let written = append_many(&wal, 0..3, 24);
        wait(wal.durable(wal.next_lsn())).expect("durable");
        let name = names(&storage, ".seg").remove(0);
        let (from, to) = (written[1].0, written[2].0);
        let reader = wal.reader();
        let payload = if SEALED.get() { 24 + 16 } else { 24 };
        for at in 0..(to.0 - from.0) as usize {
            let position = 4096 + from.0 as usize + at;
            let flip = || storage.edit(&name, |bytes| bytes[position] ^= 1);
            flip();
            let found = read(&reader, &lsns(&written));
            assert_eq!(found[0].1.as_ref(), Ok(&written[0].1));
            assert_eq!(found[2].1.as_ref(), Ok(&written[2].1));
            let is_padding = at >= 32 + payload;
            let damaged = matches!(found[1].1, Err(ReadFailed::Damaged { .. }));
            assert_eq!(damaged, !is_padding, "byte {at}: {:?}", found[1].1);
            flip();
        }
        assert_reads(&reader, &written);
    });
}

#[test]
fn a_segment_that_cannot_be_opened_is_not_damaged() {
    let storage = MemoryStorage::new();
    let wal = open(&storage);
    let written = append_many(&wal, 0..3, 100);
    wait(wal.durable(wal.next_lsn())).expect("durable");
    let name = names(&storage, ".seg").remove(0);
    storage.rename(&name, "elsewhere").expect("renamed");
    let reader = wal.reader();
    for (_, record) in read(&reader, &lsns(&written)) {
        assert!(
            matches!(&record, Err(ReadFailed::NotOpened { segment, .. }) if *segment == name),
            "{record:?}"
        );
    }
    storage.rename("elsewhere", &name).expect("renamed");
    assert_reads(&reader, &written);
}

#[test]
fn a_segment_is_recycled_after_its_reader() {
    let storage = MemoryStorage::new();
    let wal = open(&storage);
    let written = append_many(&wal, 0..40, 1400);
    wait(wal.durable(wal.next_lsn())).expect("durable");
    let mut seen = 0;
    wal.reader().read(&lsns(&written[..3]), |_, record| {
        assert_eq!(record.expect("readable").payload, written[seen].1);
        seen += 1;
        wal.recycle(wal.next_lsn());
        assert_eq!(wal.stats().segments_recycled, 0);
    });
    assert_eq!(seen, 3);
    assert!(wal.stats().segments_recycled > 1);
}

/// A process that was killed between the header of a segment and its first record leaves one that is empty. The next segment
/// begins at the same LSN.
#[test]
fn a_reader_leaves_its_own_segment_and_not_an_empty_one_before_it() {
    let storage = MemoryStorage::new();
    let wal = open(&storage);
    append_many(&wal, 0..1, 12_000);
    wait(wal.room(12_000)).expect("room");
    let hole = wal.reserve(12_000).expect("a prepared segment");
    let image = storage.kill();
    hole.fill(RecordKind::Data, &[&[0; 12_000]]);

    let wal = open(&image);
    let written = append_many(&wal, 1..2, 12_000);
    append_many(&wal, 2..3, 12_000);
    wait(wal.durable(wal.next_lsn())).expect("durable");
    wal.reader().read(&lsns(&written), |_, record| {
        assert_eq!(record.expect("readable").payload, written[0].1);
        wal.recycle(wal.next_lsn());
        assert_eq!(
            wal.stats().segments_recycled,
            2,
            "not the one with a reader"
        );
    });
    assert_eq!(wal.stats().segments_recycled, 3);
}

#[test]
fn a_restart_waits_for_readers() {
    let storage = MemoryStorage::new();
    let wal = Arc::new(open(&storage));
    let written = append_many(&wal, 0..3, 1400);
    storage.fail_flushes(true);
    wait(wal.durable(wal.next_lsn())).expect_err("the disk fails");
    storage.fail_flushes(false);
    let segment = names(&storage, ".seg").remove(0);
    let mut restart = None;
    wal.reader().read(&lsns(&written[..1]), |_, record| {
        let log = Arc::clone(&wal);
        let thread = std::thread::spawn(move || log.restart(log.next_lsn()));
        let log = Arc::clone(&wal);
        eventually(move || log.is_restarting());
        // It has to wait, or it would delete the file below the reader.
        assert_eq!(record.expect("readable").payload, written[0].1);
        assert!(names(&storage, ".seg").contains(&segment));
        restart = Some(thread);
    });
    let restarted = restart.expect("begun").join().expect("no panic");
    restarted.expect("the disk works again");
    let found = read(&wal.reader(), &lsns(&written[..1]));
    assert_eq!(found[0].1, Err(ReadFailed::Gone));
}

#[test]
fn readers_and_appends_do_not_disturb_each_other() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        std::thread::scope(|scope| {
            let (written, received) = std::sync::mpsc::channel();
            let reader = wal.reader();
            scope.spawn(move || {
                for one in received {
                    assert_reads(&reader, &[one]);
                }
            });
            for number in 0..300 {
                let mut one = append_many(&wal, number..number + 1, 700);
                written.send(one.remove(0)).expect("it reads");
                if number % 16 == 0 {
                    wait(wal.durable(wal.next_lsn())).expect("durable");
                }
            }
        });
    });
}

#[test]
fn what_is_settled_ends_at_a_record_and_before_the_page_that_is_written_next() {
    let storage = MemoryStorage::new();
    let large = Options {
        segment_bytes: 256 << 10,
        limit_bytes: 64 << 20,
        ..options()
    };
    let wal = scan(&storage, Lsn::ZERO).into_wal(large).expect("opened");
    let (mut starts, mut before) = (Vec::new(), Lsn::ZERO);
    for number in 0..400 {
        let one = append_many(&wal, number..number + 1, 3000);
        starts.push(one[0].0);
        assert_eq!(wal.settled_lsn(), before, "an append settles nothing");
        if number % 3 == 0 {
            wait(wal.durable(wal.next_lsn())).expect("durable");
        }
        let settled = wal.settled_lsn();
        assert!(settled >= before && settled <= wal.durable_lsn());
        assert!(settled == wal.next_lsn() || starts.contains(&settled));
        let behind = wal.durable_lsn().0 - settled.0;
        assert!(behind < 2 * (32 << 10) + 3 * 3040, "{behind}");
        before = settled;
    }
    assert!(before.0 > 390 * 3000 - (64 << 10));
}
