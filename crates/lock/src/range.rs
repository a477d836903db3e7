//! Ranges of bytes, as used by locks.

/// Bytes of a file from `first` to `last`, both included; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    first: u64,
    last: u64,
}

/// The range extends beyond the largest offset (NLM4_FBIG).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange;

impl Range {
    /// All bytes that a file can have.
    pub const WHOLE: Range = Range {
        first: 0,
        last: u64::MAX,
    };

    /// `length` bytes from `offset` on; length 0 means all bytes from there, even if the file grows.
    pub fn new(offset: u64, length: u64) -> Result<Range, OutOfRange> {
        let last = match length.checked_sub(1) {
            None => u64::MAX,
            Some(further) => offset.checked_add(further).ok_or(OutOfRange)?,
        };
        Ok(Range {
            first: offset,
            last,
        })
    }

    /// The first byte.
    pub fn offset(self) -> u64 {
        self.first
    }

    /// Number of bytes; 0 for all bytes from the first on.
    pub fn length(self) -> u64 {
        if self.last == u64::MAX {
            0
        } else {
            self.last - self.first + 1
        }
    }

    pub(crate) fn first(self) -> u64 {
        self.first
    }

    pub(crate) fn last(self) -> u64 {
        self.last
    }

    /// Whether they have a byte in common.
    pub fn overlaps(self, other: Range) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Whether one begins right after the end of the other, so that together they form one range.
    pub(crate) fn touches(self, other: Range) -> bool {
        let follows = |a: Range, b: Range| a.last.checked_add(1) == Some(b.first);
        follows(self, other) || follows(other, self)
    }

    /// The smallest range that holds both.
    pub(crate) fn union(self, other: Range) -> Range {
        Range {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        }
    }

    /// The parts of this range before and after `hole`.
    pub(crate) fn without(self, hole: Range) -> impl Iterator<Item = Range> {
        let piece = |first, last| Range { first, last };
        let before = hole
            .first
            .checked_sub(1)
            .filter(|_| self.first < hole.first);
        let before = before.map(|end| piece(self.first, end.min(self.last)));
        let after = hole.last.checked_add(1).filter(|_| self.last > hole.last);
        let after = after.map(|begin| piece(begin.max(self.first), self.last));
        before.into_iter().chain(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(offset: u64, length: u64) -> Range {
        Range::new(offset, length).unwrap()
    }

    #[test]
    fn length_zero_reaches_to_the_end() {
        let tail = range(10, 0);
        assert_eq!((tail.first(), tail.last()), (10, u64::MAX));
        assert_eq!((tail.offset(), tail.length()), (10, 0));
        assert_eq!(range(0, 0), Range::WHOLE);
        assert!(tail.overlaps(range(u64::MAX, 1)));
        // The same bytes, with an explicit length.
        assert_eq!(range(10, u64::MAX - 9), tail);
    }

    #[test]
    fn a_range_beyond_the_last_number_is_refused() {
        assert_eq!(Range::new(u64::MAX, 2), Err(OutOfRange));
        assert_eq!(Range::new(2, u64::MAX), Err(OutOfRange));
        assert_eq!(range(u64::MAX, 1).length(), 0);
        assert_eq!(range(u64::MAX, 0), range(u64::MAX, 1));
    }

    #[test]
    fn what_only_touches_does_not_overlap() {
        let (a, b) = (range(0, 10), range(10, 5));
        assert!(!a.overlaps(b) && a.touches(b) && b.touches(a));
        assert!(!range(0, 0).touches(range(0, 1)));
        assert!(range(0, 11).overlaps(b));
    }

    #[test]
    fn a_hole_leaves_what_is_around_it() {
        let left = |a: Range, b: Range| a.without(b).collect::<Vec<_>>();
        assert_eq!(left(range(0, 10), range(3, 2)), [range(0, 3), range(5, 5)]);
        assert_eq!(left(range(5, 0), range(0, 8)), [range(8, 0)]);
        assert_eq!(left(range(0, 8), range(4, 0)), [range(0, 4)]);
        assert_eq!(left(range(3, 2), Range::WHOLE), []);
    }
}
