//! The bytes in flight to the bucket are limited, whatever is written: `upload_parallel` packs of `pack_bytes`, and
//! the tables of one checkpoint's metadata.

use crate::common::*;
use forebay_fs::{Compression, FsConfig};
use forebay_types::BLOCK_SIZE;
use forebay_vfs::Stability;

const PARALLEL: usize = 3;
/// Bytes of a small file; and the overhead of a pack for each: the header of its frame, and an entry of the index.
const FILE_BYTES: usize = 4096;
const HEADERS: usize = 172;
/// The tables of the metadata of 6,000 files, which are put beside the last packs of a checkpoint.
const METADATA: usize = 2 << 20;

fn settings(config: &mut FsConfig) {
    config.upload_parallel = PARALLEL;
    config.pack_bytes = BLOCK_SIZE;
    config.compression = Compression::Off;
}

/// Bytes of files in the packs that were built since the start.
fn built(life: &Life) -> u64 {
    life.volume.status().compression.raw_bytes
}

/// While no upload completes, exactly as many packs as allowed are in flight, and never more bytes than they have.
/// `before` is the number of bytes that were built before the uploads were held.
fn assert_bounded(bucket: &Bucket, life: &Life, before: u64) {
    let puts = &bucket.controls.pack_puts;
    eventually("packs are on their way", || puts.held() == PARALLEL);
    // No pack has many more bytes than a block, so this takes one pack more than may be in flight.
    let of_others = PARALLEL as u64 * BLOCK_SIZE + BLOCK_SIZE / 2;
    eventually("others are built, and wait", || {
        built(life) - before >= of_others
    });
    assert_eq!(puts.held(), PARALLEL);
    puts.open();
    life.flush();
    assert_eq!(puts.most_held(), PARALLEL);
    let most = bucket.controls.take_most_bytes_in_flight();
    let packs = PARALLEL * BLOCK_SIZE as usize;
    assert!(most >= packs / 2, "{most} bytes: they were not full");
    let limit = packs + packs / FILE_BYTES * HEADERS + METADATA;
    assert!(most <= limit, "{most} bytes of {limit}");
}

#[test]
fn of_a_stream_no_more_is_on_its_way_than_the_limit() {
    let bucket = Bucket::new();
    let life = bucket.start(settings);
    let inode = life.create(b"stream");
    life.flush();
    bucket.controls.take_most_bytes_in_flight();
    bucket.controls.pack_puts.close();
    let before = built(&life);
    let data = pattern(1, 24 * BLOCK_SIZE as usize);
    life.write(inode, 0, &data, Stability::Unstable);
    assert_bounded(&bucket, &life, before);
}

#[test]
fn of_small_files_no_more_is_on_its_way_than_the_limit() {
    let bucket = Bucket::new();
    let life = bucket.start(settings);
    let mut before = 0;
    for number in 0..6000_u64 {
        let inode = life.create(format!("file {number}").as_bytes());
        life.write(inode, 0, &pattern(number, FILE_BYTES), Stability::Unstable);
        if number == 0 {
            life.flush();
            bucket.controls.take_most_bytes_in_flight();
            bucket.controls.pack_puts.close();
            before = built(&life);
        }
    }
    let flush = life.spawn(|volume| async move { volume.flush().await.map(drop) });
    assert_bounded(&bucket, &life, before);
    life.join(flush).unwrap();
}
