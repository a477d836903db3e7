//! Determines the content of a region from its file alone. All I/O is done by the caller.
//!
//! | region header | trailer | result |
//! |---|---|---|
//! | missing or damaged | | nothing: the region is reused when its turn comes |
//! | whole | of this life, its index whole | the entries of the index, and those that were appended behind them |
//! | whole | of another life, missing, or damaged | the appended entries, from the first one on |
//!
//! *Appended entries* end at the first place without a whole entry header of this life: at the end of the entries, or
//! where a crash or damage left other bytes. Frames are not read.

use std::io;

use forebay_types::{bounded_u32, to_usize};

use crate::layout::{
    ENTRY_HEADER, Entry, Life, MAX_ENTRIES, REGION_HEADER, TRAILER, decode_entry, decode_index,
    decode_trailer, index_bytes,
};

/// A life of a region, and its entries in the order in which they were written.
pub(crate) type Found = (Life, Vec<Entry>);

/// The content of a region of `bytes` bytes; `read` returns a number of bytes from an offset on. `None` if it has
/// none.
pub(crate) fn find(
    bytes: u64,
    read: impl Fn(u64, usize) -> io::Result<Vec<u8>>,
) -> io::Result<Option<Found>> {
    let Some(life) = Life::decode(&array::<REGION_HEADER>(read(0, REGION_HEADER)?)?) else {
        return Ok(None);
    };
    let mut entries = indexed(bytes, life.salt, &read)?;
    let mut end = entries.last().map_or(REGION_HEADER as u64, Entry::end);
    while entries.len() < MAX_ENTRIES {
        let Some(limit) = bytes.checked_sub(index_bytes(entries.len() + 1) as u64) else {
            break;
        };
        if end + ENTRY_HEADER as u64 > limit {
            break;
        }
        let header = array(read(end, ENTRY_HEADER)?)?;
        // A region has at most 2 GiB.
        let place = bounded_u32(to_usize(end));
        let entry = decode_entry(&header, place, life.salt);
        let Some(entry) = entry.filter(|entry| entry.end() <= limit) else {
            break;
        };
        end = entry.end();
        entries.push(entry);
    }
    Ok(Some((life, entries)))
}

/// The entries that the index names; none if the index is missing or damaged.
fn indexed(
    bytes: u64,
    salt: u64,
    read: impl Fn(u64, usize) -> io::Result<Vec<u8>>,
) -> io::Result<Vec<Entry>> {
    let Some(trailer_at) = bytes.checked_sub(TRAILER as u64) else {
        return Ok(Vec::new());
    };
    let trailer = array(read(trailer_at, TRAILER)?)?;
    let Some(count) = decode_trailer(&trailer, salt) else {
        return Ok(Vec::new());
    };
    let len = index_bytes(count);
    let Some(at) = bytes.checked_sub(len as u64) else {
        return Ok(Vec::new());
    };
    let entries = decode_index(&read(at, len)?).unwrap_or_default();
    // Each entry follows the one before, and ends before the index.
    let mut end = REGION_HEADER as u64;
    let follows = |entry: &Entry| {
        let begins = u64::from(entry.at).checked_sub(ENTRY_HEADER as u64);
        let follows = begins == Some(end);
        end = entry.end();
        follows && end <= at
    };
    let sound = entries.iter().all(follows);
    Ok(if sound { entries } else { Vec::new() })
}

fn array<const N: usize>(bytes: Vec<u8>) -> io::Result<[u8; N]> {
    let array = bytes.try_into();
    array.map_err(|_| io::ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use forebay_types::PackId;

    use super::*;
    use crate::FrameKey;
    use crate::layout::{encode_entry, encode_index};

    const LIFE: Life = Life { order: 3, salt: 99 };
    const BYTES: usize = 4096;

    /// Frames of 100 bytes, one behind the other.
    fn entry(n: u32) -> Entry {
        let at = REGION_HEADER as u32 + n * 132 + ENTRY_HEADER as u32;
        let key = FrameKey {
            pack: PackId(u64::from(n)),
            offset: n,
        };
        Entry { key, at, len: 100 }
    }

    /// A region with `entries` entries, and an index that names `in_index` of them.
    fn region(entries: u32, in_index: Option<u32>) -> Vec<u8> {
        let mut bytes = vec![0; BYTES];
        bytes[..REGION_HEADER].copy_from_slice(&LIFE.encode());
        for entry in (0..entries).map(entry) {
            let at = entry.at as usize - ENTRY_HEADER;
            bytes[at..][..ENTRY_HEADER].copy_from_slice(&encode_entry(&entry, LIFE.salt));
        }
        if let Some(count) = in_index {
            let named: Vec<Entry> = (0..count).map(entry).collect();
            let index = encode_index(&named, LIFE.salt);
            bytes[BYTES - index.len()..].copy_from_slice(&index);
        }
        bytes
    }

    fn found(bytes: &[u8]) -> Option<u32> {
        let read = |at: u64, len: usize| {
            let part = bytes.get(at as usize..at as usize + len);
            part.map(<[u8]>::to_vec)
                .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
        };
        let (life, entries) = find(bytes.len() as u64, read).unwrap()?;
        assert_eq!(life, LIFE);
        let count = entries.len() as u32;
        assert_eq!(entries, (0..count).map(entry).collect::<Vec<_>>());
        Some(count)
    }

    #[test]
    fn the_table_is_as_it_says() {
        let mut damaged = region(5, Some(5));
        damaged[3] ^= 1;
        assert_eq!(found(&damaged), None);
        assert_eq!(found(&[0; BYTES]), None);

        assert_eq!(found(&region(5, Some(5))), Some(5));
        assert_eq!(found(&region(5, Some(2))), Some(5), "and what is behind it");
        assert_eq!(found(&region(0, Some(0))), Some(0));

        assert_eq!(found(&region(5, None)), Some(5), "no index");
        let mut damaged = region(5, Some(5));
        damaged[BYTES - 30] ^= 1;
        assert_eq!(found(&damaged), Some(5), "a damaged index");
    }

    #[test]
    fn an_index_needs_no_headers_of_entries_and_all_else_does() {
        let third = entry(2).at as usize - 1;
        let mut damaged = region(5, Some(5));
        damaged[third] ^= 1;
        assert_eq!(found(&damaged), Some(5));
        let mut damaged = region(5, None);
        damaged[third] ^= 1;
        assert_eq!(found(&damaged), Some(2));
    }

    #[test]
    fn an_index_whose_entries_do_not_follow_one_another_counts_for_nothing() {
        let mut bytes = region(0, None);
        let index = encode_index(&[entry(1)], LIFE.salt);
        bytes[BYTES - index.len()..].copy_from_slice(&index);
        assert_eq!(found(&bytes), Some(0));
        let longer = Entry {
            len: BYTES as u32,
            ..entry(0)
        };
        let index = encode_index(&[longer], LIFE.salt);
        bytes[BYTES - index.len()..].copy_from_slice(&index);
        assert_eq!(found(&bytes), Some(0));
    }

    #[test]
    fn an_entry_that_reaches_into_the_index_is_none() {
        let mut bytes = region(1, None);
        let longest = BYTES - index_bytes(1) - entry(0).at as usize;
        for (len, there) in [(longest, true), (longest + 1, false)] {
            let entry = Entry {
                len: len as u32,
                ..entry(0)
            };
            let header = encode_entry(&entry, LIFE.salt);
            bytes[REGION_HEADER..][..ENTRY_HEADER].copy_from_slice(&header);
            let read = |at: u64, len: usize| Ok(bytes[at as usize..][..len].to_vec());
            let (_, entries) = find(BYTES as u64, read).unwrap().unwrap();
            assert_eq!(entries.len(), usize::from(there));
        }
    }
}
