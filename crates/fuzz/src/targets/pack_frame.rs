//! Frames, as a GET has fetched them.
//!
//! For every frame and every reference to it:
//! * a frame that is opened has exactly the bytes of its range, and its place in the block; the same data written into a
//!   pack and opened from there are the same;
//! * of a frame that was opened, any changed byte is noticed, and so is any other block, range or length;
//! * what cannot be opened is an error that names the pack.
//!
//! ```text
//! input    flags: 1    reference: 28    block: 16    stored bytes
//! flags    1  repair the checksum     2  the reference and the block are those that the frame itself names
//! ```

use bytes::Bytes;
use forebay_pack::{Compression, Frame, FrameRef, PackKeys, PackWriter, open_frame};
use forebay_types::{BlockIndex, BlockKey, ByteRange, Inode, PackId, VolumeId};

use crate::{Target, input::Input, repair};

/// The target.
pub const TARGET: Target = Target {
    name: "pack_frame",
    run,
    seeds,
    max_bytes: 1024,
};

const VOLUME: VolumeId = VolumeId([0x42; 16]);

pub(super) fn keys() -> PackKeys {
    PackKeys::new(VOLUME, &[9; 32])
}

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let flags = input.u8();
    let reference: [u8; FrameRef::LEN] = input.array();
    let block = BlockKey {
        inode: Inode(input.u64()),
        block: BlockIndex(input.u64()),
    };
    let mut stored = input.rest().to_vec();
    if flags & 1 != 0 {
        repair::frame(&mut stored);
    }
    let stored = Bytes::from(stored);
    let (reference, block) = match flags & 2 != 0 {
        true => own_reference(&stored),
        false => match FrameRef::decode(&reference) {
            Ok(decoded) => {
                assert_eq!(decoded.encode(), reference);
                (decoded, block)
            }
            Err(_) => return,
        },
    };
    let keys = keys();
    match open_frame(stored.clone(), &reference, block, &keys) {
        Ok(frame) => check(&frame, &stored, &reference, block, &keys),
        Err(error) => {
            assert_eq!(
                (error.pack, error.offset),
                (reference.pack, reference.offset)
            );
            assert!(!error.to_string().is_empty());
        }
    }
}

/// What the header of a frame says about where it lies and what it is of (`docs/format.md`).
fn own_reference(stored: &[u8]) -> (FrameRef, BlockKey) {
    let mut header = Input::new(stored.get(24..).unwrap_or_default());
    let pack = PackId(header.u64());
    let block = BlockKey {
        inode: Inode(header.u64()),
        block: BlockIndex(header.u64()),
    };
    let (start, raw_len) = (header.u32(), header.u32());
    let crc32 = Input::new(stored.get(124..).unwrap_or_default()).u32();
    let reference = FrameRef {
        pack,
        offset: 40,
        stored_len: stored.len() as u32,
        start,
        raw_len,
        crc32,
    };
    (reference, block)
}

fn check(frame: &Frame, stored: &Bytes, reference: &FrameRef, block: BlockKey, keys: &PackKeys) {
    assert_eq!((frame.block, frame.range), (block, reference.range()));
    assert_eq!(frame.data.len() as u64, frame.range.len());
    let mut damaged = stored.to_vec();
    let at = reference.crc32 as usize % damaged.len();
    damaged[at] ^= 0x10;
    assert!(
        open_frame(damaged.into(), reference, block, keys).is_err(),
        "byte {at} was changed"
    );
    let short = stored.slice(..stored.len() - 1);
    assert!(
        open_frame(short, reference, block, keys).is_err(),
        "a byte is missing"
    );
    let other = BlockKey {
        block: BlockIndex(block.block.0 ^ 1),
        ..block
    };
    assert!(
        open_frame(stored.clone(), reference, other, keys).is_err(),
        "another block"
    );
    let moved = FrameRef {
        start: reference.start ^ 1,
        ..*reference
    };
    assert!(
        open_frame(stored.clone(), &moved, block, keys).is_err(),
        "another range"
    );

    let mut writer = PackWriter::new(reference.pack, keys, Compression::default());
    let written = writer.push(block, frame.range, std::iter::once(&frame.data[..]));
    let pack = writer.finish();
    let stored = pack
        .bytes
        .slice(std::ops::Range::from(written.stored_range()));
    let again = open_frame(stored, &written, block, keys).expect("what was written is opened");
    assert!(again.data == frame.data, "other bytes after writing them");
    assert_eq!(again.verify_hash(keys), Ok(()));
}

/// A frame and its reference, as the pack's writer makes them.
fn made(raw: &[u8], start: u64, compression: Compression) -> (FrameRef, BlockKey, Vec<u8>) {
    let block = BlockKey {
        inode: Inode(8),
        block: BlockIndex(9),
    };
    let mut writer = PackWriter::new(PackId(5), &keys(), compression);
    let range = ByteRange::at(start, raw.len() as u64);
    let reference = writer.push(block, range, std::iter::once(raw));
    let pack = writer.finish();
    let stored = std::ops::Range::<usize>::from(reference.stored_range());
    (reference, block, pack.bytes[stored].to_vec())
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let text = b"it takes what comes, at once. ".repeat(40);
    let input = |flags: u8, raw: &[u8], start, compression| {
        let (reference, block, stored) = made(raw, start, compression);
        let mut input = vec![flags];
        input.extend(reference.encode());
        input.extend(block.inode.0.to_le_bytes());
        input.extend(block.block.0.to_le_bytes());
        input.extend(stored);
        input
    };
    let zstd = Compression::default();
    vec![
        ("raw", input(0, b"forebay", 0, Compression::Off)),
        ("zstd", input(0, &text, 4096, zstd)),
        ("raw-repaired", input(3, b"forebay", 17, Compression::Off)),
        ("zstd-repaired", input(3, &text, 0, zstd)),
        ("zeros", input(3, &[0; 100_000], 0, zstd)),
        (
            "at-the-end",
            input(1, b"last", forebay_types::BLOCK_SIZE - 4, Compression::Off),
        ),
    ]
}
