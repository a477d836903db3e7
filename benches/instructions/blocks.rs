//! The block buffers: `forebay-cache`.

use std::hint::black_box;

use forebay_cache::{Cache, FileBlocks};
use forebay_types::{BLOCK_SIZE, ByteRange, CheckpointId, Inode};

use crate::operation::{Operation, Turn};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const FILE_BYTES: u64 = 2 * BLOCK_SIZE;
const SIZES: [(&str, usize); 2] = [("4 KiB", 4 * KIB), ("1 MiB", MIB)];
/// Number of calls of this size for four passes over a file, the first of which is not counted.
const fn turns(bytes: usize) -> u64 {
    FILE_BYTES / bytes as u64 * 4
}

pub(crate) fn operations() -> Vec<Operation> {
    let mut operations = Vec::new();
    for (name, bytes) in SIZES {
        let turns = turns(bytes);
        let mut add = |what: &str, prepare: fn(usize) -> Turn| {
            let key = format!("cache/{what} {name}");
            operations.push(Operation::new(key, turns, move || prepare(bytes)));
        };
        add("write", write);
        add("write in place", write_in_place);
        add("read", read);
        add("lend", lend);
    }
    operations.extend([
        Operation::new("cache/covered 32 KiB", 4096, || covered(64 << 10)),
        Operation::new("cache/covered 32 KiB ragged", 4096, || {
            covered(BLOCK_SIZE + 5)
        }),
        Operation::new("cache/dirty blocks of 100", 256, dirty_blocks),
        Operation::new("cache/publish a block", 512, publish_one),
        Operation::new("cache/write to a held piece", 512, write_to_held_piece),
    ]);
    operations
}

fn file() -> FileBlocks {
    FileBlocks::new(Inode(1), Cache::new(1 << 30))
}

/// A file whose bytes are all present.
fn full_file() -> FileBlocks {
    let mut file = file();
    let data = vec![7; MIB];
    for offset in (0..FILE_BYTES).step_by(MIB) {
        file.write(offset, &data, CheckpointId(1), None);
    }
    file
}

/// Uploads and publishes the blocks of a closed checkpoint.
fn publish(file: &mut FileBlocks, open: &mut CheckpointId) {
    for block in file.dirty_blocks(*open) {
        drop(file.image(block, *open));
    }
    file.published(*open);
    *open = open.next();
}

/// Writes sequentially through the file, which is published each time its end is reached.
fn write(bytes: usize) -> Turn {
    let (mut file, mut open, data) = (full_file(), CheckpointId(1), vec![7; bytes]);
    publish(&mut file, &mut open);
    let mut offset = 0;
    Box::new(move || {
        file.write(offset, black_box(&data), open, None);
        offset += bytes as u64;
        if offset == FILE_BYTES {
            offset = 0;
            publish(&mut file, &mut open);
        }
    })
}

/// Overwrites bytes that are dirty already.
fn write_in_place(bytes: usize) -> Turn {
    let (mut file, data) = (full_file(), vec![7; bytes]);
    Box::new(move || {
        black_box(file.write(4096, black_box(&data), CheckpointId(1), None));
    })
}

/// Reads with a copy.
fn read(bytes: usize) -> Turn {
    let (mut file, mut out, mut missing) = (full_file(), vec![0; bytes], Vec::new());
    let mut offset = 0;
    Box::new(move || {
        file.read(offset, black_box(&mut out), &mut missing, &mut Vec::new());
        assert!(missing.is_empty());
        offset = (offset + bytes as u64) % FILE_BYTES;
    })
}

/// Reads without a copy.
fn lend(bytes: usize) -> Turn {
    let mut file = full_file();
    let mut offset = 0;
    Box::new(move || {
        let pieces = file.lend(ByteRange::at(offset, bytes as u64));
        assert!(pieces.is_some());
        black_box(pieces);
        offset = (offset + bytes as u64) % FILE_BYTES;
    })
}

fn covered(start: u64) -> Turn {
    let mut file = file();
    file.write(0, &vec![1; BLOCK_SIZE as usize], CheckpointId(1), None);
    file.write(BLOCK_SIZE + 5, &vec![1; 100 * KIB], CheckpointId(1), None);
    let range = ByteRange::at(start, 32 << 10);
    Box::new(move || assert!(file.is_covered(black_box(range))))
}

fn dirty_blocks() -> Turn {
    let mut file = file();
    for block in 0..100 {
        file.write(block * BLOCK_SIZE, &[1; 4096], CheckpointId(1), None);
    }
    Box::new(move || {
        let blocks = file.dirty_blocks(black_box(CheckpointId(1)));
        assert_eq!(blocks.len(), 100);
    })
}

/// A block with one write of 4 KiB, from the write until it may be evicted.
fn publish_one() -> Turn {
    let (mut file, mut open) = (full_file(), CheckpointId(1));
    publish(&mut file, &mut open);
    Box::new(move || {
        file.write(0, black_box(&[1; 4096]), open, None);
        publish(&mut file, &mut open);
    })
}

/// The first write to a piece that the upload of a closed checkpoint still reads: the piece is copied.
fn write_to_held_piece() -> Turn {
    let (mut file, mut open) = (full_file(), CheckpointId(1));
    publish(&mut file, &mut open);
    file.write(0, &[1; 4096], open, None);
    Box::new(move || {
        let held: Vec<_> = file.dirty_blocks(open);
        let held: Vec<_> = held
            .into_iter()
            .map(|block| file.image(block, open))
            .collect();
        let closed = open;
        open = open.next();
        file.write(0, black_box(&[2; 4096]), open, None);
        drop(held);
        file.published(closed);
    })
}
