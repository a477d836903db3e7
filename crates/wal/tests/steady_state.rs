//! An append in the steady state allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use forebay_seal::{DataKeyId, DataKeys, Sealing, Secret, SystemEntropy};
use forebay_types::{Epoch, Lsn, VolumeId};
use forebay_wal::{AppendError, MemoryStorage, Options, RecordKind, Recovery, Wal};
use parking_lot::{Condvar, Mutex};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator; the counter neither allocates nor has a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the rules, which are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Appends, and returns the number of allocations that it took; waiting for a segment does not count.
fn append(wal: &Wal, payload: &[u8]) -> u64 {
    loop {
        let before = ALLOCATIONS.get();
        let appended = wal.append(RecordKind::Data, &[payload, b"end"]);
        let allocations = ALLOCATIONS.get() - before;
        match appended {
            Ok(_) => return allocations,
            Err(AppendError::Full) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn append_and_commit_with_nobody_waiting_allocate_nothing() {
    nothing_is_allocated(None);
}

#[test]
fn nor_does_an_append_to_a_sealed_log() {
    let key = (DataKeyId(1), Secret::draw(&SystemEntropy));
    nothing_is_allocated(Some(Sealing {
        keys: Arc::new(DataKeys::new(VolumeId([1; 16]), key, [])),
        entropy: Arc::new(SystemEntropy),
    }));
}

/// When a thread waits for a lock for the first time, something is allocated for that thread.
fn wait_once() {
    let lock = Mutex::new(());
    Condvar::new().wait_for(&mut lock.lock(), Duration::from_millis(1));
}

fn nothing_is_allocated(sealing: Option<Sealing>) {
    let volume = VolumeId([1; 16]);
    let options = Options {
        segment_bytes: 64 << 10,
        sealing,
        ..Options::new(volume, Epoch(1))
    };
    let storage = Arc::new(MemoryStorage::new());
    let recovery = Recovery::scan(storage, volume, Lsn::ZERO).expect("scanned");
    let wal = recovery.into_wal(options).expect("opened");
    wait_once();
    // One record that is copied under the log's lock, and one that is not.
    let payload = |turn: usize| &[7; 4000][..[500, 4000][turn % 2]];
    // The lists grow to their size, here over 16 segments.
    let warming: u64 = (0..16 * 28).map(|turn| append(&wal, payload(turn))).sum();
    assert!(warming > 0, "the counter does not count");
    wal.recycle(wal.next_lsn());
    // Twelve more segments, including their first records.
    let allocations: u64 = (0..12 * 28).map(|turn| append(&wal, payload(turn))).sum();
    assert_eq!(allocations, 0);
    wal.recycle(wal.next_lsn());
    let before = ALLOCATIONS.get();
    for _ in 0..100 {
        let durable = std::pin::pin!(wal.durable(wal.durable_lsn()));
        let complete = std::pin::pin!(wal.complete(wal.next_lsn()));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(durable.poll(&mut cx).is_ready() && complete.poll(&mut cx).is_ready());
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
}
