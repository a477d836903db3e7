//! Sealed logs: what the disk reveals, and which changes are detected.

mod nonces;
mod person;

use super::*;
use crate::OpenError;
use crate::layout::{HeaderBytes, SEGMENT_HEADER_USED, SegmentHeader};

/// Options that seal with the data key of this number.
fn sealed_with(current: u32) -> Options {
    Options {
        sealing: Some(sealing(current)),
        ..options()
    }
}

fn scan_with(storage: &MemoryStorage, from: Lsn, keys: LogKeys) -> Result<Recovery, OpenError> {
    let shared = Arc::new(storage.clone());
    Recovery::scan_with(shared, VOLUME, from, WriterEnd::Kill, keys)
}

fn required() -> LogKeys {
    LogKeys::Required(data_keys(VOLUME, 1))
}

fn optional() -> LogKeys {
    LogKeys::Optional(data_keys(VOLUME, 1))
}

#[track_caller]
fn refused(storage: &MemoryStorage, from: Lsn, keys: LogKeys) -> OpenError {
    match scan_with(storage, from, keys) {
        Err(error) => error,
        Ok(recovery) => panic!("scanned, up to {} {:?}", recovery.end(), recovery.tail()),
    }
}

#[track_caller]
fn go_on(storage: &MemoryStorage, from: Lsn, keys: LogKeys, options: Options) -> Wal {
    let recovery = scan_with(storage, from, keys).expect("scanned");
    recovery.into_wal(options).expect("opened")
}

/// Three segments and the records in them.
fn filled() -> (MemoryStorage, Vec<(Lsn, Vec<u8>)>) {
    let storage = MemoryStorage::new();
    let wal = go_on(&storage, Lsn::ZERO, required(), sealed_with(1));
    let written = append_many(&wal, 0..20, 1400);
    wal.close().expect("flushed");
    (storage, written)
}

fn bytes_of(storage: &MemoryStorage, name: &str) -> Vec<u8> {
    let file = storage.read(name).expect("there");
    let mut bytes = vec![0; file.size().expect("sized") as usize];
    file.read_at(0, &mut bytes).expect("read");
    bytes
}

/// Whether a segment has been begun: decided by the length of its first record, which is never 0, unlike a byte of a
/// CRC.
fn has_records(storage: &MemoryStorage, name: &str) -> bool {
    bytes_of(storage, name)[4096 + 24..4096 + 28] != [0; 4]
}

/// Changes the record at `at` in a file, and corrects its CRC.
fn change_record(storage: &MemoryStorage, name: &str, at: usize, change: impl FnOnce(&mut [u8])) {
    storage.edit(name, |bytes| {
        let length = u32::from_le_bytes(bytes[at + 24..at + 28].try_into().expect("four"));
        let record = &mut bytes[at..at + 32 + length as usize];
        change(record);
        let crc = crc32fast::hash(&record[4..]);
        record[..4].copy_from_slice(&crc.to_le_bytes());
    });
}

/// Like [`change_record`], for the header of a segment.
fn change_header(storage: &MemoryStorage, name: &str, change: impl FnOnce(&mut [u8])) {
    storage.edit(name, |bytes| {
        change(bytes);
        let crc = crc32fast::hash(&bytes[..140]);
        bytes[140..144].copy_from_slice(&crc.to_le_bytes());
    });
}

fn header(storage: &MemoryStorage, name: &str) -> SegmentHeader {
    let bytes = bytes_of(storage, name);
    let head: &[u8; SEGMENT_HEADER_USED] = bytes.first_chunk().expect("a header");
    match SegmentHeader::decode(head) {
        HeaderBytes::Valid(header) => header,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_that_was_appended_is_found_in_any_file() {
    let storage = MemoryStorage::new();
    let wal = go_on(&storage, Lsn::ZERO, required(), sealed_with(1));
    let secret = b"words for nobody";
    for turn in 0..40 {
        let filler = vec![0; 37 * turn];
        let parts = [&filler[..], secret, &filler];
        wal.append(RecordKind::Metadata, &parts).expect("room");
        while !is_ready(wal.room(4000)) {
            std::thread::yield_now();
        }
    }
    // A record that is never finished, as of a process that was killed in the middle of an append.
    drop(wal.reserve(100).expect("room"));
    wal.abandon();
    let mut records = 0;
    let mut recovery = scan_with(&storage, Lsn::ZERO, required()).expect("scanned");
    while let Some(record) = recovery.next().expect("readable") {
        assert!(record.payload.windows(16).any(|part| part == secret));
        records += 1;
    }
    assert_eq!(records, 40);
    for name in storage.list().expect("listed") {
        let bytes = bytes_of(&storage, &name);
        for part in [&secret[..], &secret[..8], &secret[8..]] {
            let found = bytes.windows(part.len()).any(|bytes| bytes == part);
            assert!(!found, "{name} shows it");
        }
    }
}

#[test]
fn whatever_of_a_record_is_changed_and_given_its_crc_is_refused_and_nothing_cut_off() {
    let (storage, written) = filled();
    let name = names(&storage, ".seg").remove(0);
    let at = 4096 + written[2].0.0 as usize;
    let check = |what: &str, change: &dyn Fn(&mut [u8])| {
        let image = storage.kill();
        change_record(&image, &name, at, change);
        for keys in [required(), optional()] {
            let error = refused(&image, Lsn::ZERO, keys);
            assert!(matches!(error, OpenError::Forged { .. }), "{what}: {error}");
            let text = error.to_string();
            let place = format!("the record at LSN {}", written[2].0);
            assert!(text.contains(&place) && text.contains(&name), "{text}");
        }
        // Below the published LSN it is not needed.
        let later = written[3].0;
        assert!(scan_with(&image, later, required()).is_ok(), "{what}");
        // At the published LSN it is needed.
        let error = refused(&image, written[2].0, required());
        assert!(matches!(error, OpenError::Forged { .. }), "{what}: {error}");
    };
    for byte in [32, 33, 700, 32 + 1399] {
        check("the payload", &|record| record[byte] ^= 1);
    }
    for byte in 0..16 {
        check("the tag", &|record| record[32 + 1400 + byte] ^= 0x80);
    }
    check("the kind", &|record| record[6] = 3);
    check("all of it", &|record| record[32..].fill(0));
}

#[test]
fn a_length_that_was_changed_is_refused() {
    let (storage, written) = filled();
    let name = names(&storage, ".seg").remove(0);
    let at = 4096 + written[2].0.0 as usize;
    storage.edit(&name, |bytes| {
        // Shorter by eight bytes, so that the next record is still found behind it.
        let record = &mut bytes[at..at + 32 + 1416 - 8];
        record[24..28].copy_from_slice(&(1416_u32 - 8).to_le_bytes());
        let crc = crc32fast::hash(&record[4..]);
        record[..4].copy_from_slice(&crc.to_le_bytes());
    });
    let error = refused(&storage, Lsn::ZERO, required());
    assert!(matches!(error, OpenError::Forged { .. }), "{error}");
}

#[test]
fn a_record_put_in_another_place_is_refused() {
    let (storage, written) = filled();
    let mut segments = names(&storage, ".seg");
    segments.retain(|name| has_records(&storage, name));
    let place = |record: usize| {
        let lsn = written[record].0;
        let holds = |name: &&String| header(&storage, name).base <= lsn;
        let name = segments.iter().rfind(holds).expect("a segment").clone();
        let at = 4096 + (lsn.0 - header(&storage, &name).base.0) as usize;
        (name, at)
    };
    // From the same segment, and from another one.
    for (from, to) in [(1, 3), (1, 15), (15, 1)] {
        let image = storage.kill();
        let (source, at) = place(from);
        let payload = bytes_of(&image, &source)[at + 32..at + 32 + 1416].to_vec();
        let (target, at) = place(to);
        change_record(&image, &target, at, |record| {
            record[32..].copy_from_slice(&payload);
        });
        let error = refused(&image, Lsn::ZERO, required());
        assert!(matches!(error, OpenError::Forged { .. }), "{error}");
    }
}

#[test]
fn whatever_of_a_header_is_changed_and_given_its_crc_is_refused() {
    let (storage, _) = filled();
    let name = names(&storage, ".seg").remove(1);
    // Epoch, base, salt, segment before and its end, durable LSN, salts of keys, tag.
    for byte in [32, 48, 56, 64, 72, 80, 92, 107, 108, 123, 124, 139] {
        let image = storage.kill();
        change_header(&image, &name, |bytes| bytes[byte] ^= 1);
        let error = refused(&image, Lsn::ZERO, required());
        assert!(
            matches!(error, OpenError::Forged { .. }),
            "byte {byte}: {error}"
        );
        assert!(error.to_string().contains(&name), "{error}");
    }
    change_header(&storage, &name, |bytes| bytes[88] = 9);
    let error = refused(&storage, Lsn::ZERO, required());
    assert!(matches!(error, OpenError::UnknownKey { .. }), "{error}");
}

#[test]
fn a_segment_of_another_history_of_the_log_is_refused() {
    // The log is rolled back once, as by a snapshot of its disk, and then has a different continuation.
    let storage = MemoryStorage::new();
    let wal = go_on(&storage, Lsn::ZERO, required(), sealed_with(1));
    append_many(&wal, 0..4, 1400);
    wal.abandon();
    let history = |epoch, first: u64| {
        let image = storage.kill();
        let options = Options {
            epoch: Epoch(epoch),
            ..sealed_with(1)
        };
        let wal = go_on(&image, Lsn::ZERO, required(), options);
        append_many(&wal, first..first + 12, 1400);
        wal.close().expect("flushed");
        image
    };
    let (one, other) = (history(2, 100), history(3, 200));
    let segments = names(&one, ".seg");
    let begun: Vec<_> = segments
        .iter()
        .filter(|name| has_records(&one, name))
        .collect();
    assert!(begun.len() >= 3 && begun.iter().all(|name| has_records(&other, name)));
    // The second segment of one history, and behind it the third of the other: it lies where it should.
    let (second, third) = (begun[1], begun[2]);
    assert_eq!(
        header(&one, third).previous_end,
        header(&other, third).previous_end
    );
    assert_eq!(header(&one, second).number, header(&other, second).number);
    let foreign = bytes_of(&other, third);
    one.edit(third, |bytes| bytes.copy_from_slice(&foreign));
    let error = refused(&one, Lsn::ZERO, required());
    assert!(matches!(error, OpenError::Forged { .. }), "{error}");
    assert!(error.to_string().contains("segment before it"), "{error}");
}

#[test]
fn records_of_a_log_without_seal_are_not_replayed_where_it_has_to_be_sealed() {
    let storage = MemoryStorage::new();
    let wal = open(&storage);
    let written = append_many(&wal, 0..5, 1000);
    wal.close().expect("flushed");
    let error = refused(&storage, Lsn::ZERO, required());
    assert!(matches!(error, OpenError::NotSealed { .. }), "{error}");
    assert!(error.to_string().contains("seal_log"), "{error}");
    // The last record alone is enough.
    let error = refused(&storage, written[4].0, required());
    assert!(matches!(error, OpenError::NotSealed { .. }), "{error}");
    // If the log need not be sealed, the record is read, and the log continues sealed.
    let wal = go_on(&storage, Lsn::ZERO, optional(), sealed_with(1));
    let sealed = append_many(&wal, 10..15, 1000);
    wal.abandon();
    let mut recovery = scan_with(&storage, Lsn::ZERO, optional()).expect("scanned");
    assert_eq!(records(&mut recovery), [written, sealed].concat());
}

#[test]
fn one_segment_without_seal_among_sealed_ones_is_refused() {
    let (storage, written) = filled();
    let last = written[19].0.advance(32 + 1416);
    let forger = MemoryStorage::new();
    let wal = open_with(&forger, last, options());
    append_many(&wal, 0..3, 100);
    wal.close().expect("flushed");
    let name = names(&forger, ".seg").remove(0);
    let mut bytes = bytes_of(&forger, &name);
    // The LSN at which it would continue.
    bytes[40..48].copy_from_slice(&90_u64.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..124]);
    bytes[124..128].copy_from_slice(&crc.to_le_bytes());
    storage.edit("000000000000005a.seg", |file| *file = bytes);
    let error = refused(&storage, Lsn::ZERO, required());
    assert!(matches!(error, OpenError::NotSealed { .. }), "{error}");
    assert!(error.to_string().contains("000000000000005a.seg"));
}

#[test]
fn sealing_is_switched_on_once_all_is_published_and_off_at_any_time() {
    let storage = MemoryStorage::new();
    let wal = open(&storage);
    append_many(&wal, 0..30, 1000);
    wal.close().expect("flushed");
    let published = wal.next_lsn();
    let wal = go_on(&storage, published, required(), sealed_with(1));
    let mut written = append_many(&wal, 100..105, 1000);
    assert_eq!(written[0].0, published);
    wal.abandon();
    // The remaining segments without a seal do no harm any more.
    let mut recovery = scan_with(&storage, published, required()).expect("scanned");
    assert_eq!(records(&mut recovery), written);
    let wal = go_on(&storage, published, optional(), options());
    written.extend(append_many(&wal, 200..205, 1000));
    wal.abandon();
    let mut recovery = scan_with(&storage, published, optional()).expect("scanned");
    assert_eq!(records(&mut recovery), written);
    assert_eq!(recovery.tail(), Tail::Clean);
}

#[test]
fn a_hole_in_a_log_that_was_published_is_no_reason_to_refuse_sealing() {
    let storage = MemoryStorage::new();
    let wal = open(&storage);
    append(&wal, b"before");
    drop(wal.reserve(3).expect("room"));
    append_many(&wal, 0..5, 1000);
    wal.abandon();
    // Killed, started again, stopped in order: the records behind the hole still exist, but are never replayed.
    let wal = open(&storage);
    append(&wal, b"new");
    wal.close().expect("flushed");
    let end = wal.next_lsn();
    let shared = Arc::new(storage.clone());
    let ending = WriterEnd::StopAt(end);
    let recovery = Recovery::scan_with(shared, VOLUME, end, ending, required()).expect("scanned");
    let wal = recovery.into_wal(sealed_with(1)).expect("opened");
    let written = append_many(&wal, 10..11, 100);
    wal.abandon();
    let mut recovery = scan_with(&storage, end, required()).expect("scanned after a kill");
    assert_eq!(records(&mut recovery), written);
}

#[test]
fn a_sealed_log_takes_its_own_keys() {
    let (storage, written) = filled();
    let error = refused(&storage, Lsn::ZERO, LogKeys::None);
    assert!(matches!(error, OpenError::Sealed { .. }), "{error}");
    let error = refused(
        &storage,
        Lsn::ZERO,
        LogKeys::Required(data_keys(VolumeId([9; 16]), 1)),
    );
    assert!(matches!(error, OpenError::Options(_)), "{error}");
    // Another key under the same number.
    let other = (DataKeyId(1), Secret::take(&mut [9; 32]));
    let other = LogKeys::Required(Arc::new(DataKeys::new(VOLUME, other, [])));
    let error = refused(&storage, Lsn::ZERO, other);
    assert!(matches!(error, OpenError::Forged { .. }), "{error}");
    let mut recovery = scan_with(&storage, Lsn::ZERO, required()).expect("scanned");
    assert_eq!(records(&mut recovery), written);
}

#[test]
fn after_a_rotation_old_segments_are_read_and_new_ones_have_the_new_key() {
    let (storage, mut written) = filled();
    let keys = || LogKeys::Required(data_keys(VOLUME, 3));
    let wal = go_on(&storage, Lsn::ZERO, keys(), sealed_with(3));
    written.extend(append_many(&wal, 50..60, 1400));
    wal.abandon();
    let mut recovery = scan_with(&storage, Lsn::ZERO, keys()).expect("scanned");
    assert_eq!(records(&mut recovery), written);
    // The old key ring cannot read later records.
    let error = refused(&storage, Lsn::ZERO, required());
    assert!(matches!(error, OpenError::UnknownKey { .. }), "{error}");
    assert!(error.to_string().contains("data key 3"), "{error}");
}
