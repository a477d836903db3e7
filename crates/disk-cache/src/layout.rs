//! The layout of a region's file. All numbers are little-endian.
//!
//! ```text
//! region
//! +--------------------------+ 0
//! | region header            |
//! +--------------------------+ 32
//! | entry header | frame     |      one behind the other, in the order in which they came
//! | entry header | frame     |
//! | ...                      |
//! | bytes of a former life   |      their salt is another, so they are no entries
//! +--------------------------+
//! | index                    |      of all entries, when the region is full or the cache was closed
//! | trailer                  |
//! +--------------------------+ size of the file
//!
//! region header                    entry header                    index, for each entry
//!   0  8  magic "FBAYDSK\n"          0  4  magic "FDCE"              0  8  pack
//!   8  4  format version             4  4  bytes of the frame        8  4  place in the pack
//!  12  8  order: counts up with      8  8  pack                     12  4  place of the frame in the file
//!         each life of a region     16  4  place in the pack        16  4  bytes of the frame
//!  20  8  salt of this life         20  8  salt of the region
//!  28  4  CRC32 of bytes 0 to 28    28  4  CRC32 of bytes 0 to 28   trailer
//!                                                                    0  8  salt of the region
//!                                                                    8  4  number of entries
//!                                                                   12  4  CRC32 of the index and bytes 0 to 12
//! ```
//!
//! Frames have no checksum here: the reader of a frame knows it from the block map.
//!
//! A salt is drawn at random for each life. If the volume is not sealed, frames contain the bytes of clients as they
//! are. A client that could guess a salt could write bytes that look like an entry, and have another frame taken for
//! it after a crash.

use bytes::{Buf, BufMut};
use forebay_types::{PackId, bounded_u32};

use crate::FrameKey;

/// Bytes before the first entry.
pub(crate) const REGION_HEADER: usize = 32;
/// Bytes before the frame of an entry.
pub(crate) const ENTRY_HEADER: usize = 32;
/// Bytes of one entry in the index.
const INDEX_ENTRY: usize = 20;
/// Bytes behind the index.
pub(crate) const TRAILER: usize = 16;

const VERSION: u32 = 1;
const REGION_MAGIC: u64 = u64::from_le_bytes(*b"FBAYDSK\n");
const ENTRY_MAGIC: u32 = u32::from_le_bytes(*b"FDCE");

/// Maximum number of entries of a region: it limits the memory that all entries take together.
pub(crate) const MAX_ENTRIES: usize = 16 << 10;

/// Identifies one life of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    /// Higher than that of every region that was begun before.
    pub(crate) order: u64,
    pub(crate) salt: u64,
}

/// The place of a frame in the file of its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: FrameKey,
    /// Offset of its first byte, behind the entry's header.
    pub(crate) at: u32,
    pub(crate) len: u32,
}

impl Entry {
    /// Offset of the next entry's header.
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.at) + u64::from(self.len)
    }
}

/// Bytes that an index of this many entries takes at the end of a region.
pub(crate) const fn index_bytes(entries: usize) -> usize {
    entries * INDEX_ENTRY + TRAILER
}

/// Fills `header` by `write`, and appends the CRC of it.
fn with_crc<const N: usize>(mut header: [u8; N], write: impl FnOnce(&mut &mut [u8])) -> [u8; N] {
    let mut rest = &mut header[..N - 4];
    write(&mut rest);
    debug_assert!(rest.is_empty());
    let crc = crc32fast::hash(&header[..N - 4]);
    header[N - 4..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// The bytes before the last four, if those are their CRC.
fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let (covered, mut crc) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
    (crc.get_u32_le() == crc32fast::hash(covered)).then_some(covered)
}

impl Life {
    pub(crate) fn encode(self) -> [u8; REGION_HEADER] {
        with_crc([0; REGION_HEADER], |header| {
            header.put_u64_le(REGION_MAGIC);
            header.put_u32_le(VERSION);
            header.put_u64_le(self.order);
            header.put_u64_le(self.salt);
        })
    }

    /// `None` if it is not the header of a region, or one of another version.
    pub(crate) fn decode(header: &[u8; REGION_HEADER]) -> Option<Life> {
        let mut header = checked(header)?;
        let known = header.get_u64_le() == REGION_MAGIC && header.get_u32_le() == VERSION;
        known.then(|| Life {
            order: header.get_u64_le(),
            salt: header.get_u64_le(),
        })
    }
}

/// The header of an entry.
pub(crate) fn encode_entry(entry: &Entry, salt: u64) -> [u8; ENTRY_HEADER] {
    with_crc([0; ENTRY_HEADER], |header| {
        header.put_u32_le(ENTRY_MAGIC);
        header.put_u32_le(entry.len);
        header.put_u64_le(entry.key.pack.0);
        header.put_u32_le(entry.key.offset);
        header.put_u64_le(salt);
    })
}

/// The entry whose header lies at `place`; `None` if it is not of the life with this salt.
pub(crate) fn decode_entry(header: &[u8; ENTRY_HEADER], place: u32, salt: u64) -> Option<Entry> {
    let mut header = checked(header)?;
    if header.get_u32_le() != ENTRY_MAGIC {
        return None;
    }
    let len = header.get_u32_le();
    let key = FrameKey {
        pack: PackId(header.get_u64_le()),
        offset: header.get_u32_le(),
    };
    let at = place.checked_add(bounded_u32(ENTRY_HEADER))?;
    (header.get_u64_le() == salt).then_some(Entry { key, at, len })
}

/// Encodes index and trailer, for the end of the region.
pub(crate) fn encode_index(entries: &[Entry], salt: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(index_bytes(entries.len()));
    for entry in entries {
        bytes.put_u64_le(entry.key.pack.0);
        bytes.put_u32_le(entry.key.offset);
        bytes.put_u32_le(entry.at);
        bytes.put_u32_le(entry.len);
    }
    bytes.put_u64_le(salt);
    bytes.put_u32_le(bounded_u32(entries.len()));
    bytes.put_u32_le(crc32fast::hash(&bytes));
    bytes
}

/// Number of entries in the index before this trailer; `None` if it is not of the life with this salt. Not verified.
pub(crate) fn decode_trailer(trailer: &[u8; TRAILER], salt: u64) -> Option<usize> {
    let mut trailer = &trailer[..];
    let own = trailer.get_u64_le() == salt;
    let entries = trailer.get_u32_le() as usize;
    (own && entries <= MAX_ENTRIES).then_some(entries)
}

/// The entries of an index with its trailer. `None` if it is damaged.
pub(crate) fn decode_index(bytes: &[u8]) -> Option<Vec<Entry>> {
    let covered = checked(bytes)?;
    let entries = covered.len().checked_sub(TRAILER - 4)?;
    let entries = covered[..entries].chunks_exact(INDEX_ENTRY);
    let entry = |mut bytes: &[u8]| Entry {
        key: FrameKey {
            pack: PackId(bytes.get_u64_le()),
            offset: bytes.get_u32_le(),
        },
        at: bytes.get_u32_le(),
        len: bytes.get_u32_le(),
    };
    Some(entries.map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: u64 = 0x1122_3344_5566_7788;

    fn entry(n: u32) -> Entry {
        Entry {
            key: FrameKey {
                pack: PackId(u64::from(n) << 40),
                offset: n,
            },
            at: 64 + n,
            len: 9 * n,
        }
    }

    /// A change of any byte makes it invalid.
    fn assert_guarded<const N: usize>(bytes: [u8; N], reads: impl Fn(&[u8; N]) -> bool) {
        assert!(reads(&bytes));
        for at in 0..N {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert!(!reads(&damaged), "byte {at}");
        }
    }

    #[test]
    fn headers_come_back_as_they_were_and_no_damaged_one_does() {
        let life = Life {
            order: 7,
            salt: SALT,
        };
        assert_eq!(Life::decode(&life.encode()), Some(life));
        assert_guarded(life.encode(), |bytes| Life::decode(bytes).is_some());

        let header = encode_entry(&entry(5), SALT);
        assert_eq!(decode_entry(&header, 64 + 5 - 32, SALT), Some(entry(5)));
        assert_eq!(decode_entry(&header, 64, SALT + 1), None, "another life");
        assert_eq!(decode_entry(&header, u32::MAX, SALT), None);
        assert_guarded(header, |bytes| decode_entry(bytes, 0, SALT).is_some());
    }

    #[test]
    fn a_region_of_another_version_is_empty() {
        let life = Life { order: 1, salt: 2 };
        let mut bytes = life.encode();
        bytes[8] = 2;
        let crc = crc32fast::hash(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Life::decode(&bytes), None);
    }

    #[test]
    fn an_index_comes_back_as_it_was_and_no_damaged_one_does() {
        let entries: Vec<Entry> = (1..40).map(entry).collect();
        let bytes = encode_index(&entries, SALT);
        assert_eq!(bytes.len(), index_bytes(entries.len()));
        let trailer = bytes.last_chunk().unwrap();
        assert_eq!(decode_trailer(trailer, SALT), Some(entries.len()));
        assert_eq!(decode_trailer(trailer, SALT + 1), None, "another life");
        assert_eq!(decode_index(&bytes), Some(entries));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(decode_index(&damaged), None, "byte {at}");
        }
        assert_eq!(decode_index(&encode_index(&[], SALT)), Some(Vec::new()));
        assert_eq!(decode_index(b"abc"), None);
    }
}
