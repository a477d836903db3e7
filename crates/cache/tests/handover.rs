//! Images: responsibility for the bytes, and the cost of copies.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

use forebay_cache::{BlockImage, Cache, Eviction, FileBlocks, LoadedImage};
use forebay_types::{BLOCK_SIZE, BlockIndex, ByteRange, CheckpointId, Inode};
use std::sync::Arc;

const FIRST: CheckpointId = CheckpointId(1);
const SECOND: CheckpointId = CheckpointId(2);
const THIRD: CheckpointId = CheckpointId(3);
const BLOCK: BlockIndex = BlockIndex(0);
const PIECE: u64 = 64 << 10;

fn file() -> (Arc<Cache>, FileBlocks) {
    let cache = Cache::new(64 << 20);
    let file = FileBlocks::new(Inode(7), Arc::clone(&cache));
    (cache, file)
}

fn image(file: &mut FileBlocks, checkpoint: CheckpointId) -> LoadedImage {
    let image = file.image(BLOCK, checkpoint).expect("dirty ranges");
    image.loaded().expect("no bytes in the log alone")
}

fn bytes(image: &LoadedImage) -> Vec<u8> {
    let ranges = image.ranges();
    ranges
        .flat_map(|range| image.slices(range))
        .collect::<Vec<_>>()
        .concat()
}

#[test]
fn images_cross_threads() {
    fn crosses<T: Send + Sync + 'static>() {}
    crosses::<BlockImage>();
    crosses::<FileBlocks>();
}

#[test]
fn no_copy_is_made_when_no_image_is_alive() {
    let (cache, mut file) = file();
    file.write(0, &vec![1; BLOCK_SIZE as usize], FIRST, None);
    file.write(10, &[2; 10], FIRST, None);
    drop(file.image(BLOCK, FIRST));
    for at in (0..BLOCK_SIZE).step_by(4096) {
        file.write(at, &[3; 4096], SECOND, None);
    }
    file.published(FIRST);
    file.write(0, &[4; 4096], SECOND, None);
    assert_eq!(cache.copied_pieces(), 0);
    assert_eq!(cache.piece_bytes(), BLOCK_SIZE);
}

#[test]
fn a_writer_copies_each_piece_once_while_an_image_is_alive() {
    let (cache, mut file) = file();
    file.write(0, &vec![1; BLOCK_SIZE as usize], FIRST, None);
    let held = image(&mut file, FIRST);
    for at in [0, 4096, PIECE + 1, PIECE + 9] {
        file.write(at, &[2; 100], SECOND, None);
    }
    assert_eq!(cache.copied_pieces(), 2);
    assert_eq!(cache.piece_bytes(), BLOCK_SIZE + 2 * PIECE);
    assert_eq!(bytes(&held), vec![1; BLOCK_SIZE as usize]);
    drop(held);
    assert_eq!(cache.piece_bytes(), BLOCK_SIZE);
    file.write(5 * PIECE, &[2; 100], SECOND, None);
    assert_eq!(cache.copied_pieces(), 2);
}

#[test]
fn a_closed_checkpoint_nobody_took_yet_costs_one_copy_for_each_piece_written() {
    let (cache, mut file) = file();
    file.write(0, &[1; 3 * PIECE as usize], FIRST, None);
    file.write(0, &[2; 10], SECOND, None);
    file.write(20, &[2; 10], SECOND, None);
    assert_eq!(cache.copied_pieces(), 1);
    assert_eq!(cache.piece_bytes(), 4 * PIECE);
    drop(file.image(BLOCK, FIRST));
    assert_eq!(cache.piece_bytes(), 3 * PIECE, "handed over and dropped");
    file.write(PIECE, &[2; 10], SECOND, None);
    assert_eq!(cache.copied_pieces(), 1);
}

#[test]
fn pieces_without_closed_bytes_are_written_in_place() {
    let (cache, mut file) = file();
    file.fill(0, &[0; 3 * PIECE as usize]);
    file.write(PIECE, &[1; 10], FIRST, None);
    file.write(0, &[2; 10], SECOND, None);
    file.write(2 * PIECE, &[2; 10], SECOND, None);
    assert_eq!(cache.copied_pieces(), 0);
}

#[test]
fn a_fill_beside_held_bytes_leaves_the_image_alone() {
    let (_, mut file) = file();
    file.write(10, b"held", FIRST, None);
    let held = image(&mut file, FIRST);
    file.fill(0, &[9; 100]);
    assert_eq!(bytes(&held), b"held");
    let outside: Vec<_> = held.slices(ByteRange::new(0, 100)).collect();
    assert_eq!(outside.concat(), b"held", "only the image's own bytes");
}

#[test]
fn handed_over_bytes_can_be_asked_for_again_until_a_newer_checkpoint_writes() {
    let (_, mut file) = file();
    file.write(0, b"mine", FIRST, None);
    drop(file.image(BLOCK, FIRST));
    assert_eq!(bytes(&image(&mut file, FIRST)), b"mine");
    file.write(0, b"next", SECOND, None);
    assert!(file.image(BLOCK, FIRST).is_none());
    assert_eq!(file.dirty_blocks(FIRST), [BLOCK], "dirty until published");
}

#[test]
fn an_image_put_back_can_be_taken_again() {
    for write_between in [false, true] {
        let (_, mut file) = file();
        file.write(0, b"mine", FIRST, None);
        let held = image(&mut file, FIRST);
        if write_between {
            file.write(0, b"next", SECOND, None);
        }
        file.put_back(held.into_image());
        file.write(0, b"last", SECOND, None);
        assert_eq!(bytes(&image(&mut file, FIRST)), b"mine");
    }
}

#[test]
fn an_outdated_image_put_back_replaces_nothing() {
    let (cache, mut file) = file();
    file.write(0, b"early", FIRST, None);
    let early = image(&mut file, FIRST);
    file.write(0, b"final", FIRST, None);
    file.write(0, b"newer", SECOND, None);
    file.put_back(early.into_image());
    assert_eq!(bytes(&image(&mut file, FIRST)), b"final");
    file.published(SECOND);
    drop(file);
    assert_eq!(cache.allocated_bytes(), 0);
}

#[test]
fn what_a_truncate_left_of_an_early_image_can_be_taken_after_the_close() {
    let (_, mut file) = file();
    file.write(0, b"abcdef", FIRST, None);
    let early = image(&mut file, FIRST);
    file.truncate(3, FIRST);
    assert_ne!(file.version(BLOCK, FIRST), Some(early.image().version()));
    drop(early);
    file.write(0, b"xyz", SECOND, None);
    assert_eq!(bytes(&image(&mut file, FIRST)), b"abc");
}

#[test]
fn a_second_closed_checkpoint_keeps_its_own_bytes() {
    let (cache, mut file) = file();
    file.write(0, b"one", FIRST, None);
    file.write(0, b"two", SECOND, None);
    file.write(0, b"six", THIRD, None);
    assert_eq!(cache.dirty_bytes(), 9);
    assert_eq!(bytes(&image(&mut file, SECOND)), b"two");
    assert_eq!(bytes(&image(&mut file, FIRST)), b"one");
    file.published(SECOND);
    assert_eq!(cache.dirty_bytes(), 3);
    assert_eq!(file.evict(BLOCK), Eviction::Busy);
}

#[test]
fn a_late_write_for_an_older_checkpoint_goes_with_the_newer_one() {
    let (_, mut file) = file();
    file.write(0, b"ab", SECOND, None);
    file.write(2, b"cd", FIRST, None);
    assert_eq!(file.dirty_blocks(FIRST), []);
    assert_eq!(bytes(&image(&mut file, SECOND)), b"abcd");
}

#[test]
fn dirty_blocks_are_listed_ascending_each_in_its_checkpoint() {
    let (_, mut file) = file();
    for block in [5, 1, 9] {
        file.write(block * BLOCK_SIZE, b"x", FIRST, None);
    }
    file.write(BLOCK_SIZE, b"y", SECOND, None);
    file.write(2 * BLOCK_SIZE, b"y", SECOND, None);
    assert_eq!(file.dirty_blocks(FIRST), [1, 5, 9].map(BlockIndex));
    assert_eq!(file.dirty_blocks(SECOND), [1, 2].map(BlockIndex));
    assert_eq!(file.dirty_blocks(THIRD), []);
}
