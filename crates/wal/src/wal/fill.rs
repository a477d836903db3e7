//! Filling the place of a record: header, payload and checksum, sealed or not.
//!
//! The [log](super) gets the place from its [state](crate::state). How the bytes lie there is said in
//! [`layout`](crate::layout), and how they are sealed in [`seal`](crate::seal).

use std::sync::atomic::{Ordering, compiler_fence};

use crate::layout::{ALIGNMENT, RECORD_HEADER, RecordHeader, RecordKind};
use crate::seal::SegmentSealer;
use crate::state::RecordPlace;

/// Writes a record into its place. The payload's length is that of all `parts`.
#[inline]
pub(super) fn fill(
    slot: &mut [u8],
    kind: RecordKind,
    place: RecordPlace,
    payload: u32,
    parts: &[&[u8]],
) {
    let record = RecordHeader {
        kind,
        lsn: place.lsn,
        salt: place.salt,
        payload,
    };
    let mut crc = record.begin_crc();
    let Some((head, mut rest)) = slot.split_first_chunk_mut::<RECORD_HEADER>() else {
        return;
    };
    // The padding; the payload goes over what is none.
    if let Some(last) = rest.last_chunk_mut::<{ ALIGNMENT as usize }>() {
        *last = [0; ALIGNMENT as usize];
    }
    for part in parts {
        let (to, after) = rest.split_at_mut(part.len());
        // What is checksummed last gives the copy time to reach memory: the lock's instructions, which come next, would
        // wait for it.
        forebay_copy::stream(to, part, |piece| crc.update(piece));
        rest = after;
    }
    let crc = crc.finalize();
    // After the payload: a header over a payload that does not match is then the mark of damage,
    // not of a process that was killed here.
    compiler_fence(Ordering::Release);
    record.write(head, crc);
}

/// Seals a record and writes it into its place. The tag counts among the bytes of the payload.
pub(super) fn fill_sealed(
    slot: &mut [u8],
    kind: RecordKind,
    place: RecordPlace,
    stored: u32,
    parts: &[&[u8]],
    sealer: &SegmentSealer,
) {
    let record = RecordHeader {
        kind,
        lsn: place.lsn,
        salt: place.salt,
        payload: stored,
    };
    sealer.seal_record(&record, parts, |parts| {
        fill(slot, kind, place, stored, parts)
    });
}
