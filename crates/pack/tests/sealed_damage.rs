//! Every change of a sealed pack is noticed, whether its checksums are repaired or not, and none
//! makes the reader panic.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

mod common;

use bytes::Bytes;
use common::{fetch, read_with, sealed_keys, write_with};
use forebay_pack::{
    Compression, FinishedPack, FrameFault, IndexEntry, PackError, PackKeys, open_frame, open_index,
    verify_checksums,
};

const BOTH: [Compression; 2] = [Compression::Off, Compression::Auto { level: 1 }];

/// A pack with one byte changed.
fn flipped(pack: &FinishedPack, at: usize, mask: u8) -> Vec<u8> {
    let mut damaged = pack.bytes.to_vec();
    damaged[at] ^= mask;
    damaged
}

/// Repairs the checksum of a frame, and the one in the reference: an attacker with write access to
/// the bucket could do the same if the metadata were writable as well.
fn repair_frame(pack: &mut [u8], entry: &mut IndexEntry) {
    let range = entry.frame.stored_range();
    let stored = &mut pack[range.start as usize..range.end as usize];
    let mut crc32 = crc32fast::Hasher::new();
    crc32.update(&stored[..56]);
    crc32.update(&stored[60..]);
    entry.frame.crc32 = crc32.finalize();
    stored[56..60].copy_from_slice(&entry.frame.crc32.to_le_bytes());
}

/// Repairs the checksums of header, index and footer.
fn repair_index(pack: &mut [u8]) {
    let crc32 = crc32fast::hash(&pack[..36]);
    pack[36..40].copy_from_slice(&crc32.to_le_bytes());
    let (before, footer) = pack.split_at_mut(pack.len() - 80);
    let frames = u32::from_le_bytes(footer[64..68].try_into().unwrap()) as usize;
    if let Some(index) = before.len().checked_sub(frames.saturating_mul(44)) {
        let crc32 = crc32fast::hash(&before[index..]);
        footer[72..76].copy_from_slice(&crc32.to_le_bytes());
    }
    let crc32 = crc32fast::hash(&footer[..76]);
    footer[76..].copy_from_slice(&crc32.to_le_bytes());
}

/// Number of the pack's frames that are not opened.
fn refused(pack: &Bytes, frames: &[IndexEntry], keys: &PackKeys) -> usize {
    let refused = frames.iter().filter(|entry| {
        let stored = fetch(pack, &entry.frame);
        open_frame(stored, &entry.frame, entry.block, keys).is_err()
    });
    refused.count()
}

#[test]
fn every_flipped_byte_is_noticed() {
    let keys = sealed_keys();
    for compression in BOTH {
        let pack = write_with(&keys, compression);
        let first = pack.frames[0].frame.stored_range().start as usize;
        let index = pack.frames[2].frame.stored_range().end as usize;
        assert_eq!(verify_checksums(&pack.bytes), Ok(3));
        for at in 0..pack.bytes.len() {
            for mask in [0x01, 0x03, 0x80, 0xff] {
                let damaged = Bytes::from(flipped(&pack, at, mask));
                let case = format!("byte {at} ^ {mask:#x}");
                if (first..index).contains(&at) {
                    assert_eq!(refused(&damaged, &pack.frames, &keys), 1, "{case}");
                } else {
                    assert!(open_index(&damaged, &keys).is_err(), "{case}");
                }
                assert!(read_with(&keys, &damaged).is_err(), "{case}");
                // Noticing does not take keys either.
                assert!(verify_checksums(&damaged).is_err(), "{case}");
            }
        }
    }
}

#[test]
fn every_flipped_byte_of_a_frame_is_noticed_with_its_checksum_repaired() {
    let keys = sealed_keys();
    for compression in BOTH {
        let pack = write_with(&keys, compression);
        for entry in &pack.frames {
            let range = entry.frame.stored_range();
            for at in range.start as usize..range.end as usize {
                for mask in [0x01, 0x80, 0xff] {
                    let mut damaged = flipped(&pack, at, mask);
                    let mut entry = *entry;
                    repair_frame(&mut damaged, &mut entry);
                    let stored = fetch(&damaged.into(), &entry.frame);
                    let opened = open_frame(stored, &entry.frame, entry.block, &keys);
                    // The checksum itself was repaired.
                    let at = at - range.start as usize;
                    match (at, opened) {
                        (56..60, opened) => assert!(opened.is_ok(), "byte {at}"),
                        (0..16, opened) => assert!(opened.is_err(), "byte {at}"),
                        (_, opened) => {
                            let fault = opened.unwrap_err().fault;
                            assert_eq!(fault, FrameFault::Forged, "byte {at}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn every_flipped_byte_around_the_frames_is_noticed_with_checksums_repaired() {
    let keys = sealed_keys();
    let pack = write_with(&keys, Compression::Off);
    let index = pack.frames[2].frame.stored_range().end as usize;
    let footer = pack.bytes.len() - 80;
    let mut forged = 0;
    for at in (0..36).chain(index..footer + 72) {
        for mask in [0x01, 0x80, 0xff] {
            let mut damaged = flipped(&pack, at, mask);
            repair_index(&mut damaged);
            let error = open_index(&damaged, &keys).unwrap_err();
            forged += usize::from(error == PackError::Forged);
        }
    }
    // All entries, the tag, and the salt; other changes contradict themselves before the tag does.
    assert!(forged >= 3 * (3 * 44 + 16 + 16), "{forged}");
}

#[test]
fn a_sealed_pack_cut_anywhere_is_noticed() {
    let keys = sealed_keys();
    let pack = write_with(&keys, Compression::default());
    for len in 0..pack.bytes.len() {
        let cut = pack.bytes.slice(..len);
        assert!(open_index(&cut, &keys).is_err(), "{len}");
        assert!(verify_checksums(&cut).is_err(), "{len}");
        let whole = |entry: &&IndexEntry| entry.frame.stored_range().end as usize <= len;
        let missing = 3 - pack.frames.iter().filter(whole).count();
        assert_eq!(refused(&cut, &pack.frames, &keys), missing, "{len}");
    }
}

/// Frames removed from the end, and an index shortened to fit: the index is authenticated with the
/// number of its entries and its offset.
#[test]
fn a_pack_that_was_made_shorter_is_noticed() {
    let keys = sealed_keys();
    let pack = write_with(&keys, Compression::Off);
    let last = pack.frames[2].frame.stored_range();
    let index = last.end as usize;
    let mut shorter = pack.bytes[..last.start as usize].to_vec();
    shorter.extend(&pack.bytes[index..index + 2 * 44]);
    let mut footer = pack.bytes[pack.bytes.len() - 80..].to_vec();
    footer[64..68].copy_from_slice(&2_u32.to_le_bytes());
    footer[68..72].copy_from_slice(&(last.start as u32).to_le_bytes());
    shorter.extend(footer);
    repair_index(&mut shorter);
    assert_eq!(verify_checksums(&shorter), Ok(2));
    assert_eq!(open_index(&shorter, &keys), Err(PackError::Forged));
}

#[test]
fn the_sealed_index_is_read_from_the_tail_alone() {
    let keys = sealed_keys();
    let pack = write_with(&keys, Compression::Off);
    let needed = 80 + 3 * 44;
    let tail = &pack.bytes[pack.bytes.len() - needed..];
    let index = open_index(tail, &keys).unwrap();
    assert_eq!(index, open_index(&pack.bytes, &keys).unwrap());
    assert_eq!(
        open_index(&tail[1..], &keys),
        Err(PackError::TailTooShort { needed })
    );
}
