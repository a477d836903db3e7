//! The layout of a segment file. All numbers are little-endian.
//!
//! ```text
//! segment file
//! +--------------------------+ 0
//! | segment header (below)   |      one page, of which 128 bytes are used, 144 of a sealed one
//! +--------------------------+ 4096
//! | record                   |      the record with LSN L lies at 4096 + (L - base)
//! | record                   |
//! | ...                      |
//! | bytes of a former life   |      their salt is another, so they are no records
//! +--------------------------+ size of the file
//!
//! segment header                      record, padded with zeros to a multiple of 8
//!   0  8  magic "FBAYWAL\n"             0  4  CRC32 of bytes 4 to the end of the payload
//!   8  4  format version                4  2  magic "FR"
//!  12  4  zero                          6  1  kind
//!  16 16  volume                        7  1  zero
//!  32  8  epoch                         8  8  LSN of the record
//!  40  8  number of the segment        16  8  salt of the segment
//!  48  8  base: LSN of first record    24  4  bytes of the payload
//!  56  8  salt of this life            28  4  zero
//!  64  8  number of the segment        32  n  payload
//!         before, 0 for none
//!  72  8  LSN where that one's
//!         records end
//!  80  8  durable LSN when begun
//!
//! format version 1                    format version 2: the segment is sealed
//!  88 36  zero                         88  4  number of the data key
//! 124  4  CRC32 of bytes 0 to 124      92 16  salt of the segment's key
//!                                     108 16  that of the segment before, zeros for none
//!                                     124 16  tag: authenticates bytes 0 to 124
//!                                     140  4  CRC32 of bytes 0 to 140
//! ```
//!
//! In a sealed segment the last 16 bytes of each payload are its tag, and those before are encrypted;
//! [`seal`](crate::seal) describes what is authenticated, and how. Everything else is the same as in other segments,
//! so that a torn record is recognised by its CRC, and whole ones are counted, without a key.
//!
//! Behind the header, at 256: bytes of the file (8), and the CRC32 (4) of them and the salt. Earlier versions of
//! Forebay left zeros there, or bytes of an earlier use of the file: then the size is not known.
//!
//! The used part of a segment header fits into one 512-byte sector, so a power cut leaves the
//! old header, the new one, or a mixture whose CRC is wrong.

mod header_crc;

use std::sync::atomic::{Ordering, compiler_fence};

use forebay_seal::{DataKeyId, Tag};
use forebay_types::{Epoch, Lsn, VolumeId, to_usize};

/// Bytes from the beginning of a segment file to its first record: one page.
pub(crate) const SEGMENT_HEADER: usize = 4096;
/// Bytes of a record before its payload.
pub(crate) const RECORD_HEADER: usize = RECORD_ZERO + 4;
/// The format of segments that are not sealed.
const PLAIN: u32 = 1;
/// The format of sealed segments.
const SEALED: u32 = 2;
/// The newest format that is read.
pub(crate) const VERSION: u32 = SEALED;
/// Records begin at multiples of this.
pub(crate) const ALIGNMENT: u64 = 8;

const SEGMENT_MAGIC: [u8; 8] = *b"FBAYWAL\n";
const SEG_VERSION: usize = SEGMENT_MAGIC.len();
const SEG_ZERO: usize = SEG_VERSION + 4;
const SEG_VOLUME: usize = SEG_ZERO + 4;
const SEG_EPOCH: usize = SEG_VOLUME + 16;
const SEG_NUMBER: usize = SEG_EPOCH + 8;
const SEG_BASE: usize = SEG_NUMBER + 8;
const SEG_SALT: usize = SEG_BASE + 8;
const SEG_PREVIOUS: usize = SEG_SALT + 8;
const SEG_PREVIOUS_END: usize = SEG_PREVIOUS + 8;
const SEG_DURABLE: usize = SEG_PREVIOUS_END + 8;
const SEG_FREE: usize = SEG_DURABLE + 8;
const SEG_CRC: usize = SEG_FREE + 36;
const SEG_KEY: usize = SEG_FREE;
const SEG_KEY_SALT: usize = SEG_KEY + 4;
const SEG_PREVIOUS_KEY_SALT: usize = SEG_KEY_SALT + forebay_seal::SALT_LEN;
const SEG_TAG: usize = SEG_PREVIOUS_KEY_SALT + forebay_seal::SALT_LEN;
const SEG_SEALED_CRC: usize = SEG_TAG + forebay_seal::TAG_LEN;
/// Bytes of the segment header that are used.
pub(crate) const SEGMENT_HEADER_USED: usize = SEG_SEALED_CRC + 4;

/// The offset of the file's size in a segment.
const SIZE: usize = 256;
const SIZE_CRC: usize = SIZE + 8;
/// Bytes of the header's page that are defined.
pub(crate) const SEGMENT_PAGE_USED: usize = SIZE_CRC + 4;
/// The place of the size.
pub(crate) const SIZE_BYTES: std::ops::Range<usize> = SIZE..SEGMENT_PAGE_USED;

const RECORD_MAGIC: [u8; 2] = *b"FR";
const RECORD_CRC: usize = 0;
/// The CRC of a record covers the bytes from here on.
pub(crate) const RECORD_TAG: usize = RECORD_CRC + 4;
const RECORD_KIND: usize = RECORD_TAG + 2;
const RECORD_LSN: usize = RECORD_KIND + 2;
const RECORD_SALT: usize = RECORD_LSN + 8;
const RECORD_LENGTH: usize = RECORD_SALT + 8;
const RECORD_ZERO: usize = RECORD_LENGTH + 4;

const _: () = {
    assert!(SEG_CRC + 4 == 128 && SEGMENT_HEADER_USED == 144);
    assert!(SEG_TAG == SEG_CRC, "all fields lie before both");
    assert!(
        SEGMENT_HEADER_USED <= 512,
        "a torn sector must not tear a header in two valid halves"
    );
    assert!(SEGMENT_HEADER_USED <= SIZE && SEGMENT_PAGE_USED <= 512);
    assert!(SEGMENT_HEADER.is_multiple_of(4096));
    assert!(RECORD_ZERO + 4 == RECORD_LENGTH + size_of::<u64>());
    assert!(RECORD_HEADER == 32 && (RECORD_HEADER as u64).is_multiple_of(ALIGNMENT));
};

/// Bytes that a record with this payload occupies in the log.
pub(crate) fn record_bytes(payload: u64) -> u64 {
    (RECORD_HEADER as u64 + payload).next_multiple_of(ALIGNMENT)
}

/// The kind of a record. The log itself does not interpret payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// Bytes of a file.
    Data,
    /// A batch of metadata changes.
    Metadata,
    /// A change of a file's size.
    Truncate,
    /// A mark of a checkpoint.
    Checkpoint,
    /// A snapshot of the volume.
    Snapshot,
}

impl RecordKind {
    fn code(self) -> u8 {
        match self {
            RecordKind::Data => 1,
            RecordKind::Metadata => 2,
            RecordKind::Truncate => 3,
            RecordKind::Checkpoint => 4,
            RecordKind::Snapshot => 5,
        }
    }

    fn of(code: u8) -> Option<RecordKind> {
        match code {
            1 => Some(RecordKind::Data),
            2 => Some(RecordKind::Metadata),
            3 => Some(RecordKind::Truncate),
            4 => Some(RecordKind::Checkpoint),
            5 => Some(RecordKind::Snapshot),
            _ => None,
        }
    }
}

/// Random number that distinguishes one life of a segment's file from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Salt(pub(crate) u64);

/// Number of a segment: counts up, never used again within a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentNumber(pub(crate) u64);

impl SegmentNumber {
    /// Stands for "no segment" where a header names the one before.
    pub(crate) const NONE: SegmentNumber = SegmentNumber(0);
}

/// The header of a segment that passed its checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) volume: VolumeId,
    pub(crate) epoch: Epoch,
    pub(crate) number: SegmentNumber,
    /// LSN of the first record.
    pub(crate) base: Lsn,
    pub(crate) salt: Salt,
    /// The segment before this one, or [`SegmentNumber::NONE`].
    pub(crate) previous: SegmentNumber,
    /// Where the history before this segment ends. Equal to `base` unless the log was
    /// restarted further on; there are no records in between.
    pub(crate) previous_end: Lsn,
    /// The durable LSN when the segment was begun.
    pub(crate) durable: Lsn,
    /// The seal, if the segment is sealed.
    pub(crate) seal: Option<HeaderSeal>,
}

/// The fields of a sealed segment's header. Nothing in a header is authentic before
/// [`SegmentOpener::of`](crate::seal::SegmentOpener::of) has verified it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeaderSeal {
    /// The data key that the segment's key comes from.
    pub(crate) key: DataKeyId,
    /// The salt of the segment's key.
    pub(crate) salt: forebay_seal::Salt,
    /// The salt of the segment before; zeros if there is none, or it is not sealed.
    pub(crate) previous: forebay_seal::Salt,
    /// Authenticates the bytes before it.
    pub(crate) tag: Tag,
}

/// The first bytes of a segment file, classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderBytes {
    /// A header.
    Valid(SegmentHeader),
    /// A header of a format that this program does not know.
    Newer(u32),
    /// Zeros, garbage, or a header that was torn.
    Invalid,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_USED] {
        let mut bytes = [0; SEGMENT_HEADER_USED];
        put(&mut bytes, 0, &SEGMENT_MAGIC);
        let version = self.seal.map_or(PLAIN, |_| SEALED);
        put(&mut bytes, SEG_VERSION, &version.to_le_bytes());
        put(&mut bytes, SEG_VOLUME, &self.volume.0);
        put(&mut bytes, SEG_EPOCH, &self.epoch.0.to_le_bytes());
        put(&mut bytes, SEG_NUMBER, &self.number.0.to_le_bytes());
        put(&mut bytes, SEG_BASE, &self.base.0.to_le_bytes());
        put(&mut bytes, SEG_SALT, &self.salt.0.to_le_bytes());
        put(&mut bytes, SEG_PREVIOUS, &self.previous.0.to_le_bytes());
        put(
            &mut bytes,
            SEG_PREVIOUS_END,
            &self.previous_end.0.to_le_bytes(),
        );
        put(&mut bytes, SEG_DURABLE, &self.durable.0.to_le_bytes());
        if let Some(seal) = &self.seal {
            put(&mut bytes, SEG_KEY, &seal.key.0.to_le_bytes());
            put(&mut bytes, SEG_KEY_SALT, &seal.salt);
            put(&mut bytes, SEG_PREVIOUS_KEY_SALT, &seal.previous);
            put(&mut bytes, SEG_TAG, &seal.tag);
        }
        let at = self.seal.map_or(SEG_CRC, |_| SEG_SEALED_CRC);
        let crc = crc32fast::hash(&bytes[..at]);
        put(&mut bytes, at, &crc.to_le_bytes());
        bytes
    }

    /// Writes the header, and the size of the file, into the first page of a segment.
    pub(crate) fn write(&self, page: &mut [u8], file_bytes: u64) {
        let mut used = [0; SEGMENT_PAGE_USED];
        put(&mut used, 0, &self.encode());
        put(&mut used, SIZE, &file_bytes.to_le_bytes());
        put(
            &mut used,
            SIZE_CRC,
            &self.size_crc(file_bytes).to_le_bytes(),
        );
        if let Some(page) = page.first_chunk_mut() {
            *page = used;
        }
    }

    /// The header in the first page of a segment.
    pub(crate) fn decode_page(page: &[u8; SEGMENT_PAGE_USED]) -> HeaderBytes {
        SegmentHeader::decode(&take(page, 0))
    }

    /// The size that the file of this segment was made with, if its first page contains it.
    pub(crate) fn file_bytes(&self, page: &[u8; SEGMENT_PAGE_USED]) -> Option<u64> {
        let bytes = u64::from_le_bytes(take(page, SIZE));
        (take(page, SIZE_CRC) == self.size_crc(bytes).to_le_bytes()).then_some(bytes)
    }

    fn size_crc(&self, bytes: u64) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        crc.update(&self.salt.0.to_le_bytes());
        crc.update(&bytes.to_le_bytes());
        crc.finalize()
    }

    /// The bytes that the tag of a sealed segment's header authenticates.
    pub(crate) fn authenticated(&self) -> [u8; SEG_TAG] {
        take(&self.encode(), 0)
    }

    pub(crate) fn decode(bytes: &[u8; SEGMENT_HEADER_USED]) -> HeaderBytes {
        if take::<8>(bytes, 0) != SEGMENT_MAGIC {
            return HeaderBytes::Invalid;
        }
        // Before the CRC: a later format may keep it elsewhere.
        let version = u32::from_le_bytes(take(bytes, SEG_VERSION));
        if version > VERSION {
            return HeaderBytes::Newer(version);
        }
        let at = match version {
            PLAIN => SEG_CRC,
            SEALED => SEG_SEALED_CRC,
            _ => return HeaderBytes::Invalid,
        };
        if take(bytes, at) != crc32fast::hash(&bytes[..at]).to_le_bytes() {
            return HeaderBytes::Invalid;
        }
        let number = |at| u64::from_le_bytes(take(bytes, at));
        HeaderBytes::Valid(SegmentHeader {
            volume: VolumeId(take(bytes, SEG_VOLUME)),
            epoch: Epoch(number(SEG_EPOCH)),
            number: SegmentNumber(number(SEG_NUMBER)),
            base: Lsn(number(SEG_BASE)),
            salt: Salt(number(SEG_SALT)),
            previous: SegmentNumber(number(SEG_PREVIOUS)),
            previous_end: Lsn(number(SEG_PREVIOUS_END)),
            durable: Lsn(number(SEG_DURABLE)),
            seal: (version == SEALED).then(|| HeaderSeal {
                key: DataKeyId(u32::from_le_bytes(take(bytes, SEG_KEY))),
                salt: take(bytes, SEG_KEY_SALT),
                previous: take(bytes, SEG_PREVIOUS_KEY_SALT),
                tag: take(bytes, SEG_TAG),
            }),
        })
    }
}

/// The header of a record. The payload is valid only if its [`RecordHeader::crc`] matches as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) kind: RecordKind,
    pub(crate) lsn: Lsn,
    pub(crate) salt: Salt,
    pub(crate) payload: u32,
}

impl RecordHeader {
    /// Begins the CRC with the header's bytes that it covers. The caller adds the payload, and passes the result to
    /// [`RecordHeader::write`].
    #[inline]
    pub(crate) fn begin_crc(&self) -> crc32fast::Hasher {
        crc32fast::Hasher::new_with_initial(header_crc::header_crc(self))
    }

    /// Writes the header with its finished CRC.
    ///
    /// Writes in two steps. The first one leaves LSN and salt unchanged, so that a process that is killed in between
    /// does not leave a whole header with the CRC or the length of an earlier record.
    #[inline]
    pub(crate) fn write(&self, bytes: &mut [u8; RECORD_HEADER], crc: u32) {
        let mut first = [0; RECORD_LSN];
        put(&mut first, RECORD_CRC, &crc.to_le_bytes());
        put(&mut first, RECORD_TAG, &RECORD_MAGIC);
        put(&mut first, RECORD_KIND, &[self.kind.code()]);
        put(bytes, 0, &first);
        // Including the zeros behind it.
        put(bytes, RECORD_LENGTH, &u64::from(self.payload).to_le_bytes());
        compiler_fence(Ordering::Release);
        put(bytes, RECORD_LSN, &self.lsn.0.to_le_bytes());
        put(bytes, RECORD_SALT, &self.salt.0.to_le_bytes());
    }

    /// The bytes that the tag of a sealed record authenticates beside its payload: the whole header but the CRC.
    pub(crate) fn authenticated(&self) -> [u8; RECORD_HEADER - RECORD_TAG] {
        let mut bytes = [0; RECORD_HEADER];
        self.write(&mut bytes, 0);
        take(&bytes, RECORD_TAG)
    }

    /// The header and the CRC that it claims, if these bytes have the form of a record header.
    pub(crate) fn decode(bytes: &[u8; RECORD_HEADER]) -> Option<(RecordHeader, u32)> {
        let zeros = bytes[RECORD_KIND + 1] == 0 && take::<4>(bytes, RECORD_ZERO) == [0; 4];
        if take::<2>(bytes, RECORD_TAG) != RECORD_MAGIC || !zeros {
            return None;
        }
        let header = RecordHeader {
            kind: RecordKind::of(bytes[RECORD_KIND])?,
            lsn: Lsn(u64::from_le_bytes(take(bytes, RECORD_LSN))),
            salt: Salt(u64::from_le_bytes(take(bytes, RECORD_SALT))),
            payload: u32::from_le_bytes(take(bytes, RECORD_LENGTH)),
        };
        Some((header, u32::from_le_bytes(take(bytes, RECORD_CRC))))
    }

    /// Whether a record could begin with these bytes: a cheap check before [`decode`](RecordHeader::decode).
    pub(crate) fn may_begin_with(bytes: &[u8; to_usize(ALIGNMENT)]) -> bool {
        const MAGIC: u64 = u16::from_le_bytes(RECORD_MAGIC) as u64;
        u64::from_le_bytes(*bytes) >> (8 * RECORD_TAG) & 0xffff == MAGIC
    }

    /// The CRC that a record with these bytes must have.
    pub(crate) fn crc(bytes: &[u8; RECORD_HEADER], payload: &[u8]) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        crc.update(&bytes[RECORD_TAG..]);
        crc.update(payload);
        crc.finalize()
    }
}

/// Writes a field at a constant offset.
#[inline]
fn put<const N: usize>(bytes: &mut [u8; N], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

/// Reads a field at a constant offset.
fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[at + i])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SegmentHeader {
        SegmentHeader {
            volume: VolumeId([7; 16]),
            epoch: Epoch(3),
            number: SegmentNumber(9),
            base: Lsn(1 << 40),
            salt: Salt(0x0123_4567_89ab_cdef),
            previous: SegmentNumber(8),
            previous_end: Lsn(1 << 40),
            durable: Lsn(12345),
            seal: None,
        }
    }

    fn sealed() -> SegmentHeader {
        SegmentHeader {
            seal: Some(HeaderSeal {
                key: DataKeyId(3),
                salt: [0xa1; 16],
                previous: [0xb2; 16],
                tag: [0xc3; 16],
            }),
            ..header()
        }
    }

    #[test]
    fn segment_header_survives_the_round_trip() {
        for header in [header(), sealed()] {
            assert_eq!(
                SegmentHeader::decode(&header.encode()),
                HeaderBytes::Valid(header)
            );
        }
    }

    #[test]
    fn all_of_a_sealed_header_is_authenticated_but_its_tag_and_crc() {
        let (bytes, authenticated) = (sealed().encode(), sealed().authenticated());
        assert_eq!(bytes[..124], authenticated);
        assert_eq!(bytes[124..140], [0xc3; 16]);
    }

    #[test]
    fn every_flipped_bit_of_a_segment_header_is_noticed() {
        for (good, used) in [(header().encode(), 128), (sealed().encode(), 144)] {
            for bit in 0..used * 8 {
                let mut bad = good;
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(
                    !matches!(SegmentHeader::decode(&bad), HeaderBytes::Valid(_)),
                    "bit {bit}"
                );
            }
        }
    }

    #[test]
    fn segment_header_torn_anywhere_over_a_former_one_is_noticed() {
        let former = |header| SegmentHeader {
            number: SegmentNumber(2),
            salt: Salt(1),
            ..header
        };
        for (former, new) in [
            (former(header()), header()),
            (former(sealed()), sealed()),
            (former(header()), sealed()),
            (former(sealed()), header()),
        ] {
            let (old, bytes) = (former.encode(), new.encode());
            for cut in 0..=bytes.len() {
                let mut torn = old;
                torn[..cut].copy_from_slice(&bytes[..cut]);
                match SegmentHeader::decode(&torn) {
                    HeaderBytes::Valid(it) => assert!(it == former || it == new, "cut {cut}"),
                    other => assert_eq!(other, HeaderBytes::Invalid),
                }
            }
        }
    }

    #[test]
    fn header_of_a_newer_format_is_told_apart() {
        let mut bytes = header().encode();
        put(&mut bytes, SEG_VERSION, &(VERSION + 1).to_le_bytes());
        assert_eq!(
            SegmentHeader::decode(&bytes),
            HeaderBytes::Newer(VERSION + 1)
        );
    }

    #[test]
    fn every_flipped_bit_of_a_record_is_noticed() {
        let record = RecordHeader {
            kind: RecordKind::Data,
            lsn: Lsn(64),
            salt: Salt(5),
            payload: 3,
        };
        let (mut bytes, mut crc) = ([0xff; RECORD_HEADER], record.begin_crc());
        crc.update(b"abc");
        record.write(&mut bytes, crc.finalize());
        let valid = |bytes: &[u8; RECORD_HEADER], payload: &[u8]| {
            RecordHeader::decode(bytes)
                .is_some_and(|(_, crc)| crc == RecordHeader::crc(bytes, payload))
        };
        assert!(valid(&bytes, b"abc"));
        assert!(!valid(&bytes, b"abd"));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!valid(&bad, b"abc"), "bit {bit}");
        }
    }

    #[test]
    fn records_are_padded_to_eight_bytes() {
        assert_eq!(record_bytes(0), 32);
        assert_eq!(record_bytes(1), 40);
        assert_eq!(record_bytes(8), 40);
    }
}
