//! Limits: records, segments, the disk.

use super::*;
use crate::{AppendError, OpenError};

fn file_bytes(storage: &MemoryStorage) -> u64 {
    loop {
        let names = storage.list().expect("listed");
        let segments = names.iter().filter(|name| name.contains('.'));
        let sizes = segments.map(|name| storage.read(name)?.size());
        // A file may have been renamed meanwhile.
        if let Ok(bytes) = sizes.sum::<std::io::Result<u64>>() {
            return bytes;
        }
    }
}

/// Appends until there is no room, and the preparer can make none.
fn fill(wal: &Wal) -> u64 {
    let mut appended = 0;
    let mut is_prepared = false;
    loop {
        match wal.append(RecordKind::Data, &[&payload(appended, 1000)]) {
            Ok(_) => (appended, is_prepared) = (appended + 1, false),
            Err(AppendError::Full) if is_prepared => return appended,
            Err(AppendError::Full) => {
                eventually(|| wal.is_prepared());
                is_prepared = true;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn the_largest_record_fits_and_a_larger_one_never_will() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        let largest = SEGMENT - 4096 - record_size(0);
        append(&wal, &payload(1, largest as usize));
        append(&wal, &payload(2, largest as usize));
        assert_eq!(
            wal.append(RecordKind::Data, &[&payload(3, largest as usize), b"+"]),
            Err(AppendError::TooLarge {
                bytes: largest + 1,
                limit: largest
            })
        );
        wal.close().expect("flushed");
        assert_eq!(replay(&storage, Lsn::ZERO).len(), 2);
    });
}

#[test]
fn the_limit_holds_and_recycling_makes_room() {
    both(|| {
        let storage = MemoryStorage::new();
        let limit = 5 * SEGMENT;
        let wal = open_with(
            &storage,
            Lsn::ZERO,
            Options {
                limit_bytes: limit,
                ..options()
            },
        );
        let appended = fill(&wal);
        assert!(appended >= 5 * 11 && file_bytes(&storage) <= limit);
        assert_eq!((wal.used_bytes() / SEGMENT, wal.limit_bytes()), (4, limit));
        assert!(!is_ready(wal.room(1000)) && is_ready(wal.room(8)));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait(wal.room(1000)));
            wal.recycle(wal.next_lsn());
            waiting.join().expect("joined").expect("room");
        });
        assert_eq!(
            wal.durable_lsn(),
            wal.next_lsn(),
            "what the bucket has is durable"
        );
        for round in 0..30 {
            append_many(&wal, round * 11..round * 11 + 11, 1000);
            wal.recycle(wal.next_lsn());
            assert!(file_bytes(&storage) <= limit);
        }
        assert!(wal.stats().segments_made <= 5 + 30, "{:?}", wal.stats());
        assert!(wal.used_bytes() <= 2 * SEGMENT);
    });
}

#[test]
fn only_a_bounded_number_of_spares_is_kept() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open_with(
            &storage,
            Lsn::ZERO,
            Options {
                limit_bytes: 16 * SEGMENT,
                ..options()
            },
        );
        append_many(&wal, 0..150, 1000);
        wal.recycle(wal.next_lsn());
        eventually(|| file_bytes(&storage) <= (4 + 2) * SEGMENT);
    });
}

#[test]
fn recycling_keeps_what_reaches_above() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        let written = append_many(&wal, 0..60, 1000);
        wait(wal.durable(wal.next_lsn())).expect("durable");
        for (index, (lsn, _)) in written.iter().enumerate() {
            wal.recycle(*lsn);
            let image = storage.power_cut_losing_all();
            assert_eq!(replay(&image, *lsn), written[index..]);
        }
    });
}

#[test]
fn a_full_disk_makes_the_log_full_and_not_more() {
    both(|| {
        let storage = MemoryStorage::new();
        storage.limit_capacity(Some(2 * SEGMENT + 100));
        let wal = open(&storage);
        assert!(fill(&wal) >= 2 * 11);
        eventually(|| wal.shortage().is_some());
        let shortage = wal.shortage().expect("told");
        assert!(shortage.contains("cannot create"), "{shortage}");
        assert_eq!(wal.failure(), None);
        wait(wal.durable(wal.next_lsn())).expect("what is in is as good as ever");
        wal.recycle(wal.next_lsn());
        append_many(&wal, 0..40, 100);
        storage.limit_capacity(None);
        fill(&wal);
        assert_eq!(wal.shortage(), None);
    });
}

#[test]
fn a_disk_with_room_for_one_segment_only_still_goes_round() {
    both(|| {
        let storage = MemoryStorage::new();
        storage.limit_capacity(Some(SEGMENT));
        let wal = open(&storage);
        for _ in 0..5 {
            assert!(fill(&wal) >= 11);
            wal.recycle(wal.next_lsn());
            wait(wal.room(1000)).expect("room");
        }
        let published = wal.next_lsn();
        let written = append_many(&wal, 0..3, 1000);
        wal.close().expect("flushed");
        assert_eq!(replay(&storage, published), written);
    });
}

#[test]
fn no_space_for_a_new_log_is_an_error_that_says_so() {
    both(|| {
        let storage = MemoryStorage::new();
        storage.limit_capacity(Some(10));
        let error = scan(&storage, Lsn::ZERO)
            .into_wal(options())
            .err()
            .expect("refused");
        let text = error.to_string();
        assert!(
            matches!(error, OpenError::Io { .. }) && text.contains("segment"),
            "{text}"
        );
    });
}

#[test]
fn a_full_log_can_be_opened_and_goes_on_once_recycled() {
    both(|| {
        let storage = MemoryStorage::new();
        let small = Options {
            limit_bytes: 3 * SEGMENT,
            ..options()
        };
        let wal = open_with(&storage, Lsn::ZERO, small.clone());
        fill(&wal);
        wal.close().expect("flushed");
        let wal = open_with(&storage, Lsn::ZERO, small);
        assert_eq!(
            wal.append(RecordKind::Data, &[&[0; 1000]]),
            Err(AppendError::Full)
        );
        assert!(file_bytes(&storage) <= 3 * SEGMENT);
        wal.recycle(wal.next_lsn());
        append_many(&wal, 0..10, 1000);
    });
}

#[test]
fn another_segment_size_is_taken_up() {
    both(|| {
        let storage = MemoryStorage::new();
        let wal = open(&storage);
        let mut written = append_many(&wal, 0..30, 1000);
        wal.close().expect("flushed");
        let larger = Options {
            segment_bytes: 3 * SEGMENT,
            ..options()
        };
        let wal = open_with(&storage, Lsn::ZERO, larger);
        written.extend(append_many(&wal, 30..80, 1000));
        wal.close().expect("flushed");
        assert_eq!(replay(&storage, Lsn::ZERO), written);
    });
}

#[test]
fn options_that_could_never_work_are_refused() {
    both(|| {
        for bad in [
            Options {
                segment_bytes: 4096,
                ..options()
            },
            Options {
                segment_bytes: 10_000,
                ..options()
            },
            Options {
                segment_bytes: 8 << 30,
                limit_bytes: 64 << 30,
                ..options()
            },
            Options {
                limit_bytes: SEGMENT,
                ..options()
            },
            Options {
                volume: VolumeId([1; 16]),
                ..options()
            },
        ] {
            let refused = scan(&MemoryStorage::new(), Lsn::ZERO).into_wal(bad);
            assert!(matches!(refused.err(), Some(OpenError::Options(_))));
        }
    });
}

/// A folder whose renames fail on request.
struct Stubborn(MemoryStorage, std::sync::atomic::AtomicBool);

impl Storage for Stubborn {
    fn list(&self) -> std::io::Result<Vec<String>> {
        self.0.list()
    }
    fn create(&self, name: &str, bytes: u64) -> std::io::Result<Box<dyn crate::SegmentMemory>> {
        self.0.create(name, bytes)
    }
    fn open(&self, name: &str) -> std::io::Result<Box<dyn crate::SegmentMemory>> {
        self.0.open(name)
    }
    fn read(&self, name: &str) -> std::io::Result<Box<dyn crate::SegmentReader>> {
        self.0.read(name)
    }
    fn rename(&self, from: &str, to: &str) -> std::io::Result<()> {
        if self.1.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> std::io::Result<()> {
        self.0.remove(name)
    }
    fn salt(&self) -> u64 {
        self.0.salt()
    }
}

#[test]
fn a_spare_that_could_not_be_renamed_is_used_when_the_disk_lets_it() {
    both(|| {
        let memory = MemoryStorage::new();
        let storage = Arc::new(Stubborn(memory.clone(), false.into()));
        let small = Options {
            limit_bytes: 3 * SEGMENT,
            ..options()
        };
        let wal = Recovery::scan(storage.clone(), VOLUME, Lsn::ZERO)
            .and_then(|recovery| recovery.into_wal(small))
            .expect("opened");
        fill(&wal);
        storage.1.store(true, std::sync::atomic::Ordering::SeqCst);
        wal.recycle(wal.next_lsn());
        fill(&wal);
        eventually(|| wal.shortage().is_some());
        let shortage = wal.shortage().expect("told");
        assert!(shortage.contains("cannot reuse"), "{shortage}");
        // Nothing more is recycled; a waiting task is served when the disk works again.
        let mut room = pin!(wal.room(1000));
        let mut context = Context::from_waker(Waker::noop());
        assert!(room.as_mut().poll(&mut context).is_pending());
        storage.1.store(false, std::sync::atomic::Ordering::SeqCst);
        eventually(|| room.as_mut().poll(&mut context).is_ready());
        append_many(&wal, 0..10, 1000);
        assert!(file_bytes(&memory) <= 3 * SEGMENT);
    });
}
