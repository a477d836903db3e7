//! Half-open ranges of bytes.

use crate::to_usize;

/// The bytes from `start` up to, but not including, `end`. Never reversed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl ByteRange {
    /// The range `start..end`; empty when `end` lies before `start`.
    pub fn new(start: u64, end: u64) -> ByteRange {
        ByteRange {
            start,
            end: end.max(start),
        }
    }

    /// The `len` bytes from `start` on, cut off at the largest offset.
    pub fn at(start: u64, len: u64) -> ByteRange {
        ByteRange {
            start,
            end: start.saturating_add(len),
        }
    }

    /// Number of bytes.
    pub fn len(self) -> u64 {
        self.end - self.start
    }

    /// Whether it contains no byte.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// The bytes in both ranges; empty if they do not overlap.
    pub fn intersect(self, other: ByteRange) -> ByteRange {
        ByteRange::new(self.start.max(other.start), self.end.min(other.end))
    }

    /// Whether every byte of `other` lies in `self`.
    pub fn contains(self, other: ByteRange) -> bool {
        other.is_empty() || (self.start <= other.start && other.end <= self.end)
    }
}

impl From<ByteRange> for std::ops::Range<usize> {
    fn from(range: ByteRange) -> Self {
        to_usize(range.start)..to_usize(range.end)
    }
}
