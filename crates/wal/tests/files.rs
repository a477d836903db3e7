//! The log over real files, through its public interface.

use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use forebay_types::{Epoch, Lsn, VolumeId};
use forebay_wal::{
    AppendError, FileStorage, Options, RecordKind, Recovery, Storage, Wal, WriteBack,
};

const VOLUME: VolumeId = VolumeId([3; 16]);
/// Marks a process as the child of a test, and names the folder to use.
const CHILD: &str = "FOREBAY_WAL_TEST_CHILD";

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        std::thread::park();
    }
}

fn options() -> Options {
    Options {
        segment_bytes: 1 << 20,
        limit_bytes: 8 << 20,
        ..Options::new(VOLUME, Epoch(1))
    }
}

fn open(storage: &Arc<dyn Storage>, from: Lsn) -> Wal {
    let recovery = Recovery::scan(Arc::clone(storage), VOLUME, from).expect("scanned");
    recovery.into_wal(options()).expect("opened")
}

fn storage(path: &std::path::Path) -> Arc<dyn Storage> {
    Arc::new(FileStorage::open(path).expect("opened"))
}

fn append_many(wal: &Wal, numbers: std::ops::Range<u64>) {
    for number in numbers {
        wait(wal.room(8 * 4096)).expect("room");
        wal.append(RecordKind::Data, &[&number.to_le_bytes().repeat(4096)])
            .expect("room");
    }
}

/// The number in each record, which fills it completely.
fn numbers(storage: &Arc<dyn Storage>, from: Lsn) -> Vec<u64> {
    let mut recovery = Recovery::scan(Arc::clone(storage), VOLUME, from).expect("scanned");
    let mut found = Vec::new();
    while let Some(record) = recovery.next().expect("readable") {
        let number = record.payload.first_chunk().expect("eight bytes");
        assert_eq!(record.payload, number.repeat(4096));
        found.push(u64::from_le_bytes(*number));
    }
    found
}

/// Runs one test of this file in a process of its own; returns its output.
fn run_child(test: &str, folder: &std::path::Path) -> std::process::Output {
    Command::new(std::env::current_exe().expect("this program"))
        .args([test, "--exact", "--nocapture"])
        .env(CHILD, folder)
        .output()
        .expect("started")
}

#[test]
fn records_survive_recycling_and_reopening_of_files() {
    let folder = tempfile::tempdir().expect("folder");
    let storage = storage(folder.path());
    let wal = open(&storage, Lsn::ZERO);
    for round in 0..6 {
        append_many(&wal, round * 100..round * 100 + 100);
        wait(wal.durable(wal.next_lsn())).expect("durable");
        wal.recycle(wal.next_lsn());
    }
    let published = wal.next_lsn();
    append_many(&wal, 1000..1050);
    wal.close().expect("flushed");
    drop(wal);
    assert_eq!(
        numbers(&storage, published),
        (1000..1050).collect::<Vec<_>>()
    );
    let bytes: u64 = std::fs::read_dir(folder.path())
        .expect("listed")
        .map(|entry| {
            entry
                .and_then(|entry| entry.metadata())
                .expect("file")
                .len()
        })
        .sum();
    assert!(bytes <= 8 << 20);
}

#[test]
fn a_killed_process_loses_nothing() {
    if let Some(folder) = std::env::var_os(CHILD) {
        let wal = open(&storage(folder.as_ref()), Lsn::ZERO);
        append_many(&wal, 0..120);
        // Ends without unwinding, flushing or closing anything.
        std::process::abort();
    }
    let folder = tempfile::tempdir().expect("folder");
    assert!(
        !run_child("a_killed_process_loses_nothing", folder.path())
            .status
            .success()
    );
    let storage = storage(folder.path());
    assert_eq!(numbers(&storage, Lsn::ZERO), (0..120).collect::<Vec<_>>());
    let wal = open(&storage, Lsn::ZERO);
    append_many(&wal, 120..130);
    wal.close().expect("flushed");
    assert_eq!(numbers(&storage, Lsn::ZERO), (0..130).collect::<Vec<_>>());
}

/// Records of many lengths: a flush covers part of a page, or many pages.
fn uneven(number: u64) -> Vec<u8> {
    let mut payload = number.to_le_bytes().repeat(4000);
    payload.truncate(8 + (number * 3701 % 31_000) as usize);
    payload
}

#[test]
fn what_is_appended_while_other_records_are_flushed_is_in_the_files() {
    const TEST: &str = "what_is_appended_while_other_records_are_flushed_is_in_the_files";
    if let Some(folder) = std::env::var_os(CHILD) {
        let wal = open(&storage(folder.as_ref()), Lsn::ZERO);
        let append = |number: u64| loop {
            match wal.append(RecordKind::Data, &[&uneven(number)]) {
                Err(AppendError::Full) => wait(wal.room(32 << 10)).expect("room"),
                outcome => break outcome.expect("appended"),
            }
        };
        let append_some = |first: u64| {
            for number in (first..400).step_by(4) {
                let appended = append(number);
                if number % 3 == 0 {
                    wait(wal.durable(appended.end)).expect("durable");
                }
            }
        };
        std::thread::scope(|scope| {
            for first in 0..4 {
                scope.spawn(move || append_some(first));
            }
        });
        std::fs::write(Path::new(&folder).with_extension("done"), "").expect("written");
        // Ends without unwinding, flushing or closing anything.
        std::process::abort();
    }
    let folder = tempfile::tempdir().expect("folder");
    let log = folder.path().join("log");
    let child = run_child(TEST, &log);
    assert!(log.with_extension("done").exists(), "{child:?}");
    let mut recovery = Recovery::scan(storage(&log), VOLUME, Lsn::ZERO).expect("scanned");
    let mut found = Vec::new();
    while let Some(record) = recovery.next().expect("readable") {
        let number = u64::from_le_bytes(*record.payload.first_chunk().expect("eight bytes"));
        assert!(record.payload == uneven(number), "{number}");
        found.push(number);
    }
    found.sort_unstable();
    assert!(found.into_iter().eq(0..400));
}

/// Fills several segments of a log in this folder, all of it written back before it is flushed. Returns the log.
fn written_back(storage: &Arc<dyn Storage>) -> Wal {
    let recovery = Recovery::scan(Arc::clone(storage), VOLUME, Lsn::ZERO).expect("scanned");
    let options = Options {
        write_back: WriteBack::Early(256 << 10),
        ..options()
    };
    let (wal, hand) = recovery.into_wal_by_hand(options).expect("opened");
    for number in 0..120 {
        hand.prepare();
        append_many(&wal, number..number + 1);
        while hand.write_back() {}
    }
    let mut durable = pin!(wal.durable(wal.next_lsn()));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(durable.as_mut().poll(&mut cx).is_pending());
    while hand.sync() {}
    assert!(durable.as_mut().poll(&mut cx).is_ready());
    assert_eq!(wal.failure(), None);
    wal
}

#[test]
fn records_that_are_written_back_before_their_flush_are_in_the_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = storage(folder.path());
    drop(written_back(&storage));
    assert_eq!(numbers(&storage, Lsn::ZERO), (0..120).collect::<Vec<_>>());
}

#[test]
fn a_log_in_memory_is_not_written_back() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    let storage = storage(&folder.path().join("log"));
    assert_eq!(written_back(&storage).stats().write_backs, 0);
    assert_eq!(numbers(&storage, Lsn::ZERO), (0..120).collect::<Vec<_>>());
}

#[test]
fn a_second_process_is_refused() {
    if let Some(folder) = std::env::var_os(CHILD) {
        let error = FileStorage::open(&folder).expect_err("refused");
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
        assert!(
            error.to_string().contains("in use by another process"),
            "{error}"
        );
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let held = FileStorage::open(folder.path()).expect("opened");
    assert!(FileStorage::open(folder.path()).is_err());
    let child = run_child("a_second_process_is_refused", folder.path());
    assert!(
        child.status.success(),
        "{}",
        String::from_utf8_lossy(&child.stderr)
    );
    drop(held);
    FileStorage::open(folder.path()).expect("free again");
}

#[test]
fn a_file_that_cannot_have_its_space_is_not_left_behind() {
    let folder = tempfile::tempdir().expect("folder");
    let storage = FileStorage::open(folder.path()).expect("opened");
    assert!(storage.create("0000000000000001.seg", 1 << 60).is_err());
    assert_eq!(storage.list().expect("listed"), Vec::<String>::new());
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let file = tempfile::NamedTempFile::new().expect("file");
    let error = FileStorage::open(file.path().join("log")).expect_err("refused");
    assert!(error.to_string().contains("log folder"), "{error}");
}

#[test]
fn a_flush_to_a_file_that_was_removed_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = storage(folder.path());
    let wal = open(&storage, Lsn::ZERO);
    append_many(&wal, 0..1);
    wait(wal.durable(wal.next_lsn())).expect("durable");
    for file in std::fs::read_dir(folder.path()).expect("listed") {
        match std::fs::remove_file(file.expect("listed").path()) {
            // A spare segment that is being prepared: it gets its name when it is complete.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            removed => removed.expect("removed"),
        }
    }
    append_many(&wal, 1..2);
    let failed = wait(wal.durable(wal.next_lsn()))
        .expect_err("records that cannot be found again are not stable");
    assert!(failed.reason.contains("was removed"), "{failed}");
    wal.restart(wal.next_lsn()).expect("restarted");
    append_many(&wal, 2..3);
    wait(wal.durable(wal.next_lsn())).expect("durable");
}

#[test]
fn every_byte_of_a_new_segment_has_its_space() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = 3 << 20;
    storage(folder.path()).create("a", bytes).expect("created");
    let made = std::fs::metadata(folder.path().join("a")).expect("there");
    assert_eq!(made.len(), bytes);
    assert!(made.blocks() * 512 >= bytes, "{} blocks", made.blocks());
}

/// Number of page faults of this thread, including those in the kernel on its behalf.
fn faults() -> u64 {
    let told = std::fs::read_to_string("/proc/thread-self/stat").expect("readable");
    // Behind the program's name, which may contain any character: state, seven numbers, faults.
    let (_, numbers) = told.rsplit_once(')').expect("a name");
    let faults = numbers.split_whitespace().nth(7).expect("faults");
    faults.parse().expect("a number")
}

#[test]
fn a_log_in_memory_is_faulted_in_once() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    let storage = storage(&folder.path().join("log"));
    let recovery = Recovery::scan(Arc::clone(&storage), VOLUME, Lsn::ZERO).expect("scanned");
    let options = Options {
        limit_bytes: 32 << 20,
        ..options()
    };
    let (wal, hand) = recovery.into_wal_by_hand(options).expect("opened");
    // Fewer segments than are kept. All of them are filled and flushed, and only then reused.
    let (segments, pages) = (6, 6 * 256);
    let fill = || {
        let before = faults();
        let from = wal.next_lsn();
        for number in 0..segments * 31 {
            hand.prepare();
            append_many(&wal, number..number + 1);
        }
        let mut durable = pin!(wal.durable(wal.next_lsn()));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(durable.as_mut().poll(&mut cx).is_pending());
        while hand.sync() {}
        assert!(durable.as_mut().poll(&mut cx).is_ready());
        assert_eq!(
            numbers(&storage, from),
            (0..segments * 31).collect::<Vec<_>>()
        );
        wal.recycle(wal.next_lsn());
        faults() - before
    };
    assert!(fill() >= pages, "the counter does not count");
    let later: Vec<_> = (0..4).map(|_| fill()).collect();
    assert!(later.iter().all(|faults| *faults < pages / 4), "{later:?}");
}
