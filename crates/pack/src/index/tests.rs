//! Index footers of other versions, and indexes that do not fit their pack.

use super::*;

const VOLUME: VolumeId = VolumeId([1; 16]);
const PACK: PackId = PackId(2);

fn footer() -> Footer {
    Footer {
        volume: VOLUME,
        pack: PACK,
        frames: 0,
        index_offset: PACK_HEADER_LEN as u32,
        index_crc32: 0,
    }
}

/// A footer as a program of another version would write it: right checksum, other byte.
fn with_byte(at: usize, byte: u8) -> Result<Footer, PackError> {
    let mut bytes = footer().encode();
    bytes[at] = byte;
    let crc32 = crc32fast::hash(&bytes[..footer_at::CRC32]);
    put(&mut bytes, footer_at::CRC32, crc32.to_le_bytes());
    Footer::decode(&bytes)
}

/// A pack that has only a header and the given index.
fn pack(entries: &[IndexEntry]) -> Vec<u8> {
    let mut bytes = encode_pack_header(PACK_VERSION, VOLUME, PACK).to_vec();
    bytes.extend(encode_index(VOLUME, PACK, PACK_HEADER_LEN as u32, entries));
    bytes
}

#[test]
fn an_empty_pack_explains_itself() {
    let bytes = pack(&[]);
    assert_eq!(Footer::decode(&footer().encode()), Ok(footer()));
    let index = read_index(&bytes).unwrap();
    assert_eq!((index.volume, index.pack), (VOLUME, PACK));
    assert_eq!(index.pack_len as usize, bytes.len());
    assert!(index.entries.is_empty());
}

#[test]
fn a_sealed_index_and_another_version_are_named() {
    let sealed = PackError::Sealed {
        algorithm: 1,
        key_id: 0,
    };
    assert_eq!(with_byte(footer_at::SEAL, 1), Err(sealed));
    assert_eq!(with_byte(footer_at::VERSION, 3), Err(PackError::Version(3)));
}

#[test]
fn fields_kept_for_later_must_be_zero() {
    for at in [
        footer_at::RESERVED,
        footer_at::KEY_ID,
        footer_at::NONCE_COUNTER,
        footer_at::TAG,
    ] {
        let error = PackError::Damaged("a field that must be zero is not");
        assert_eq!(with_byte(at, 1), Err(error), "{at}");
    }
}

#[test]
fn an_index_that_does_not_describe_its_pack_is_refused() {
    let entry = IndexEntry {
        block: BlockKey {
            inode: Inode(1),
            block: BlockIndex(0),
        },
        frame: FrameRef {
            pack: PACK,
            offset: PACK_HEADER_LEN as u32,
            stored_len: 129,
            start: 0,
            raw_len: 1,
            crc32: 0,
        },
    };
    // The frame would have to lie where the index does.
    let error = PackError::Damaged("its frames do not end where its index begins");
    assert_eq!(read_index(&pack(&[entry])), Err(error));

    let mut gap = entry;
    gap.frame.offset += 1;
    let error = PackError::Damaged("its index has frames that do not adjoin");
    assert_eq!(read_index(&pack(&[gap])), Err(error));

    let mut foreign = entry;
    foreign.frame.pack = PackId(3);
    let error = PackError::Damaged("its index has an impossible entry");
    assert_eq!(read_index(&pack(&[foreign])), Err(error));
}

#[test]
fn a_count_of_frames_beyond_any_pack_is_refused_before_anything_is_allocated() {
    let mut huge = footer();
    huge.frames = u32::MAX;
    let error = PackError::Damaged("its index does not fit a pack");
    assert_eq!(read_index(&huge.encode()), Err(error));
}
