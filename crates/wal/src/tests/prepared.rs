//! Segments that are prepared ahead, several at a time.

use super::*;
use crate::{AppendError, Hand, SegmentMemory, SegmentReader};
use parking_lot::Mutex;
use std::io;

/// A folder that counts the files of each renaming, and fails in the middle of one on request.
#[derive(Default)]
struct Folder {
    memory: MemoryStorage,
    batches: Mutex<Vec<usize>>,
    /// Number of renamings that still succeed, if not all do.
    fails_after: Mutex<Option<usize>>,
    /// Called before each renaming.
    before: Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl Storage for Folder {
    fn list(&self) -> io::Result<Vec<String>> {
        self.memory.list()
    }
    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn SegmentMemory>> {
        self.memory.create(name, bytes)
    }
    fn open(&self, name: &str) -> io::Result<Box<dyn SegmentMemory>> {
        self.memory.open(name)
    }
    fn read(&self, name: &str) -> io::Result<Box<dyn SegmentReader>> {
        self.memory.read(name)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        if let Some(before) = &*self.before.lock() {
            before();
        }
        if let Some(left) = &mut *self.fails_after.lock() {
            *left = left.checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
        }
        self.memory.rename(from, to)
    }
    fn rename_all(&self, names: &[(String, String)]) -> io::Result<()> {
        self.batches.lock().push(names.len());
        names
            .iter()
            .try_for_each(|(from, to)| self.rename(from, to))
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.memory.remove(name)
    }
    fn salt(&self) -> u64 {
        self.memory.salt()
    }
}

const SEGMENTS: u64 = 20;

fn open_by_hand() -> (Arc<Folder>, Arc<Wal>, Hand) {
    let folder = Arc::new(Folder::default());
    let small = Options {
        limit_bytes: SEGMENTS * SEGMENT,
        ..options()
    };
    let (wal, hand) = Recovery::scan(folder.clone(), VOLUME, Lsn::ZERO)
        .and_then(|recovery| recovery.into_wal_by_hand(small))
        .expect("opened");
    (folder, Arc::new(wal), hand)
}

/// Appends until no segment is left.
fn use_up(wal: &Wal, number: &Mutex<u64>, written: &Mutex<Vec<(Lsn, Vec<u8>)>>) {
    loop {
        let payload = payload(*number.lock(), 1000);
        match wal.append(RecordKind::Data, &[&payload]) {
            Ok(appended) => written.lock().push((appended.lsn, payload)),
            Err(AppendError::Full) => return,
            Err(error) => panic!("{error}"),
        }
        *number.lock() += 1;
    }
}

/// Appends until nothing more can be prepared.
fn fill(wal: &Wal, hand: &Hand, number: &Mutex<u64>, written: &Mutex<Vec<(Lsn, Vec<u8>)>>) {
    loop {
        use_up(wal, number, written);
        hand.prepare();
        if !is_ready(wal.room(1000)) {
            return;
        }
    }
}

#[test]
fn a_writer_that_was_faster_than_the_preparer_finds_more_segments_the_next_time() {
    both(|| {
        let (folder, wal, hand) = open_by_hand();
        let (number, written) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(Vec::new())));
        // All segments have existed, and none is in use.
        fill(&wal, &hand, &number, &written);
        wal.recycle(wal.next_lsn());
        // No append waits: one at a time.
        hand.prepare();
        use_up(&wal, &number, &written);
        hand.prepare();
        assert_eq!(*folder.batches.lock(), [1, 1]);
        // Now the appends continue while segments are being renamed. Each of these moments is a possible power cut.
        let images = Arc::new(Mutex::new(Vec::new()));
        let (appends, noted, next) = (Arc::clone(&wal), Arc::clone(&written), Arc::clone(&number));
        let (disk, taken) = (folder.memory.clone(), Arc::clone(&images));
        *folder.before.lock() = Some(Box::new(move || {
            use_up(&appends, &next, &noted);
            let seed = taken.lock().len() as u64;
            taken
                .lock()
                .push((disk.kill(), disk.power_cut(seed), appends.durable_lsn()));
        }));
        for _ in 0..5 {
            use_up(&wal, &number, &written);
            hand.prepare();
            let mut durable = Box::pin(wal.durable(wal.next_lsn()));
            let mut cx = Context::from_waker(Waker::noop());
            assert!(durable.as_mut().poll(&mut cx).is_pending());
            while hand.sync() {}
            wait(durable).expect("durable");
            wal.recycle(wal.durable_lsn());
        }
        *folder.before.lock() = None;
        let batches = folder.batches.lock().clone();
        let most = batches.iter().max().copied().unwrap_or(0);
        assert!((2..=4).contains(&most), "{batches:?}");
        let written = written.lock().clone();
        let images = std::mem::take(&mut *images.lock());
        assert!(images.len() > 6);
        for (step, (killed, cut, durable)) in images.into_iter().enumerate() {
            for image in [killed, cut] {
                let recovery = scan(&image, durable);
                assert!(
                    !matches!(recovery.tail(), Tail::Damaged { .. }),
                    "step {step}"
                );
                let end = recovery.end();
                assert!(end >= durable, "step {step}");
                let wal = recovery.into_wal(options()).expect("opened");
                let more = append_many(&wal, 5000..5060, 900);
                wait(wal.durable(wal.next_lsn())).expect("durable");
                wal.abandon();
                let kept = written
                    .iter()
                    .filter(|(lsn, _)| (durable..end).contains(lsn))
                    .cloned();
                let expected: Vec<_> = kept.chain(more).collect();
                assert_eq!(
                    replay(&image.power_cut_losing_all(), durable),
                    expected,
                    "step {step}"
                );
            }
        }
    });
}

#[test]
fn files_of_which_only_some_were_renamed_are_all_used_again() {
    both(|| {
        let (folder, wal, hand) = open_by_hand();
        let (number, written) = (Arc::new(Mutex::new(0)), Mutex::new(Vec::new()));
        let appends = Arc::clone(&wal);
        let next = Arc::clone(&number);
        *folder.before.lock() = Some(Box::new(move || {
            use_up(&appends, &next, &Mutex::default());
        }));
        let names = |suffix| names(&folder.memory, suffix).len() as u64;
        for round in 0..6 {
            fill(&wal, &hand, &number, &written);
            assert_eq!(names(""), SEGMENTS, "round {round}");
            // None, one, two or three are renamed before the disk refuses.
            *folder.fails_after.lock() = Some(round % 4);
            wal.recycle(wal.next_lsn());
            hand.prepare();
            let refused = wal.shortage();
            assert!(refused.is_none_or(|why| why.contains("cannot reuse")));
            *folder.fails_after.lock() = None;
            wal.recycle(wal.next_lsn());
            hand.prepare();
            assert_eq!(wal.shortage(), None);
        }
        assert!(folder.batches.lock().iter().any(|files| *files > 1));
    });
}

#[test]
fn prepared_segments_and_spares_together_are_bounded() {
    both(|| {
        let (folder, wal, hand) = open_by_hand();
        let (number, written) = (Arc::new(Mutex::new(0)), Mutex::new(Vec::new()));
        let (appends, next) = (Arc::clone(&wal), Arc::clone(&number));
        *folder.before.lock() = Some(Box::new(move || {
            use_up(&appends, &next, &Mutex::default());
        }));
        for _ in 0..3 {
            fill(&wal, &hand, &number, &written);
            wal.recycle(wal.next_lsn());
            hand.prepare();
        }
        *folder.before.lock() = None;
        use_up(&wal, &number, &written);
        wal.recycle(wal.next_lsn());
        hand.prepare();
        // The current one, a quarter of the log, and a prepared one.
        assert!(names(&folder.memory, "").len() as u64 <= 1 + SEGMENTS / 4 + 1);
    });
}
