//! Access to the internal formats of this crate, for the fuzz targets.

use std::io;
use std::ops::Range;

use forebay_types::{PackId, bounded_u32, to_usize};

use crate::layout::{ENTRY_HEADER, Entry, Life, encode_entry, encode_index};
use crate::{FrameKey, recovery};

/// The entries of a region, and the ranges of their frames in it. `None` if it holds nothing.
pub fn entries(region: &[u8]) -> Option<Vec<(FrameKey, Range<usize>)>> {
    let read = |at: u64, len: usize| {
        let part = region.get(to_usize(at)..to_usize(at) + len);
        part.map(<[u8]>::to_vec)
            .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    };
    let (_, entries) = recovery::find(region.len() as u64, read).ok()??;
    let entries = entries.iter().map(|entry| {
        let at = entry.at as usize;
        (entry.key, at..at + entry.len as usize)
    });
    Some(entries.collect())
}

/// A region of `bytes` bytes with frames of these lengths, of which the index names the first `indexed`.
pub fn region(bytes: usize, frames: &[u32], indexed: usize) -> Vec<u8> {
    let life = Life {
        order: 7,
        salt: 0x5a17,
    };
    let mut region = life.encode().to_vec();
    let mut entries = Vec::new();
    for (number, len) in (1_u64..).zip(frames) {
        let entry = Entry {
            key: FrameKey {
                pack: PackId(number),
                offset: 8,
            },
            at: bounded_u32(region.len() + ENTRY_HEADER),
            len: *len,
        };
        region.extend(encode_entry(&entry, life.salt));
        region.extend(std::iter::repeat_n(number.to_le_bytes()[0], *len as usize));
        entries.push(entry);
    }
    entries.truncate(indexed);
    let index = match indexed {
        0 => Vec::new(),
        _ => encode_index(&entries, life.salt),
    };
    region.resize(bytes - index.len(), 0);
    region.extend(index);
    region
}
