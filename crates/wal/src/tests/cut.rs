//! Segments that are shorter than they were made, and logs that end before their noted position.

use super::*;
use crate::archive;
use crate::position::{POSITION_FILE, Position, Reached};

/// A log whose records were all acknowledged as stable, which ends in its second segment, and the file of that one.
fn written() -> (MemoryStorage, Vec<(Lsn, Vec<u8>)>, Lsn, String) {
    let storage = MemoryStorage::new();
    let wal = open(&storage);
    let written = append_many(&wal, 0..16, 1400);
    let end = wal.next_lsn();
    wait(wal.durable(end)).expect("durable");
    let image = storage.kill();
    wal.abandon();
    let begun = |name: &&String| {
        let mut first = [0; 4];
        let file = image.read(name).expect("there");
        file.read_at(4096, &mut first).expect("readable");
        first != [0; 4]
    };
    let last = names(&image, ".seg").iter().rfind(begun).cloned();
    let last = last.expect("begun");
    (image, written, end, last)
}

fn cut(storage: &MemoryStorage, name: &str, length: usize) -> MemoryStorage {
    let image = storage.kill();
    image.edit(name, |bytes| bytes.truncate(length));
    image
}

/// Whether a log that was cut at this byte of its last segment may have lost records.
#[track_caller]
fn is_said(recovery: &Recovery, until: Option<Lsn>) {
    let Tail::Damaged { at, until: found } = recovery.tail() else {
        panic!("not believed to be damaged: {:?}", recovery.tail());
    };
    assert_eq!(at, recovery.end());
    assert_eq!(found, until.unwrap_or(at).max(at));
}

#[test]
fn every_length_to_which_the_last_segment_is_cut_is_noticed() {
    both(|| {
        let (storage, written, end, last) = written();
        let bare = without_position(&storage);
        for length in 0..SEGMENT as usize {
            // Every place in the header's page, in one record, and around the ends of all.
            let within = length.saturating_sub(4096) % record_size(1400) as usize;
            if length > 4096 + 2000 && !(16..40).contains(&((within + 24) % 1432)) {
                continue;
            }
            let image = cut(&storage, &last, length);
            let mut recovery = ended(&image, WriterEnd::Kill);
            let found = records(&mut recovery);
            assert_eq!(found, written[..found.len()], "{length}");
            match found.len() == written.len() {
                true => assert_eq!(recovery.tail(), Tail::Clean, "{length}"),
                false => is_said(&recovery, Some(end)),
            }
            // From the segments alone, recovery reports possible damage.
            for ending in [WriterEnd::Kill, WriterEnd::PowerCut, WriterEnd::Stop] {
                let recovery = ended(&cut(&bare, &last, length), ending);
                assert!(
                    matches!(recovery.tail(), Tail::Damaged { .. }),
                    "{length} {ending:?}: {:?}",
                    recovery.tail()
                );
            }
        }
        assert_eq!(ended(&storage, WriterEnd::Kill).tail(), Tail::Clean);
        assert_eq!(ended(&bare, WriterEnd::PowerCut).tail(), Tail::Clean);
    });
}

#[test]
fn zeros_in_place_of_records_are_noticed_after_a_kill() {
    let (storage, written, end, last) = written();
    for from in (4096..4096 + 3 * 1432).step_by(8) {
        let image = storage.kill();
        image.edit(&last, |bytes| bytes[from..].fill(0));
        let mut recovery = ended(&image, WriterEnd::Kill);
        let found = records(&mut recovery);
        assert!(found.len() < written.len());
        is_said(&recovery, Some(end));
    }
}

#[test]
fn a_last_segment_that_is_gone_or_was_prepared_again_is_noticed_after_a_kill() {
    let (storage, written, end, last) = written();
    let gone = storage.kill();
    gone.remove(&last).expect("there");
    let emptied = storage.kill();
    emptied.edit(&last, |bytes| bytes.fill(0));
    for image in [gone, emptied] {
        let mut recovery = ended(&image, WriterEnd::Kill);
        let found = records(&mut recovery);
        assert_eq!(found, written[..found.len()]);
        is_said(&recovery, Some(end));
    }
}

#[test]
fn what_was_durable_is_missed_after_a_power_cut_as_far_as_the_kernel_had_written_so() {
    let (storage, _, end, last) = written();
    let image = cut(&storage, &last, 4096 + 1432);
    is_said(&ended(&image, WriterEnd::PowerCut), Some(end));
    // Records that were merely complete may be lost.
    let image = storage.kill();
    image.edit(&last, |bytes| bytes[4096..].fill(0));
    let reached = Reached {
        complete: end,
        durable: Lsn::ZERO,
    };
    Position::begin(&image, VOLUME, reached).expect("there is one");
    assert_eq!(ended(&image, WriterEnd::PowerCut).tail(), Tail::Clean);
    is_said(&ended(&image, WriterEnd::Kill), Some(end));
}

#[test]
fn damage_is_said_once_and_the_log_goes_on_behind_it() {
    for length in [0, 100, 4000, 4096, 4096 + 2000, 4096 + 2 * 1432] {
        let (storage, written, end, last) = written();
        let image = cut(&storage, &last, length);
        let recovery = ended(&image, WriterEnd::Kill);
        is_said(&recovery, Some(end));
        let wal = recovery.into_wal(options()).expect("opened");
        // Nothing is appended before the next kill.
        let next = image.kill();
        wal.abandon();
        let recovery = ended(&next, WriterEnd::Kill);
        assert_eq!(recovery.tail(), Tail::Clean, "{length}");
        let wal = recovery.into_wal(options()).expect("opened");
        let mut more = append_many(&wal, 50..70, 1400);
        wal.close().expect("flushed");
        let mut recovery = ended(&next, WriterEnd::Kill);
        let found = records(&mut recovery);
        assert_eq!(recovery.tail(), Tail::Clean, "{length}");
        let kept = found.len() - more.len();
        let mut expected = written[..kept].to_vec();
        expected.append(&mut more);
        assert_eq!(found, expected, "{length}");
    }
}

#[test]
fn a_log_that_the_bucket_has_all_of_may_be_cut() {
    let (storage, _, end, last) = written();
    let image = cut(&storage, &last, 4096);
    let stopped = scan_at(&image, end, WriterEnd::StopAt(end));
    assert_eq!(stopped.tail(), Tail::Clean);
    assert_eq!(scan_at(&image, end, WriterEnd::Kill).tail(), Tail::Clean);
}

#[test]
fn an_append_that_was_under_way_is_no_damage_after_a_kill() {
    let storage = MemoryStorage::new();
    let wal = open(&storage);
    let written = append_many(&wal, 0..3, 2000);
    let unfinished = wal.reserve(2000).expect("room");
    append_many(&wal, 3..20, 2000);
    let image = storage.kill();
    drop(unfinished);
    wal.abandon();
    let mut recovery = ended(&image, WriterEnd::Kill);
    assert_eq!(records(&mut recovery), written);
    assert!(matches!(recovery.tail(), Tail::Torn { .. }));
}

#[test]
fn a_segment_that_ends_before_what_the_next_one_says_is_damage_after_a_kill() {
    let (storage, written, end, last) = written();
    let first = names(&storage, ".seg").remove(0);
    assert_ne!(first, last);
    for length in (4096..4096 + 7 * 1432).step_by(716) {
        for zeros in [false, true] {
            let image = cut(&storage, &first, length);
            if zeros {
                image.edit(&first, |bytes| bytes.resize(SEGMENT as usize, 0));
            }
            let mut recovery = ended(&image, WriterEnd::Kill);
            let found = records(&mut recovery);
            assert_eq!(found, written[..found.len()]);
            is_said(&recovery, Some(end));
        }
    }
}

#[test]
fn an_archived_log_takes_no_more_than_its_records_and_is_read_as_before() {
    both(|| {
        let (storage, written, end, _) = written();
        let (segments, label) = archive(&storage, "epoch-1", None).expect("archived");
        assert_eq!(segments, 2, "the prepared segment holds nothing");
        assert!(
            !storage
                .list()
                .expect("listed")
                .contains(&POSITION_FILE.to_owned())
        );
        let archived = crate::archived(&storage).expect("counted");
        let bytes: Vec<u64> = archived.values().copied().collect();
        assert_eq!(bytes, [2 * 4096 + end.0], "{archived:?}");
        let inspection = crate::Inspection::open(Arc::new(storage.clone())).expect("listed");
        let log = inspection.log(&crate::Label::parse(&label)).expect("kept");
        let summary = log.summarize();
        assert_eq!((summary.end, summary.ending), (end, crate::Ending::Clean));
        let counted: u64 = summary.segments.iter().map(|it| it.data.records).sum();
        assert_eq!(counted, written.len() as u64);
        // The next log does not contain it.
        let wal = open_with(&storage, Lsn(1 << 20), options());
        append_many(&wal, 0..3, 100);
        wal.close().expect("flushed");
        let recovery = scan_at(&storage, Lsn(1 << 20), WriterEnd::Kill);
        assert_eq!(recovery.tail(), Tail::Clean);
    });
}

#[test]
fn segments_of_which_the_bucket_has_everything_are_not_archived() {
    let (storage, written, end, last) = written();
    let second = written[written.len() - 4].0;
    assert!(crate::has_to_be_archived(&storage, Some(second)).expect("read"));
    assert!(!crate::has_to_be_archived(&storage, Some(end)).expect("read"));
    let (segments, _) = archive(&storage, "epoch-1", Some(second)).expect("archived");
    assert_eq!(segments, 1);
    assert_eq!(names(&storage, &last).len(), 1);
    assert!(names(&storage, &last)[0].starts_with("epoch-1-"));
}

#[test]
fn what_lies_behind_damage_is_archived_with_the_rest() {
    let (storage, written, _, last) = written();
    storage.edit(&last, |bytes| bytes[4096 + 40] ^= 1);
    archive(&storage, "epoch-1", None).expect("archived");
    let inspection = crate::Inspection::open(Arc::new(storage.clone())).expect("listed");
    let log = inspection
        .log(&crate::Label::parse("epoch-1"))
        .expect("kept");
    let summary = log.summarize();
    let counted: u64 = summary.segments.iter().map(|it| it.data.records).sum();
    assert_eq!(counted, written.len() as u64 - 1, "all but the damaged one");
}
