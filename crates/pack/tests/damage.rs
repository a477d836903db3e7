//! No damage to a pack goes unnoticed, and none makes its reader panic.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

mod common;

use bytes::Bytes;
use common::{PACK, block, fetch, keys, read_all, write};
use forebay_pack::{
    Compression, FrameFault, PackError, PackKeys, PackWriter, open_frame, read_index,
};
use forebay_types::{ByteRange, PackId, VolumeId};

#[test]
fn every_flipped_byte_is_noticed() {
    for compression in [Compression::Off, Compression::default()] {
        let pack = write(compression);
        let first = pack.frames[0].frame.stored_range().start as usize;
        let index = pack.frames.last().unwrap().frame.stored_range().end as usize;
        for at in 0..pack.bytes.len() {
            for mask in [0x01, 0x80, 0xff] {
                let mut damaged = pack.bytes.to_vec();
                damaged[at] ^= mask;
                let damaged = Bytes::from(damaged);
                if (first..index).contains(&at) {
                    // A reader that has the reference from the block map, not from the index.
                    let noticed = pack.frames.iter().filter(|entry| {
                        let stored = fetch(&damaged, &entry.frame);
                        open_frame(stored, &entry.frame, entry.block, &keys()).is_err()
                    });
                    assert_eq!(noticed.count(), 1, "byte {at} ^ {mask:#x}");
                } else {
                    assert!(read_index(&damaged).is_err(), "byte {at} ^ {mask:#x}");
                }
                assert!(read_all(&damaged).is_err(), "byte {at} ^ {mask:#x}");
            }
        }
    }
}

#[test]
fn a_pack_cut_anywhere_is_noticed() {
    let pack = write(Compression::default());
    for len in 0..pack.bytes.len() {
        let cut = pack.bytes.slice(..len);
        assert!(read_index(&cut).is_err(), "{len}");
        for entry in &pack.frames {
            let opened = open_frame(
                fetch(&cut, &entry.frame),
                &entry.frame,
                entry.block,
                &keys(),
            );
            let whole = entry.frame.stored_range().end as usize <= len;
            assert_eq!(opened.is_ok(), whole, "{len}");
        }
    }
}

#[test]
fn a_pack_with_bytes_added_is_noticed() {
    let pack = write(Compression::Off);
    let mut longer = pack.bytes.to_vec();
    longer.insert(0, 0);
    assert_eq!(
        read_index(&longer),
        Err(PackError::Damaged("it is longer than its index says"))
    );
    longer = pack.bytes.to_vec();
    longer.push(0);
    assert!(read_index(&longer).is_err());
}

#[test]
fn the_index_is_read_from_the_tail_alone() {
    let pack = write(Compression::Off);
    let index = read_index(&pack.bytes).unwrap();
    assert_eq!(index.entries, pack.frames);
    let needed = (0..pack.bytes.len())
        .rev()
        .find_map(|from| match read_index(&pack.bytes[from..]) {
            Err(PackError::TailTooShort { needed }) => Some(needed),
            _ => None,
        })
        .unwrap();
    let from = pack.bytes.len() - needed;
    assert_eq!(read_index(&pack.bytes[from..]).unwrap(), index);
    assert!(read_index(&pack.bytes[from + 1..]).is_err());
}

#[test]
fn a_sound_frame_of_something_else_is_not_served() {
    let pack = write(Compression::default());
    let [first, second, third] = pack.frames[..] else {
        panic!("the sample has three frames");
    };
    let stored = fetch(&pack.bytes, &third.frame);
    let refused = |frame, block, keys: &PackKeys| {
        let error = open_frame(stored.clone(), &frame, block, keys).unwrap_err();
        assert!(!error.is_worth_another_fetch());
        match error.fault {
            FrameFault::Identity { what, .. } => what,
            other => panic!("{other}"),
        }
    };

    let foreign = PackKeys::new(VolumeId([9; 16]), &[0x5a; 32]);
    assert_eq!(refused(third.frame, third.block, &foreign), "volume");
    assert_eq!(refused(third.frame, block(5, 1), &keys()), "inode");
    assert_eq!(refused(third.frame, block(4, 2), &keys()), "block");

    let mut other = third.frame;
    other.pack = PackId(PACK.0 + 1);
    assert_eq!(refused(other, third.block, &keys()), "pack");
    other = third.frame;
    other.start += 1;
    assert_eq!(refused(other, third.block, &keys()), "start");
    other = third.frame;
    other.raw_len += 1;
    assert_eq!(refused(other, third.block, &keys()), "length");
    other = third.frame;
    other.crc32 ^= 1;
    assert_eq!(refused(other, third.block, &keys()), "CRC32");

    // The answer to a request for one frame contains another frame.
    let error = open_frame(
        fetch(&pack.bytes, &first.frame),
        &second.frame,
        second.block,
        &keys(),
    )
    .unwrap_err();
    assert!(matches!(error.fault, FrameFault::Length { .. }));
}

#[test]
fn a_pack_number_written_twice_does_not_serve_the_other_bytes() {
    let write = |raw: &[u8]| {
        let mut writer = PackWriter::new(PACK, &keys(), Compression::Off);
        let frame = writer.push(block(1, 1), ByteRange::at(0, 3), [raw].into_iter());
        (writer.finish(), frame)
    };
    let (_, expected) = write(b"old");
    let (pack, _) = write(b"new");
    let error = open_frame(
        fetch(&pack.bytes, &expected),
        &expected,
        block(1, 1),
        &keys(),
    );
    assert!(matches!(
        error.unwrap_err().fault,
        FrameFault::Identity { what: "CRC32", .. }
    ));
}

#[test]
fn a_wrong_secret_is_noticed_by_the_hash() {
    let pack = write(Compression::default());
    let wrong = PackKeys::new(keys().volume(), &[0; 32]);
    let [raw, _, compressed] = pack.frames[..] else {
        panic!("the sample has three frames");
    };
    let open = |entry: forebay_pack::IndexEntry| {
        open_frame(
            fetch(&pack.bytes, &entry.frame),
            &entry.frame,
            entry.block,
            &wrong,
        )
    };
    assert_eq!(open(compressed).unwrap_err().fault, FrameFault::Hash);
    let frame = open(raw).unwrap();
    assert_eq!(
        frame.verify_hash(&wrong).unwrap_err().fault,
        FrameFault::Hash
    );
    assert!(frame.verify_hash(&keys()).is_ok());
}

#[test]
fn a_reference_with_impossible_numbers_is_refused() {
    let pack = write(Compression::Off);
    let entry = pack.frames[1];
    let mut impossible = entry.frame;
    impossible.raw_len = u32::MAX;
    let error = open_frame(
        fetch(&pack.bytes, &entry.frame),
        &impossible,
        entry.block,
        &keys(),
    );
    assert_eq!(error.unwrap_err().fault, FrameFault::Reference);
}
