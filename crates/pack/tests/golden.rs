//! The formats of versions 1 and 2 (sealed), kept as files: every released format stays readable.

mod common;

use std::path::PathBuf;

use bytes::Bytes;
use common::{golden_keys, keys, read_all, read_with, sample, write, write_with};
use forebay_pack::header::FRAME_HEADER_LEN;
use forebay_pack::index::{INDEX_ENTRY_LEN, INDEX_FOOTER_LEN, PACK_HEADER_LEN};
use forebay_pack::{Compression, PackError, open_frame, open_index, read_index, verify_checksums};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

fn fixture(name: &str) -> Bytes {
    Bytes::from(std::fs::read(path(name)).unwrap())
}

#[test]
fn golden_pack_is_read() {
    assert_eq!(read_all(&fixture("raw-v1.pack")).unwrap(), sample());
    assert_eq!(read_all(&fixture("zstd-v1.pack")).unwrap(), sample());
}

#[test]
fn golden_pack_is_written_again_byte_for_byte() {
    // Only the raw one: another release of zstd may compress differently and be right.
    assert_eq!(write(Compression::Off).bytes, fixture("raw-v1.pack"));
    assert!(fixture("zstd-v1.pack").len() < fixture("raw-v1.pack").len());
}

#[test]
fn damaged_header_is_named() {
    let error = read_all(&fixture("damaged-header-v1.pack")).unwrap_err();
    assert_eq!(
        error,
        "damaged pack: its header is not the one of its index"
    );
}

#[test]
fn damaged_frame_is_named_and_leaves_the_others_readable() {
    let pack = fixture("damaged-frame-v1.pack");
    let index = read_index(&pack).unwrap();
    let opened: Vec<_> = index
        .entries
        .iter()
        .map(|entry| {
            let stored = common::fetch(&pack, &entry.frame);
            open_frame(stored, &entry.frame, entry.block, &keys())
        })
        .collect();
    assert!(opened[0].is_ok() && opened[2].is_ok());
    let error = opened[1].as_ref().unwrap_err();
    assert!(error.is_worth_another_fetch());
    assert_eq!(
        error.to_string(),
        "frame at byte 169 of pack 000000000000002a: damaged: its bytes do not match its CRC32"
    );
}

#[test]
fn damaged_index_is_named() {
    let error = read_index(&fixture("damaged-index-v1.pack")).unwrap_err();
    assert_eq!(
        error,
        PackError::Damaged("its index does not match its CRC32")
    );
}

#[test]
fn cut_pack_is_named() {
    let error = read_index(&fixture("cut-v1.pack")).unwrap_err();
    assert_eq!(
        error,
        PackError::Damaged("it does not end in an index footer")
    );
}

#[test]
fn golden_sealed_pack_is_read() {
    let keys = golden_keys();
    for name in ["sealed-raw-v2.pack", "sealed-zstd-v2.pack"] {
        assert_eq!(read_with(&keys, &fixture(name)).unwrap(), sample());
    }
}

#[test]
fn golden_sealed_pack_is_written_again_byte_for_byte() {
    // The first salt from the seed.
    let pack = write_with(&golden_keys(), Compression::Off);
    assert_eq!(pack.bytes, fixture("sealed-raw-v2.pack"));
    assert_eq!(pack.bytes.len(), fixture("raw-v1.pack").len());
}

#[test]
fn damaged_sealed_index_is_named() {
    let pack = fixture("damaged-sealed-index-v2.pack");
    let error = open_index(&pack, &golden_keys()).unwrap_err();
    let damaged = PackError::Damaged("its index does not match its CRC32");
    assert_eq!(error, damaged);
    assert_eq!(verify_checksums(&pack), Err(damaged));
}

#[test]
fn checksums_of_golden_packs_are_right_and_those_of_damaged_ones_wrong() {
    for name in [
        "raw-v1.pack",
        "zstd-v1.pack",
        "sealed-raw-v2.pack",
        "sealed-zstd-v2.pack",
    ] {
        assert_eq!(verify_checksums(&fixture(name)), Ok(3), "{name}");
    }
    for name in [
        "damaged-header-v1.pack",
        "damaged-frame-v1.pack",
        "damaged-index-v1.pack",
        "cut-v1.pack",
        "damaged-sealed-index-v2.pack",
    ] {
        assert!(verify_checksums(&fixture(name)).is_err(), "{name}");
    }
}

/// Writes the fixtures of the present version. Released fixtures are never written again: a new
/// version of the format adds files of its own.
#[test]
#[ignore = "writes tests/fixtures, which are made once per version of the format"]
fn write_fixtures() {
    let sealed = write_with(&golden_keys(), Compression::Off).bytes.to_vec();
    let last_sealed_entry = sealed.len() - INDEX_FOOTER_LEN - INDEX_ENTRY_LEN;
    let mut damaged_sealed = sealed.clone();
    damaged_sealed[last_sealed_entry] ^= 0x10;
    let sealed_zstd = write_with(&golden_keys(), Compression::default());
    for (name, bytes) in [
        ("sealed-raw-v2.pack", sealed),
        ("sealed-zstd-v2.pack", sealed_zstd.bytes.to_vec()),
        ("damaged-sealed-index-v2.pack", damaged_sealed),
    ] {
        std::fs::write(path(name), bytes).unwrap();
    }

    let raw = write(Compression::Off).bytes.to_vec();
    let second_payload = PACK_HEADER_LEN + FRAME_HEADER_LEN + 1 + FRAME_HEADER_LEN;
    let last_entry = raw.len() - INDEX_FOOTER_LEN - INDEX_ENTRY_LEN;
    let flipped = |at: usize| {
        let mut damaged = raw.clone();
        damaged[at] ^= 0x10;
        damaged
    };
    for (name, bytes) in [
        ("zstd-v1.pack", write(Compression::default()).bytes.to_vec()),
        ("damaged-header-v1.pack", flipped(PACK_HEADER_LEN - 1)),
        ("damaged-frame-v1.pack", flipped(second_payload + 3)),
        ("damaged-index-v1.pack", flipped(last_entry)),
        ("cut-v1.pack", raw[..raw.len() - 1].to_vec()),
        ("raw-v1.pack", raw.clone()),
    ] {
        std::fs::write(path(name), bytes).unwrap();
    }
}
