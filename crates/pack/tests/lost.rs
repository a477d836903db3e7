//! Frames that stand for bytes which were lost: every reader takes them for damaged, and they harm no other frame.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

mod common;

use common::{PACK, block, fetch, keys, sealed_keys};
use forebay_pack::{
    Compression, FinishedPack, FrameFault, PackError, PackKeys, PackWriter, find_frames,
    open_any_frame, open_frame, open_index, verify_checksums,
};
use forebay_types::{BLOCK_SIZE, ByteRange};

const BEFORE: &[u8] = b"what the log returned";
const BEHIND: &[u8] = b"and what it returned behind the damage";

/// A pack with a lost frame between two others, at the end of a block.
fn pack(keys: &PackKeys) -> FinishedPack {
    let mut writer = PackWriter::new(PACK, keys, Compression::default());
    let range = |start, len| ByteRange::at(start, len);
    let first = range(10, BEFORE.len() as u64);
    writer.push(block(3, 0), first, std::iter::once(BEFORE));
    let lost = writer.push_lost(block(3, 0), range(BLOCK_SIZE - 300_000, 300_000));
    assert_eq!((lost.raw_len, lost.stored_len), (300_000, 129));
    assert!(lost.is_possible());
    let last = range(0, BEHIND.len() as u64);
    writer.push(block(3, 1), last, std::iter::once(BEHIND));
    assert!(writer.len() < 2000, "it takes no room for lost bytes");
    writer.finish()
}

#[test]
fn every_reader_takes_a_lost_frame_for_damaged_and_opens_its_neighbours() {
    for keys in [keys(), sealed_keys()] {
        let pack = pack(&keys);
        let index = open_index(&pack.bytes, &keys).unwrap();
        assert_eq!(index.entries, pack.frames);
        let opened: Vec<_> = pack
            .frames
            .iter()
            .map(|entry| {
                let stored = fetch(&pack.bytes, &entry.frame);
                open_frame(stored, &entry.frame, entry.block, &keys)
            })
            .collect();
        let data = |at: usize| opened[at].as_ref().unwrap().data.to_vec();
        assert_eq!((data(0), data(2)), (BEFORE.to_vec(), BEHIND.to_vec()));
        let lost = opened[1].as_ref().unwrap_err();
        assert_eq!(lost.fault, FrameFault::Lost);
        assert!(!lost.is_worth_another_fetch());
        assert_eq!(
            lost.to_string(),
            format!(
                "frame at byte {} of pack 000000000000002a: its bytes were lost before they reached the bucket",
                pack.frames[1].frame.offset
            )
        );
        // Without keys, and without an index.
        let PackError::Frame(error) = verify_checksums(&pack.bytes).unwrap_err() else {
            panic!("one of its frames is wrong");
        };
        assert_eq!(error.fault, FrameFault::Lost);
        let found = find_frames(&pack.bytes, true).frames;
        let offsets: Vec<_> = found.iter().map(|found| found.start as u32).collect();
        assert_eq!(
            offsets,
            [pack.frames[0].frame.offset, pack.frames[2].frame.offset]
        );
        let frame = pack.frames[1].frame;
        let stored = fetch(&pack.bytes, &frame);
        assert!(open_any_frame(stored, PACK, frame.offset, &keys).is_err());
    }
}

#[test]
fn a_damaged_lost_frame_is_damaged() {
    for keys in [keys(), sealed_keys()] {
        let pack = pack(&keys);
        let entry = pack.frames[1];
        let stored = fetch(&pack.bytes, &entry.frame);
        for at in 0..stored.len() {
            for mask in [0x01, 0x80, 0xff] {
                let mut damaged = stored.to_vec();
                damaged[at] ^= mask;
                let opened = open_frame(damaged.into(), &entry.frame, entry.block, &keys);
                assert_ne!(opened.unwrap_err().fault, FrameFault::Lost, "byte {at}");
            }
        }
    }
}
