//! Damaged and incomplete logs.

use super::*;
use crate::{OpenError, archive};

fn filled() -> (MemoryStorage, Vec<(Lsn, Vec<u8>)>) {
    let storage = MemoryStorage::new();
    let wal = open(&storage);
    let mut written = Vec::new();
    for round in 0..6 {
        written.extend(append_many(&wal, round * 8..round * 8 + 8, 1400));
        wait(wal.durable(wal.next_lsn())).expect("durable");
    }
    wal.close().expect("flushed");
    (storage, written)
}

fn refusal(storage: &MemoryStorage, from: Lsn) -> OpenError {
    match Recovery::scan(Arc::new(storage.clone()), VOLUME, from) {
        Err(error) => error,
        Ok(recovery) => panic!("scanned, with {:?}", recovery.tail()),
    }
}

#[test]
fn damage_in_the_middle_is_recognised_and_the_rest_put_aside() {
    let (storage, written) = filled();
    let second = names(&storage, ".seg").remove(1);
    storage.edit(&second, |bytes| bytes[4096 + 2000] ^= 1);
    let recovery = scan(&storage, Lsn::ZERO);
    let Tail::Damaged { at, until } = recovery.tail() else {
        panic!("{:?}", recovery.tail());
    };
    assert!(at == recovery.end() && at < until);
    let wal = recovery.into_wal(options()).expect("opened");
    assert!(!names(&storage, ".aside").is_empty());
    wal.close().expect("flushed");
    let found = replay(&storage, Lsn::ZERO);
    assert_eq!(found, written[..found.len()]);
}

#[test]
fn every_damaged_byte_of_a_record_ends_the_log_before_it() {
    let storage = MemoryStorage::new();
    let wal = open(&storage);
    let written = append_many(&wal, 0..3, 24);
    let end = wal.next_lsn();
    wal.close().expect("flushed");
    let name = names(&storage, ".seg").remove(0);
    let bare = without_position(&storage);
    for byte in 0..56 {
        let image = bare.kill();
        image.edit(&name, |bytes| bytes[4096 + 56 + byte] ^= 0x10);
        let mut recovery = scan(&image, Lsn::ZERO);
        assert_eq!(records(&mut recovery), written[..1], "byte {byte}");
        assert_eq!(
            recovery.tail(),
            Tail::Torn {
                at: written[1].0,
                beyond: Some(end)
            },
            "byte {byte}"
        );
    }
}

#[test]
fn damage_below_from_does_not_matter() {
    let (storage, written) = filled();
    let first = names(&storage, ".seg").remove(0);
    storage.edit(&first, |bytes| bytes[4096 + 20] ^= 1);
    assert_eq!(scan(&storage, written[3].0).tail(), Tail::Clean);
    assert_eq!(replay(&storage, written[3].0), written[3..]);
}

#[test]
fn torn_header_of_a_segment_just_begun_is_no_damage() {
    let storage = MemoryStorage::new();
    let wal = open(&storage);
    let mut written = append_many(&wal, 0..8, 1400);
    wait(wal.durable(wal.next_lsn())).expect("durable");
    storage.hold_flushes(true);
    append_many(&wal, 8..14, 1400);
    let begun = names(&storage, ".seg").remove(1);
    let image = storage.kill();
    storage.hold_flushes(false);
    wal.abandon();
    image.edit(&begun, |bytes| bytes[60..4096].fill(0));
    let mut recovery = scan(&image, Lsn::ZERO);
    assert!(!matches!(recovery.tail(), Tail::Damaged { .. }));
    let found = records(&mut recovery);
    written.truncate(found.len());
    assert_eq!(found, written);
    recovery
        .into_wal(options())
        .expect("opened")
        .close()
        .expect("flushed");
}

#[test]
fn a_removed_segment_is_damage_or_missing_records() {
    let (storage, written) = filled();
    let segments = names(&storage, ".seg");
    let image = storage.kill();
    image.remove(&segments[1]).expect("removed");
    assert!(matches!(
        scan(&image, Lsn::ZERO).tail(),
        Tail::Damaged { .. }
    ));
    let image = storage.kill();
    image.remove(&segments[0]).expect("removed");
    let error = refusal(&image, Lsn::ZERO);
    assert!(
        matches!(
            error,
            OpenError::Missing {
                from: Lsn::ZERO,
                ..
            }
        ),
        "{error}"
    );
    // A bucket that has everything up to there does not need it.
    let later = written[20].0;
    assert_eq!(replay(&image, later), written[20..]);
}

#[test]
fn a_log_of_another_volume_is_refused_and_can_be_put_aside() {
    let (storage, written) = filled();
    let shared: Arc<dyn Storage> = Arc::new(storage.clone());
    let other = VolumeId([9; 16]);
    let error = Recovery::scan(Arc::clone(&shared), other, Lsn::ZERO)
        .err()
        .expect("refused");
    let text = error.to_string();
    assert!(matches!(error, OpenError::ForeignVolume { .. }));
    assert!(
        text.contains(&VOLUME.to_string()) && text.contains(&other.to_string()),
        "{text}"
    );
    let (moved, _) = archive(&storage, "old-volume", None).expect("renamed");
    assert!(moved > 3);
    assert_eq!(
        Recovery::scan(shared, other, Lsn::ZERO)
            .expect("empty now")
            .end(),
        Lsn::ZERO
    );
    for name in names(&storage, ".seg") {
        storage
            .rename(&name, name.strip_prefix("old-volume-").expect("label"))
            .expect("renamed");
    }
    assert_eq!(replay(&storage, Lsn::ZERO), written);
    assert!(archive(&storage, "../x", None).is_err() && archive(&storage, "", None).is_err());
}

#[test]
fn a_newer_format_is_refused() {
    let (storage, _) = filled();
    let name = names(&storage, ".seg").remove(1);
    storage.edit(&name, |bytes| bytes[8] = 3);
    let error = refusal(&storage, Lsn::ZERO);
    assert!(
        matches!(
            error,
            OpenError::NewerFormat {
                found: 3,
                supported: 2,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_log_of_a_later_epoch_is_not_written_to() {
    let storage = MemoryStorage::new();
    let wal = open_with(
        &storage,
        Lsn::ZERO,
        Options {
            epoch: Epoch(7),
            ..options()
        },
    );
    append(&wal, b"a");
    wal.close().expect("flushed");
    let recovery = scan(&storage, Lsn::ZERO);
    assert_eq!(recovery.epoch(), Some(Epoch(7)));
    let error = recovery.into_wal(options()).err().expect("refused");
    assert!(
        matches!(
            error,
            OpenError::NewerEpoch {
                found: Epoch(7),
                ours: Epoch(1)
            }
        ),
        "{error}"
    );
}

#[test]
fn numbers_that_no_log_reaches_are_refused_before_anything_is_changed() {
    let named = MemoryStorage::new();
    named.edit("ffffffffffffffff.seg", |bytes| {
        bytes.resize(SEGMENT as usize, 0)
    });
    let error = refusal(&named, Lsn::ZERO).to_string();
    assert!(error.contains("number of ffffffffffffffff.seg"), "{error}");

    let (storage, _) = filled();
    let error = refusal(&storage, Lsn(u64::MAX)).to_string();
    assert!(error.contains("published LSN"), "{error}");

    let first = names(&storage, ".seg").remove(0);
    storage.edit(&first, |bytes| {
        bytes[48..56].copy_from_slice(&(u64::MAX - 8).to_le_bytes());
        let crc = crc32fast::hash(&bytes[..124]);
        bytes[124..128].copy_from_slice(&crc.to_le_bytes());
    });
    let error = refusal(&storage, Lsn::ZERO).to_string();
    assert!(error.contains(&format!("header of {first}")), "{error}");
}

#[test]
fn random_bytes_in_a_log_never_panic() {
    let (storage, written) = filled();
    let mut seed = 1_u64;
    for _ in 0..200 {
        let image = storage.kill();
        for name in names(&image, ".seg") {
            image.edit(&name, |bytes| {
                for _ in 0..3 {
                    seed = seed
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    let at = (seed >> 33) as usize % bytes.len();
                    bytes[at] = (seed >> 20) as u8;
                }
                if seed >> 60 == 3 {
                    bytes.truncate((seed >> 30) as usize % bytes.len());
                }
            });
        }
        if let Ok(mut recovery) = Recovery::scan(Arc::new(image), VOLUME, Lsn::ZERO) {
            let found = records(&mut recovery);
            assert_eq!(found, written[..found.len()]);
        }
    }
}

/// One segment whose second record is damaged, with more behind it.
fn damaged_within(at: usize) -> (MemoryStorage, Vec<(Lsn, Vec<u8>)>, Lsn) {
    let storage = MemoryStorage::new();
    let wal = open(&storage);
    let written = append_many(&wal, 0..6, 1000);
    let end = wal.next_lsn();
    wal.close().expect("flushed");
    let name = names(&storage, ".seg").remove(0);
    let second = 4096 + written[1].0.0 as usize;
    storage.edit(&name, |bytes| bytes[second + at] ^= 1);
    (without_position(&storage), written, end)
}

#[test]
fn a_payload_that_does_not_match_its_header_is_damage_where_the_power_stayed() {
    let (storage, written, end) = damaged_within(500);
    let damaged = Tail::Damaged {
        at: written[1].0,
        until: end,
    };
    assert_eq!(ended(&storage, WriterEnd::Kill).tail(), damaged);
    assert_eq!(ended(&storage, WriterEnd::Stop).tail(), damaged);
    let torn = Tail::Torn {
        at: written[1].0,
        beyond: Some(end),
    };
    assert_eq!(ended(&storage, WriterEnd::PowerCut).tail(), torn);
}

#[test]
fn a_hole_is_damage_after_an_orderly_stop_and_an_unfinished_append_after_a_kill() {
    let (storage, _, _) = damaged_within(8);
    let tail = |ending| ended(&storage, ending).tail();
    assert!(matches!(tail(WriterEnd::Stop), Tail::Damaged { .. }));
    assert!(matches!(tail(WriterEnd::Kill), Tail::Torn { .. }));
}

#[test]
fn records_far_behind_a_hole_are_found() {
    let storage = MemoryStorage::new();
    let large = Options {
        segment_bytes: 1 << 20,
        limit_bytes: 4 << 20,
        ..options()
    };
    let wal = open_with(&storage, Lsn::ZERO, large);
    let written = append_many(&wal, 0..3, 300_000);
    let end = wal.next_lsn();
    wal.close().expect("flushed");
    let name = names(&storage, ".seg").remove(0);
    storage.edit(&name, |bytes| bytes[4096..4096 + 32].fill(0));
    let storage = without_position(&storage);
    let tail = ended(&storage, WriterEnd::PowerCut).tail();
    let torn = Tail::Torn {
        at: written[0].0,
        beyond: Some(end),
    };
    assert_eq!(tail, torn);
}

#[test]
fn the_last_segment_without_its_header_is_damage_where_the_power_stayed() {
    let (storage, written) = filled();
    let segments = names(&storage, ".seg");
    // The very last one is prepared for the next records.
    let holds_records = |name: &&String| {
        let mut first = [0; 4];
        let file = storage.read(name).expect("there");
        file.read_at(4096, &mut first).expect("readable");
        first != [0; 4]
    };
    let last = segments.iter().rfind(holds_records).expect("filled");
    storage.edit(last, |bytes| bytes[..4096].fill(0));
    let recovery = ended(&storage, WriterEnd::Kill);
    assert!(matches!(recovery.tail(), Tail::Damaged { .. }));
    assert!(matches!(
        ended(&storage, WriterEnd::PowerCut).tail(),
        Tail::Torn { .. } | Tail::Damaged { .. }
    ));
    let found = replay(&storage, Lsn::ZERO);
    assert_eq!(found, written[..found.len()]);
}

#[test]
fn a_segment_prepared_from_a_former_life_is_no_damage() {
    let storage = MemoryStorage::new();
    let wal = open(&storage);
    append_many(&wal, 0..60, 1000);
    wal.recycle(wal.next_lsn());
    let (from, _) = append_many(&wal, 60..61, 100)[0];
    eventually(|| names(&storage, ".seg").len() > 1);
    wal.close().expect("flushed");
    let shared = Arc::new(storage.clone());
    let recovery = Recovery::scan_after(shared, VOLUME, from, WriterEnd::Stop).expect("scanned");
    assert_eq!(recovery.tail(), Tail::Clean);
}

#[test]
fn a_log_that_does_not_reach_to_where_its_writer_stopped_has_lost_something() {
    let storage = MemoryStorage::new();
    let wal = open(&storage);
    append_many(&wal, 0..60, 1000);
    wal.close().expect("flushed");
    let stop = wal.next_lsn();
    let storage = without_position(&storage);
    let tail = |ending| ended(&storage, ending).tail();
    assert_eq!(tail(WriterEnd::StopAt(stop)), Tail::Clean);
    // Bytes behind the end of the log's last segment were never written, and are not read.
    let begun = |name: &&String| {
        let mut first = [0; 4];
        let file = storage.read(name).expect("there");
        file.read_at(4096, &mut first).expect("readable");
        first != [0; 4]
    };
    let segments = names(&storage, ".seg");
    let last = segments.iter().rfind(begun).expect("begun");
    for name in segments.iter().skip_while(|name| *name != last) {
        storage.remove(name).expect("removed");
    }
    assert_eq!(tail(WriterEnd::Stop), Tail::Clean, "nothing tells of it");
    let Tail::Damaged { at, until } = tail(WriterEnd::StopAt(stop)) else {
        panic!("the last segment is not missed");
    };
    assert!(at < until);
    assert_eq!(until, stop);
}

#[test]
fn an_end_that_was_noted_too_early_hides_nothing() {
    let (storage, written, until) = damaged_within(500);
    let at = written[1].0;
    let early = WriterEnd::StopAt(Lsn(at.0 - 8));
    assert_eq!(ended(&storage, early).tail(), Tail::Damaged { at, until });
    let exact = WriterEnd::StopAt(until);
    assert_eq!(ended(&storage, exact).tail(), Tail::Damaged { at, until });
}

/// After a power cut a log is opened; before anything is appended the process is killed. Damage of the power cut must
/// not be attributed to the kill.
fn killed_after_a_power_cut(left: MemoryStorage) -> Tail {
    let shared = Arc::new(left.clone());
    let recovery = Recovery::scan_after(shared, VOLUME, Lsn::ZERO, WriterEnd::PowerCut);
    let recovery = recovery.expect("scanned");
    assert!(matches!(recovery.tail(), Tail::Torn { .. }));
    let wal = recovery.into_wal(options()).expect("opened");
    let image = left.kill();
    wal.abandon();
    ended(&image, WriterEnd::Kill).tail()
}

#[test]
fn a_header_lost_in_a_power_cut_is_no_damage_after_the_next_kill() {
    let storage = MemoryStorage::new();
    let wal = open(&storage);
    append_many(&wal, 0..4, 1000);
    wal.close().expect("flushed");
    let first = names(&storage, ".seg").remove(0);
    storage.edit(&first, |bytes| bytes[..4096].fill(0));
    let tail = killed_after_a_power_cut(without_position(&storage));
    assert!(!matches!(tail, Tail::Damaged { .. }), "{tail:?}");
}

#[test]
fn half_a_record_left_by_a_power_cut_is_no_damage_after_the_next_kill() {
    let (storage, _, _) = damaged_within(500);
    let tail = killed_after_a_power_cut(storage);
    assert!(!matches!(tail, Tail::Damaged { .. }), "{tail:?}");
}
