//! Computes the CRC32 of a record's header by table, instead of byte after byte.
//!
//! A header is too short for the fast CRC algorithms, and a small record would spend as much time on its header as on
//! its payload. But a CRC is linear: the CRC of a header is that of a header of zeros, XORed with the change that
//! each byte makes at its place, whatever the other bytes are. All changes are looked up independently of one
//! another. Bytes that are always zero are left out.

use forebay_types::bounded_u32;

use super::{
    RECORD_HEADER, RECORD_LENGTH, RECORD_LSN, RECORD_MAGIC, RECORD_SALT, RECORD_TAG, RECORD_ZERO,
    RecordHeader,
};

/// The polynomial of zlib and Ethernet, reflected.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// Bytes that the CRC covers.
const COVERED: usize = RECORD_HEADER - RECORD_TAG;

/// The change that a byte makes, by the number of covered bytes that follow it.
static CHANGES: [[u32; 256]; COVERED] = changes();

/// The CRC of a header of zeros.
const OF_ZEROS: u32 = {
    let mut crc = u32::MAX;
    let mut at = 0;
    while at < COVERED {
        crc = followed_by_zero(crc);
        at += 1;
    }
    !crc
};

/// The remainder after one more byte of zeros.
const fn followed_by_zero(mut crc: u32) -> u32 {
    let mut bit = 0;
    while bit < 8 {
        crc = (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
        bit += 1;
    }
    crc
}

const fn changes() -> [[u32; 256]; COVERED] {
    let mut changes = [[0; 256]; COVERED];
    let mut byte = 0;
    while byte < 256 {
        let mut change = bounded_u32(byte);
        let mut followers = 0;
        while followers < COVERED {
            change = followed_by_zero(change);
            changes[followers][byte] = change;
            followers += 1;
        }
        byte += 1;
    }
    changes
}

/// The change that a field makes which begins at this offset of the header.
#[inline]
fn of_field<const N: usize>(at: usize, field: [u8; N]) -> u32 {
    let mut change = 0;
    for (i, byte) in field.into_iter().enumerate() {
        change ^= CHANGES[RECORD_HEADER - 1 - at - i][usize::from(byte)];
    }
    change
}

/// The CRC of the covered bytes of a header.
#[inline]
pub(super) fn header_crc(header: &RecordHeader) -> u32 {
    const { assert!(RECORD_ZERO == RECORD_LENGTH + 4, "the rest is zeros") }
    let [magic, more] = RECORD_MAGIC;
    OF_ZEROS
        ^ of_field(RECORD_TAG, [magic, more, header.kind.code()])
        ^ of_field(RECORD_LSN, header.lsn.0.to_le_bytes())
        ^ of_field(RECORD_SALT, header.salt.0.to_le_bytes())
        ^ of_field(RECORD_LENGTH, header.payload.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{RecordKind, Salt};
    use forebay_types::Lsn;

    #[test]
    fn each_bit_of_each_field_changes_what_it_changes_in_the_crc_of_the_bytes() {
        let mut headers = Vec::new();
        for kind in [
            RecordKind::Data,
            RecordKind::Metadata,
            RecordKind::Truncate,
            RecordKind::Checkpoint,
        ] {
            let header = |lsn, salt, payload| RecordHeader {
                kind,
                lsn: Lsn(lsn),
                salt: Salt(salt),
                payload,
            };
            headers.push(header(0, 0, 0));
            headers.push(header(u64::MAX, u64::MAX, u32::MAX));
            headers.push(header(
                0x0123_4567_89ab_cdef,
                0xfedc_ba98_7654_3210,
                0x600d_cafe,
            ));
            headers.extend((0..64).map(|bit| header(1 << bit, 7, 512)));
            headers.extend((0..64).map(|bit| header(7, 1 << bit, 512)));
            headers.extend((0..32).map(|bit| header(7, 512, 1 << bit)));
        }
        for header in headers {
            let mut bytes = [0; RECORD_HEADER];
            header.write(&mut bytes, 0);
            let expected = crc32fast::hash(&bytes[RECORD_TAG..]);
            assert_eq!(header_crc(&header), expected, "{header:?}");
        }
    }
}
