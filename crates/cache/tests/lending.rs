//! Bytes that are lent to readers without a copy.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

use forebay_cache::{Cache, Eviction, FileBlocks};
use forebay_types::{BLOCK_SIZE, BlockIndex, ByteRange, CheckpointId, Inode, Lent, Pieces};
use std::sync::Arc;

const FIRST: CheckpointId = CheckpointId(1);
const PIECE: u64 = 64 << 10;
const BLOCK: BlockIndex = BlockIndex(0);

fn file() -> (Arc<Cache>, FileBlocks) {
    let cache = Cache::new(64 << 20);
    let file = FileBlocks::new(Inode(1), Arc::clone(&cache));
    (cache, file)
}

fn bytes(seed: u64, len: u64) -> Vec<u8> {
    (0..len)
        .map(|at| ((at * 31 + at / 251 + seed) % 253) as u8)
        .collect()
}

fn joined(lent: &[Lent]) -> Vec<u8> {
    lent.concat()
}

#[test]
fn lent_bytes_are_those_of_the_file_whatever_the_range() {
    let (_, mut file) = file();
    let data = bytes(1, 3 << 20);
    let start = BLOCK_SIZE - (2 << 20);
    file.write(start, &data, FIRST, None);
    for (from, to) in [
        (0, 3 << 20),
        (1, 2),
        (0, 4096),
        (4095, 4097),
        (PIECE - 1, PIECE + 1),
        (PIECE, 2 * PIECE),
        ((2 << 20) - 1, (2 << 20) + 1),
        (100_000, 1_900_000),
        (700_001, 3 << 20),
    ] {
        let lent = file.lend(ByteRange::new(start + from, start + to)).unwrap();
        assert_eq!(joined(&lent), data[from as usize..to as usize]);
        assert!(lent.iter().all(|part| !part.is_empty()));
    }
    assert_eq!(file.lend(ByteRange::new(7, 7)).unwrap(), Pieces::default());
}

#[test]
fn nothing_is_lent_of_a_range_that_is_not_all_there() {
    let (_, mut file) = file();
    file.write(0, &bytes(1, PIECE), FIRST, None);
    file.write(PIECE + 1, &bytes(2, PIECE), FIRST, None);
    assert!(file.lend(ByteRange::new(0, PIECE)).is_some());
    assert!(file.lend(ByteRange::new(0, PIECE + 1)).is_none());
    assert!(file.lend(ByteRange::new(PIECE, PIECE + 2)).is_none());
    assert!(
        file.lend(ByteRange::new(BLOCK_SIZE, BLOCK_SIZE + 1))
            .is_none()
    );
    file.truncate(100, FIRST);
    assert!(file.lend(ByteRange::new(0, 101)).is_none());
}

#[test]
fn what_a_reader_has_stays_as_it_is_and_costs_a_writer_one_copy() {
    let (cache, mut file) = file();
    let data = bytes(1, 2 * PIECE);
    file.write(0, &data, FIRST, None);
    let lent = file.lend(ByteRange::new(0, 2 * PIECE)).unwrap();
    file.write(10, &[255; 20], FIRST, None);
    file.write(40, &[255; 20], FIRST, None);
    file.truncate(50, FIRST);
    assert_eq!(joined(&lent), data);
    assert_eq!(cache.copied_pieces(), 1);
    drop(file);
    assert_eq!(joined(&lent), data);
}

#[test]
fn what_is_lent_counts_as_allocated_and_is_not_evicted_until_it_is_dropped() {
    let (cache, mut file) = file();
    file.fill(0, &bytes(1, PIECE));
    let lent = file.lend(ByteRange::new(0, PIECE)).unwrap();
    assert_eq!(cache.piece_bytes(), PIECE, "it is shared, not copied");
    assert_eq!(file.evict(BLOCK), Eviction::Busy);
    file.truncate(0, FIRST);
    assert_eq!(cache.piece_bytes(), PIECE, "its reader has it");
    drop(lent);
    assert_eq!(cache.piece_bytes(), 0);
}

#[test]
fn a_reader_of_little_keeps_no_large_piece() {
    let (_, mut file) = file();
    let data = bytes(1, PIECE);
    file.fill(0, &data);
    let lent = file.lend(ByteRange::new(8192, 8192 + 4096)).unwrap();
    assert_eq!(file.evict(BLOCK), Eviction::Touched, "reading is a use");
    assert!(matches!(file.evict(BLOCK), Eviction::Evicted(_)));
    assert_eq!(joined(&lent), data[8192..8192 + 4096]);
}
