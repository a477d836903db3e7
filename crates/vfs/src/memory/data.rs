//! The bytes of a regular file.
//!
//! They are stored in chunks of up to 64 KiB, which a read returns without copying. A write changes a
//! chunk in place if there is no other reference to it, and makes a new one otherwise, so that returned
//! data never changes. Bytes outside the chunks are zero: a chunk may be missing (a hole) or
//! shorter than 64 KiB.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use forebay_types::{ByteRange, to_usize};

use crate::Pieces;

/// Size limit of a chunk, in bytes.
const CHUNK: usize = 64 << 10;
/// Smallest allocation of a chunk. Chunks grow in powers of two from here, so that appending in small pieces copies
/// little and a small file takes little memory.
const SMALLEST: usize = 512;

const _: () = assert!(CHUNK.is_power_of_two() && SMALLEST.is_power_of_two() && SMALLEST <= CHUNK);

static ZEROS: [u8; CHUNK] = [0; CHUNK];

#[derive(Default)]
pub(super) struct Data {
    chunks: BTreeMap<u64, Bytes>,
    allocated: u64,
}

impl Data {
    /// Bytes allocated for the chunks.
    pub(super) fn allocated(&self) -> u64 {
        self.allocated
    }

    /// The bytes of `range`, in order.
    pub(super) fn read(&self, range: ByteRange) -> Pieces {
        let mut pieces = Pieces::with_capacity(to_usize(range.len()) / CHUNK + 2);
        for (index, within) in split(range) {
            let chunk = self.chunks.get(&index);
            let held = chunk.map_or(0, Bytes::len).clamp(within.start, within.end);
            if let Some(chunk) = chunk.filter(|_| held > within.start) {
                pieces.push(chunk.slice(within.start..held));
            }
            if held < within.end {
                pieces.push(Bytes::from_static(&ZEROS[held..within.end]));
            }
        }
        pieces
    }

    /// Number of bytes by which a write of `range` would increase [`Data::allocated`].
    pub(super) fn growth(&self, range: ByteRange) -> u64 {
        let grown = split(range).map(|(index, within)| {
            let len = self.chunks.get(&index).map_or(0, Bytes::len);
            (length_for(len, within.end) - len) as u64
        });
        grown.sum()
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let mut rest = data;
        for (index, within) in split(ByteRange::at(offset, data.len() as u64)) {
            let (part, further) = rest.split_at(within.len());
            rest = further;
            let chunk = self.chunks.entry(index).or_default();
            let old = chunk.len();
            let len = length_for(old, within.end);
            *chunk = overwritten(std::mem::take(chunk), within.start, part, len);
            self.allocated += (len - old) as u64;
        }
    }

    /// Removes the bytes from `size` on.
    pub(super) fn truncate(&mut self, size: u64) {
        let (last, within) = (size / CHUNK as u64, to_usize(size % CHUNK as u64));
        let cut = self.chunks.split_off(&last);
        for (index, mut chunk) in cut {
            let old = chunk.len();
            if index == last && within > 0 {
                chunk.truncate(within);
                self.allocated -= (old - chunk.len()) as u64;
                self.chunks.insert(index, chunk);
            } else {
                self.allocated -= old as u64;
            }
        }
    }
}

/// Iterates over the chunks that `range` touches, with the part of each.
fn split(range: ByteRange) -> impl Iterator<Item = (u64, Range<usize>)> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        if at >= range.end {
            return None;
        }
        let start = to_usize(at % CHUNK as u64);
        let len = to_usize((range.end - at).min((CHUNK - start) as u64));
        let index = at / CHUNK as u64;
        at += len as u64;
        Some((index, start..start + len))
    })
}

/// Length that a chunk of `len` bytes has after a write that ends at `end`.
fn length_for(len: usize, end: usize) -> usize {
    if end <= len {
        len
    } else {
        end.next_power_of_two().max(SMALLEST)
    }
}

/// Returns `chunk` with `part` written at `start`, padded with zeros to `len`.
fn overwritten(chunk: Bytes, start: usize, part: &[u8], len: usize) -> Bytes {
    if chunk.is_empty() && part.len() == len {
        return Bytes::copy_from_slice(part);
    }
    let end = start + part.len();
    match chunk.try_into_mut() {
        Ok(mut own) => {
            own.resize(len, 0);
            own[start..end].copy_from_slice(part);
            own.freeze()
        }
        Err(shared) => {
            let mut copy = BytesMut::with_capacity(len);
            copy.extend_from_slice(&shared[..start.min(shared.len())]);
            copy.resize(start, 0);
            copy.extend_from_slice(part);
            copy.extend_from_slice(shared.get(end..).unwrap_or_default());
            copy.resize(len, 0);
            copy.freeze()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(data: &Data, range: ByteRange) -> Vec<u8> {
        data.read(range).concat()
    }

    #[test]
    fn a_read_shares_the_chunk_and_is_not_changed_by_later_writes() {
        let mut data = Data::default();
        data.write(0, &[1; CHUNK]);
        let before = data.read(ByteRange::new(10, 20));
        let again = data.read(ByteRange::new(10, 20));
        assert_eq!(before[0].as_ptr(), again[0].as_ptr());

        data.write(15, &[2; 10]);
        assert_eq!(before.concat(), [1; 10]);
        assert_eq!(
            whole(&data, ByteRange::new(13, 26)),
            [1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]
        );
    }

    #[test]
    fn a_write_to_a_chunk_that_nobody_reads_stays_in_place() {
        let mut data = Data::default();
        data.write(0, &[1; CHUNK]);
        let place = data.read(ByteRange::new(0, 1))[0].as_ptr();
        data.write(5, &[2; 5]);
        assert_eq!(data.read(ByteRange::new(0, 1))[0].as_ptr(), place);
    }

    #[test]
    fn holes_take_no_room() {
        let mut data = Data::default();
        data.write(1 << 50, b"far away");
        assert_eq!(data.allocated(), SMALLEST as u64);
        assert_eq!(
            whole(&data, ByteRange::new((1 << 50) - 3, (1 << 50) + 4)),
            b"\0\0\0far "
        );
    }

    #[derive(Debug, Clone)]
    enum Step {
        Write(u64, usize, u8),
        Truncate(u64),
        Read(u64, u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let place = 0..3 * CHUNK as u64;
        let step = prop_oneof![
            (place.clone(), 0..2 * CHUNK, 1..=255u8)
                .prop_map(|(at, len, byte)| Step::Write(at, len, byte)),
            place.clone().prop_map(Step::Truncate),
            (place.clone(), place).prop_map(|(at, len)| Step::Read(at, len)),
        ];
        prop::collection::vec(step, 1..24)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn reads_give_what_was_written_last(steps in steps()) {
            let mut data = Data::default();
            let mut model = vec![0; 6 * CHUNK];
            // References to pieces force writes to copy; the pieces must not change.
            let mut held = Vec::new();
            for step in steps {
                match step {
                    Step::Write(at, len, byte) => {
                        let range = ByteRange::at(at, len as u64);
                        let expected = data.allocated() + data.growth(range);
                        data.write(at, &vec![byte; len]);
                        prop_assert_eq!(data.allocated(), expected);
                        model[Range::from(range)].fill(byte);
                    }
                    Step::Truncate(size) => {
                        data.truncate(size);
                        model[size as usize..].fill(0);
                    }
                    Step::Read(at, len) => {
                        let range = ByteRange::at(at, len);
                        let pieces = data.read(range);
                        prop_assert!(pieces.concat() == model[Range::from(range)]);
                        held.push((pieces, model[Range::from(range)].to_vec()));
                    }
                }
                let sum: usize = data.chunks.values().map(Bytes::len).sum();
                prop_assert_eq!(data.allocated(), sum as u64);
            }
            for (pieces, then) in held {
                prop_assert!(pieces.concat() == then);
            }
            prop_assert!(whole(&data, ByteRange::new(0, model.len() as u64)) == model);
        }
    }
}
