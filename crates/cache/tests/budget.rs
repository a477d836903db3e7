//! Memory: the counted bytes, the cost of small files, and the order of eviction.

use forebay_cache::{Cache, Eviction, FileBlocks};
use forebay_metrics::{Samples, Source};
use forebay_types::{BLOCK_SIZE, BlockIndex, BlockKey, CheckpointId, Inode, Lsn};
use std::sync::Arc;

const FIRST: CheckpointId = CheckpointId(1);
const SECOND: CheckpointId = CheckpointId(2);

fn file(cache: &Arc<Cache>, inode: u64) -> FileBlocks {
    FileBlocks::new(Inode(inode), Arc::clone(cache))
}

fn key(inode: u64, block: u64) -> BlockKey {
    BlockKey {
        inode: Inode(inode),
        block: BlockIndex(block),
    }
}

/// Evicts until nothing is left, like an evictor, and returns the order of the evicted blocks.
fn evict_all(cache: &Cache, file: &mut FileBlocks) -> Vec<u64> {
    let mut gone = Vec::new();
    while let Some(key) = cache.coldest() {
        if let Eviction::Evicted(_) = file.evict(key.block) {
            gone.push(key.block.0);
        }
    }
    gone
}

#[test]
fn ten_thousand_small_files_cost_ten_thousand_small_pieces() {
    let cache = Cache::new(1 << 30);
    let mut files: Vec<_> = (0..10_000).map(|inode| file(&cache, inode)).collect();
    for file in &mut files {
        file.write(0, &[1; 1_717], FIRST, None);
    }
    assert_eq!(cache.piece_bytes(), 10_000 * 4096);
    let overhead = cache.allocated_bytes() - cache.piece_bytes();
    assert!(overhead < 10_000 * 1024, "{overhead} bytes of overhead");
}

#[test]
fn a_lone_random_write_costs_4_kib() {
    let cache = Cache::new(1 << 30);
    let mut file = file(&cache, 1);
    for block in 0..8 {
        file.write(block * BLOCK_SIZE + (77 << 12), &[1; 4096], FIRST, None);
    }
    assert_eq!(cache.piece_bytes(), 8 * 4096);
}

#[test]
fn the_least_recently_used_block_goes_first_whatever_used_it() {
    let cache = Cache::new(1 << 30);
    let mut file = file(&cache, 1);
    for block in 0..6 {
        file.fill(block * BLOCK_SIZE, &[1; 10]);
    }
    file.read(
        2 * BLOCK_SIZE,
        &mut [0; 5],
        &mut Vec::new(),
        &mut Vec::new(),
    );
    file.fill(0, &[1; 10]);
    file.write(4 * BLOCK_SIZE, &[2; 10], FIRST, None);
    file.published(FIRST);
    file.read(BLOCK_SIZE, &mut [0; 5], &mut Vec::new(), &mut Vec::new());
    assert_eq!(evict_all(&cache, &mut file), [3, 5, 2, 0, 4, 1]);
    assert!(file.is_empty());
}

#[test]
fn a_block_used_since_it_was_queued_is_put_back_in_its_place() {
    let cache = Cache::new(1 << 30);
    let mut file = file(&cache, 1);
    file.fill(0, &[1; 10]);
    file.fill(BLOCK_SIZE, &[1; 10]);
    file.read(0, &mut [0; 5], &mut Vec::new(), &mut Vec::new());
    assert_eq!(cache.coldest(), Some(key(1, 0)));
    assert_eq!(file.evict(BlockIndex(0)), Eviction::Touched);
    assert_eq!(cache.coldest(), Some(key(1, 1)));
    assert!(matches!(file.evict(BlockIndex(1)), Eviction::Evicted(_)));
    assert_eq!(file.evict(BlockIndex(1)), Eviction::Absent);
}

#[test]
fn dirty_blocks_are_never_evicted_and_queue_when_published() {
    let cache = Cache::new(1 << 30);
    let mut file = file(&cache, 1);
    file.write(0, &[1; 10], FIRST, None);
    assert_eq!(cache.coldest(), None);
    assert_eq!(file.evict(BlockIndex(0)), Eviction::Busy);
    file.write(0, &[2; 10], SECOND, None);
    file.published(FIRST);
    assert_eq!(file.evict(BlockIndex(0)), Eviction::Busy);
    file.published(SECOND);
    assert_eq!(evict_all(&cache, &mut file), [0]);
}

#[test]
fn a_clean_block_that_is_dirtied_while_it_waits_stays() {
    let cache = Cache::new(1 << 30);
    let mut file = file(&cache, 1);
    file.fill(0, &[1; 10]);
    file.write(3, &[2; 2], FIRST, None);
    assert_eq!(evict_all(&cache, &mut file), []);
    file.published(FIRST);
    assert_eq!(evict_all(&cache, &mut file), [0]);
}

#[test]
fn memory_that_an_image_holds_is_not_evicted_in_vain() {
    let cache = Cache::new(1 << 30);
    let mut file = file(&cache, 1);
    file.write(0, &[1; 10], FIRST, None);
    let image = file.image(BlockIndex(0), FIRST);
    file.published(FIRST);
    let coldest = cache.coldest().unwrap();
    assert_eq!(file.evict(coldest.block), Eviction::Busy);
    assert_eq!(cache.candidates(), 1, "queued again");
    drop(image);
    assert_eq!(evict_all(&cache, &mut file), [0]);
}

#[test]
fn an_eviction_reports_what_it_gave_back() {
    let cache = Cache::new(1 << 30);
    let mut file = file(&cache, 1);
    file.fill(0, &[1; 100_000]);
    let before = cache.allocated_bytes();
    assert_eq!(file.allocated_bytes(), before);
    assert_eq!(file.evict(BlockIndex(0)), Eviction::Evicted(before));
    let samples = Samples::of([&*cache as &dyn Source]);
    let number = |name| samples.number(name, &["memory"]);
    assert_eq!(number("evictions"), Some(1.0));
    assert_eq!(number("evicted_bytes"), Some(before as f64));
    assert_eq!(cache.allocated_bytes(), 0);
}

#[test]
fn files_that_come_and_go_leave_nothing_in_the_order_of_use() {
    let cache = Cache::new(1 << 30);
    for inode in 0..100 {
        let mut file = file(&cache, inode);
        file.fill(0, &[1; 10]);
        if inode % 2 == 0 {
            file.clear(FIRST);
        }
    }
    assert_eq!(cache.candidates(), 0);
    assert_eq!(cache.coldest(), None);
}

#[test]
fn room_counts_what_is_allocated_and_takes_idle_memory_back() {
    let cache = Cache::new(1 << 20);
    let mut file = file(&cache, 1);
    file.write(0, &[1; 512 << 10], FIRST, None);
    assert!(cache.has_room(400 << 10));
    assert!(!cache.has_room(512 << 10), "overhead counts too");
    file.clear(FIRST);
    assert_eq!(cache.pooled_bytes(), 512 << 10);
    assert!(cache.has_room(1 << 20));
    assert_eq!(cache.pooled_bytes(), 0);
    assert!(!cache.has_room((1 << 20) + 1));
    assert!(!cache.has_room(u64::MAX));
}

#[test]
fn records_are_noted_in_a_quarter_of_the_budget_at_most() {
    let cache = Cache::new(1 << 20);
    let mut file = file(&cache, 1);
    // Four times as many extents as fit.
    for write in 0..1 << 16 {
        let at = write % 8 * BLOCK_SIZE + write / 8 * 2;
        file.write(at, &[1], FIRST, Some(Lsn(write)));
    }
    let most = cache.index_bytes();
    assert!(most >= 1 << 18, "{most} bytes");
    assert!(most <= 1 << 19, "{most} bytes: vectors double");
    file.clear(FIRST);
    assert_eq!(cache.index_bytes(), 0);
    assert_eq!(cache.allocated_bytes(), 0);
}

#[test]
fn accounts_return_to_zero_when_all_is_dropped() {
    let cache = Cache::new(1 << 30);
    let mut files: Vec<_> = (0..10).map(|inode| file(&cache, inode)).collect();
    let mut images = Vec::new();
    for (seed, file) in files.iter_mut().enumerate() {
        let at = seed as u64 * 99_991;
        file.write(at, &vec![1; 300_000], FIRST, None);
        file.write(at + 12_345, &[2; 17], SECOND, None);
        file.fill(at + BLOCK_SIZE - 100, &[3; 200]);
        images.push(file.image(BlockIndex(0), FIRST).unwrap());
        file.truncate(at + 200_001, SECOND);
    }
    assert!(cache.dirty_bytes() > 0);
    drop(files);
    assert_eq!(cache.dirty_bytes(), 0);
    assert_eq!(cache.candidates(), 0);
    assert_eq!(cache.allocated_bytes(), cache.piece_bytes());
    assert!(cache.piece_bytes() > 0, "images hold theirs");
    drop(images);
    assert_eq!(cache.allocated_bytes(), 0);
    cache.trim();
    assert_eq!(cache.pooled_bytes(), 0);
}

#[test]
fn offsets_at_the_end_of_the_number_range_work() {
    let cache = Cache::new(1 << 30);
    let mut file = file(&cache, 1);
    let offset = u64::MAX - 10;
    file.write(offset, &[1; 10], FIRST, None);
    let mut out = [0; 10];
    let mut missing = Vec::new();
    file.read(offset, &mut out, &mut missing, &mut Vec::new());
    assert_eq!((out, missing), ([1; 10], vec![]));
    file.truncate(u64::MAX, FIRST);
    assert_eq!(file.dirty_bytes(), 10);
}
