//! Repairs checksums after a mutation, so that the code behind them is reached. Written from `docs/format.md`, not from
//! the fuzzed code.

use forebay_seal::{DataKeyId, DataKeys, Part, Purpose, Sealer};
use forebay_types::PackId;

/// Writes at `at` the `crc` of `bytes` without those four bytes, if `bytes` is long enough.
fn put_crc(bytes: &mut [u8], at: usize, crc: u32) {
    if let Some(to) = bytes.get_mut(at..at + 4) {
        to.copy_from_slice(&crc.to_le_bytes());
    }
}

/// CRC32 of a range; of nothing if the range reaches beyond the bytes.
fn crc_of(bytes: &[u8], range: std::ops::Range<usize>) -> u32 {
    crc32fast::hash(bytes.get(range).unwrap_or_default())
}

/// Repairs the header of a log segment: bytes 124 to 128 are the CRC32 of those before.
pub fn segment_header(bytes: &mut [u8]) {
    let crc = crc_of(bytes, 0..124);
    put_crc(bytes, 124, crc);
}

/// Repairs the records of a log segment, one after the other from the start of `bytes`: with `in_sequence`, LSN and
/// salt get the values for a segment with this `base` and `salt`; then the CRC is repaired. Ends at the first record
/// whose length reaches beyond `bytes`.
pub fn records(bytes: &mut [u8], base: u64, salt: u64, in_sequence: bool) {
    let mut at = 0;
    while let Some(head) = bytes.get(at..at + 32) {
        let payload = u32::from_le_bytes([head[24], head[25], head[26], head[27]]) as usize;
        let Some(record) = bytes.get_mut(at..at + 32 + payload) else {
            return;
        };
        if in_sequence {
            record[8..16].copy_from_slice(&base.wrapping_add(at as u64).to_le_bytes());
            record[16..24].copy_from_slice(&salt.to_le_bytes());
        }
        let crc = crc32fast::hash(&record[4..]);
        put_crc(record, 0, crc);
        at += (32 + payload).next_multiple_of(8);
    }
}

/// Whether a frame has the version of a sealed frame.
pub fn is_sealed_frame(bytes: &[u8]) -> bool {
    bytes.get(4..6) == Some(&[2, 0])
}

/// Offset of the CRC32 in a frame.
pub fn frame_crc_at(bytes: &[u8]) -> usize {
    match is_sealed_frame(bytes) {
        true => 56,
        false => 124,
    }
}

/// Repairs a frame: bytes 124 to 128, or 56 to 60 of a sealed one, are the CRC32 of everything else.
pub fn frame(bytes: &mut [u8]) {
    let at = frame_crc_at(bytes);
    let mut crc = crc32fast::Hasher::new();
    crc.update(bytes.get(..at).unwrap_or_default());
    crc.update(bytes.get(at + 4..).unwrap_or_default());
    put_crc(bytes, at, crc.finalize());
}

/// Seals a frame whose bytes from 60 on are still plain, and sets the fields before them accordingly.
pub fn seal_frame(bytes: &mut [u8], mut sealer: Sealer) {
    let Some(payload_len) = bytes.len().checked_sub(128) else {
        return;
    };
    let (clear, sealed) = bytes.split_at_mut(60);
    clear[8..12].copy_from_slice(&sealer.key_id().0.to_le_bytes());
    clear[12..16].copy_from_slice(&(payload_len as u32).to_le_bytes());
    clear[16..24].copy_from_slice(&sealer.next().to_le_bytes());
    clear[24..40].copy_from_slice(sealer.salt());
    let tag = sealer.seal(&clear[..40], sealed);
    clear[40..56].copy_from_slice(&tag);
}

/// The reverse, for a valid frame.
pub fn unseal_frame(bytes: &mut [u8], pack: PackId, keys: &DataKeys) {
    let (clear, sealed) = bytes.split_at_mut(60);
    let key_id = u32::from_le_bytes(clear[8..12].try_into().expect("4 bytes"));
    let number = u64::from_le_bytes(clear[16..24].try_into().expect("8 bytes"));
    let salt = clear[24..40].try_into().expect("16 bytes");
    let tag = clear[40..56].try_into().expect("16 bytes");
    let opener = keys.opener(Purpose::Pack, pack.0, DataKeyId(key_id), salt);
    let opened = opener.map(|opener| opener.open(Part::Counted(number), &clear[..40], sealed, tag));
    assert_eq!(opened, Ok(Ok(())), "a sound frame");
}

/// Seals the end of a sealed pack whose index entries, as many as the footer says, are still plain, and sets the footer
/// accordingly.
pub fn seal_index(bytes: &mut [u8], keys: &DataKeys, entropy: &dyn forebay_seal::Entropy) {
    let Some(footer_at) = bytes.len().checked_sub(80) else {
        return;
    };
    let (before, footer) = bytes.split_at_mut(footer_at);
    let frames = u32::from_le_bytes([footer[64], footer[65], footer[66], footer[67]]) as usize;
    let Some(index_at) = before.len().checked_sub(frames.saturating_mul(44)) else {
        return;
    };
    let pack = u64::from_le_bytes(footer[56..64].try_into().expect("8 bytes"));
    let sealer = keys.sealer(Purpose::Pack, pack, entropy);
    footer[12..16].copy_from_slice(&sealer.key_id().0.to_le_bytes());
    footer[40..56].copy_from_slice(sealer.salt());
    let also = [&footer[..24], &footer[40..72]].concat();
    let tag = sealer.seal_closing(&also, &mut before[index_at..]);
    footer[24..40].copy_from_slice(&tag);
}

/// Repairs the end of a pack: the CRC32 of the entries, as many as the footer says, and that of the footer; and the
/// header, if `bytes` has it.
pub fn pack(bytes: &mut [u8]) {
    let Some(footer_at) = bytes.len().checked_sub(80) else {
        return;
    };
    let (before, footer) = bytes.split_at_mut(footer_at);
    let frames = u32::from_le_bytes([footer[64], footer[65], footer[66], footer[67]]) as usize;
    if let Some(index_at) = before.len().checked_sub(frames.saturating_mul(44)) {
        put_crc(footer, 72, crc32fast::hash(&before[index_at..]));
    }
    let crc = crc_of(footer, 0..76);
    put_crc(footer, 76, crc);
    if before.starts_with(b"FBPACK\r\n") {
        let crc = crc_of(before, 0..36);
        put_crc(before, 36, crc);
    }
}

/// Seals an object of the metadata whose chunks of 4140 bytes are still plain, and sets their headers accordingly.
/// `with_headers` also repairs the fields of the headers that are the same in every object.
pub fn seal_object(bytes: &mut [u8], mut sealer: Sealer, with_headers: bool) {
    let chunks = bytes.len().div_ceil(4140).max(1);
    let plain = (bytes.len() as u64).saturating_sub(44 * chunks as u64);
    let (key_id, salt) = (sealer.key_id().0.to_le_bytes(), *sealer.salt());
    let identified = |head: &mut [u8]| {
        if with_headers {
            head[..8].copy_from_slice(b"FBmd\x01\0\x01\0");
        }
        head[8..12].copy_from_slice(&key_id);
        head[12..28].copy_from_slice(&salt);
    };
    let last = (chunks - 1) * 4140;
    let (counted, closing) = bytes.split_at_mut(last);
    for chunk in counted.chunks_mut(4140) {
        let (head, body) = chunk.split_at_mut(44);
        identified(head);
        let tag = sealer.seal(&head[..28], body);
        head[28..].copy_from_slice(&tag);
    }
    if closing.len() >= 44 {
        let (head, body) = closing.split_at_mut(44);
        identified(head);
        let also = [&head[..28], &plain.to_le_bytes()].concat();
        let tag = sealer.seal_closing(&also, body);
        head[28..].copy_from_slice(&tag);
    }
}

/// Repairs an object of the metadata of an unsealed volume: its last 8 bytes become the trailer for its name.
pub fn trailer(bytes: &mut [u8], name: &str) {
    let Some(at) = bytes.len().checked_sub(8) else {
        return;
    };
    let mut crc = crc32fast::Hasher::new();
    crc.update(name.rsplit('/').next().unwrap_or_default().as_bytes());
    crc.update(&bytes[..at]);
    bytes[at..at + 4].copy_from_slice(b"FBc2");
    put_crc(bytes, at + 4, crc.finalize());
}

/// Repairs a text whose last line is `crc32 ` and the checksum of the lines before, in eight hexadecimal digits:
/// replaces that line, or appends it if it is missing.
pub fn text(bytes: &[u8]) -> Vec<u8> {
    let marker = b"crc32 ";
    let body = bytes
        .windows(marker.len())
        .rposition(|window| window == marker)
        .map_or(bytes, |at| &bytes[..at]);
    let mut repaired = body.to_vec();
    repaired.extend(format!("crc32 {:08x}\n", crc32fast::hash(body)).into_bytes());
    repaired
}

/// Repairs file handles within an NFS message: wherever 32 bytes begin like a handle, the last 8 of them become the MAC
/// of the first 24 under `key`.
pub fn handles(bytes: &mut [u8], key: &[u8; 32]) {
    let length = 32u32.to_be_bytes();
    let mut at = 0;
    while let Some(found) = bytes.get_mut(at..at + 36) {
        if found.starts_with(&length) && found[4] == 1 {
            let mac = blake3::keyed_hash(key, &found[4..28]);
            found[28..].copy_from_slice(&mac.as_bytes()[..8]);
        }
        at += 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repaired_text_ends_in_the_checksum_of_what_is_before() {
        let repaired = text(b"a 1\ncrc32 00000000\n");
        assert_eq!(repaired, text(b"a 1\n"));
        let expected = format!("a 1\ncrc32 {:08x}\n", crc32fast::hash(b"a 1\n"));
        assert_eq!(repaired, expected.as_bytes());
    }

    #[test]
    fn bytes_that_are_too_short_for_a_checksum_are_left_alone() {
        for length in 0..128 {
            let mut bytes = vec![0xff; length];
            segment_header(&mut bytes);
            records(&mut bytes, u64::MAX, 0, true);
            frame(&mut bytes);
            pack(&mut bytes);
            trailer(&mut bytes[..length.min(7)], "name");
            handles(&mut bytes, &[0; 32]);
            assert_eq!(bytes.len(), length);
        }
    }
}
