//! Inspection of logs that are valid, damaged, incomplete, or still being written.

use super::*;
use crate::{Ending, GapReason, Inspection, KeptLog, Label, Piece, archive, discard};

/// Forty records over five segments, every one durable.
fn filled() -> (MemoryStorage, Vec<(Lsn, Vec<u8>)>) {
    let storage = MemoryStorage::new();
    let wal = open(&storage);
    let mut written = Vec::new();
    for round in 0..5 {
        written.extend(append_many(&wal, round * 8..round * 8 + 8, 1400));
        wait(wal.durable(wal.next_lsn())).expect("durable");
    }
    wal.close().expect("flushed");
    (storage, written)
}

fn inspect(storage: &MemoryStorage) -> Inspection {
    Inspection::open(Arc::new(storage.clone())).expect("listed")
}

fn current(inspection: &Inspection) -> &KeptLog {
    inspection.log(&Label::Current).expect("a log")
}

type GapSeen = (Lsn, Lsn, GapReason);

/// LSN and payload of every record from `from` on, and the gaps between them.
fn read(log: &KeptLog, from: Lsn) -> (Vec<(Lsn, Vec<u8>)>, Vec<GapSeen>) {
    let (mut records, mut gaps, mut reader) = (Vec::new(), Vec::new(), log.read_from(from));
    while let Some(piece) = reader.next() {
        match piece {
            Piece::Record(record, _) => records.push((record.lsn, record.payload.to_vec())),
            Piece::Gap(gap) => gaps.push((gap.from, gap.to, gap.why)),
            Piece::Locked(record) => panic!("{record:?} is sealed"),
        }
    }
    (records, gaps)
}

#[test]
fn a_whole_log_is_read_as_recovery_reads_it_from_any_record_on() {
    let (storage, written) = filled();
    let inspection = inspect(&storage);
    let log = current(&inspection);
    assert_eq!(read(log, Lsn::ZERO), (written.clone(), vec![]));
    for at in [1, 17, 39] {
        assert_eq!(read(log, written[at].0), (written[at..].to_vec(), vec![]));
        let within = Lsn(written[at].0.0 - 8);
        assert_eq!(read(log, within).0, written[at..]);
    }
    let summary = log.summarize();
    let last = &written[39];
    assert_eq!(
        (summary.first, summary.end),
        (Lsn::ZERO, Lsn(last.0.0 + 1432))
    );
    assert_eq!(summary.ending, Ending::Clean);
    let records: u64 = summary.segments.iter().map(|one| one.data.records).sum();
    let bytes: u64 = summary.segments.iter().map(|one| one.data.bytes).sum();
    assert_eq!((records, bytes), (40, 40 * 1400));
    assert_eq!(log.volume(), Some(VOLUME));
    assert_eq!(log.epochs(), Some((Epoch(1), Epoch(1))));
    assert!(read(log, summary.end).0.is_empty());
}

#[test]
fn records_behind_a_damaged_one_are_read_and_the_place_is_named() {
    let (storage, written) = filled();
    let second = names(&storage, ".seg").remove(1);
    storage.edit(&second, |bytes| bytes[4096 + 2000] ^= 1);
    let inspection = inspect(&storage);
    let (found, gaps) = read(current(&inspection), Lsn::ZERO);
    let [(from, to, GapReason::Damaged { file })] = &gaps[..] else {
        panic!("{gaps:?}");
    };
    assert_eq!((*file == second, to.0 - from.0), (true, 1432));
    let whole: Vec<_> = written.into_iter().filter(|one| one.0 != *from).collect();
    assert_eq!(found.len(), 39);
    assert_eq!(found, whole);
}

#[test]
fn a_missing_segment_is_named_and_the_others_are_read() {
    let (storage, written) = filled();
    let third = names(&storage, ".seg").remove(2);
    storage.remove(&third).expect("removed");
    let inspection = inspect(&storage);
    let (found, gaps) = read(current(&inspection), Lsn::ZERO);
    let [(from, to, GapReason::Missing { number: 3 })] = gaps[..] else {
        panic!("{gaps:?}");
    };
    let whole = |lsn: &Lsn| *lsn < from || *lsn >= to;
    let whole: Vec<_> = written.into_iter().filter(|one| whole(&one.0)).collect();
    assert!(found.len() < 40);
    assert_eq!(found, whole);
}

#[test]
fn a_segment_without_its_header_is_missing() {
    let (storage, _) = filled();
    let third = names(&storage, ".seg").remove(2);
    storage.edit(&third, |bytes| bytes[50] ^= 1);
    let inspection = inspect(&storage);
    let (_, gaps) = read(current(&inspection), Lsn::ZERO);
    assert!(
        matches!(gaps[..], [(_, _, GapReason::Missing { number: 3 })]),
        "{gaps:?}"
    );
}

#[test]
fn records_that_are_gone_from_the_end_are_known_of() {
    let (storage, written) = filled();
    // Their headers stay, with the LSN that was durable when they were begun.
    for name in &names(&storage, ".seg")[3..5] {
        storage.edit(name, |bytes| bytes[4096..].fill(0));
    }
    let inspection = inspect(&storage);
    let summary = current(&inspection).summarize();
    let Ending::Damaged { durable_until } = summary.ending else {
        panic!("{summary:?}");
    };
    assert!(summary.end < durable_until && durable_until <= written[39].0.advance(1432));
}

#[test]
fn a_torn_end_is_told_from_a_clean_one() {
    let storage = MemoryStorage::new();
    let wal = open(&storage);
    let written = append_many(&wal, 0..3, 24);
    wal.close().expect("flushed");
    let name = names(&storage, ".seg").remove(0);
    storage.edit(&name, |bytes| bytes[4096 + 2 * 56 + 40] ^= 1);
    let inspection = inspect(&storage);
    let summary = current(&inspection).summarize();
    assert_eq!((summary.ending, summary.end), (Ending::Torn, written[2].0));
    assert_eq!(summary.gaps, []);
}

#[test]
fn bytes_of_a_former_life_are_no_records() {
    let storage = MemoryStorage::new();
    let wal = open(&storage);
    append_many(&wal, 0..30, 1400);
    wait(wal.durable(wal.next_lsn())).expect("durable");
    let published = wal.next_lsn();
    wal.recycle(published);
    let written = append_many(&wal, 100..110, 1400);
    wal.close().expect("flushed");
    let inspection = inspect(&storage);
    let (found, gaps) = read(current(&inspection), published);
    assert_eq!((found, gaps), (written, vec![]));
}

#[test]
fn the_log_of_a_running_gateway_is_read_without_disturbing_it() {
    let storage = MemoryStorage::new();
    let wal = open(&storage);
    let mut written = append_many(&wal, 0..5, 1400);
    let flushes = storage.flushes();
    let inspection = inspect(&storage);
    assert_eq!(read(current(&inspection), Lsn::ZERO).0, written);
    assert_eq!(storage.flushes(), flushes);
    written.extend(append_many(&wal, 5..9, 1400));
    wal.close().expect("flushed");
    assert_eq!(replay(&storage, Lsn::ZERO), written);
}

#[test]
fn a_log_that_was_put_aside_is_read_under_its_label_beside_the_next_one() {
    let (storage, written) = filled();
    let (_, label) = archive(&storage, "epoch-1", None).expect("renamed");
    let next = Options {
        epoch: Epoch(3),
        ..options()
    };
    let wal = open_with(&storage, Lsn(4000), next);
    let newer = append_many(&wal, 50..52, 100);
    let inspection = inspect(&storage);
    let labels: Vec<String> = inspection
        .logs()
        .iter()
        .map(|log| log.label().to_string())
        .collect();
    assert_eq!(labels, ["current", "epoch-1"]);
    let aside = inspection.log(&Label::parse(&label)).expect("kept");
    assert_eq!(read(aside, Lsn::ZERO), (written, vec![]));
    assert_eq!(aside.epochs(), Some((Epoch(1), Epoch(1))));
    assert_eq!(read(current(&inspection), Lsn::ZERO), (newer, vec![]));
}

#[test]
fn putting_aside_replaces_nothing_that_was_put_aside_before() {
    let (storage, first) = filled();
    let (_, label) = archive(&storage, "epoch-1", None).expect("renamed");
    storage.edit("epoch-1.note", |text| text.extend(b"of the first"));
    let wal = open(&storage);
    let second = append_many(&wal, 60..64, 1400);
    wal.close().expect("flushed");
    let (_, other) = archive(&storage, "epoch-1", None).expect("renamed");
    assert_eq!((label.as_str(), other.as_str()), ("epoch-1", "epoch-1-2"));
    let inspection = inspect(&storage);
    let kept = |label: &str| {
        read(
            inspection.log(&Label::parse(label)).expect("kept"),
            Lsn::ZERO,
        )
        .0
    };
    assert_eq!((kept(&label), kept(&other)), (first, second));
}

#[test]
fn segments_behind_a_damaged_place_stay_readable_under_a_label_of_their_own() {
    let (storage, written) = filled();
    let second = names(&storage, ".seg").remove(1);
    storage.edit(&second, |bytes| bytes[4096 + 2000] ^= 1);
    open(&storage).close().expect("flushed");
    let inspection = inspect(&storage);
    let cut_off = inspection.log(&Label::parse("cut-off")).expect("kept");
    let (found, _) = read(cut_off, Lsn::ZERO);
    assert!(found.len() > 10);
    assert_eq!(found, written[40 - found.len()..]);
    // They are archived with the rest of the log.
    archive(&storage, "epoch-1", None).expect("renamed");
    let inspection = inspect(&storage);
    let kept = inspection
        .log(&Label::parse("epoch-1-cut-off"))
        .expect("kept");
    assert_eq!(read(kept, Lsn::ZERO).0, found);
    assert!(inspection.log(&Label::parse("cut-off")).is_none());
}

#[test]
fn a_log_that_was_let_go_of_has_no_records_and_gives_its_files_to_the_next() {
    let (storage, _) = filled();
    let files = storage.list().expect("listed").len();
    assert!(discard(&storage).expect("renamed") >= 5);
    assert_eq!(replay(&storage, Lsn::ZERO), []);
    assert_eq!(names(&storage, ".seg"), Vec::<String>::new());
    let wal = open(&storage);
    let written = append_many(&wal, 0..8, 1400);
    wal.close().expect("flushed");
    assert_eq!(replay(&storage, Lsn::ZERO), written);
    assert_eq!(storage.list().expect("listed").len(), files);
}

#[test]
fn garbage_in_the_folder_is_no_log() {
    let storage = MemoryStorage::new();
    for name in ["lost+found", "epoch-1.note", "x-00000000000000zz.seg"] {
        storage.edit(name, |bytes| bytes.extend(b"garbage"));
    }
    assert!(inspect(&storage).logs().is_empty());
    storage.edit("0000000000000001.seg", |bytes| bytes.extend(b"garbage"));
    let inspection = inspect(&storage);
    let log = current(&inspection);
    assert_eq!(
        (log.volume(), read(log, Lsn::ZERO)),
        (None, (vec![], vec![]))
    );
}

#[test]
fn a_log_has_nothing_behind_what_is_published_only_if_it_is_whole() {
    let (storage, written) = filled();
    let end = written[39].0.advance(1432);
    let nothing_from =
        |storage: &MemoryStorage, lsn| current(&inspect(storage)).has_nothing_from(lsn);
    assert!(nothing_from(&storage, end));
    assert!(!nothing_from(&storage, written[39].0));
    assert!(!nothing_from(&storage, Lsn::ZERO));
    // The last record is damaged: it existed, whatever its content was.
    let fifth = names(&storage, ".seg").remove(4);
    storage.edit(&fifth, |bytes| bytes[4096 + 7 * 1432 + 100] ^= 1);
    assert!(!nothing_from(&storage, written[39].0));
}
