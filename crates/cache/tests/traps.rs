//! Known defects of earlier systems of this kind that concern block buffers. Each of them lost data once.

use forebay_cache::{BlockImage, Cache, Eviction, FileBlocks};
use forebay_types::{BLOCK_SIZE, BlockIndex, ByteRange, CheckpointId, Inode};

const FIRST: CheckpointId = CheckpointId(1);
const SECOND: CheckpointId = CheckpointId(2);
const BLOCK: BlockIndex = BlockIndex(0);

fn file() -> FileBlocks {
    FileBlocks::new(Inode(7), Cache::new(64 << 20))
}

/// The bytes, with `.` for missing ones, and the missing ranges.
fn read(file: &mut FileBlocks, offset: u64, len: usize) -> (String, Vec<(u64, u64)>) {
    let mut out = vec![b'.'; len];
    let mut missing = Vec::new();
    file.read(offset, &mut out, &mut missing);
    let missing = missing.iter().map(|range| (range.start, range.end));
    (String::from_utf8(out).unwrap(), missing.collect())
}

fn text(image: &BlockImage) -> Vec<(u64, String)> {
    let part = |range: ByteRange| {
        let bytes = image.slices(range).collect::<Vec<_>>().concat();
        (range.start, String::from_utf8(bytes).unwrap())
    };
    image.ranges().map(part).collect()
}

fn image(file: &mut FileBlocks, checkpoint: CheckpointId) -> BlockImage {
    file.image(BLOCK, checkpoint).expect("dirty ranges")
}

#[test]
fn trap_01_partial_rewrite_of_an_evicted_block_uploads_only_its_bytes() {
    let mut file = file();
    file.write(0, &[b'a'; 10_000], FIRST);
    file.published(FIRST);
    assert!(matches!(file.evict(BLOCK), Eviction::Evicted(_)));
    file.write(5_000, b"new", SECOND);
    assert_eq!(text(&image(&mut file, SECOND)), [(5_000, "new".into())]);
}

#[test]
fn trap_02_a_present_block_reports_what_it_does_not_cover() {
    let mut file = file();
    file.write(4, b"here", FIRST);
    assert_eq!(
        read(&mut file, 0, 12),
        ("....here....".into(), vec![(0, 4), (8, 12)])
    );
    assert!(!file.is_covered(ByteRange::new(4, 9)));
    assert!(file.is_covered(ByteRange::new(4, 8)));
}

#[test]
fn trap_02_recycled_memory_never_shows_through() {
    let mut file = file();
    file.write(0, &[b'x'; 65_536], FIRST);
    file.clear(FIRST);
    file.write(100, b"y", FIRST);
    let (bytes, missing) = read(&mut file, 98, 5);
    assert_eq!(bytes, "..y..");
    assert_eq!(missing, [(98, 100), (101, 103)]);
}

#[test]
fn trap_03_fill_never_overwrites_dirty_bytes() {
    let mut file = file();
    file.write(4, b"new", FIRST);
    file.fill(0, b"oldoldoldold");
    assert_eq!(read(&mut file, 0, 12), ("oldonewldold".into(), vec![]));
    assert_eq!(file.dirty_bytes(), 3);
    assert_eq!(text(&image(&mut file, FIRST)), [(4, "new".into())]);
}

#[test]
fn trap_03_a_fetch_that_was_overtaken_by_write_publish_and_evict_is_not_current() {
    let mut file = file();
    let range = ByteRange::new(0, 3);
    let token = file.fetch_token();
    file.write(0, b"new", FIRST);
    assert!(
        file.is_current(token, range),
        "coverage keeps old bytes out"
    );
    file.published(FIRST);
    file.evict(BLOCK);
    assert!(!file.is_current(token, range));
    assert!(file.is_current(token, ByteRange::at(BLOCK_SIZE, 3)));
    assert!(file.is_current(file.fetch_token(), range));
}

#[test]
fn trap_03_evicting_bytes_of_the_bucket_leaves_fetches_current() {
    let mut file = file();
    file.fill(0, b"old");
    let token = file.fetch_token();
    assert!(matches!(file.evict(BLOCK), Eviction::Evicted(_)));
    assert!(file.is_current(token, ByteRange::new(0, 3)));
}

#[test]
fn trap_03_many_evictions_forget_no_loss() {
    let mut file = file();
    let token = file.fetch_token();
    for block in 0..200 {
        file.write(block * BLOCK_SIZE, b"new", FIRST);
    }
    file.published(FIRST);
    for block in 0..200 {
        assert!(matches!(
            file.evict(BlockIndex(block)),
            Eviction::Evicted(_)
        ));
        assert!(!file.is_current(token, ByteRange::at(0, 1)));
        assert!(!file.is_current(token, ByteRange::at(block * BLOCK_SIZE, 1)));
    }
}

#[test]
fn trap_04_write_during_upload_stays_dirty() {
    let mut file = file();
    file.write(0, b"first", FIRST);
    let upload = image(&mut file, FIRST);
    file.write(1, b"IRS", SECOND);
    assert_eq!(text(&upload), [(0, "first".into())]);
    file.published(FIRST);
    assert_eq!(file.dirty_blocks(SECOND), [BLOCK]);
    assert_eq!(file.dirty_bytes(), 3);
    assert_eq!(file.evict(BLOCK), Eviction::Busy);
    assert_eq!(text(&image(&mut file, SECOND)), [(1, "IRS".into())]);
}

#[test]
fn trap_04_write_before_the_upload_leaves_the_closed_bytes_as_they_were() {
    let mut file = file();
    file.write(0, b"first", FIRST);
    file.write(1, b"IRS", SECOND);
    assert_eq!(text(&image(&mut file, FIRST)), [(0, "first".into())]);
    assert_eq!(read(&mut file, 0, 5).0, "fIRSt");
}

#[test]
fn trap_04_write_after_an_early_upload_changes_the_version() {
    let mut file = file();
    file.write(0, b"first", FIRST);
    let early = image(&mut file, FIRST);
    assert_eq!(file.version(BLOCK, FIRST), Some(early.version()));
    file.write(0, b"F", FIRST);
    assert_ne!(file.version(BLOCK, FIRST), Some(early.version()));
    assert_eq!(text(&early), [(0, "first".into())]);
    drop(early);
    file.write(0, b"second", SECOND);
    assert_eq!(text(&image(&mut file, FIRST)), [(0, "First".into())]);
}

#[test]
fn trap_04_a_block_that_was_dropped_and_made_again_has_another_version() {
    let mut file = file();
    file.write(0, b"one", FIRST);
    let early = image(&mut file, FIRST);
    file.clear(FIRST);
    assert_eq!(file.version(BLOCK, FIRST), None);
    file.write(0, b"two", FIRST);
    assert_ne!(file.version(BLOCK, FIRST), Some(early.version()));
}

#[test]
fn trap_05_rewrite_after_upload_is_dirty_again() {
    let mut file = file();
    file.write(0, b"same", FIRST);
    drop(image(&mut file, FIRST));
    file.published(FIRST);
    assert_eq!(file.dirty_bytes(), 0);
    file.write(0, b"same", SECOND);
    assert_eq!(file.dirty_blocks(SECOND), [BLOCK]);
    assert_eq!(text(&image(&mut file, SECOND)), [(0, "same".into())]);
}

#[test]
fn trap_06_publishing_an_older_checkpoint_cleans_nothing_newer() {
    let mut file = file();
    file.write(0, b"newer", SECOND);
    file.published(FIRST);
    assert_eq!(file.dirty_blocks(SECOND), [BLOCK]);
    assert_eq!(file.dirty_bytes(), 5);
}

#[test]
fn trap_06_publishing_a_checkpoint_cleans_nothing_newer_in_its_own_blocks() {
    let mut file = file();
    file.write(0, b"older", FIRST);
    file.write(3, b"NEWER", SECOND);
    file.published(FIRST);
    assert_eq!(file.dirty_blocks(SECOND), [BLOCK]);
    assert_eq!(file.dirty_bytes(), 5);
    assert_eq!(text(&image(&mut file, SECOND)), [(3, "NEWER".into())]);
}

#[test]
fn trap_07_shrinking_and_growing_brings_no_old_bytes_back() {
    let mut file = file();
    file.write(0, b"abcdef", FIRST);
    let token = file.fetch_token();
    file.truncate(2, FIRST);
    assert!(!file.is_current(token, ByteRange::new(2, 6)));
    file.write(5, b"z", FIRST);
    assert_eq!(read(&mut file, 0, 6), ("ab...z".into(), vec![(2, 5)]));
    assert_eq!(
        text(&image(&mut file, FIRST)),
        [(0, "ab".into()), (5, "z".into())]
    );
}

#[test]
fn trap_07_truncate_leaves_the_closed_checkpoint_its_bytes() {
    let mut file = file();
    file.write(0, b"abcdef", FIRST);
    file.write(BLOCK_SIZE, b"tail", FIRST);
    file.truncate(2, SECOND);
    assert_eq!(read(&mut file, 0, 4).0, "ab..");
    assert_eq!(file.dirty_blocks(FIRST), [BLOCK, BlockIndex(1)]);
    assert_eq!(text(&image(&mut file, FIRST)), [(0, "abcdef".into())]);
    let tail = file.image(BlockIndex(1), FIRST).unwrap();
    assert_eq!(text(&tail), [(0, "tail".into())]);
    file.published(FIRST);
    assert!(!file.is_covered(ByteRange::at(BLOCK_SIZE, 1)));
    assert_eq!(file.evict(BlockIndex(1)), Eviction::Absent);
}

#[test]
fn trap_09_unaligned_write_covers_only_its_bytes() {
    let mut file = file();
    file.write(4_095, b"ab", FIRST);
    for missing in [4_094, 4_097] {
        assert!(!file.is_covered(ByteRange::at(missing, 1)));
    }
    assert!(file.is_covered(ByteRange::at(4_095, 2)));
    assert_eq!(text(&image(&mut file, FIRST)), [(4_095, "ab".into())]);
}

#[test]
fn trap_10_a_cleared_file_keeps_nothing_but_what_a_closed_checkpoint_needs() {
    let mut file = file();
    file.write(0, b"closed", FIRST);
    file.write(BLOCK_SIZE, b"open", SECOND);
    file.clear(SECOND);
    assert_eq!(file.dirty_blocks(SECOND), []);
    assert_eq!(file.dirty_bytes(), 6);
    assert!(!file.is_covered(ByteRange::at(0, 1)));
    assert_eq!(text(&image(&mut file, FIRST)), [(0, "closed".into())]);
    file.published(FIRST);
    assert!(file.is_empty());
    assert_eq!(read(&mut file, 0, 6), ("......".into(), vec![(0, 6)]));
}
