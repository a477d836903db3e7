//! Sealed packs: the data that they hide, the keys that open them, and the packs that are refused.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

mod common;

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use common::{
    PACK, block, data_keys, fetch, keys, read_with, sample, sealed_keys, sealed_keys_with, write,
    write_with,
};
use forebay_pack::{
    Compression, FinishedPack, FrameFault, FrameRef, IndexEntry, PackError, PackKeys, PackWriter,
    open_frame, open_index, read_index,
};
use forebay_seal::{DataKeyId, Entropy, SeededEntropy, SystemEntropy, UnknownDataKey};
use forebay_types::{ByteRange, PackId, VolumeId};

const BOTH: [Compression; 2] = [Compression::Off, Compression::Auto { level: 1 }];

/// The fault of the frame in the pack at the place of `entry`.
fn fault(pack: &Bytes, entry: &IndexEntry, keys: &PackKeys) -> FrameFault {
    let error = open_frame(fetch(pack, &entry.frame), &entry.frame, entry.block, keys);
    let error = error.expect_err("a frame that must not be opened");
    assert!(!error.is_worth_another_fetch());
    error.fault
}

/// A pack with one frame for each of these contents, in consecutive blocks.
fn pack_of(keys: &PackKeys, pack: PackId, contents: &[&[u8]]) -> FinishedPack {
    let mut writer = PackWriter::new(pack, keys, Compression::Off);
    for (at, raw) in contents.iter().enumerate() {
        let range = ByteRange::at(0, raw.len() as u64);
        writer.push(block(1, at as u64), range, std::iter::once(*raw));
    }
    writer.finish()
}

#[test]
fn what_is_sealed_comes_back_with_the_keys() {
    for compression in BOTH {
        let pack = write_with(&sealed_keys(), compression);
        // Other keys of the same volume: those of the next start.
        assert_eq!(read_with(&sealed_keys(), &pack.bytes).unwrap(), sample());
        let index = open_index(&pack.bytes, &sealed_keys()).unwrap();
        assert_eq!(index.entries, pack.frames);
        assert_eq!((index.volume, index.pack), (keys().volume(), PACK));
        assert_eq!(index.pack_len as usize, pack.bytes.len());
        // Sealing adds no bytes.
        assert_eq!(pack.bytes.len(), write(compression).bytes.len());
    }
}

#[test]
fn a_sealed_pack_shows_neither_contents_nor_what_they_are_of() {
    let raw = b"nobody but the client shall read this";
    let mut writer = PackWriter::new(PACK, &sealed_keys(), Compression::Off);
    let inode = 0x0123_4567_89ab_cdef;
    for index in 0..2 {
        let range = ByteRange::at(0, raw.len() as u64);
        writer.push(block(inode, index), range, std::iter::once(&raw[..]));
    }
    let pack = writer.finish();
    let shows = |needle: &[u8]| {
        pack.bytes
            .windows(needle.len())
            .any(|bytes| bytes == needle)
    };
    assert!(!shows(&raw[..8]));
    assert!(!shows(&inode.to_le_bytes()));
    // Nor does it show that two frames are equal: behind the 24 bytes that number them no byte is the same.
    let stored = pack
        .frames
        .iter()
        .map(|entry| fetch(&pack.bytes, &entry.frame));
    let [one, two] = &stored.collect::<Vec<_>>()[..] else {
        panic!("there are two frames");
    };
    let salt = 24..40;
    let same = (0..one.len()).filter(|at| !salt.contains(at) && *at > 16 && one[*at] == two[*at]);
    // By chance one byte in 256, beside the bytes of the number that are zero.
    assert!(same.count() < 7 + 12, "frames of equal bytes look alike");
}

#[test]
fn without_keys_a_sealed_pack_says_that_it_is_sealed() {
    let pack = write_with(
        &sealed_keys_with(3, Arc::new(SystemEntropy)),
        Compression::Off,
    );
    let sealed = PackError::Sealed {
        algorithm: 1,
        key_id: 3,
    };
    assert_eq!(read_index(&pack.bytes), Err(sealed));
    let sealed = FrameFault::Sealed {
        algorithm: 1,
        key_id: 3,
    };
    assert_eq!(fault(&pack.bytes, &pack.frames[0], &keys()), sealed);
}

#[test]
fn a_sealed_volume_takes_nothing_that_is_not_sealed() {
    let pack = write(Compression::Off);
    let error = open_index(&pack.bytes, &sealed_keys()).unwrap_err();
    assert_eq!(error, PackError::NotSealed);
    assert_eq!(
        fault(&pack.bytes, &pack.frames[0], &sealed_keys()),
        FrameFault::NotSealed
    );
}

#[test]
fn a_frame_of_another_volume_is_refused() {
    let pack = write_with(&sealed_keys(), Compression::Off);
    // Not even a volume that has the same data keys.
    let other = data_keys(VolumeId([9; 16]), 1);
    let other = PackKeys::sealed(&[0x5a; 32], other, Arc::new(SystemEntropy));
    assert_eq!(
        fault(&pack.bytes, &pack.frames[0], &other),
        FrameFault::Forged
    );
    assert!(open_index(&pack.bytes, &other).is_err());
    assert_eq!(open_index(&pack.bytes[1..], &other), Err(PackError::Forged));
}

#[test]
fn a_frame_of_another_pack_is_refused() {
    let keys = sealed_keys();
    let one = pack_of(&keys, PackId(1), &[b"some bytes"]);
    let two = pack_of(&keys, PackId(2), &[b"some bytes"]);
    let mut expected = two.frames[0];
    // As if it had the right checksum.
    expected.frame.crc32 = one.frames[0].frame.crc32;
    assert_eq!(fault(&one.bytes, &expected, &keys), FrameFault::Forged);
}

#[test]
fn a_frame_in_another_place_of_its_pack_is_refused() {
    let keys = sealed_keys();
    let pack = pack_of(&keys, PACK, &[b"one length", b"as another"]);
    let [first, second] = pack.frames[..] else {
        panic!("there are two frames");
    };
    let what = |expected: IndexEntry| {
        let stored = fetch(&pack.bytes, &first.frame);
        let error = open_frame(stored, &expected.frame, expected.block, &keys).unwrap_err();
        match error.fault {
            FrameFault::Identity { what, .. } => what,
            other => panic!("{other}"),
        }
    };
    // The first frame's bytes where the second one's should be.
    assert_eq!(what(second), "block");
    let with = |change: &dyn Fn(&mut IndexEntry)| {
        let mut expected = first;
        change(&mut expected);
        expected
    };
    assert_eq!(what(with(&|entry| entry.block = block(2, 0))), "inode");
    assert_eq!(what(with(&|entry| entry.frame.start = 1)), "start");
    assert_eq!(what(with(&|entry| entry.frame.raw_len = 11)), "length");
    assert_eq!(what(with(&|entry| entry.frame.offset += 1)), "offset");
    assert_eq!(what(with(&|entry| entry.frame.crc32 ^= 1)), "CRC32");
}

#[test]
fn a_frame_of_an_older_pack_with_the_same_number_is_refused() {
    let keys = sealed_keys();
    let older = pack_of(&keys, PACK, &[b"what it was", b"before"]);
    let newer = pack_of(&keys, PACK, &[b"what it is!", b"behind"]);
    for entry in &newer.frames {
        assert!(matches!(
            fault(&older.bytes, entry, &keys),
            FrameFault::Identity { what: "CRC32", .. }
        ));
    }
    // Neither do parts of the two make one pack.
    let frames = newer.frames[1].frame.stored_range().end as usize;
    let first = newer.frames[0].frame.stored_range().end as usize;
    for cut in [frames, first] {
        let mixed = [&newer.bytes[..cut], &older.bytes[cut..]].concat();
        let error = read_with(&keys, &mixed.into()).unwrap_err();
        assert!(error.contains("CRC32"), "{error}");
    }
}

#[test]
fn packs_from_before_a_rotation_stay_readable_and_new_ones_have_the_new_key() {
    let [before, after] = [1, 2].map(|newest| sealed_keys_with(newest, Arc::new(SystemEntropy)));
    let old = write_with(&before, Compression::Off);
    let new = write_with(&after, Compression::Off);
    assert_eq!(read_with(&after, &old.bytes).unwrap(), sample());
    assert_eq!(read_with(&after, &new.bytes).unwrap(), sample());
    // A gateway that has not read the key ring since.
    let unknown = UnknownDataKey(DataKeyId(2));
    assert_eq!(
        fault(&new.bytes, &new.frames[0], &before),
        FrameFault::UnknownKey(unknown)
    );
    let error = open_index(&new.bytes, &before).unwrap_err();
    assert_eq!(error, PackError::UnknownKey(unknown));
}

#[test]
fn a_raw_frame_is_opened_in_the_memory_that_it_came_in_unless_that_is_shared() {
    let keys = sealed_keys();
    let pack = write_with(&keys, Compression::Off);
    let entry = pack.frames[1];
    let own = Bytes::copy_from_slice(&fetch(&pack.bytes, &entry.frame));
    let place = own.as_ptr() as usize..own.as_ptr() as usize + own.len();
    let opened = open_frame(own, &entry.frame, entry.block, &keys).unwrap();
    assert!(opened.is_in_stored && place.contains(&(opened.data.as_ptr() as usize)));

    let shared = fetch(&pack.bytes, &entry.frame);
    let opened = open_frame(shared.clone(), &entry.frame, entry.block, &keys).unwrap();
    assert!(!opened.is_in_stored);
    assert_eq!(&opened.data[..], &sample()[1].2[..]);
    // The bytes of the other holders have not changed.
    assert_eq!(shared, fetch(&pack.bytes, &entry.frame));
    open_frame(shared, &entry.frame, entry.block, &keys).unwrap();
}

/// The inputs of a pack's key, and of its nonces, beside the volume: data key, number of the pack,
/// and salt; with the number of the frame, or `None` for the index.
type Nonce = (Vec<u8>, PackId, Vec<u8>, Option<Vec<u8>>);

fn nonces(pack: &FinishedPack) -> Vec<Nonce> {
    let field = |at: usize, len: usize| pack.bytes[at..at + len].to_vec();
    let of_frame = |frame: &FrameRef| {
        let at = frame.offset as usize;
        let number = Some(field(at + 16, 8));
        (field(at + 8, 4), pack.id, field(at + 24, 16), number)
    };
    let footer = pack.bytes.len() - 80;
    let index = (field(footer + 12, 4), pack.id, field(footer + 40, 16), None);
    let frames = pack.frames.iter().map(|entry| of_frame(&entry.frame));
    frames.chain([index]).collect()
}

/// Lives of gateways, each of which writes packs under the same numbers: restarts that continue from the same published
/// number, copies of a volume, logs that were rolled back.
fn lives(entropy: impl Fn() -> Arc<dyn Entropy>) -> Vec<Nonce> {
    let mut all = Vec::new();
    for newest in [1, 1, 1, 2, 2, 1] {
        let keys = sealed_keys_with(newest, entropy());
        for pack in 0..10 {
            let contents: [&[u8]; 3] = [b"one", b"two", b"three"];
            all.extend(nonces(&pack_of(&keys, PackId(pack), &contents)));
        }
    }
    all
}

#[test]
fn no_nonce_comes_again_in_restarts_copies_and_rollbacks() {
    let all = lives(|| Arc::new(SystemEntropy));
    assert_eq!(all.len(), 6 * 10 * 4);
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    // The test would notice: if randomness repeats, nonces do.
    let all = lives(|| Arc::new(SeededEntropy::new(1)));
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), 2 * 10 * 4);
}

#[test]
fn debug_output_shows_no_key() {
    assert_eq!(
        format!("{:?}", sealed_keys_with(2, Arc::new(SystemEntropy))),
        "PackKeys { volume: VolumeId(612073616d706c6520766f6c756d6521), data_keys: Some(DataKeys { \
         volume: VolumeId(612073616d706c6520766f6c756d6521), current: DataKeyId(2), older: \
         [DataKeyId(1)], .. }), .. }"
    );
}

#[test]
fn a_hash_is_given_where_it_is_known_or_needed_and_is_that_of_the_header() {
    let raw: Vec<u8> = (0..5000_u32).map(|n| (n % 251) as u8).collect();
    // A frame that is sealed and stored raw has none in its header.
    for (keys, is_needed) in [(keys(), true), (sealed_keys(), false)] {
        let hash = keys.frame_hash([&raw[..1000], &raw[1000..]].into_iter());
        let mut writer = PackWriter::new(PACK, &keys, Compression::Off);
        let mut push = |at, known| {
            let range = ByteRange::at(0, raw.len() as u64);
            let pieces = std::iter::once(&raw[..]);
            writer.push_hashed(block(1, at), range, pieces, known).1
        };
        assert_eq!(push(0, None), is_needed.then_some(hash));
        assert_eq!(push(1, Some(hash)), Some(hash));
        let pack = writer.finish();
        for entry in &pack.frames {
            let stored = fetch(&pack.bytes, &entry.frame);
            let frame = open_frame(stored, &entry.frame, entry.block, &keys).unwrap();
            frame.verify_hash(&keys).unwrap();
        }
    }
}
