//! Frames: `forebay-pack`.

use std::hint::black_box;

use bytes::Bytes;
use forebay_pack::{Compression, PackKeys, PackWriter, open_frame};
use forebay_types::{BlockIndex, BlockKey, ByteRange, Inode, PackId, VolumeId};

use crate::operation::{Operation, Turn};
use crate::surroundings;

const BLOCK: BlockKey = BlockKey {
    inode: Inode(1),
    block: BlockIndex(0),
};
const PACK: PackId = PackId(1);

/// Content of a frame.
#[derive(Clone, Copy)]
enum Content {
    /// Does not compress; the check whether it does is made all the same.
    Noise,
    /// Text that compresses about as logs do.
    Text,
}

pub(crate) fn operations() -> Vec<Operation> {
    let mut operations = Vec::new();
    for (name, bytes, turns, content) in [
        ("4 KiB raw", 4 << 10, 256, Content::Noise),
        ("256 KiB raw", 256 << 10, 16, Content::Noise),
        ("4 KiB zstd", 4 << 10, 256, Content::Text),
        ("256 KiB zstd", 256 << 10, 16, Content::Text),
    ] {
        operations.push(Operation::new(
            format!("pack/encode {name}"),
            turns,
            move || encode(content, bytes, turns as usize),
        ));
        operations.push(Operation::new(
            format!("pack/decode {name}"),
            turns,
            move || decode(content, bytes),
        ));
    }
    operations
}

impl Content {
    fn bytes(self, len: usize) -> Vec<u8> {
        match self {
            Content::Noise => surroundings::noise(1, len),
            Content::Text => {
                let lines = (0_u64..).flat_map(|number| {
                    let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
                    format!("{number:08} gateway wrote {word} bytes\n").into_bytes()
                });
                lines.take(len).collect()
            }
        }
    }
}

fn keys() -> PackKeys {
    PackKeys::new(VolumeId([7; 16]), &[7; 32])
}

fn writer() -> PackWriter {
    writer_in(Vec::new())
}

fn writer_in(memory: Vec<u8>) -> PackWriter {
    PackWriter::new_in(memory, PACK, &keys(), Compression::default())
}

/// Encodes into a pack that has room for all frames.
fn encode(content: Content, bytes: usize, turns: usize) -> Turn {
    let raw = content.bytes(bytes);
    // Includes the turns that are not counted.
    let most = PackWriter::most_bytes(2 * turns, 2 * turns * bytes);
    let mut writer = writer_in(Vec::with_capacity(most));
    let range = ByteRange::at(0, bytes as u64);
    Box::new(move || {
        let raw: &[u8] = black_box(&raw);
        black_box(writer.push(BLOCK, range, std::iter::once(raw)));
    })
}

fn decode(content: Content, bytes: usize) -> Turn {
    let mut writer = writer();
    let raw = content.bytes(bytes);
    let frame = writer.push(
        BLOCK,
        ByteRange::at(0, bytes as u64),
        std::iter::once(raw.as_slice()),
    );
    let pack = writer.finish().bytes;
    let stored = frame.stored_range();
    let stored: Bytes = pack.slice(stored.start as usize..stored.end as usize);
    let keys = keys();
    Box::new(move || {
        let opened = open_frame(black_box(stored.clone()), &frame, BLOCK, &keys);
        assert_eq!(opened.expect("a good frame").data.len(), bytes);
    })
}
