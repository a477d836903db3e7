//! What an operator can read of a sealed log.

use super::*;
use crate::{GapReason, Inspection, Label, Piece};

#[test]
fn without_keys_records_are_counted_and_with_them_read() {
    let (storage, written) = filled();
    let files = || Arc::new(storage.clone());
    let inspection = Inspection::open(files()).expect("listed");
    let locked = inspection.log(&Label::Current).expect("a log");
    assert!(locked.is_locked());
    let counted = locked.summarize();
    let mut reader = locked.read_from(written[4].0);
    let mut seen = Vec::new();
    while let Some(piece) = reader.next() {
        let Piece::Locked(record) = piece else {
            panic!("{piece:?}");
        };
        assert_eq!((record.kind, record.bytes), (RecordKind::Data, 1400));
        seen.push(record.lsn);
    }
    let lsns: Vec<Lsn> = written[4..].iter().map(|(lsn, _)| *lsn).collect();
    assert_eq!(seen, lsns);
    assert!(!locked.has_nothing_from(written[19].0));
    assert!(locked.has_nothing_from(counted.end));

    let other = Some(data_keys(VolumeId([9; 16]), 1));
    let other = Inspection::open_with(files(), other, true).expect("listed");
    assert!(other.log(&Label::Current).expect("a log").is_locked());

    let keys = Some(data_keys(VOLUME, 1));
    let inspection = Inspection::open_with(files(), keys, true).expect("listed");
    let open = inspection.log(&Label::Current).expect("a log");
    assert!(!open.is_locked());
    assert_eq!(open.summarize(), counted);
    assert!(counted.segments.iter().all(|segment| segment.sealed));
    let (mut reader, mut found) = (open.read_from(Lsn::ZERO), Vec::new());
    while let Some(piece) = reader.next() {
        let Piece::Record(record, _) = piece else {
            panic!("{piece:?}");
        };
        found.push((record.lsn, record.payload.to_vec()));
    }
    assert_eq!(found, written);
}

#[test]
fn a_person_reads_past_what_was_forged_and_is_told_of_it() {
    let (storage, written) = filled();
    let segments = names(&storage, ".seg");
    let at = 4096 + written[2].0.0 as usize;
    change_record(&storage, &segments[0], at, |record| record[40] ^= 1);
    change_header(&storage, &segments[1], |bytes| bytes[80] ^= 1);
    let keys = Some(data_keys(VOLUME, 1));
    let inspection = Inspection::open_with(Arc::new(storage.clone()), keys, true).expect("listed");
    let log = inspection.log(&Label::Current).expect("a log");
    let (mut reader, mut found, mut forged) = (log.read_from(Lsn::ZERO), Vec::new(), Vec::new());
    while let Some(piece) = reader.next() {
        match piece {
            Piece::Record(record, _) => found.push((record.lsn, record.payload.to_vec())),
            Piece::Gap(gap) => {
                if let GapReason::Forged { file } = gap.why {
                    forged.push(file);
                }
            }
            Piece::Locked(record) => panic!("{record:?}"),
        }
    }
    assert_eq!(forged, segments[..2]);
    let second = header(&storage, &segments[2]).base;
    let first: Vec<_> = written
        .iter()
        .take(8)
        .filter(|one| one.0 != written[2].0)
        .collect();
    let rest = written.iter().filter(|one| one.0 >= second);
    assert_eq!(
        found.iter().collect::<Vec<_>>(),
        first.into_iter().chain(rest).collect::<Vec<_>>()
    );
}

/// The part of a log that a person can read: records, and the files of the gaps.
fn read_by_a_person(
    storage: &MemoryStorage,
    only_sealed: bool,
) -> (Vec<(Lsn, Vec<u8>)>, Vec<GapReason>) {
    let (files, keys) = (Arc::new(storage.clone()), Some(data_keys(VOLUME, 1)));
    let inspection = Inspection::open_with(files, keys, only_sealed).expect("listed");
    let log = inspection.log(&Label::Current).expect("a log");
    let (mut reader, mut found, mut gaps) = (log.read_from(Lsn::ZERO), Vec::new(), Vec::new());
    while let Some(piece) = reader.next() {
        match piece {
            Piece::Record(record, _) => found.push((record.lsn, record.payload.to_vec())),
            Piece::Gap(gap) => gaps.push(gap.why),
            Piece::Locked(record) => panic!("{record:?}"),
        }
    }
    (found, gaps)
}

#[test]
fn a_person_gets_nothing_that_is_not_sealed_where_all_has_to_be() {
    let (storage, written) = filled();
    let wal = go_on(&storage, Lsn::ZERO, optional(), options());
    let mut all = written.clone();
    all.extend(append_many(&wal, 20..23, 100));
    wal.close().expect("flushed");
    let segments = names(&storage, ".seg");
    // Behind it may lie the segment that was being prepared when the log was closed: it has no header.
    let last = segments
        .iter()
        .filter(|name| has_records(&storage, name))
        .find(|name| header(&storage, name).seal.is_none());
    let file = last.expect("one is not sealed").clone();

    assert_eq!(read_by_a_person(&storage, false), (all, Vec::new()));
    let (found, gaps) = read_by_a_person(&storage, true);
    assert_eq!(found, written);
    assert_eq!(gaps, vec![GapReason::NotSealed { file }; 3]);
}

#[test]
fn a_person_is_told_of_a_segment_of_another_history() {
    let (storage, _) = filled();
    let copy = storage.kill();
    let go_on = |storage: &MemoryStorage| {
        let wal = go_on(storage, Lsn::ZERO, required(), sealed_with(1));
        append_many(&wal, 20..40, 1400);
        wal.close().expect("flushed");
    };
    go_on(&storage);
    go_on(&copy);
    let (own, gaps) = read_by_a_person(&storage, true);
    assert_eq!((own.len(), gaps), (40, Vec::new()));
    // The first new segment may belong to either; the second one names the first.
    let name = &names(&storage, ".seg")[4];
    let foreign = bytes_of(&copy, name);
    storage.edit(name, |bytes| bytes.clone_from(&foreign));
    let (found, gaps) = read_by_a_person(&storage, true);
    assert_eq!(gaps[0], GapReason::Forged { file: name.clone() });
    assert!(found.len() < own.len() && found.iter().all(|one| own.contains(one)));
}
