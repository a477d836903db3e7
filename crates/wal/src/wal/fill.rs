//! Fills the place of a record: header, payload and checksum, sealed or not.
//!
//! The [log](super) gets the place from its [state](crate::state). [`layout`](crate::layout) describes the bytes of a
//! record, and [`seal`](crate::seal) how they are sealed.

use std::sync::atomic::{Ordering, compiler_fence};

use forebay_types::to_usize;

use crate::layout::{ALIGNMENT, RECORD_HEADER, RecordHeader, RecordKind};
use crate::seal::SegmentSealer;
use crate::state::RecordPlace;

/// Writes a record into its place. The payload's length is the sum of all `parts`.
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
    // The padding; the payload then overwrites the rest of these bytes.
    if let Some(last) = rest.last_chunk_mut::<{ to_usize(ALIGNMENT) }>() {
        *last = [0; to_usize(ALIGNMENT)];
    }
    for part in parts {
        let (to, after) = rest.split_at_mut(part.len());
        // Checksumming behind the copy gives the stores time to reach memory: the lock's instructions, which follow,
        // would wait for them.
        forebay_copy::stream(to, part, |piece| crc.update(piece));
        rest = after;
    }
    let crc = crc.finalize();
    // After the payload: a header over a payload that does not match then proves damage, not a process that was
    // killed here.
    compiler_fence(Ordering::Release);
    record.write(head, crc);
}

/// Seals a record and writes it into its place. The stored payload includes the tag.
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
