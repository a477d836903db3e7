//! Packs return the bytes that were written to them.

mod common;

use bytes::Bytes;
use common::{PACK, block, fetch, keys, read_with, sealed_keys};
use forebay_pack::{
    Compression, FrameRef, MAX_FRAME_LEN, PackKeys, PackWriter, open_frame, open_index, read_index,
    verify_checksums,
};
use forebay_types::{BLOCK_SIZE, ByteRange};
use proptest::prelude::*;

/// Bytes that compress (a repeated phrase) or do not (drawn at random).
fn raw() -> impl Strategy<Value = Vec<u8>> {
    let noise = prop::collection::vec(any::<u8>(), 1..3000);
    let phrase = (prop::collection::vec(any::<u8>(), 1..40), 1..9000_usize);
    prop_oneof![
        noise,
        phrase.prop_map(|(phrase, repeats)| phrase.repeat(repeats)),
    ]
}

fn compression() -> impl Strategy<Value = Compression> {
    prop_oneof![
        Just(Compression::Off),
        Just(Compression::Auto { level: 1 }),
        Just(Compression::Auto { level: 3 }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pushed_bytes_come_back(
        frames in prop::collection::vec((any::<u64>(), any::<u64>(), 0..BLOCK_SIZE, raw()), 0..6),
        piece in 1..5000_usize,
        compression in compression(),
        sealed in any::<bool>(),
        former in 0usize..100_000,
    ) {
        let keys = if sealed { sealed_keys() } else { keys() };
        let mut writer = PackWriter::new_in(vec![0xee; former], PACK, &keys, compression);
        let mut pushed = Vec::new();
        for (inode, index, start, raw) in frames {
            let start = start.min(BLOCK_SIZE - raw.len() as u64);
            let range = ByteRange::at(start, raw.len() as u64);
            let reference = writer.push(block(inode, index), range, raw.chunks(piece));
            prop_assert_eq!(FrameRef::decode(&reference.encode()), Ok(reference));
            prop_assert_eq!(reference.range(), range);
            pushed.push((block(inode, index), start, raw));
        }
        prop_assert_eq!(writer.frames(), pushed.len());
        prop_assert_eq!(writer.is_empty(), pushed.is_empty());
        let len = writer.len();
        let pack = writer.finish();
        prop_assert_eq!(pack.bytes.len(), len);
        prop_assert_eq!(&open_index(&pack.bytes, &keys).unwrap().entries, &pack.frames);
        prop_assert_eq!(read_with(&keys, &pack.bytes).unwrap(), pushed);
    }

    #[test]
    fn bytes_from_anywhere_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        reference in any::<[u8; FrameRef::LEN]>(),
    ) {
        prop_assert!(read_index(&bytes).is_err());
        prop_assert!(open_index(&bytes, &sealed_keys()).is_err());
        prop_assert!(verify_checksums(&bytes).is_err());
        if let Ok(reference) = FrameRef::decode(&reference) {
            let bytes = Bytes::from(bytes);
            for keys in [keys(), sealed_keys()] {
                prop_assert!(open_frame(bytes.clone(), &reference, block(1, 1), &keys).is_err());
            }
        }
    }
}

#[test]
fn a_whole_block_of_zeros_takes_next_to_no_room() {
    let zeros = vec![0; MAX_FRAME_LEN];
    let mut writer = PackWriter::new(PACK, &keys(), Compression::default());
    let frame = writer.push(
        block(1, 0),
        ByteRange::at(0, BLOCK_SIZE),
        zeros.chunks(4096),
    );
    assert!(frame.stored_len < 1024, "{}", frame.stored_len);
    let pack = writer.finish();
    let opened = open_frame(fetch(&pack.bytes, &frame), &frame, block(1, 0), &keys()).unwrap();
    assert_eq!(opened.data, zeros);
}

#[test]
fn opening_a_raw_frame_copies_nothing() {
    let mut writer = PackWriter::new(PACK, &keys(), Compression::Off);
    let raw: &[u8] = b"raw";
    let frame = writer.push(block(1, 0), ByteRange::at(5, 3), [raw].into_iter());
    let stored = fetch(&writer.finish().bytes, &frame);
    let opened = open_frame(stored.clone(), &frame, block(1, 0), &keys()).unwrap();
    assert!(stored.as_ptr_range().contains(&opened.data.as_ptr()));
}

#[test]
#[should_panic(expected = "raw bytes of a frame and length of its range")]
fn pushing_fewer_bytes_than_the_range_has_is_a_broken_contract() {
    let raw: &[u8] = b"raw";
    let keys: PackKeys = keys();
    PackWriter::new(PACK, &keys, Compression::Off).push(
        block(1, 0),
        ByteRange::at(0, 4),
        [raw].into_iter(),
    );
}
