//! The log as a whole, over storage in memory. Grouped by what the tests prove.

mod commit;
mod concurrency;
mod crash;
mod cut;
mod damage;
mod failure;
mod inspect;
mod prepared;
mod reading;
mod round_trip;
mod sealed;
mod space;
mod write_back;

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use forebay_seal::{DataKeyId, DataKeys, Sealing, Secret, SystemEntropy};
use forebay_types::{Epoch, Lsn, VolumeId};

use crate::{
    Appended, LogKeys, MemoryStorage, Options, RecordKind, Recovery, Storage, Tail, Wal, WriterEnd,
};

const VOLUME: VolumeId = VolumeId([0x42; 16]);
const SEGMENT: u64 = 16 << 10;

thread_local! {
    /// Whether logs of this thread are sealed.
    static SEALED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a test with logs that are not sealed, and with logs that are and must be.
fn both(test: impl Fn()) {
    for sealed in [false, true] {
        SEALED.set(sealed);
        test();
    }
    SEALED.set(false);
}

/// The data keys of a volume. The key with number `current` seals.
fn data_keys(volume: VolumeId, current: u32) -> Arc<DataKeys> {
    let key = |id: u32| (DataKeyId(id), Secret::take(&mut [id as u8; 32]));
    Arc::new(DataKeys::new(volume, key(current), (1..current).map(key)))
}

fn sealing(current: u32) -> Sealing {
    Sealing {
        keys: data_keys(VOLUME, current),
        entropy: Arc::new(SystemEntropy),
    }
}

fn options() -> Options {
    Options {
        segment_bytes: SEGMENT,
        limit_bytes: 64 * SEGMENT,
        sealing: SEALED.get().then(|| sealing(1)),
        ..Options::new(VOLUME, Epoch(1))
    }
}

fn scan_at(storage: &MemoryStorage, from: Lsn, ending: WriterEnd) -> Recovery {
    let keys = match SEALED.get() {
        true => LogKeys::Required(data_keys(VOLUME, 1)),
        false => LogKeys::None,
    };
    let shared = Arc::new(storage.clone());
    Recovery::scan_with(shared, VOLUME, from, ending, keys).expect("a log that can be scanned")
}

fn scan(storage: &MemoryStorage, from: Lsn) -> Recovery {
    scan_at(storage, from, WriterEnd::PowerCut)
}

fn ended(storage: &MemoryStorage, ending: WriterEnd) -> Recovery {
    scan_at(storage, Lsn::ZERO, ending)
}

/// Bytes that a record with a payload of this size occupies in the log.
fn record_size(payload: usize) -> u64 {
    let tag = if SEALED.get() { 16 } else { 0 };
    (32 + payload as u64 + tag).next_multiple_of(8)
}

fn open_with(storage: &MemoryStorage, from: Lsn, options: Options) -> Wal {
    scan(storage, from)
        .into_wal(options)
        .expect("a log that can be opened")
}

fn open(storage: &MemoryStorage) -> Wal {
    open_with(storage, Lsn::ZERO, options())
}

/// LSN and payload of every record from `from` on.
fn replay(storage: &MemoryStorage, from: Lsn) -> Vec<(Lsn, Vec<u8>)> {
    records(&mut scan(storage, from))
}

fn records(recovery: &mut Recovery) -> Vec<(Lsn, Vec<u8>)> {
    let mut records = Vec::new();
    while let Some(record) = recovery.next().expect("readable") {
        records.push((record.lsn, record.payload.to_vec()));
    }
    records
}

/// The storage after a power cut before the kernel wrote the page with the log's position.
fn without_position(storage: &MemoryStorage) -> MemoryStorage {
    let image = storage.kill();
    image
        .remove(crate::position::POSITION_FILE)
        .expect("there is one");
    image
}

/// A recognisable payload: `number`, repeated, in bytes that are hardly ever zero.
fn payload(number: u64, bytes: usize) -> Vec<u8> {
    let pattern = number.to_le_bytes().map(|byte| byte ^ 0xa5);
    pattern.into_iter().cycle().take(bytes).collect()
}

fn append(wal: &Wal, payload: &[u8]) -> Appended {
    loop {
        match wal.append(RecordKind::Data, &[payload]) {
            Ok(appended) => return appended,
            Err(crate::AppendError::Full) => {
                wait(wal.room(payload.len() as u64)).expect("room");
            }
            Err(error) => panic!("append: {error}"),
        }
    }
}

/// Appends, and returns the records that replay should yield.
fn append_many(wal: &Wal, numbers: std::ops::Range<u64>, bytes: usize) -> Vec<(Lsn, Vec<u8>)> {
    let one = |number| {
        let payload = payload(number, bytes);
        (append(wal, &payload).lsn, payload)
    };
    numbers.map(one).collect()
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to completion, which must take no longer than some seconds.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    for _ in 0..1000 {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    panic!("a waiter was not woken");
}

/// Whether a future is ready at once.
fn is_ready(future: impl Future) -> bool {
    pin!(future)
        .poll(&mut Context::from_waker(Waker::noop()))
        .is_ready()
}

fn names(storage: &MemoryStorage, suffix: &str) -> Vec<String> {
    let mut names = storage.list().expect("listed");
    names.retain(|name| name.ends_with(suffix));
    names.sort();
    names
}

/// Waits until a thread of the log has made the condition true.
pub(crate) fn eventually(mut condition: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("it never happened");
}
