//! Shared frames, and the records of a pack's frames.

use forebay_types::{BLOCK_SIZE, BlockIndex, BlockKey, Inode, PackId};

use super::super::*;

#[test]
fn what_no_frame_of_a_pack_is_like_is_refused() {
    let known = KnownFrame {
        hash: None,
        head_crc32: 1,
        raw_crc32: 2,
        offset: 40,
        stored_len: 200,
        raw_len: 4096,
        crc32: 3,
        origin: Origin {
            block: BlockKey {
                inode: Inode(1),
                block: BlockIndex(0),
            },
            start: 0,
        },
    };
    let decoded = |frames: &[KnownFrame]| {
        let frames = PackFrames(frames.to_vec());
        let decoded = PackFrames::decode(b"f", &frames.encode());
        decoded.map(|decoded| assert_eq!(decoded, frames)).is_ok()
    };
    let next = KnownFrame {
        offset: 240,
        ..known
    };
    assert!(decoded(&[]) && decoded(&[known, next]));
    assert!(!decoded(&[next, known]), "out of order");
    assert!(!decoded(&[known, known]), "twice");
    assert!(
        !decoded(&[KnownFrame {
            raw_len: 0,
            ..known
        }]),
        "empty"
    );
    let mut wide = known;
    wide.origin.start = BLOCK_SIZE as u32 - 4095;
    assert!(!decoded(&[wide]), "behind the end of its block");
    let many: Vec<_> = (0..=PART_FRAMES as u32)
        .map(|number| KnownFrame {
            offset: number,
            ..known
        })
        .collect();
    assert!(decoded(&many[1..]));
    assert!(!decoded(&many), "more than a part has");
}

#[test]
fn a_copied_row_of_frames_takes_two_bytes_more_for_each() {
    let row = |origin: fn(u32) -> Option<Origin>| {
        let mut map = BlockMap::new();
        for number in 0..16u32 {
            let frame = FrameAddress {
                pack: PackId(7 << 40),
                offset: 40 + number * ((1 << 18) + 128),
                stored_len: (1 << 18) + 128,
                raw_len: 1 << 18,
                raw_start: number << 18,
                crc32: number,
                origin: origin(number),
            };
            map.insert(frame.raw_range(), frame).unwrap();
        }
        assert_eq!(BlockMap::decode(b"b", &map.encode()), Ok(map.clone()));
        map.encode().len()
    };
    const OTHER: BlockKey = BlockKey {
        inode: Inode(5),
        block: BlockIndex(3),
    };
    let alone = row(|_| None);
    let copy = row(|number| {
        Some(Origin {
            block: OTHER,
            start: number << 18,
        })
    });
    assert_eq!(copy, alone + 4 + 15);
    let zeros = row(|_| {
        Some(Origin {
            block: OTHER,
            start: 0,
        })
    });
    assert!(zeros <= alone + 16 * 5);
}
