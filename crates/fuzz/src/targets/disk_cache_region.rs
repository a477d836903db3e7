//! A region of the disk cache, as an earlier run has left it.
//!
//! For every region: the frames that are found lie in it, one after the other, without overlapping.
//!
//! ```text
//! input    flags: 1    the region
//! flags    1  repair the checksums
//! ```

use forebay_disk_cache::fuzzing::{entries, region};

use crate::{Target, input::Input};

/// The target.
pub const TARGET: Target = Target {
    name: "disk_cache_region",
    run,
    seeds,
    max_bytes: 2048,
};

/// Bytes of the header of a region, and of an entry; the last four are the CRC.
const HEADER: usize = 32;
/// Bytes of an entry in the index.
const INDEX_ENTRY: usize = 20;
const TRAILER: usize = 16;

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let flags = input.u8();
    let mut region = input.rest().to_vec();
    if flags & 1 != 0 {
        repair(&mut region);
    }
    let mut end = HEADER;
    for (_, frame) in entries(&region).unwrap_or_default() {
        assert_eq!(frame.start, end + HEADER);
        assert!(frame.end + INDEX_ENTRY + TRAILER <= region.len());
        end = frame.end;
    }
}

/// Repairs the checksums of headers, adjacent entries, and the index.
fn repair(region: &mut [u8]) {
    let mut at = 0;
    while let Some(header) = region.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        with_crc::<HEADER>(header);
        let [_, _, _, _, length @ ..] = *header;
        let length = length
            .first_chunk()
            .map_or(0, |length| u32::from_le_bytes(*length));
        // No frame follows the header of a region.
        at += HEADER + if at == 0 { 0 } else { length as usize };
    }
    let Some((_, trailer)) = region.split_last_chunk::<TRAILER>() else {
        return;
    };
    let count = u32::from_le_bytes([trailer[8], trailer[9], trailer[10], trailer[11]]);
    let len = INDEX_ENTRY
        .saturating_mul(count as usize)
        .saturating_add(TRAILER);
    if let Some(at) = region.len().checked_sub(len) {
        let covered = region.len() - 4;
        let crc = crc32fast::hash(&region[at..covered]);
        region[covered..].copy_from_slice(&crc.to_le_bytes());
    }
}

fn with_crc<const N: usize>(header: &mut [u8; N]) {
    let crc = crc32fast::hash(&header[..N - 4]);
    header[N - 4..].copy_from_slice(&crc.to_le_bytes());
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let input = |frames: &[u32], indexed: usize| {
        let region = region(1200, frames, indexed);
        [&[1], &region[..]].concat()
    };
    vec![
        ("empty", input(&[], 0)),
        ("indexed", input(&[100, 0, 300], 3)),
        ("indexed-in-part", input(&[100, 20, 300], 2)),
        ("not-indexed", input(&[100, 20, 300], 0)),
        ("nothing", vec![0; 200]),
    ]
}
