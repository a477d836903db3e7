//! Decides which frames are stored uncompressed without a trial.
//!
//! A sample costs a quarter of the time that compressing a frame of 256 KiB takes. If a file begins like a compressed
//! format, and the first frame of a block did not shrink, the other frames of that block are not sampled. So a
//! container that holds uncompressed content loses one block of savings at most where that content begins, a file
//! with a misleading beginning loses nothing, and a file that is recognised by mistake has each of its blocks sampled
//! once.

use std::sync::atomic::Ordering;

use forebay_pack::{FrameHash, FrameRef, PackWriter, formats};
use forebay_types::{BlockKey, ByteRange};

use super::{Compression, FileCompression};

/// The frames of one block on their way into a pack.
pub struct BlockJudge<'a> {
    file: &'a FileCompression,
    key: BlockKey,
    compression: forebay_pack::Compression,
    /// The block has no frame yet, or its first one shrank.
    tries: bool,
}

impl<'a> BlockJudge<'a> {
    /// For the block `key` of `file`, in a pack with this level; `otherwise` is the volume's setting.
    pub fn new(
        file: &'a FileCompression,
        key: BlockKey,
        level: u8,
        otherwise: Compression,
    ) -> BlockJudge<'a> {
        BlockJudge {
            file,
            key,
            compression: match file.now(otherwise) {
                Compression::Off => forebay_pack::Compression::Off,
                Compression::Auto(levels) => forebay_pack::Compression::Auto {
                    level: levels.nearest(level).into(),
                },
            },
            tries: true,
        }
    }

    /// Adds the frame of `range` to the pack; `raw` yields its bytes, and `hash` is their hash if it is known, as for
    /// [`PackWriter::push_hashed`].
    pub fn push<'b>(
        &mut self,
        writer: &mut PackWriter,
        range: ByteRange,
        raw: impl Iterator<Item = &'b [u8]> + Clone,
        hash: Option<FrameHash>,
    ) -> (FrameRef, Option<FrameHash>) {
        if self.key.block.start() == 0 && range.start == 0 {
            let head: Vec<u8> = raw
                .clone()
                .flatten()
                .copied()
                .take(formats::HEAD_LEN)
                .collect();
            let is_compressed = formats::is_compressed(&head);
            self.file
                .is_compressed
                .store(is_compressed, Ordering::Relaxed);
        }
        writer.set_compression(match self.tries {
            true => self.compression,
            false => forebay_pack::Compression::Off,
        });
        let (frame, hash) = writer.push_hashed(self.key, range, raw, hash);
        let shrank = u64::from(frame.stored_len) < range.len();
        self.tries = self.tries && (shrank || !self.file.is_compressed.load(Ordering::Relaxed));
        (frame, hash)
    }
}

#[cfg(test)]
mod tests {
    use std::iter::once;

    use forebay_pack::{PackKeys, PackWriter};
    use forebay_types::{BlockIndex, Inode, PackId, VolumeId};

    use super::*;

    const FRAME: u64 = 256 << 10;
    const GZIP: &[u8] = b"\x1f\x8b\x08\x00";

    fn text() -> Vec<u8> {
        b"it takes what comes, at once. ".repeat(10_000)[..FRAME as usize].to_vec()
    }

    fn noise(head: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; FRAME as usize];
        blake3::Hasher::new().finalize_xof().fill(&mut bytes);
        bytes[..head.len()].copy_from_slice(head);
        bytes
    }

    /// Which of these frames of a block shrank.
    fn shrank(file: &FileCompression, block: u64, frames: &[Vec<u8>]) -> Vec<bool> {
        let keys = PackKeys::new(VolumeId([1; 16]), &[2; 32]);
        let mut writer = PackWriter::new(PackId(1), &keys, forebay_pack::Compression::Off);
        let key = BlockKey {
            inode: Inode(2),
            block: BlockIndex(block),
        };
        let mut judge = BlockJudge::new(file, key, 1, Compression::default());
        let push = |(number, raw): (u64, &Vec<u8>)| {
            let range = ByteRange::at(number * FRAME, FRAME);
            let (frame, _) = judge.push(&mut writer, range, once(&raw[..]), None);
            u64::from(frame.stored_len) < FRAME
        };
        (0..).zip(frames).map(push).collect()
    }

    #[test]
    fn a_block_of_a_compressed_file_is_judged_by_its_first_frame() {
        let file = FileCompression::default();
        let frames = [noise(GZIP), text(), text()];
        assert_eq!(shrank(&file, 0, &frames), [false, false, false]);
        // If the container holds uncompressed content, a whole block of it is compressed.
        assert_eq!(shrank(&file, 1, &[text(), text()]), [true, true]);
        assert_eq!(shrank(&file, 2, &[noise(b""), text()]), [false, false]);
    }

    #[test]
    fn a_file_that_only_begins_like_a_compressed_one_loses_nothing() {
        let mut begins = text();
        begins[..GZIP.len()].copy_from_slice(GZIP);
        let file = FileCompression::default();
        assert_eq!(shrank(&file, 0, &[begins, text()]), [true, true]);
    }

    #[test]
    fn files_of_no_such_format_are_judged_frame_by_frame() {
        let file = FileCompression::default();
        let frames = [noise(b"\x7fELF"), text(), noise(b""), text()];
        assert_eq!(shrank(&file, 0, &frames), [false, true, false, true]);
        assert_eq!(shrank(&file, 1, &frames), [false, true, false, true]);
    }

    #[test]
    fn a_file_whose_beginning_was_rewritten_is_what_it_is_now() {
        let file = FileCompression::default();
        assert_eq!(shrank(&file, 0, &[noise(GZIP), text()]), [false, false]);
        assert_eq!(shrank(&file, 0, &[noise(b""), text()]), [false, true]);
    }

    #[test]
    fn what_is_not_to_be_compressed_is_not() {
        let file = FileCompression::default();
        file.written_through(Compression::Off);
        assert_eq!(shrank(&file, 0, &[text(), text()]), [false, false]);
    }
}
