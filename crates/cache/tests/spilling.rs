//! Dirty bytes that are in the log alone.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

use forebay_cache::{Arrived, BlockImage, Cache, Coldest, Eviction, FileBlocks, Spilled};
use forebay_types::{BLOCK_SIZE, BlockIndex, BlockKey, ByteRange, CheckpointId, Inode, Lsn};
use std::sync::Arc;

const FIRST: CheckpointId = CheckpointId(1);
const SECOND: CheckpointId = CheckpointId(2);
const THIRD: CheckpointId = CheckpointId(3);
const BLOCK: BlockIndex = BlockIndex(0);
const PIECE: u64 = 64 << 10;
const END: Lsn = Lsn(1 << 40);

fn file() -> (Arc<Cache>, FileBlocks) {
    let cache = Cache::new(64 << 20);
    let file = FileBlocks::new(Inode(7), Arc::clone(&cache));
    (cache, file)
}

/// Writes bytes that the log has, each of which is the lower half of the LSN.
fn write(file: &mut FileBlocks, range: ByteRange, open: CheckpointId, lsn: u64) {
    let data = record(range, lsn);
    file.write(range.start, data.bytes(), open, Some(Lsn(lsn)));
}

fn record(range: ByteRange, lsn: u64) -> Arrived {
    let byte = u8::try_from(lsn % 251).unwrap();
    Arrived::new(vec![byte; std::ops::Range::from(range).len()].into())
}

/// Spills whatever the log has, though it was used just now.
fn spill(file: &mut FileBlocks, block: BlockIndex, settled: Lsn) -> Spilled {
    match file.spill(block, settled) {
        Spilled::Touched => file.spill(block, settled),
        other => other,
    }
}

fn is_freed(spilled: Spilled) -> bool {
    matches!(spilled, Spilled::Freed(bytes) if bytes > 0)
}

fn range(start: u64, end: u64) -> ByteRange {
    ByteRange::new(start, end)
}

/// The missing ranges, and the records of those in the log alone.
fn asked(file: &mut FileBlocks, within: ByteRange) -> (Vec<ByteRange>, Vec<(ByteRange, Lsn)>) {
    let mut out = vec![0; std::ops::Range::from(within).len()];
    let (mut missing, mut spilled) = (Vec::new(), Vec::new());
    file.read(within.start, &mut out, &mut missing, &mut spilled);
    (missing, spilled)
}

fn logged(image: &BlockImage) -> Vec<(ByteRange, Lsn)> {
    image.logged().collect()
}

#[test]
fn only_settled_records_let_bytes_leave_memory() {
    let (cache, mut file) = file();
    write(&mut file, range(0, PIECE), FIRST, 100);
    write(&mut file, range(PIECE, 2 * PIECE), FIRST, 200);
    assert_eq!(spill(&mut file, BLOCK, Lsn(100)), Spilled::Busy);
    assert!(is_freed(spill(&mut file, BLOCK, Lsn(200))));
    assert_eq!(cache.piece_bytes(), PIECE);
    assert_eq!(cache.spilled_bytes(), PIECE);
    let log = vec![(range(0, PIECE), Lsn(100))];
    assert_eq!(asked(&mut file, range(0, 2 * PIECE)), (vec![], log));
    assert!(is_freed(spill(&mut file, BLOCK, Lsn(201))));
    assert_eq!(cache.piece_bytes(), 0);
    assert_eq!(cache.spilled_bytes(), cache.dirty_bytes());
    assert_eq!(spill(&mut file, BLOCK, END), Spilled::Absent);
}

#[test]
fn a_byte_without_a_record_keeps_its_piece() {
    let (cache, mut file) = file();
    write(&mut file, range(0, 2 * PIECE), FIRST, 1);
    file.write(10, b"x", FIRST, None);
    assert!(is_freed(spill(&mut file, BLOCK, END)));
    assert!(file.is_covered(range(0, PIECE)));
    assert_eq!(cache.piece_bytes(), PIECE);
    assert_eq!(spill(&mut file, BLOCK, END), Spilled::Busy);
    // Without any record it is not even a candidate.
    file.write(BLOCK_SIZE, b"x", FIRST, None);
    assert_eq!(spill(&mut file, BlockIndex(1), END), Spilled::Absent);
    assert_eq!(spill(&mut file, BlockIndex(2), END), Spilled::Absent);
}

#[test]
fn what_the_limit_left_out_of_the_log_maps_stays_in_memory() {
    let cache = Cache::new(1 << 20);
    let mut file = FileBlocks::new(Inode(1), Arc::clone(&cache));
    let mut lsn = 0;
    while cache.index_bytes() < cache.limit_bytes() / 4 {
        let at = lsn % 8 * BLOCK_SIZE + lsn / 8 * 2;
        file.write(at, &[1], FIRST, Some(Lsn(lsn)));
        lsn += 1;
    }
    // Replaces bytes that were noted.
    file.write(0, b"later", FIRST, Some(Lsn(lsn)));
    assert_eq!(spill(&mut file, BLOCK, END), Spilled::Busy);
    assert!(file.is_covered(range(0, 5)));
    assert!(is_freed(spill(&mut file, BlockIndex(1), END)));
}

#[test]
fn the_log_fills_in_what_is_still_its_newest() {
    let (cache, mut file) = file();
    let whole = range(BLOCK_SIZE - PIECE, BLOCK_SIZE + PIECE);
    write(&mut file, whole, FIRST, 1);
    write(&mut file, range(BLOCK_SIZE, BLOCK_SIZE + 10), FIRST, 2);
    for block in [BLOCK, BlockIndex(1)] {
        assert!(is_freed(spill(&mut file, block, END)));
    }
    let version = file.version(BLOCK, FIRST);
    // A record that the block does not know, and one that it knows with other bytes.
    assert_eq!(file.fill_logged(Lsn(3), whole.start, &record(whole, 3)), 0);
    let filled = file.fill_logged(Lsn(1), whole.start, &record(whole, 1));
    assert_eq!(filled, 2 * PIECE - 10);
    let log = vec![(range(BLOCK_SIZE, BLOCK_SIZE + 10), Lsn(2))];
    assert_eq!(asked(&mut file, whole), (vec![], log));
    assert_eq!(file.fill_logged(Lsn(1), whole.start, &record(whole, 1)), 0);
    let bytes = file.lend(range(BLOCK_SIZE - 5, BLOCK_SIZE)).unwrap();
    assert_eq!(bytes.concat(), [1; 5]);
    assert_eq!(
        file.version(BLOCK, FIRST),
        version,
        "filling changes nothing"
    );
    assert_eq!(cache.spilled_bytes(), 10);
    assert_eq!(cache.dirty_bytes(), 2 * PIECE);
    // It is dirty, and can leave once more.
    assert!(is_freed(spill(&mut file, BLOCK, END)));
}

#[test]
fn truncating_what_is_in_the_log_alone_is_a_change() {
    let (cache, mut file) = file();
    write(&mut file, range(0, 100), FIRST, 1);
    assert!(is_freed(spill(&mut file, BLOCK, END)));
    let version = file.version(BLOCK, FIRST);
    file.truncate(40, FIRST);
    assert_ne!(file.version(BLOCK, FIRST), version);
    let log = vec![(range(0, 40), Lsn(1))];
    assert_eq!(
        asked(&mut file, range(0, 100)),
        (vec![range(40, 100)], log.clone())
    );
    assert_eq!(logged(&file.image(BLOCK, FIRST).unwrap()), log);
    file.truncate(0, FIRST);
    assert!(file.is_empty());
    assert_eq!(cache.allocated_bytes(), 0);
}

#[test]
fn bytes_in_the_log_alone_are_known() {
    let (_, mut file) = file();
    write(&mut file, range(10, 20), FIRST, 1);
    write(&mut file, range(30, 40), FIRST, 2);
    assert!(is_freed(spill(&mut file, BLOCK, END)));
    assert!(file.is_known(range(10, 20)) && !file.is_covered(range(10, 20)));
    assert!(!file.is_known(range(10, 21)));
    let mut unknown = Vec::new();
    file.unknown(range(0, 50), &mut unknown);
    assert_eq!(unknown, [range(0, 10), range(20, 30), range(40, 50)]);
    let found = file.in_memory(BLOCK, 1).remove(0);
    assert_eq!((found.covered_bytes, found.spilled_bytes), (0, 20));
    assert_eq!(found.unpublished.len(), 20);
}

#[test]
fn a_fetch_that_was_overtaken_is_not_current_when_the_log_gives_the_bytes_up() {
    for early in [false, true] {
        let (_, mut file) = file();
        let token = file.fetch_token();
        write(&mut file, range(0, 10), FIRST, 1);
        write(&mut file, range(BLOCK_SIZE, BLOCK_SIZE + 10), FIRST, 2);
        assert!(is_freed(spill(&mut file, BLOCK, END)));
        assert!(file.is_current(token, range(0, 10)), "the log keeps it out");
        if early {
            let version = file.version(BLOCK, FIRST).unwrap();
            assert!(file.uploaded(BLOCK, FIRST, version));
        } else {
            file.published(FIRST);
        }
        assert!(!file.is_known(range(0, 10)));
        assert!(!file.is_current(token, range(0, 10)));
        assert!(file.is_current(token, range(BLOCK_SIZE, BLOCK_SIZE + 10)));
    }
}

#[test]
fn clean_bytes_beside_leave_as_in_an_eviction() {
    let (_, mut file) = file();
    let token = file.fetch_token();
    write(&mut file, range(0, 10), FIRST, 1);
    file.published(FIRST);
    write(&mut file, range(10, 20), SECOND, 2);
    assert!(file.is_current(token, range(0, 10)));
    assert!(is_freed(spill(&mut file, BLOCK, END)));
    let log = vec![(range(10, 20), Lsn(2))];
    assert_eq!(asked(&mut file, range(0, 20)), (vec![range(0, 10)], log));
    assert!(!file.is_current(token, range(0, 10)));
}

#[test]
fn an_early_upload_leaves_nothing_to_an_older_checkpoint_with_the_same_bytes() {
    // Before the upload, or when its bytes are clean beside those of the older checkpoint.
    for before in [true, false] {
        let (_, mut file) = file();
        write(&mut file, range(0, 100), FIRST, 1);
        write(&mut file, range(0, 50), SECOND, 2);
        let mut freed = before && is_freed(spill(&mut file, BLOCK, END));
        let version = file.version(BLOCK, SECOND).unwrap();
        assert!(file.uploaded(BLOCK, SECOND, version));
        freed |= is_freed(spill(&mut file, BLOCK, END));
        assert!(freed);
        let log = vec![(range(50, 100), Lsn(1))];
        assert_eq!(asked(&mut file, range(0, 100)), (vec![range(0, 50)], log));
        let image = file.image(BLOCK, FIRST).unwrap();
        assert_eq!(logged(&image), [(range(0, 100), Lsn(1))]);
        drop(image);
        file.published(FIRST);
        assert!(file.is_empty());
    }
}

#[test]
fn what_was_cut_off_since_is_not_read_out_of_the_log_of_a_closed_checkpoint() {
    let (_, mut file) = file();
    write(&mut file, range(0, 100), FIRST, 1);
    file.truncate(50, SECOND);
    // The file has grown again, and this came from the bucket.
    file.fill(50, &[9; 50]);
    assert!(is_freed(spill(&mut file, BLOCK, END)));
    let log = vec![(range(0, 50), Lsn(1))];
    assert_eq!(asked(&mut file, range(0, 100)), (vec![range(50, 100)], log));
}

#[test]
fn each_checkpoint_keeps_its_own_records() {
    let (cache, mut file) = file();
    write(&mut file, range(0, 30), FIRST, 1);
    write(&mut file, range(10, 30), SECOND, 2);
    write(&mut file, range(20, 30), THIRD, 3);
    assert!(is_freed(spill(&mut file, BLOCK, END)));
    assert_eq!(cache.piece_bytes(), 0, "closed checkpoints keep none");
    assert_eq!(cache.spilled_bytes(), 60);
    assert_eq!(cache.dirty_bytes(), 60);
    let all = [
        (range(0, 10), Lsn(1)),
        (range(10, 20), Lsn(2)),
        (range(20, 30), Lsn(3)),
    ];
    assert_eq!(asked(&mut file, range(0, 30)), (vec![], all.to_vec()));
    let image = file.image(BLOCK, SECOND).unwrap();
    assert_eq!(logged(&image), [(range(10, 30), Lsn(2))]);
    file.published(FIRST);
    let (missing, log) = asked(&mut file, range(0, 30));
    assert_eq!((missing, &log[..]), (vec![range(0, 10)], &all[1..]));
    file.published(SECOND);
    let (missing, log) = asked(&mut file, range(0, 30));
    assert_eq!((missing, &log[..]), (vec![range(0, 20)], &all[2..]));
    file.published(THIRD);
    assert!(file.is_empty());
    assert_eq!(cache.spilled_bytes(), 0);
}

#[test]
fn what_the_log_gave_back_can_leave_again_though_its_checkpoint_is_closed() {
    let (cache, mut file) = file();
    write(&mut file, range(0, 100), FIRST, 1);
    assert!(is_freed(spill(&mut file, BLOCK, END)));
    write(&mut file, range(100, 110), SECOND, 2);
    assert_eq!(file.fill_logged(Lsn(1), 0, &record(range(0, 100), 1)), 100);
    assert_eq!(cache.spilled_bytes(), 0);
    assert_eq!(cache.candidates_to_spill(), 1);
    assert!(is_freed(spill(&mut file, BLOCK, END)));
    assert_eq!(cache.spilled_bytes(), 110);
    assert_eq!(cache.piece_bytes(), 0);
}

#[test]
fn pieces_that_closed_checkpoints_share_leave_together() {
    let (cache, mut file) = file();
    write(&mut file, range(0, 2 * PIECE), FIRST, 1);
    write(&mut file, range(0, 10), SECOND, 2);
    assert_eq!(cache.piece_bytes(), 3 * PIECE);
    // The older record is settled, the newer one is not: its piece stays, and the one that it was copied from leaves.
    assert!(is_freed(spill(&mut file, BLOCK, Lsn(2))));
    assert_eq!(cache.piece_bytes(), PIECE);
    assert!(file.is_covered(range(0, PIECE)));
    let image = file.image(BLOCK, FIRST).unwrap();
    assert_eq!(logged(&image), [(range(0, 2 * PIECE), Lsn(1))]);
    file.put_back(image);
    assert!(is_freed(spill(&mut file, BLOCK, END)));
    assert_eq!(cache.piece_bytes(), 0);
}

#[test]
fn an_image_is_loaded_from_whole_records() {
    let (cache, mut file) = file();
    let start = BLOCK_SIZE - 100;
    write(&mut file, range(start, BLOCK_SIZE + 200), FIRST, 1);
    let second = BlockIndex(1);
    assert!(is_freed(spill(&mut file, second, END)));
    write(&mut file, range(BLOCK_SIZE + 50, BLOCK_SIZE + 60), FIRST, 2);
    let mut image = file.image(second, FIRST).unwrap();
    let own = image.loaded().expect_err("the log has some of it");
    image = *own;
    assert_eq!(
        logged(&image),
        [(range(0, 50), Lsn(1)), (range(60, 200), Lsn(1))]
    );
    let whole = range(start, BLOCK_SIZE + 200);
    let other = record(whole, 2);
    assert_eq!(cache.load(&mut image, Lsn(2), start, other.bytes()), 0);
    let own = record(whole, 1);
    // Some of it, and then the rest.
    let part = &own.bytes()[..130];
    assert_eq!(cache.load(&mut image, Lsn(1), start, part), 30);
    assert_eq!(cache.load(&mut image, Lsn(1), start, own.bytes()), 160);
    let image = image.loaded().expect("all of it was loaded");
    let bytes: Vec<&[u8]> = image.slices(range(0, 200)).collect();
    let bytes = bytes.concat();
    assert_eq!(bytes.len(), 200);
    let is_right = |(at, byte): (usize, &u8)| *byte == if (50..60).contains(&at) { 2 } else { 1 };
    assert!(bytes.iter().enumerate().all(is_right));
    let log = vec![
        (range(BLOCK_SIZE, BLOCK_SIZE + 50), Lsn(1)),
        (range(BLOCK_SIZE + 60, BLOCK_SIZE + 200), Lsn(1)),
    ];
    let after = range(BLOCK_SIZE, BLOCK_SIZE + 200);
    assert_eq!(asked(&mut file, after), (vec![], log), "the block has not");
}

#[test]
fn a_loaded_image_that_is_put_back_keeps_what_was_loaded() {
    let (cache, mut file) = file();
    write(&mut file, range(0, 100), FIRST, 1);
    write(&mut file, range(0, 10), SECOND, 2);
    assert!(is_freed(spill(&mut file, BLOCK, END)));
    let mut image = file.image(BLOCK, FIRST).unwrap();
    let part = record(range(0, 60), 1);
    assert_eq!(cache.load(&mut image, Lsn(1), 0, part.bytes()), 60);
    file.put_back(image);
    let image = file.image(BLOCK, FIRST).unwrap();
    assert_eq!(logged(&image), [(range(60, 100), Lsn(1))]);
    file.put_back(image);
    assert!(is_freed(spill(&mut file, BLOCK, END)));
    let image = file.image(BLOCK, FIRST).unwrap();
    assert_eq!(logged(&image), [(range(0, 100), Lsn(1))]);
}

#[test]
fn memory_that_an_image_or_a_reader_holds_stays() {
    let (cache, mut file) = file();
    write(&mut file, range(0, 2 * PIECE), FIRST, 1);
    let image = file.image(BLOCK, FIRST).unwrap();
    assert_eq!(spill(&mut file, BLOCK, END), Spilled::Busy);
    drop(image);
    let lent = file.lend(range(0, PIECE)).unwrap();
    assert!(is_freed(spill(&mut file, BLOCK, END)));
    assert!(file.is_covered(range(0, PIECE)), "its reader has it");
    drop(lent);
    assert!(is_freed(spill(&mut file, BLOCK, END)));
    assert_eq!(cache.piece_bytes(), 0);
    assert_eq!(file.evict(BLOCK), Eviction::Busy, "it is dirty");
}

#[test]
fn the_least_recently_used_block_leaves_first_clean_or_dirty() {
    let (cache, mut file) = file();
    for block in 0..4 {
        let at = block * BLOCK_SIZE;
        match block % 2 {
            0 => file.fill(at, &[1; 10]),
            _ => write(&mut file, ByteRange::at(at, 10), FIRST, block),
        }
    }
    // The first two are used again.
    asked(&mut file, range(0, BLOCK_SIZE + 10));
    let mut order = Vec::new();
    while let Some(coldest) = cache.coldest_of_both() {
        match coldest {
            Coldest::Clean(key) => {
                if matches!(file.evict(key.block), Eviction::Evicted(_)) {
                    order.push(key.block.0);
                }
            }
            Coldest::Dirty(key) => {
                if is_freed(file.spill(key.block, END)) {
                    order.push(key.block.0);
                }
            }
        }
    }
    assert_eq!(order, [2, 3, 0, 1]);
    assert_eq!((cache.candidates(), cache.candidates_to_spill()), (0, 0));
}

#[test]
fn a_block_that_cannot_leave_goes_to_the_end_of_the_order() {
    let (cache, mut file) = file();
    let key = |block| BlockKey {
        inode: Inode(7),
        block: BlockIndex(block),
    };
    write(&mut file, range(0, 10), FIRST, 2);
    write(&mut file, range(BLOCK_SIZE, BLOCK_SIZE + 10), FIRST, 1);
    assert_eq!(cache.coldest_dirty(), Some(key(0)));
    assert_eq!(file.spill(BLOCK, Lsn(2)), Spilled::Busy);
    assert_eq!(cache.coldest_dirty(), Some(key(1)));
    assert!(is_freed(file.spill(BlockIndex(1), Lsn(2))));
    assert_eq!(cache.candidates_to_spill(), 1);
    assert_eq!(cache.coldest_dirty(), Some(key(0)));
    assert!(is_freed(file.spill(BLOCK, Lsn(3))));
    assert_eq!(cache.coldest_dirty(), None);
    // What the log gives back is a candidate again; what is clean is not.
    let data = record(range(0, 10), 2);
    assert_eq!(file.fill_logged(Lsn(2), 0, &data), 10);
    assert_eq!(cache.candidates_to_spill(), 1);
    file.published(FIRST);
    assert_eq!(cache.coldest_dirty(), Some(key(0)));
    assert_eq!(file.spill(BLOCK, END), Spilled::Absent);
    assert_eq!(cache.candidates_to_spill(), 0);
    assert_eq!(cache.candidates(), 1);
}

#[test]
fn a_block_that_is_about_to_be_uploaded_is_spared_once() {
    let (cache, mut file) = file();
    write(&mut file, range(0, 10), FIRST, 1);
    let other = ByteRange::at(BLOCK_SIZE, 10);
    write(&mut file, other, FIRST, 2);
    assert!(!file.spare(BLOCK, SECOND), "nothing of it is in there");
    assert!(file.spare(BLOCK, FIRST));
    assert!(!file.spare(BLOCK, FIRST));
    let coldest = cache.coldest_dirty().map(|key| key.block);
    assert_eq!(coldest, Some(BlockIndex(1)));
    assert!(is_freed(spill(&mut file, BLOCK, END)));
    assert!(!file.spare(BLOCK, FIRST), "nothing of it is in memory");
    // Once for each upload.
    write(&mut file, range(0, 10), SECOND, 3);
    file.published(FIRST);
    assert!(file.spare(BLOCK, SECOND));
}

#[test]
fn a_block_in_the_log_alone_costs_little() {
    for (bytes, most) in [
        (1 << 20, 1_000),
        (PIECE, 2_000),
        (4096, 18_000),
        (BLOCK_SIZE, 900),
    ] {
        let (cache, mut file) = file();
        for at in (0..BLOCK_SIZE).step_by(bytes as usize) {
            write(&mut file, ByteRange::at(at, bytes), FIRST, at);
        }
        assert!(is_freed(spill(&mut file, BLOCK, END)));
        let now = cache.allocated_bytes();
        assert!(now <= most, "{now} bytes for writes of {bytes}");
    }
    let (cache, mut file) = file();
    write(&mut file, range(123, 4219), FIRST, 1);
    assert!(is_freed(spill(&mut file, BLOCK, END)));
    assert!(cache.allocated_bytes() < 1024);
}

#[test]
fn accounts_return_to_zero_when_all_is_dropped() {
    let cache = Cache::new(64 << 20);
    let mut images = Vec::new();
    for inode in 0..10 {
        let mut file = FileBlocks::new(Inode(inode), Arc::clone(&cache));
        let at = inode * 99_991;
        write(&mut file, ByteRange::at(at, 300_000), FIRST, 1);
        write(&mut file, ByteRange::at(at + 12_345, 17), SECOND, 2);
        file.fill(at + BLOCK_SIZE - 100, &[3; 200]);
        assert!(is_freed(spill(&mut file, BLOCK, END)));
        let mut image = file.image(BLOCK, FIRST).unwrap();
        let all = record(ByteRange::at(at, 300_000), 1);
        assert_eq!(cache.load(&mut image, Lsn(1), at, all.bytes()), 300_000);
        images.push(image);
        file.fill_logged(Lsn(1), at, &all);
        file.truncate(at + 200_001, SECOND);
        spill(&mut file, BLOCK, END);
        assert!(cache.spilled_bytes() > 0);
        assert!(cache.spilled_bytes() <= cache.dirty_bytes());
    }
    assert_eq!((cache.dirty_bytes(), cache.spilled_bytes()), (0, 0));
    assert_eq!((cache.candidates(), cache.candidates_to_spill()), (0, 0));
    assert_eq!(cache.index_bytes(), 0);
    assert_eq!(cache.allocated_bytes(), cache.piece_bytes());
    assert!(cache.piece_bytes() > 0, "images hold theirs");
    drop(images);
    assert_eq!(cache.allocated_bytes(), 0);
}
