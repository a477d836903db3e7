//! Actual heap use, counted by an allocator, separately for each thread, because the test harness allocates as well.

use forebay_cache::{Cache, FileBlocks};
use forebay_types::{BLOCK_SIZE, BlockIndex, ByteRange, CheckpointId, Inode, Lsn};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

struct Counting;

thread_local! {
    // Constants without a destructor: using them in the allocator never allocates.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BUFFER_BYTES: Cell<u64> = const { Cell::new(0) };
}

/// Buffers of pieces are the only byte-aligned allocations of exactly these sizes in this test.
fn is_buffer(layout: Layout) -> bool {
    layout.align() == 1 && matches!(layout.size(), 4096 | 16384 | 65536)
}

// SAFETY: every call goes to the system allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        if is_buffer(layout) {
            BUFFER_BYTES.set(BUFFER_BYTES.get().wrapping_add(layout.size() as u64));
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if is_buffer(layout) {
            BUFFER_BYTES.set(BUFFER_BYTES.get().wrapping_sub(layout.size() as u64));
        }
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

const FIRST: CheckpointId = CheckpointId(1);
const SECOND: CheckpointId = CheckpointId(2);

#[test]
fn steady_overwrites_and_reads_allocate_nothing_and_pieces_are_counted_exactly() {
    steady_overwrites(false);
}

#[test]
fn steady_overwrites_allocate_nothing_for_the_positions_of_their_records() {
    steady_overwrites(true);
}

/// Overwrites that the log has, or that it does not have.
fn steady_overwrites(has_log: bool) {
    let cache = Cache::new(64 << 20);
    let mut file = FileBlocks::new(Inode(1), Arc::clone(&cache));
    let data = vec![7; 1_000_001];
    let mut out = vec![0; 1_000_001];
    let mut missing = Vec::new();
    let counted = || {
        (
            cache.piece_bytes() + cache.pooled_bytes(),
            BUFFER_BYTES.get(),
        )
    };
    let record = |number| has_log.then_some(Lsn(number));

    file.write(BLOCK_SIZE - 500_000, &data, FIRST, record(1));
    let before = ALLOCATIONS.get();
    for round in 0..100 {
        let at = BLOCK_SIZE - 500_000;
        file.write(at, &data, FIRST, record(2 * round + 2));
        let at = BLOCK_SIZE - 400_000 + round * 4_097;
        file.write(at, &data[..32_768], FIRST, record(2 * round + 3));
        file.read(
            BLOCK_SIZE - 500_000,
            &mut out,
            &mut missing,
            &mut Vec::new(),
        );
        assert!(file.is_covered(ByteRange::at(BLOCK_SIZE - 1, 2)));
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert!(missing.is_empty() && out == data);
    assert_eq!(cache.index_bytes() > 0, has_log);

    let (accounted, real) = counted();
    assert_eq!(accounted, real);
    let image = file.image(BlockIndex(0), FIRST);
    file.write(BLOCK_SIZE - 70_000, &data, SECOND, record(1000));
    file.write(17, b"small", SECOND, record(1001));
    let (accounted, real) = counted();
    assert_eq!(accounted, real, "with copies on write");
    file.truncate(100, SECOND);
    drop(image);
    let (accounted, real) = counted();
    assert_eq!(accounted, real, "with idle buffers");
    drop(file);
    cache.trim();
    assert_eq!(counted(), (0, 0));
    assert_eq!(cache.index_bytes(), 0);
}

#[test]
fn lending_allocates_nothing() {
    let cache = Cache::new(64 << 20);
    let mut file = FileBlocks::new(Inode(1), Arc::clone(&cache));
    file.write(0, &vec![7; 1 << 20], FIRST, None);
    let read = |file: &mut FileBlocks| {
        let lent = file.lend(ByteRange::new(0, 1 << 20));
        assert_eq!(lent.map(|lent| lent.len()), Some(16));
    };
    // Each thread keeps the memory of its lists: let it allocate them first.
    read(&mut file);
    let (before, buffers) = (ALLOCATIONS.get(), BUFFER_BYTES.get());
    for _ in 0..100 {
        read(&mut file);
    }
    assert_eq!(ALLOCATIONS.get(), before);
    assert_eq!(BUFFER_BYTES.get(), buffers);
}
