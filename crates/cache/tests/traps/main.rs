//! Known defects of earlier systems of this kind that concern block buffers. Each of them lost data once.
//!
//! Each trap is tried in memory, and with all dirty bytes in the log alone after each step.

mod file;

use file::{File, text};
use forebay_cache::Eviction;
use forebay_types::{BLOCK_SIZE, BlockIndex, ByteRange, CheckpointId};

const FIRST: CheckpointId = CheckpointId(1);
const SECOND: CheckpointId = CheckpointId(2);
const BLOCK: BlockIndex = BlockIndex(0);

/// Makes two tests of each function.
macro_rules! traps {
    ($($name:ident)*) => {
        mod in_memory {
            $(
                #[test]
                fn $name() {
                    super::$name(super::File::in_memory());
                }
            )*
        }

        mod in_the_log_alone {
            $(
                #[test]
                fn $name() {
                    super::$name(super::File::in_the_log_alone());
                }
            )*
        }
    };
}

traps! {
    trap_01_partial_rewrite_of_an_evicted_block_uploads_only_its_bytes
    trap_02_a_present_block_reports_what_it_does_not_cover
    trap_02_recycled_memory_never_shows_through
    trap_03_fill_never_overwrites_dirty_bytes
    trap_03_a_fetch_that_was_overtaken_by_write_publish_and_evict_is_not_current
    trap_03_evicting_bytes_of_the_bucket_leaves_fetches_current
    trap_03_many_evictions_forget_no_loss
    trap_04_write_during_upload_stays_dirty
    trap_04_write_before_the_upload_leaves_the_closed_bytes_as_they_were
    trap_04_write_after_an_early_upload_changes_the_version
    trap_04_a_block_that_was_dropped_and_made_again_has_another_version
    trap_05_rewrite_after_upload_is_dirty_again
    trap_06_publishing_an_older_checkpoint_cleans_nothing_newer
    trap_06_publishing_a_checkpoint_cleans_nothing_newer_in_its_own_blocks
    trap_07_shrinking_and_growing_brings_no_old_bytes_back
    trap_07_truncate_leaves_the_closed_checkpoint_its_bytes
    trap_09_unaligned_write_covers_only_its_bytes
    trap_10_a_cleared_file_keeps_nothing_but_what_a_closed_checkpoint_needs
}

fn trap_01_partial_rewrite_of_an_evicted_block_uploads_only_its_bytes(mut file: File) {
    file.write(0, &[b'a'; 10_000], FIRST);
    file.published(FIRST);
    file.evict_clean(BLOCK);
    file.write(5_000, b"new", SECOND);
    assert_eq!(file.text_of(BLOCK, SECOND), [(5_000, "new".into())]);
}

fn trap_02_a_present_block_reports_what_it_does_not_cover(mut file: File) {
    file.write(4, b"here", FIRST);
    assert_eq!(
        file.read(0, 12),
        ("....here....".into(), vec![(0, 4), (8, 12)])
    );
    assert!(!file.knows(ByteRange::new(4, 9)));
    assert!(file.knows(ByteRange::new(4, 8)));
}

fn trap_02_recycled_memory_never_shows_through(mut file: File) {
    file.write(0, &[b'x'; 65_536], FIRST);
    file.clear(FIRST);
    file.write(100, b"y", FIRST);
    let (bytes, missing) = file.read(98, 5);
    assert_eq!(bytes, "..y..");
    assert_eq!(missing, [(98, 100), (101, 103)]);
}

fn trap_03_fill_never_overwrites_dirty_bytes(mut file: File) {
    file.write(4, b"new", FIRST);
    file.fill(0, b"oldoldoldold");
    assert_eq!(file.read(0, 12), ("oldonewldold".into(), vec![]));
    assert_eq!(file.dirty_bytes(), 3);
    assert_eq!(file.text_of(BLOCK, FIRST), [(4, "new".into())]);
}

fn trap_03_a_fetch_that_was_overtaken_by_write_publish_and_evict_is_not_current(mut file: File) {
    let range = ByteRange::new(0, 3);
    let token = file.fetch_token();
    file.write(0, b"new", FIRST);
    assert!(
        file.is_current(token, range),
        "what is known keeps old bytes out"
    );
    file.published(FIRST);
    file.evict(BLOCK);
    assert!(!file.is_current(token, range));
    assert!(file.is_current(token, ByteRange::at(BLOCK_SIZE, 3)));
    assert!(file.is_current(file.fetch_token(), range));
}

fn trap_03_evicting_bytes_of_the_bucket_leaves_fetches_current(mut file: File) {
    file.fill(0, b"old");
    let token = file.fetch_token();
    assert!(matches!(file.evict(BLOCK), Eviction::Evicted(_)));
    assert!(file.is_current(token, ByteRange::new(0, 3)));
}

fn trap_03_many_evictions_forget_no_loss(mut file: File) {
    let token = file.fetch_token();
    for block in 0..200 {
        file.write(block * BLOCK_SIZE, b"new", FIRST);
    }
    file.published(FIRST);
    for block in 0..200 {
        file.evict_clean(BlockIndex(block));
        assert!(!file.is_current(token, ByteRange::at(0, 1)));
        assert!(!file.is_current(token, ByteRange::at(block * BLOCK_SIZE, 1)));
    }
}

fn trap_04_write_during_upload_stays_dirty(mut file: File) {
    file.write(0, b"first", FIRST);
    let upload = file.image(BLOCK, FIRST);
    file.write(1, b"IRS", SECOND);
    assert_eq!(text(&upload), [(0, "first".into())]);
    file.published(FIRST);
    assert_eq!(file.dirty_blocks(SECOND), [BLOCK]);
    assert_eq!(file.dirty_bytes(), 3);
    assert_eq!(file.evict(BLOCK), Eviction::Busy);
    assert_eq!(file.text_of(BLOCK, SECOND), [(1, "IRS".into())]);
}

fn trap_04_write_before_the_upload_leaves_the_closed_bytes_as_they_were(mut file: File) {
    file.write(0, b"first", FIRST);
    file.write(1, b"IRS", SECOND);
    assert_eq!(file.text_of(BLOCK, FIRST), [(0, "first".into())]);
    assert_eq!(file.read(0, 5).0, "fIRSt");
}

fn trap_04_write_after_an_early_upload_changes_the_version(mut file: File) {
    file.write(0, b"first", FIRST);
    let early = file.image(BLOCK, FIRST);
    assert_eq!(file.version(BLOCK, FIRST), Some(early.image().version()));
    file.write(0, b"F", FIRST);
    assert_ne!(file.version(BLOCK, FIRST), Some(early.image().version()));
    assert_eq!(text(&early), [(0, "first".into())]);
    drop(early);
    file.write(0, b"second", SECOND);
    assert_eq!(file.text_of(BLOCK, FIRST), [(0, "First".into())]);
}

fn trap_04_a_block_that_was_dropped_and_made_again_has_another_version(mut file: File) {
    file.write(0, b"one", FIRST);
    let early = file.image(BLOCK, FIRST);
    file.clear(FIRST);
    assert_eq!(file.version(BLOCK, FIRST), None);
    file.write(0, b"two", FIRST);
    assert_ne!(file.version(BLOCK, FIRST), Some(early.image().version()));
}

fn trap_05_rewrite_after_upload_is_dirty_again(mut file: File) {
    file.write(0, b"same", FIRST);
    drop(file.image(BLOCK, FIRST));
    file.published(FIRST);
    assert_eq!(file.dirty_bytes(), 0);
    file.write(0, b"same", SECOND);
    assert_eq!(file.dirty_blocks(SECOND), [BLOCK]);
    assert_eq!(file.text_of(BLOCK, SECOND), [(0, "same".into())]);
}

fn trap_06_publishing_an_older_checkpoint_cleans_nothing_newer(mut file: File) {
    file.write(0, b"newer", SECOND);
    file.published(FIRST);
    assert_eq!(file.dirty_blocks(SECOND), [BLOCK]);
    assert_eq!(file.dirty_bytes(), 5);
}

fn trap_06_publishing_a_checkpoint_cleans_nothing_newer_in_its_own_blocks(mut file: File) {
    file.write(0, b"older", FIRST);
    file.write(3, b"NEWER", SECOND);
    file.published(FIRST);
    assert_eq!(file.dirty_blocks(SECOND), [BLOCK]);
    assert_eq!(file.dirty_bytes(), 5);
    assert_eq!(file.text_of(BLOCK, SECOND), [(3, "NEWER".into())]);
}

fn trap_07_shrinking_and_growing_brings_no_old_bytes_back(mut file: File) {
    file.write(0, b"abcdef", FIRST);
    let token = file.fetch_token();
    file.truncate(2, FIRST);
    assert!(!file.is_current(token, ByteRange::new(2, 6)));
    file.write(5, b"z", FIRST);
    assert_eq!(file.read(0, 6), ("ab...z".into(), vec![(2, 5)]));
    assert_eq!(
        file.text_of(BLOCK, FIRST),
        [(0, "ab".into()), (5, "z".into())]
    );
}

fn trap_07_truncate_leaves_the_closed_checkpoint_its_bytes(mut file: File) {
    file.write(0, b"abcdef", FIRST);
    file.write(BLOCK_SIZE, b"tail", FIRST);
    file.truncate(2, SECOND);
    assert_eq!(file.read(0, 4).0, "ab..");
    assert_eq!(file.dirty_blocks(FIRST), [BLOCK, BlockIndex(1)]);
    assert_eq!(file.text_of(BLOCK, FIRST), [(0, "abcdef".into())]);
    let tail = file.image(BlockIndex(1), FIRST);
    assert_eq!(text(&tail), [(0, "tail".into())]);
    file.published(FIRST);
    assert!(!file.knows(ByteRange::at(BLOCK_SIZE, 1)));
    assert_eq!(file.evict(BlockIndex(1)), Eviction::Absent);
}

fn trap_09_unaligned_write_covers_only_its_bytes(mut file: File) {
    file.write(4_095, b"ab", FIRST);
    for missing in [4_094, 4_097] {
        assert!(!file.knows(ByteRange::at(missing, 1)));
    }
    assert!(file.knows(ByteRange::at(4_095, 2)));
    assert_eq!(file.text_of(BLOCK, FIRST), [(4_095, "ab".into())]);
}

fn trap_10_a_cleared_file_keeps_nothing_but_what_a_closed_checkpoint_needs(mut file: File) {
    file.write(0, b"closed", FIRST);
    file.write(BLOCK_SIZE, b"open", SECOND);
    file.clear(SECOND);
    assert_eq!(file.dirty_blocks(SECOND), []);
    assert_eq!(file.dirty_bytes(), 6);
    assert!(!file.knows(ByteRange::at(0, 1)));
    assert_eq!(file.text_of(BLOCK, FIRST), [(0, "closed".into())]);
    file.published(FIRST);
    assert!(file.is_empty());
    assert_eq!(file.read(0, 6), ("......".into(), vec![(0, 6)]));
}
