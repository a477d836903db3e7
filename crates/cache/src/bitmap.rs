//! Which bytes of a block are set, exact to the byte.
//!
//! ```text
//! full      1 bit per granule of 4 KiB (16 words)   1 1 1 0 0 1 ...   all its bytes are set
//! partial   sorted list of granules                       3           some of its bytes are set:
//!                                                         |           one run, or a bit a byte
//!                                                         +-- 0..1717
//! ```
//!
//! A granule in neither list has no byte set; none is in both. Aligned ranges are therefore handled in words only: a
//! test of 32 KiB is one mask. A ragged edge costs a list entry, and a granule with holes 512 bytes.

mod common;
mod granule;
mod words;

#[cfg(test)]
mod tests;

use forebay_types::{BLOCK_SIZE, ByteRange, to_usize};
use granule::{GRANULE, Granule, short};

const GRANULES: usize = to_usize(BLOCK_SIZE) / GRANULE;
const WORDS: usize = GRANULES / u64::BITS as usize;

const _: () = assert!(GRANULES * GRANULE == to_usize(BLOCK_SIZE));
const _: () = assert!(WORDS * u64::BITS as usize == GRANULES);
// Both kinds of numbers fit in 16 bits.
const _: () = assert!(GRANULE <= u16::MAX as usize);
const _: () = assert!(GRANULES <= u16::MAX as usize);

/// A set of the bytes 0 to [`BLOCK_SIZE`] of a block. Ranges given to it are cut off at
/// [`BLOCK_SIZE`].
#[derive(Clone, Debug, Default)]
pub struct RangeBitmap {
    /// Granules of which every byte is set.
    full: [u64; WORDS],
    /// Granules of which some bytes are set and some are not, ascending.
    partial: Vec<(u16, Granule)>,
    /// Number of entries of `partial` that own a bit per byte.
    dense: usize,
    /// Number of set bytes.
    len: usize,
}

/// A range cut into the part before its first whole granule, its whole granules, and the part
/// behind its last one.
struct Cut {
    head: Option<(usize, usize, usize)>,
    whole: std::ops::Range<usize>,
    tail: Option<(usize, usize, usize)>,
}

impl Cut {
    fn of(range: ByteRange) -> Cut {
        let start = range.start.min(BLOCK_SIZE) as usize;
        let end = range.end.min(BLOCK_SIZE) as usize;
        if start >= end {
            return Cut {
                head: None,
                whole: 0..0,
                tail: None,
            };
        }
        let (first, last) = (start.div_ceil(GRANULE), end / GRANULE);
        if first > last {
            // Both ends lie within one granule.
            return Cut {
                head: Some((last, start % GRANULE, end % GRANULE)),
                whole: 0..0,
                tail: None,
            };
        }
        Cut {
            head: (start < first * GRANULE).then(|| (first - 1, start % GRANULE, GRANULE)),
            whole: first..last,
            tail: (last * GRANULE < end).then_some((last, 0, end % GRANULE)),
        }
    }

    fn ragged(&self) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
        self.head.into_iter().chain(self.tail)
    }
}

impl RangeBitmap {
    /// The empty set. Owns no heap memory.
    pub fn new() -> RangeBitmap {
        RangeBitmap::default()
    }

    /// Number of set bytes.
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    /// Whether no byte is set.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of heap memory that it owns.
    pub fn heap_bytes(&self) -> u64 {
        let list = self.partial.capacity() * size_of::<(u16, Granule)>();
        (list + self.dense * Granule::BITS_BYTES) as u64
    }

    /// Sets every byte of `range`.
    pub fn set(&mut self, range: ByteRange) {
        let cut = Cut::of(range);
        if !cut.whole.is_empty() {
            self.forget_partial(cut.whole.clone());
            self.len += words::set(&mut self.full, cut.whole.start, cut.whole.end) * GRANULE;
        }
        for (granule, from, to) in cut.ragged() {
            self.set_within(granule, from, to);
        }
    }

    /// Clears every byte of `range`.
    pub fn clear(&mut self, range: ByteRange) {
        let cut = Cut::of(range);
        if !cut.whole.is_empty() {
            self.forget_partial(cut.whole.clone());
            self.len -= words::clear(&mut self.full, cut.whole.start, cut.whole.end) * GRANULE;
        }
        for (granule, from, to) in cut.ragged() {
            self.clear_within(granule, from, to);
        }
    }

    /// Whether every byte of `range` is set; true of an empty range, false of one that reaches
    /// beyond the block.
    pub fn contains(&self, range: ByteRange) -> bool {
        if range.is_empty() {
            return true;
        }
        if range.end > BLOCK_SIZE {
            return false;
        }
        let (start, end) = (to_usize(range.start), to_usize(range.end));
        // Granules that the range touches: if all are full, nothing else needs checking.
        if words::all_set(&self.full, start / GRANULE, end.div_ceil(GRANULE)) {
            return true;
        }
        // Otherwise those at its ends need not be full, as long as the bytes of the range are set.
        let (first, last) = (start / GRANULE, (end - 1) / GRANULE);
        if first == last {
            return self.contains_within(first, start % GRANULE, (end - 1) % GRANULE + 1);
        }
        words::all_set(&self.full, first + 1, last)
            && self.contains_within(first, start % GRANULE, GRANULE)
            && self.contains_within(last, 0, (end - 1) % GRANULE + 1)
    }

    fn contains_within(&self, granule: usize, from: usize, to: usize) -> bool {
        if self.is_full(granule) {
            return true;
        }
        let at = self.find(granule);
        at.is_ok_and(|at| self.partial[at].1.contains(from, to))
    }

    /// The set bytes of `within` as the fewest ranges, ascending.
    pub fn set_ranges(&self, within: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        self.runs(within, Self::next_set, Self::next_unset)
    }

    /// The unset bytes of `within` as the fewest ranges, ascending.
    pub fn unset_ranges(&self, within: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        self.runs(within, Self::next_unset, Self::next_set)
    }

    /// Every set byte, as the fewest ranges, ascending.
    pub fn ranges(&self) -> impl Iterator<Item = ByteRange> + '_ {
        self.set_ranges(ByteRange::new(0, BLOCK_SIZE))
    }

    /// Sets every byte that is set in `other`.
    pub fn union(&mut self, other: &RangeBitmap) {
        other.ranges().for_each(|range| self.set(range));
    }

    /// Clears every byte that is set in `other`.
    pub fn subtract(&mut self, other: &RangeBitmap) {
        other.ranges().for_each(|range| self.clear(range));
    }

    fn is_full(&self, granule: usize) -> bool {
        words::is_set(&self.full, granule)
    }

    fn find(&self, granule: usize) -> Result<usize, usize> {
        self.partial
            .binary_search_by_key(&granule, |(partial, _)| usize::from(*partial))
    }

    /// Removes the partly set ones of these granules.
    fn forget_partial(&mut self, granules: std::ops::Range<usize>) {
        if self.partial.is_empty() {
            return;
        }
        let (Ok(from) | Err(from)) = self.find(granules.start);
        let (Ok(to) | Err(to)) = self.find(granules.end);
        for (_, granule) in self.partial.drain(from..to) {
            self.len -= granule.count();
            self.dense -= usize::from(granule.is_dense());
        }
    }

    fn set_within(&mut self, granule: usize, from: usize, to: usize) {
        if self.is_full(granule) {
            return;
        }
        match self.find(granule) {
            Ok(at) => self.change(at, |partial| partial.set(from, to)),
            Err(at) => {
                self.partial
                    .insert(at, (short(granule), Granule::run(from, to)));
                self.len += to - from;
            }
        }
    }

    fn clear_within(&mut self, granule: usize, from: usize, to: usize) {
        let at = match self.find(granule) {
            Ok(at) => at,
            Err(at) if self.is_full(granule) => {
                words::clear(&mut self.full, granule, granule + 1);
                self.partial
                    .insert(at, (short(granule), Granule::run(0, GRANULE)));
                at
            }
            Err(_) => return,
        };
        self.change(at, |partial| partial.clear(from, to));
    }

    /// Changes a partly set granule, and moves it to its place if that makes it full or empty.
    fn change(&mut self, at: usize, change: impl FnOnce(&mut Granule)) {
        let (granule, partial) = &mut self.partial[at];
        let granule = usize::from(*granule);
        self.len -= partial.count();
        self.dense -= usize::from(partial.is_dense());
        change(partial);
        let count = partial.count();
        self.len += count;
        self.dense += usize::from(partial.is_dense());
        if count == 0 || count == GRANULE {
            let (_, removed) = self.partial.remove(at);
            self.dense -= usize::from(removed.is_dense());
            if count == GRANULE {
                words::set(&mut self.full, granule, granule + 1);
            }
        }
    }

    /// The first set byte at or after `from`.
    fn next_set(&self, from: usize) -> Option<usize> {
        let granule = from / GRANULE;
        let full = words::next_one(&self.full, granule);
        if full == Some(granule) {
            return Some(from);
        }
        let full = full.map(|granule| granule * GRANULE);
        let (Ok(at) | Err(at)) = self.find(granule);
        let partial = self.partial[at..].iter().find_map(|(index, partial)| {
            let start = usize::from(*index) * GRANULE;
            Some(start + partial.next_set(from.saturating_sub(start))?)
        });
        match (full, partial) {
            (Some(full), Some(partial)) => Some(full.min(partial)),
            (full, partial) => full.or(partial),
        }
    }

    /// The first unset byte at or after `from`.
    fn next_unset(&self, from: usize) -> Option<usize> {
        let mut at = from;
        loop {
            let granule = words::next_zero(&self.full, at / GRANULE)?;
            at = at.max(granule * GRANULE);
            let Ok(index) = self.find(granule) else {
                return Some(at);
            };
            match self.partial[index].1.next_unset(at % GRANULE) {
                Some(inside) => return Some(granule * GRANULE + inside),
                None => at = (granule + 1) * GRANULE,
            }
        }
    }

    fn runs<'a>(
        &'a self,
        within: ByteRange,
        next_start: impl Fn(&'a Self, usize) -> Option<usize> + 'a,
        next_end: impl Fn(&'a Self, usize) -> Option<usize> + 'a,
    ) -> impl Iterator<Item = ByteRange> + 'a {
        let limit = within.end.min(BLOCK_SIZE) as usize;
        let mut at = within.start.min(BLOCK_SIZE) as usize;
        std::iter::from_fn(move || {
            if at >= limit {
                return None;
            }
            let start = next_start(self, at).filter(|start| *start < limit)?;
            let end = next_end(self, start).map_or(limit, |end| end.min(limit));
            at = end;
            Some(ByteRange::new(start as u64, end as u64))
        })
    }
}

/// Equal if the same bytes are set, in whatever representation.
impl PartialEq for RangeBitmap {
    fn eq(&self, other: &RangeBitmap) -> bool {
        self.len == other.len && self.full == other.full && self.ranges().eq(other.ranges())
    }
}

impl Eq for RangeBitmap {}
