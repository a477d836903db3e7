//! Two sets at once.

use super::{GRANULE, RangeBitmap, words};
use forebay_types::{BLOCK_SIZE, ByteRange};

impl RangeBitmap {
    /// Number of bytes that are set in both.
    pub(crate) fn common_len(&self, other: &RangeBitmap) -> u64 {
        if self.is_empty() || other.is_empty() {
            return 0;
        }
        let mut both = self.full;
        both.iter_mut()
            .zip(&other.full)
            .for_each(|(own, other)| *own &= other);
        let mut len = words::count(&both) * GRANULE;
        for (granule, partial) in &other.partial {
            if self.is_full(usize::from(*granule)) {
                len += partial.count();
            }
        }
        let mut len = len as u64;
        for (granule, _) in &self.partial {
            let granule = ByteRange::at(u64::from(*granule) * GRANULE as u64, GRANULE as u64);
            let others = other.set_ranges(granule);
            let common = others.flat_map(|range| self.set_ranges(range));
            len += common.map(|range| range.len()).sum::<u64>();
        }
        len
    }

    /// Whether a byte of `range` is set.
    pub(crate) fn touches(&self, range: ByteRange) -> bool {
        self.set_ranges(range).next().is_some()
    }

    /// Clears every byte that is not set in `other`.
    pub(crate) fn intersect(&mut self, other: &RangeBitmap) {
        let all = ByteRange::new(0, BLOCK_SIZE);
        other.unset_ranges(all).for_each(|gap| self.clear(gap));
    }

    /// Gives back heap memory that it does not need.
    pub(crate) fn shrink(&mut self) {
        self.partial.shrink_to_fit();
    }
}
