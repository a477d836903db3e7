//! Frames without an index: for packs whose index is damaged, and whose metadata are lost.

use std::ops::Range;

use bytes::Bytes;
use forebay_types::PackId;

use crate::frame::{Frame, FrameError, describe, open_frame};
use crate::header::{self, FRAME_HEADER_LEN};
use crate::{IndexEntry, MAX_FRAME_LEN, PackKeys};

/// The frames in some bytes of a pack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundFrames {
    /// Ranges of frames whose checksum is right, in order. Their volume and pack are checked by [`open_any_frame`].
    pub frames: Vec<Range<usize>>,
    /// Number of bytes that were searched. The others, at most a frame, may be the start of one: search them again
    /// together with the bytes that follow.
    pub searched: usize,
}

/// Looks for frames, sealed or not, from any offset of a pack on. Damaged bytes are skipped: the next frame is found by
/// its magic. `is_end` means that no bytes follow.
///
/// Bytes that look like a frame within the payload of a damaged one are found as well, if their checksum is right.
pub fn find_frames(bytes: &[u8], is_end: bool) -> FoundFrames {
    let mut frames = Vec::new();
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let Some(next) = next_magic(rest) else {
            // A magic may begin in the last bytes.
            let kept = (header::MAGIC.len() - 1).min(rest.len());
            at = bytes.len() - if is_end { 0 } else { kept };
            break;
        };
        at += next;
        let rest = bytes.get(at..).unwrap_or_default();
        match header::verify_crc32(rest) {
            Ok(len) => {
                frames.push(at..at + len);
                at += len;
            }
            Err(_) if !is_end && goes_on(rest) => break,
            Err(_) => at += 1,
        }
    }
    FoundFrames {
        frames,
        searched: at,
    }
}

fn next_magic(bytes: &[u8]) -> Option<usize> {
    let len = header::MAGIC.len();
    bytes
        .windows(len)
        .position(|window| window == header::MAGIC)
}

/// Whether bytes that begin like a frame may be a whole frame together with following bytes.
fn goes_on(rest: &[u8]) -> bool {
    match header::payload_len(rest) {
        Some(payload_len) => {
            payload_len <= MAX_FRAME_LEN && rest.len() < FRAME_HEADER_LEN + payload_len
        }
        None => rest.len() < FRAME_HEADER_LEN,
    }
}

/// Opens a frame of which only the location is known: `stored` is all of it, and lies at `offset` of `pack`. Verifies
/// the same as [`open_frame`], and the keyed BLAKE3 in any case. Also returns the frame's identity.
pub fn open_any_frame(
    stored: Bytes,
    pack: PackId,
    offset: u32,
    keys: &PackKeys,
) -> Result<(IndexEntry, Frame), FrameError> {
    let described = describe(stored.clone(), pack, offset, keys);
    let entry = described.map_err(|fault| FrameError {
        pack,
        offset,
        fault,
    })?;
    let frame = open_frame(stored, &entry.frame, entry.block, keys)?;
    frame.verify_hash(keys)?;
    Ok((entry, frame))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::PACK_HEADER_LEN;
    use crate::{Compression, PackWriter};
    use forebay_types::{BlockIndex, BlockKey, ByteRange, Inode, VolumeId};

    const PACK: PackId = PackId(5);

    fn keys() -> PackKeys {
        PackKeys::new(VolumeId([3; 16]), &[4; 32])
    }

    /// A pack of three frames.
    fn pack() -> (Vec<u8>, Vec<IndexEntry>) {
        let mut writer = PackWriter::new(PACK, &keys(), Compression::Auto { level: 1 });
        let mut entries = Vec::new();
        for (inode, len) in [(7, 1000), (8, 70_000), (9, 1)] {
            let block = BlockKey {
                inode: Inode(inode),
                block: BlockIndex(2),
            };
            let raw = vec![inode as u8; len];
            let frame = writer.push(block, ByteRange::at(10, len as u64), [&raw[..]].into_iter());
            entries.push(IndexEntry { block, frame });
        }
        (writer.finish().bytes.to_vec(), entries)
    }

    fn opened(bytes: &[u8]) -> Vec<IndexEntry> {
        let found = find_frames(bytes, true);
        assert_eq!(found.searched, bytes.len());
        let open = |range: Range<usize>| {
            let stored = Bytes::copy_from_slice(&bytes[range.clone()]);
            open_any_frame(stored, PACK, range.start as u32, &keys())
        };
        let frames = found.frames.into_iter();
        frames
            .filter_map(|range| Some(open(range).ok()?.0))
            .collect()
    }

    #[test]
    fn frames_explain_themselves_without_header_and_index() {
        let (mut bytes, entries) = pack();
        assert_eq!(opened(&bytes), entries);
        bytes[..PACK_HEADER_LEN].fill(0);
        let end = bytes.len();
        bytes[end - 200..].fill(0xff);
        assert_eq!(opened(&bytes), entries);
    }

    #[test]
    fn a_damaged_frame_hides_no_other() {
        let (bytes, entries) = pack();
        let second = entries[1].frame.stored_range();
        for at in (second.start..second.end).step_by(7) {
            let mut bytes = bytes.clone();
            bytes[at as usize] ^= 0x20;
            assert_eq!(opened(&bytes), [entries[0], entries[2]], "byte {at}");
        }
    }

    #[test]
    fn a_pack_is_searched_in_pieces_as_in_one() {
        let (bytes, entries) = pack();
        for piece in [1, 3, 100, 127, 1129, 50_000] {
            let (mut rest, mut at, mut found) = (Vec::new(), 0, Vec::new());
            for chunk in bytes.chunks(piece) {
                rest.extend_from_slice(chunk);
                let is_end = at + rest.len() == bytes.len();
                let frames = find_frames(&rest, is_end);
                found.extend(frames.frames.iter().map(|range| at + range.start));
                rest.drain(..frames.searched);
                at += frames.searched;
            }
            let offsets: Vec<_> = entries
                .iter()
                .map(|entry| entry.frame.offset as usize)
                .collect();
            assert_eq!((found, at), (offsets, bytes.len()), "pieces of {piece}");
        }
    }

    #[test]
    fn a_frame_of_another_pack_or_volume_is_none_of_this() {
        let (bytes, entries) = pack();
        let range = entries[0].frame.stored_range();
        let stored = Bytes::copy_from_slice(&bytes[range.start as usize..range.end as usize]);
        let offset = entries[0].frame.offset;
        assert!(open_any_frame(stored.clone(), PACK, offset, &keys()).is_ok());
        assert!(open_any_frame(stored.clone(), PackId(6), offset, &keys()).is_err());
        let others = PackKeys::new(VolumeId([8; 16]), &[4; 32]);
        assert!(open_any_frame(stored, PACK, offset, &others).is_err());
    }
}
