//! Files that were written in small pieces in any order, over several checkpoints: a cold read asks each pack once for
//! what it has of a block.

use forebay_fs::{CommitMode, Compression, FsConfig};
use forebay_types::Inode;
use forebay_vfs::{FileSystem, Stability};

use crate::common::{Bucket, Life, ROOT, assert_bytes, pattern};

const PAGE: usize = 4 << 10;
const MIB: usize = 1 << 20;
const BLOCK: usize = 4 * MIB;
const FILE: usize = 16 * MIB;

fn plain(config: &mut FsConfig) {
    config.compression = Compression::Off;
    // No byte is fetched that was not asked for.
    config.prefetch_bytes = 0;
}

/// A number that shows no order, always the same (the last steps of SplitMix64).
fn mixed(number: usize) -> u64 {
    let mut mixed = (number as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The pages that each checkpoint writes: every page of the file in one of them, in no order, and every `again`-th one
/// of them a second time in the next.
fn written(checkpoints: usize, again: Option<usize>) -> Vec<Vec<usize>> {
    let mut pages: Vec<usize> = (0..FILE / PAGE).collect();
    pages.sort_by_key(|page| mixed(*page));
    let parts = pages.chunks(pages.len().div_ceil(checkpoints));
    let mut written: Vec<Vec<usize>> = parts.map(<[usize]>::to_vec).collect();
    if let Some(again) = again {
        let parts = written.clone();
        for (part, before) in written.iter_mut().skip(1).zip(parts) {
            part.extend(before.into_iter().step_by(again));
        }
    }
    written
}

/// A bucket with a file that was written like that, with a pack for each checkpoint, and the content of the file.
fn fragmented(checkpoints: usize, again: Option<usize>) -> (Bucket, Inode, Vec<u8>) {
    let bucket = Bucket::new();
    let life = bucket.start(plain);
    let file = life.create(b"file");
    let mut content = vec![0; FILE];
    for (checkpoint, pages) in written(checkpoints, again).into_iter().enumerate() {
        let bytes = pattern(checkpoint as u64, FILE);
        for page in &pages {
            let range = page * PAGE..(page + 1) * PAGE;
            content[range.clone()].copy_from_slice(&bytes[range]);
        }
        life.run(|volume| async move {
            let volume = volume.with_commit_mode(CommitMode::Async);
            for page in pages {
                let at = page * PAGE;
                let data = &bytes[at..at + PAGE];
                let written = volume
                    .write(&ROOT, file, at as u64, data, Stability::Unstable)
                    .await;
                assert_eq!(written.unwrap().count as usize, PAGE);
            }
        });
        life.flush();
    }
    life.stop();
    assert_eq!(bucket.packs().len(), checkpoints);
    (bucket, file, content)
}

/// Reads a part of the file with one READ; returns the number of GETs of packs that it took.
fn gets_of(bucket: &Bucket, life: &Life, file: Inode, at: usize, expected: &[u8]) -> usize {
    let before = bucket.controls.pack_gets.arrived();
    let count = expected.len();
    let reply = life.run(|volume| async move {
        let read = volume.read(&ROOT, file, at as u64, count as u32).await;
        read.unwrap()
    });
    let mut found = Vec::with_capacity(count);
    reply
        .data
        .iter()
        .for_each(|piece| found.extend_from_slice(piece));
    assert_bytes(&found, expected);
    bucket.controls.pack_gets.arrived() - before
}

/// Reads the file in parts of this many bytes with nothing in memory. No part asks a pack twice.
fn assert_each_pack_is_asked_once(
    bucket: &Bucket,
    file: Inode,
    content: &[u8],
    part: usize,
    checkpoints: usize,
) {
    let life = bucket.start(plain);
    for at in (0..FILE).step_by(part) {
        let gets = gets_of(bucket, &life, file, at, &content[at..at + part]);
        assert!(
            (1..=checkpoints).contains(&gets),
            "{gets} GETs for {part} bytes from {at} on, which lie in {checkpoints} packs"
        );
    }
    let status = life.volume.status();
    assert_eq!(status.leased_bytes, 0, "all memory was given back");
    life.stop();
}

#[test]
fn a_block_written_at_random_is_read_with_one_get_of_each_of_its_packs() {
    let (bucket, file, content) = fragmented(4, None);
    assert_each_pack_is_asked_once(&bucket, file, &content, BLOCK, 4);
    assert_each_pack_is_asked_once(&bucket, file, &content, MIB, 4);
}

#[test]
fn pages_that_were_written_again_leave_gaps_and_cost_no_requests() {
    let (bucket, file, content) = fragmented(3, Some(3));
    assert_each_pack_is_asked_once(&bucket, file, &content, BLOCK, 3);
    // Of the gateway that was started last.
    let got = bucket.counts().bytes_got;
    assert!(got < FILE as u64 * 3 / 2, "{got} bytes for {FILE}");
}
