//! Pieces that share the memory in which their bytes arrived.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

use bytes::Bytes;
use forebay_cache::{Arrived, Cache, Eviction, FileBlocks};
use forebay_types::{BLOCK_SIZE, BlockIndex, ByteRange, CheckpointId, Inode};
use std::sync::Arc;

const FIRST: CheckpointId = CheckpointId(1);
const PIECE: u64 = 64 << 10;
const HEADER: usize = 100;

fn file() -> (Arc<Cache>, FileBlocks) {
    let cache = Cache::new(64 << 20);
    let file = FileBlocks::new(Inode(1), Arc::clone(&cache));
    (cache, file)
}

/// Memory in which a header and `len` bytes arrived, and these bytes.
fn arrived(len: u64) -> (Bytes, Arrived) {
    let memory: Vec<u8> = (0..HEADER as u64 + len)
        .map(|at| (at % 253) as u8)
        .collect();
    let memory = Bytes::from(memory);
    let arrived = Arrived::new(memory.clone());
    let data = arrived.slice(HEADER..memory.len());
    (memory.slice(HEADER..), data)
}

fn content(file: &mut FileBlocks, range: ByteRange) -> Vec<u8> {
    file.lend(range).unwrap().concat()
}

#[test]
fn what_arrived_is_not_copied_and_counts_until_the_last_of_it_is_gone() {
    let (cache, mut file) = file();
    let (data, arrived) = arrived(4 * PIECE);
    file.take_over(0, &arrived);
    drop(arrived);
    let all = 4 * PIECE + HEADER as u64;
    assert_eq!(cache.piece_bytes(), all, "the header as well");
    let lent = file.lend(ByteRange::new(0, 4 * PIECE)).unwrap();
    assert_eq!(lent.concat(), data);
    assert_eq!(lent[0].as_ptr(), data.as_ptr());
    assert_eq!(lent[3].as_ptr(), data[3 * PIECE as usize..].as_ptr());
    drop(lent);
    file.truncate(PIECE, FIRST);
    assert_eq!(cache.piece_bytes(), all, "a quarter keeps the rest");
    file.truncate(0, FIRST);
    assert_eq!(cache.piece_bytes(), 0);
    assert_eq!(cache.allocated_bytes(), 0);
}

#[test]
fn a_writer_copies_the_piece_that_he_changes_and_the_rest_when_half_is_replaced() {
    let (cache, mut file) = file();
    let (data, arrived) = arrived(4 * PIECE);
    let memory = 4 * PIECE + HEADER as u64;
    file.take_over(0, &arrived);
    drop(arrived);
    file.write(10, &[255; 20], FIRST, None);
    file.write(40, &[255; 20], FIRST, None);
    assert_eq!(cache.copied_pieces(), 1);
    assert_eq!(cache.piece_bytes(), memory + PIECE, "both are there");
    let mut expected = data.to_vec();
    expected[10..30].fill(255);
    expected[40..60].fill(255);
    assert_eq!(content(&mut file, ByteRange::new(0, 4 * PIECE)), expected);
    // A completely replaced piece is not copied, but the two others are.
    file.write(PIECE, &[1; PIECE as usize], FIRST, None);
    assert_eq!(cache.copied_pieces(), 3);
    assert_eq!(
        cache.piece_bytes(),
        4 * PIECE,
        "no piece needs the arrived memory"
    );
    expected[PIECE as usize..2 * PIECE as usize].fill(1);
    assert_eq!(content(&mut file, ByteRange::new(0, 4 * PIECE)), expected);
}

#[test]
fn written_bytes_win_and_the_pieces_around_them_are_taken_over() {
    // Near the beginning of the piece, and behind the part that is needed to take it over.
    for at in [5, 50_000] {
        let (cache, mut file) = file();
        let written = PIECE + at..PIECE + at + 10;
        file.write(written.start, &[255; 10], FIRST, None);
        assert!(cache.piece_bytes() < PIECE);
        let (data, arrived) = arrived(3 * PIECE);
        file.take_over(0, &arrived);
        let mut expected = data.to_vec();
        expected[written.start as usize..written.end as usize].fill(255);
        assert_eq!(content(&mut file, ByteRange::new(0, 3 * PIECE)), expected);
        assert_eq!(
            cache.piece_bytes(),
            3 * PIECE + HEADER as u64 + PIECE,
            "the piece that was written to has become a whole one of its own"
        );
        assert_eq!(file.dirty_bytes(), 10);
    }
}

#[test]
fn little_is_copied_and_keeps_nothing() {
    let (cache, mut file) = file();
    let (data, arrived) = arrived(PIECE / 2 - 1);
    file.take_over(0, &arrived);
    assert_eq!(content(&mut file, ByteRange::at(0, PIECE / 2 - 1)), data);
    assert_eq!(cache.piece_bytes(), PIECE, "a piece of its own");
    // The second half of a piece, and then all but the end of another.
    let (data, arrived) = self::arrived(PIECE / 2 + PIECE - 1);
    let at = BLOCK_SIZE + PIECE / 2;
    file.take_over(at, &arrived);
    assert_eq!(
        content(&mut file, ByteRange::at(at, data.len() as u64)),
        data
    );
    assert_eq!(
        cache.piece_bytes(),
        2 * PIECE + data.len() as u64 + HEADER as u64
    );
    // The next fill makes a piece of its own of the memory that was taken over.
    let end = BLOCK_SIZE + 2 * PIECE - 1;
    file.fill(end, &[7]);
    drop(arrived);
    assert_eq!(cache.piece_bytes(), 3 * PIECE);
    assert_eq!(
        content(&mut file, ByteRange::at(end - 1, 2)),
        [data[data.len() - 1], 7]
    );
}

#[test]
fn a_block_that_was_taken_over_is_evicted_like_any_other() {
    let (cache, mut file) = file();
    let (data, arrived) = arrived(PIECE);
    file.take_over(0, &arrived);
    let image = {
        file.write(0, &[1], FIRST, None);
        file.image(BlockIndex(0), FIRST).unwrap()
    };
    assert_eq!(file.evict(BlockIndex(0)), Eviction::Busy, "it is dirty");
    file.published(FIRST);
    drop(image);
    assert!(matches!(
        file.evict(BlockIndex(0)),
        Eviction::Touched | Eviction::Evicted(_)
    ));
    file.evict(BlockIndex(0));
    assert!(file.is_empty());
    drop(arrived);
    assert_eq!((cache.allocated_bytes(), data[0]), (0, HEADER as u8));
}
