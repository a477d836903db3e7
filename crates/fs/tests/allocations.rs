//! That reads and writes of what is in memory, and commits of nothing, allocate nothing in a whole volume: counted for the
//! caller's thread, as others work for uploads and for the log meanwhile.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use bytes::Bytes;
use forebay_fs::{FsConfig, Volume};
use forebay_object::StoreOptions;
use forebay_types::Inode;
use forebay_vfs::{CreateMode, Credentials, FileSystem, SetAttributes, Stability};

struct Counting;

thread_local! {
    // Constant, and nothing to drop: using it in the allocator never allocates.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: every call goes to the system allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

const FILE_BYTES: u64 = 8 << 20;
const CALL_BYTES: u64 = 4096;
const CALLS: u64 = 2000;

/// Allocations of this thread in as many calls, of which the first tenth is not counted.
async fn allocations(mut call: impl AsyncFnMut(u64)) -> u64 {
    for turn in 0..CALLS / 10 {
        call(turn).await;
    }
    let before = ALLOCATIONS.get();
    for turn in 0..CALLS {
        call(turn).await;
    }
    ALLOCATIONS.get() - before
}

/// Offsets all over the file.
fn offset(turn: u64) -> u64 {
    turn * 7919 % (FILE_BYTES / CALL_BYTES) * CALL_BYTES
}

#[tokio::test]
async fn reads_and_writes_of_what_is_in_memory_allocate_nothing() {
    let options = StoreOptions::default();
    let store = forebay_object::open("memory://", &options).await.unwrap();
    let local = tempfile::tempdir().unwrap();
    let config = FsConfig::new(local.path().to_owned());
    Volume::format_as(&store, &config.expected).await.unwrap();
    let volume = Volume::open(&store, config).await.unwrap();
    let who = Credentials {
        groups: [4, 24, 27, 100, 1000].as_slice().into(),
        ..Credentials::default()
    };
    let mode = CreateMode::Unchecked(SetAttributes::default());
    let created = volume.create(&who, Inode::ROOT, b"file", &mode).await;
    let file = created.unwrap().attributes.inode;
    let filling = vec![7; FILE_BYTES as usize];
    let written = volume.write(&who, file, 0, &filling, Stability::FileSync);
    written.await.unwrap();

    let data = &filling[..CALL_BYTES as usize];
    let writes = allocations(async |turn| {
        let written = volume.write(&who, file, offset(turn), data, Stability::Unstable);
        assert_eq!(written.await.unwrap().count, CALL_BYTES as u32);
    });
    let writes = writes.await;
    let reads = allocations(async |turn| {
        let read = volume.read(&who, file, offset(turn), CALL_BYTES as u32);
        let read = read.await.unwrap().data;
        assert_eq!(
            read.iter().map(Bytes::len).sum::<usize>(),
            CALL_BYTES as usize
        );
    });
    let reads = reads.await;
    let committed = volume.commit(&who, file, 0, 0).await;
    committed.unwrap();
    let commits = allocations(async |_| {
        volume.commit(&who, file, 0, 0).await.unwrap();
    });
    let commits = commits.await;
    volume.close(Duration::from_secs(60)).await;
    assert_eq!((writes, reads, commits), (0, 0, 0));
}
