//! A small pack with every kind of frame, and functions that read packs.
#![allow(dead_code, reason = "each test binary uses its part of it")]
#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

use std::sync::Arc;

use bytes::Bytes;
use forebay_pack::{
    Compression, FinishedPack, FrameRef, PackKeys, PackWriter, open_frame, open_index,
};
use forebay_seal::{DataKeyId, DataKeys, Entropy, Secret, SeededEntropy, SystemEntropy};
use forebay_types::{BLOCK_SIZE, BlockIndex, BlockKey, ByteRange, Inode, PackId, VolumeId};

pub(crate) const PACK: PackId = PackId(0x2a);

pub(crate) fn keys() -> PackKeys {
    PackKeys::new(VolumeId(*b"a sample volume!"), &[0x5a; 32])
}

/// Data keys 1 to `newest` of a volume; each consists of its number, 32 times.
pub(crate) fn data_keys(volume: VolumeId, newest: u32) -> Arc<DataKeys> {
    let key = |id: u32| (DataKeyId(id), Secret::take(&mut [id as u8; 32]));
    Arc::new(DataKeys::new(volume, key(newest), (1..newest).map(key)))
}

/// Keys of the same volume, sealed, with salts from `entropy`.
pub(crate) fn sealed_keys_with(newest: u32, entropy: Arc<dyn Entropy>) -> PackKeys {
    let data_keys = data_keys(keys().volume(), newest);
    PackKeys::sealed(&[0x5a; 32], data_keys, entropy)
}

pub(crate) fn sealed_keys() -> PackKeys {
    sealed_keys_with(1, Arc::new(SystemEntropy))
}

/// The same with a salt that is the same in every run.
pub(crate) fn golden_keys() -> PackKeys {
    sealed_keys_with(1, Arc::new(SeededEntropy::new(1)))
}

pub(crate) fn block(inode: u64, block: u64) -> BlockKey {
    BlockKey {
        inode: Inode(inode),
        block: BlockIndex(block),
    }
}

/// The contents of the sample pack: a byte at the very end of a block, a line of text, and text that compresses.
pub(crate) fn sample() -> Vec<(BlockKey, u64, Vec<u8>)> {
    vec![
        (block(2, 7), BLOCK_SIZE - 1, b"!".to_vec()),
        (block(3, 0), 0, b"a forebay takes what comes\n".to_vec()),
        (block(4, 1), 4096, b"0123456789abcdef".repeat(64)),
    ]
}

pub(crate) fn write(compression: Compression) -> FinishedPack {
    write_with(&keys(), compression)
}

pub(crate) fn write_with(keys: &PackKeys, compression: Compression) -> FinishedPack {
    let mut writer = PackWriter::new(PACK, keys, compression);
    for (block, start, raw) in sample() {
        let range = ByteRange::at(start, raw.len() as u64);
        writer.push(block, range, raw.chunks(7));
    }
    writer.finish()
}

/// The answer to a ranged GET of the frame; shorter if the pack ends before the frame does.
pub(crate) fn fetch(pack: &Bytes, frame: &FrameRef) -> Bytes {
    let range = frame.stored_range();
    let end = pack.len().min(range.end as usize);
    pack.slice(end.min(range.start as usize)..end)
}

/// Reads a pack from its bytes alone, and returns its contents.
pub(crate) fn read_all(pack: &Bytes) -> Result<Vec<(BlockKey, u64, Vec<u8>)>, String> {
    read_with(&keys(), pack)
}

/// The same with these keys.
pub(crate) fn read_with(
    keys: &PackKeys,
    pack: &Bytes,
) -> Result<Vec<(BlockKey, u64, Vec<u8>)>, String> {
    let index = open_index(pack, keys).map_err(|error| error.to_string())?;
    let mut content = Vec::new();
    for entry in index.entries {
        let stored = fetch(pack, &entry.frame);
        let frame = open_frame(stored, &entry.frame, entry.block, keys)
            .map_err(|error| error.to_string())?;
        frame.verify_hash(keys).map_err(|error| error.to_string())?;
        content.push((frame.block, frame.range.start, frame.data.to_vec()));
    }
    Ok(content)
}
