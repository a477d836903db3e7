//! Appended records come back.

use super::*;

#[test]
fn records_come_back_in_order_across_many_segments() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        let written = append_many(&wal, 0..200, 1000);
        wal.close().expect("flushed");
        assert!(names(&storage, ".seg").len() > 10);
        let mut recovery = scan(&storage, Lsn::ZERO);
        assert_eq!(recovery.tail(), Tail::Clean);
        assert_eq!(recovery.end(), wal.next_lsn());
        assert_eq!(records(&mut recovery), written);
    });
}

#[test]
fn kinds_parts_and_empty_payloads_come_back() {
    both(|| {
        use RecordKind::*;
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        for (kind, parts) in [
            (Data, &[&b"ab"[..], b"", b"cde"][..]),
            (Metadata, &[]),
            (Truncate, &[b"x"]),
            (Checkpoint, &[b""]),
        ] {
            wal.append(kind, parts).expect("appended");
        }
        wal.close().expect("flushed");
        let mut recovery = scan(&storage, Lsn::ZERO);
        let mut found = Vec::new();
        while let Some(record) = recovery.next().expect("readable") {
            found.push((record.kind, record.payload.to_vec()));
        }
        assert_eq!(
            found,
            [
                (Data, b"abcde".to_vec()),
                (Metadata, vec![]),
                (Truncate, b"x".to_vec()),
                (Checkpoint, vec![])
            ]
        );
    });
}

#[test]
fn replay_starts_at_from_wherever_it_lies() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        let written = append_many(&wal, 0..60, 1000);
        wal.close().expect("flushed");
        for (index, (lsn, _)) in written.iter().enumerate() {
            assert_eq!(replay(&storage, *lsn), written[index..]);
            // An LSN between two records: the next record is the first.
            assert_eq!(replay(&storage, lsn.advance(8)), written[index + 1..]);
        }
        assert_eq!(replay(&storage, wal.next_lsn()), []);
    });
}

#[test]
fn a_log_that_ends_before_from_goes_on_at_from() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        append_many(&wal, 0..3, 100);
        wal.close().expect("flushed");
        let from = Lsn(1 << 30);
        assert_eq!(scan(&storage, from).end(), from);
        let wal = open_with(&storage, from, options());
        assert_eq!((wal.next_lsn(), wal.durable_lsn()), (from, from));
        let written = append_many(&wal, 0..3, 100);
        wal.close().expect("flushed");
        assert_eq!(written[0].0, from);
        assert_eq!(replay(&storage, from), written);
    });
}

#[test]
fn an_empty_folder_and_foreign_files_are_an_empty_log() {
    both(|| {
        let storage = MemoryStorage::new();
        storage.edit("lost+found", |bytes| bytes.extend([1, 2, 3]));
        storage.edit("0000000000000007.seg", |bytes| bytes.extend([0; 5000]));
        let mut recovery = scan(&storage, Lsn(500));
        assert_eq!(
            (recovery.end(), recovery.tail(), recovery.epoch()),
            (Lsn(500), Tail::Clean, None)
        );
        assert_eq!(records(&mut recovery), []);
        let wal = recovery.into_wal(options()).expect("opened");
        assert_eq!(append(&wal, b"a").lsn, Lsn(500));
        assert!(
            storage
                .list()
                .expect("listed")
                .contains(&"lost+found".to_owned())
        );
    });
}

#[test]
fn the_first_segment_is_ready_when_open_returns() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        assert_eq!(names(&storage, ".seg").len(), 1);
        assert!(is_ready(wal.room(100)));
        wal.append(RecordKind::Data, &[b"a"]).expect("at once");
    });
}

#[test]
fn recovery_twice_in_a_row_gives_the_same() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        let written = append_many(&wal, 0..40, 700);
        wal.abandon();
        let files = storage.list().expect("listed").len();
        for _ in 0..5 {
            assert_eq!(replay(&storage, Lsn::ZERO), written);
            open(&storage).abandon();
            assert!(
                storage.list().expect("listed").len() <= files + 1,
                "restarts pile up segments"
            );
        }
    });
}

#[test]
fn many_lives_make_one_history() {
    both(|| {
        let storage = MemoryStorage::new();
        let mut written = Vec::new();
        for life in 0..6 {
            let wal = open_with(
                &storage,
                Lsn::ZERO,
                Options {
                    epoch: Epoch(life),
                    ..options()
                },
            );
            written.extend(append_many(&wal, life * 10..life * 10 + 10, 900));
            if life % 2 == 0 {
                wal.close().expect("flushed")
            } else {
                wal.abandon()
            }
            assert_eq!(scan(&storage, Lsn::ZERO).epoch(), Some(Epoch(life)));
        }
        assert_eq!(replay(&storage, Lsn::ZERO), written);
    });
}
