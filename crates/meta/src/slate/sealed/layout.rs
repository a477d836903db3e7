//! Offsets of plain bytes in a sealed object: arithmetic only.
//!
//! An object is one chunk or more. All but the last hold [`CHUNK_LEN`] plain bytes, the last one the rest: at least one
//! byte, except in an empty object. So each of the two lengths determines the other.

use std::ops::Range;

use object_store::GetRange;

/// Plain bytes of a chunk: a quarter of a block of a table, so that a small read fetches little more than it needs.
pub(super) const CHUNK_LEN: u64 = 4 << 10;
/// Bytes before each chunk.
pub(super) const HEADER_LEN: u64 = 44;
/// Bytes of a whole chunk as it is stored.
pub(super) const STORED_LEN: u64 = HEADER_LEN + CHUNK_LEN;

/// The lengths of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) stored: u64,
    pub(super) plain: u64,
    pub(super) chunks: u64,
}

impl Extent {
    /// The lengths of an object with `stored` stored bytes; `None` if no object has that length.
    pub(super) fn of_stored(stored: u64) -> Option<Extent> {
        let chunks = stored.div_ceil(STORED_LEN);
        let last = stored - chunks.checked_sub(1)? * STORED_LEN;
        let has_chunk = last > HEADER_LEN || (last == HEADER_LEN && chunks == 1);
        has_chunk.then(|| Extent {
            stored,
            plain: stored - chunks * HEADER_LEN,
            chunks,
        })
    }

    /// The stored range of a chunk.
    pub(super) fn chunk(&self, index: u64) -> Range<u64> {
        let start = index * STORED_LEN;
        start..self.stored.min(start.saturating_add(STORED_LEN))
    }

    /// The first and the last chunk to open for these bytes of the object: at least one chunk.
    pub(super) fn covering(&self, plain: &Range<u64>) -> (u64, u64) {
        let last = self.chunks - 1;
        let first = (plain.start / CHUNK_LEN).min(last);
        (
            first,
            (plain.end.saturating_sub(1) / CHUNK_LEN).clamp(first, last),
        )
    }
}

/// Stored length of an object with `plain` plain bytes.
pub(super) fn stored_len(plain: u64) -> u64 {
    let chunks = plain.div_ceil(CHUNK_LEN).max(1);
    plain.saturating_add(chunks.saturating_mul(HEADER_LEN))
}

/// Plain length of an object with `stored` stored bytes, for listings. A listing does not report a length that no
/// object can have: reading the object does.
pub(super) fn plain_len(stored: u64) -> u64 {
    Extent::of_stored(stored).map_or(0, |extent| extent.plain)
}

/// The stored range to request for all chunks of a plain range: the length of the object need not be known. `None` for
/// a range that begins where no object does.
pub(super) fn stored_range(plain: &GetRange) -> Option<GetRange> {
    let start = |at: u64| (at / CHUNK_LEN).checked_mul(STORED_LEN);
    Some(match plain {
        GetRange::Bounded(range) => {
            let end = range.end.div_ceil(CHUNK_LEN).saturating_mul(STORED_LEN);
            GetRange::Bounded(start(range.start)?..end)
        }
        GetRange::Offset(at) => GetRange::Offset(start(*at)?),
        // The last chunk may be short, so the range may begin in the one before.
        GetRange::Suffix(len) => {
            let chunks = len.div_ceil(CHUNK_LEN) + 1;
            GetRange::Suffix(chunks.saturating_mul(STORED_LEN))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lengths_follow_from_one_another() {
        let borders = [0, 1, 2, 3].map(|chunks| chunks * CHUNK_LEN);
        for border in borders {
            for plain in border.saturating_sub(50)..border + 50 {
                let extent = Extent::of_stored(stored_len(plain)).unwrap();
                assert_eq!(extent.plain, plain);
                assert_eq!(extent.chunks, plain.div_ceil(CHUNK_LEN).max(1));
                let last = extent.chunk(extent.chunks - 1);
                assert_eq!(last.end, extent.stored);
                assert_eq!(plain_len(extent.stored), plain);
            }
        }
    }

    #[test]
    fn lengths_that_no_object_has_are_none() {
        for whole in [0, 1, 7] {
            let start = whole * STORED_LEN;
            for rest in 0..HEADER_LEN {
                let extent = Extent::of_stored(start + rest);
                // A full last chunk is valid.
                assert_eq!(extent.is_some(), whole > 0 && rest == 0, "{whole} {rest}");
            }
            assert_eq!(
                Extent::of_stored(start + HEADER_LEN).is_some(),
                whole == 0,
                "an empty chunk after others"
            );
        }
        assert!(Extent::of_stored(u64::MAX).is_some_and(|extent| extent.plain < u64::MAX));
    }

    #[test]
    fn no_range_is_too_large_to_be_reckoned() {
        for range in [
            GetRange::Bounded(0..u64::MAX),
            GetRange::Bounded(u64::MAX - 1..u64::MAX),
            GetRange::Offset(u64::MAX),
            GetRange::Suffix(u64::MAX),
        ] {
            if let Some(GetRange::Bounded(stored)) = stored_range(&range) {
                assert!(stored.start < stored.end);
            }
        }
        assert_eq!(stored_range(&GetRange::Offset(u64::MAX)), None);
    }
}
