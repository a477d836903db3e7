//! Frames, as fetched by a GET.
//!
//! For every frame and every reference to it:
//! * a frame that is opened has exactly the bytes of its range, and its position in the block; the same data written
//!   into a pack and opened from there are the same;
//! * for a frame that is opened, any changed byte is detected, and so is any other block, range or length;
//! * a frame that cannot be opened is an error that names the pack.
//!
//! ```text
//! input    flags: 1    reference: 28    block: 16    stored bytes
//! flags    1  repair the checksum     2  the reference and the block are those that the frame itself names
//!          4  in a sealed volume      8  seal plain bytes in the place of sealed ones, as its pack 5
//! ```

use std::sync::Arc;

use bytes::Bytes;
use forebay_pack::{Compression, Frame, FrameRef, PackKeys, PackWriter, open_frame};
use forebay_seal::{DataKeyId, DataKeys, Purpose, Secret, SeededEntropy};
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

/// Data keys 1 and 2 of the same volume.
pub(super) fn data_keys() -> Arc<DataKeys> {
    let key = |id: u32| (DataKeyId(id), Secret::take(&mut [id as u8; 32]));
    Arc::new(DataKeys::new(VOLUME, key(2), [key(1)]))
}

/// Keys of the same volume, sealed. The salts are the same in every run.
pub(super) fn sealed_keys() -> PackKeys {
    PackKeys::sealed(&[9; 32], data_keys(), Arc::new(SeededEntropy::new(1)))
}

/// The pack whose frames are sealed here.
const PACK: PackId = PackId(5);

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let flags = input.u8();
    let reference: [u8; FrameRef::LEN] = input.array();
    let block = BlockKey {
        inode: Inode(input.u64()),
        block: BlockIndex(input.u64()),
    };
    let mut stored = input.rest().to_vec();
    let named = own_reference(&stored);
    if flags & 8 != 0 {
        let sealer = data_keys().sealer(Purpose::Pack, PACK.0, &SeededEntropy::new(2));
        repair::seal_frame(&mut stored, sealer);
    }
    if flags & 1 != 0 {
        repair::frame(&mut stored);
    }
    let stored = Bytes::from(stored);
    let (reference, block) = match flags & 2 != 0 {
        true => {
            let (mut reference, block) = named;
            reference.crc32 = Input::new(
                stored
                    .get(repair::frame_crc_at(&stored)..)
                    .unwrap_or_default(),
            )
            .u32();
            (reference, block)
        }
        false => match FrameRef::decode(&reference) {
            Ok(decoded) => {
                assert_eq!(decoded.encode(), reference);
                (decoded, block)
            }
            Err(_) => return,
        },
    };
    let keys = match flags & 4 != 0 {
        true => sealed_keys(),
        false => keys(),
    };
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

/// The reference and the block that the header of a frame names (`docs/format.md`), except for the checksum; of a frame
/// that is to be sealed, before that.
fn own_reference(stored: &[u8]) -> (FrameRef, BlockKey) {
    let is_sealed = repair::is_sealed_frame(stored);
    let at = |at: usize| Input::new(stored.get(at..).unwrap_or_default());
    let (pack, mut identity, offset) = match is_sealed {
        true => (PACK, at(64), at(88).u32()),
        false => (PackId(at(24).u64()), at(32), 40),
    };
    let block = BlockKey {
        inode: Inode(identity.u64()),
        block: BlockIndex(identity.u64()),
    };
    let (start, raw_len) = (identity.u32(), identity.u32());
    let reference = FrameRef {
        pack,
        offset,
        stored_len: stored.len() as u32,
        start,
        raw_len,
        crc32: 0,
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
fn made(
    raw: &[u8],
    start: u64,
    compression: Compression,
    keys: &PackKeys,
) -> (FrameRef, BlockKey, Vec<u8>) {
    let block = BlockKey {
        inode: Inode(8),
        block: BlockIndex(9),
    };
    let mut writer = PackWriter::new(PACK, keys, compression);
    let range = ByteRange::at(start, raw.len() as u64);
    let reference = writer.push(block, range, std::iter::once(raw));
    let pack = writer.finish();
    let stored = std::ops::Range::<usize>::from(reference.stored_range());
    (reference, block, pack.bytes[stored].to_vec())
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let text = b"it takes what comes, at once. ".repeat(40);
    let input = |flags: u8, raw: &[u8], start, compression| {
        let keys = match flags & 4 != 0 {
            true => sealed_keys(),
            false => keys(),
        };
        let (reference, block, mut stored) = made(raw, start, compression, &keys);
        if flags & 8 != 0 {
            // The target seals the frame.
            repair::unseal_frame(&mut stored, PACK, &data_keys());
        }
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
        ("sealed-raw", input(4, b"forebay", 0, Compression::Off)),
        ("sealed-zstd", input(4, &text, 4096, zstd)),
        (
            "to-be-sealed-raw",
            input(15, b"forebay", 17, Compression::Off),
        ),
        ("to-be-sealed-zstd", input(15, &text, 0, zstd)),
    ]
}
