//! The end of a pack, which describes its content; and names of packs.
//!
//! For every tail:
//! * an index that is read covers its pack from header to footer without a gap, and every entry is written as the same
//!   bytes;
//! * if a tail is too short, the error has the number of bytes needed, which is then enough; with that many bytes or
//!   more, the result is the same;
//! * checking the checksums without keys never panics;
//! * frames that an index names and that exist are opened, or refused, without a panic;
//! * frames are found by their headers in one piece as in two, and each is opened, or refused, without a panic;
//! * a name that is accepted as a pack's is the name of that pack.
//!
//! ```text
//! input    flags: 1    the last bytes of a pack
//! flags    1  repair the checksums    2  in a sealed volume    4  seal plain bytes in the place of the entries
//! ```

use bytes::Bytes;
use forebay_pack::index::{INDEX_ENTRY_LEN, INDEX_FOOTER_LEN, PACK_HEADER_LEN};
use forebay_pack::{
    Compression, PackError, PackIndex, PackKeys, PackWriter, find_frames, object_name,
    open_any_frame, open_frame, open_index, parse_object_name, read_index, verify_checksums,
};
use forebay_seal::SeededEntropy;
use forebay_types::{BlockIndex, BlockKey, ByteRange, Inode, PackId};

use super::pack_frame::{data_keys, keys, sealed_keys};
use crate::{Target, input::Input, repair};

/// The target.
pub const TARGET: Target = Target {
    name: "pack_index",
    run,
    seeds,
    max_bytes: 2048,
};

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let flags = input.u8();
    let mut tail = input.rest().to_vec();
    if let Ok(name) = std::str::from_utf8(&tail)
        && let Some(pack) = parse_object_name(name)
    {
        assert_eq!(object_name(pack), name);
    }
    let plain = tail.clone();
    if flags & 4 != 0 {
        repair::seal_index(&mut tail, &data_keys(), &SeededEntropy::new(2));
    }
    if flags & 1 != 0 {
        repair::pack(&mut tail);
    }
    let keys = match flags & 2 != 0 {
        true => sealed_keys(),
        false => keys(),
    };
    if let Err(error) = verify_checksums(&tail) {
        assert!(!error.to_string().is_empty());
    }
    if flags & 2 == 0 {
        assert_eq!(read_index(&tail), open_index(&tail, &keys));
    }
    walk(&tail, &keys);
    match open_index(&tail, &keys) {
        // The plain entries are known if they were sealed here.
        Ok(index) => check(&index, &tail, (flags & 6 != 2).then_some(&plain), &keys),
        Err(PackError::TailTooShort { needed }) => {
            assert!(
                needed > tail.len(),
                "{needed} of {} bytes are needed",
                tail.len()
            );
            if needed < 1 << 20 {
                let mut more = vec![0; needed - tail.len()];
                more.extend(&tail);
                let enough = !matches!(
                    open_index(&more, &keys),
                    Err(PackError::TailTooShort { .. })
                );
                assert!(enough, "too short with all that was said to be needed");
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Finds and opens frames without an index.
fn walk(bytes: &[u8], keys: &PackKeys) {
    let whole = find_frames(bytes, true);
    assert_eq!(whole.searched, bytes.len());
    let first = bytes.len() / 2;
    let before = find_frames(&bytes[..first], false);
    let at = before.searched;
    let behind = find_frames(&bytes[at..], true);
    let behind = behind
        .frames
        .iter()
        .map(|range| range.start + at..range.end + at);
    let in_two: Vec<_> = before.frames.into_iter().chain(behind).collect();
    assert_eq!(in_two, whole.frames);
    for range in whole.frames {
        let offset = range.start as u32;
        let stored = Bytes::copy_from_slice(&bytes[range.clone()]);
        if let Ok((entry, frame)) = open_any_frame(stored, PackId(0x12a), offset, keys) {
            assert_eq!(entry.frame.stored_range().len(), range.len() as u64);
            assert_eq!(frame.data.len() as u64, entry.frame.range().len());
        }
    }
}

/// Checks an index. `plain` is `tail` before its entries were sealed, if that is known.
fn check(index: &PackIndex, tail: &[u8], plain: Option<&Vec<u8>>, keys: &PackKeys) {
    let index_len = index.entries.len() * INDEX_ENTRY_LEN;
    let entries_at = tail.len() - INDEX_FOOTER_LEN - index_len;
    let mut end = PACK_HEADER_LEN as u64;
    for (at, entry) in index.entries.iter().enumerate() {
        let mut again = entry.block.inode.0.to_le_bytes().to_vec();
        again.extend(entry.block.block.0.to_le_bytes());
        again.extend(entry.frame.encode());
        if let Some(plain) = plain {
            let written = &plain[entries_at + at * INDEX_ENTRY_LEN..][..INDEX_ENTRY_LEN];
            assert_eq!(again, written);
        }
        assert_eq!(
            (entry.frame.pack, entry.frame.offset),
            (index.pack, end as u32)
        );
        end = entry.frame.stored_range().end;
    }
    let pack_len = end + (index_len + INDEX_FOOTER_LEN) as u64;
    assert_eq!(u64::from(index.pack_len), pack_len, "bytes of the pack");
    assert_eq!(
        parse_object_name(&object_name(index.pack)),
        Some(index.pack)
    );
    if index.entries.is_empty() {
        return;
    }

    let needed = &tail[entries_at..];
    assert_eq!(
        open_index(needed, keys).as_ref(),
        Ok(index),
        "with no more than is needed"
    );
    assert!(matches!(
        open_index(&needed[1..], keys),
        Err(PackError::TailTooShort { .. })
    ));
    if tail.len() as u64 == pack_len {
        let whole = Bytes::copy_from_slice(tail);
        for entry in &index.entries {
            let stored = whole.slice(std::ops::Range::from(entry.frame.stored_range()));
            if let Ok(frame) = open_frame(stored, &entry.frame, entry.block, keys) {
                assert_eq!(frame.range, entry.frame.range());
            }
        }
        let mut longer = vec![0];
        longer.extend(tail);
        assert!(
            open_index(&longer, keys).is_err(),
            "longer than its index says"
        );
    }
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let pack = |frames: u64, keys: &PackKeys| {
        let mut writer = PackWriter::new(PackId(0x12a), keys, Compression::default());
        for frame in 0..frames {
            let block = BlockKey {
                inode: Inode(8),
                block: BlockIndex(frame),
            };
            let raw = vec![frame as u8; 20 + 300 * frame as usize];
            let range = ByteRange::at(4096 * frame, raw.len() as u64);
            writer.push(block, range, std::iter::once(&raw[..]));
        }
        writer.finish().bytes
    };
    let input = |flags: u8, tail: &[u8]| [&[flags], tail].concat();
    let three = pack(3, &keys());
    let sealed = pack(3, &sealed_keys());
    // The plain entries with the footer of the sealed ones: the target seals them.
    let mut to_be_sealed = sealed.to_vec();
    let index_at = sealed.len() - 80 - 3 * 44;
    let entries = open_index(&sealed, &sealed_keys())
        .expect("a sound pack")
        .entries;
    for (entry, to) in entries.iter().zip(to_be_sealed[index_at..].chunks_mut(44)) {
        to[..8].copy_from_slice(&entry.block.inode.0.to_le_bytes());
        to[8..16].copy_from_slice(&entry.block.block.0.to_le_bytes());
        to[16..44].copy_from_slice(&entry.frame.encode());
    }
    vec![
        ("empty", input(0, &pack(0, &keys()))),
        ("whole", input(0, &three)),
        ("whole-repaired", input(1, &three)),
        ("index", input(1, &three[three.len() - 80 - 3 * 44..])),
        ("footer", input(1, &three[three.len() - 80..])),
        ("sealed", input(2, &sealed)),
        ("to-be-sealed", input(7, &to_be_sealed)),
        ("name", input(0, b"packs/2a/000000000000012a.pack")),
    ]
}
