//! Which record of the log has which dirty bytes of a block.
//!
//! ```text
//! bytes      |  0 .. 4096   | 4096 .. 9000 |  no extent  | 12288 .. 16384 |
//! record     |    LSN 70    |    LSN 95    | memory only |     LSN 70     |
//! ```
//!
//! Extents never overlap: each byte has the record of its last write, or none. A byte without one has to stay in memory.

#[cfg(test)]
mod tests;

use forebay_types::{BLOCK_SIZE, ByteRange, Lsn, bounded_u32, to_usize};

const _: () = assert!(BLOCK_SIZE <= u32::MAX as u64);
const _: () = assert!(size_of::<LogExtent>() == 16);

/// A range of a block, and the record that has its bytes. Where in the record they lie follows from the record's own
/// offset in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LogExtent {
    start: u32,
    end: u32,
    lsn: Lsn,
}

impl LogExtent {
    fn new(range: ByteRange, lsn: Lsn) -> LogExtent {
        LogExtent {
            start: bounded_u32(to_usize(range.start)),
            end: bounded_u32(to_usize(range.end)),
            lsn,
        }
    }

    fn start(&self) -> u64 {
        u64::from(self.start)
    }

    fn end(&self) -> u64 {
        u64::from(self.end)
    }

    fn range(&self) -> ByteRange {
        ByteRange::new(self.start(), self.end())
    }

    /// Its part in `range`.
    fn part(&self, range: ByteRange) -> Option<LogExtent> {
        let part = self.range().intersect(range);
        (!part.is_empty()).then(|| LogExtent::new(part, self.lsn))
    }
}

/// Stands for the record of a byte that has none although the log alone should have it. No log has such a record, so a
/// reader fails where it would otherwise return other bytes.
pub(crate) const NO_RECORD: Lsn = Lsn(u64::MAX);

/// The log extents of a block in one checkpoint, ascending.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogMap(Vec<LogExtent>);

impl LogMap {
    /// No write is noted that could lead to more extents. Only an extent that a write without a record splits can still add
    /// one: the log may have the only copy of both its ends.
    pub(crate) const MAX_EXTENTS: usize = 16 << 10;

    /// Notes that `record` has the newest bytes of `range`. Without a record, or if the map is full, the range has no
    /// extent afterwards.
    #[inline]
    pub(crate) fn note(&mut self, range: ByteRange, record: Option<Lsn>) {
        match record {
            None if self.is_empty() => (),
            // It may split one extent in two, and adds one.
            Some(lsn) if self.0.len() + 2 <= Self::MAX_EXTENTS => {
                self.replace(range, Some(LogExtent::new(range, lsn)));
            }
            _ => self.carve(range),
        }
    }

    /// Removes `range` from all extents.
    pub(crate) fn carve(&mut self, range: ByteRange) {
        self.replace(range, None);
    }

    fn replace(&mut self, range: ByteRange, new: Option<LogExtent>) {
        if range.is_empty() {
            return;
        }
        if self.0.last().is_none_or(|last| last.end() <= range.start) {
            self.0.extend(new);
            return;
        }
        let first = self.0.partition_point(|known| known.end() <= range.start);
        // Mostly one or two, and all others of them go away.
        let reached = self.0[first..].iter();
        let reached = reached.take_while(|known| known.start() < range.end);
        let touched = first..first + reached.count();
        if let (Some(new), [known]) = (new, &mut self.0[touched.clone()])
            && known.start == new.start
        {
            if known.end == new.end {
                known.lsn = new.lsn;
                return;
            }
            // The next part of a longer write, which is written again from its beginning on.
            if known.end > new.end {
                known.start = new.end;
                self.0.insert(first, new);
                return;
            }
        }
        let before = self.0[touched.clone()].first();
        let before = before.and_then(|known| known.part(ByteRange::new(0, range.start)));
        let behind = self.0[touched.clone()].last();
        let behind = behind.and_then(|known| known.part(ByteRange::new(range.end, BLOCK_SIZE)));
        // On the stack: a write into a map that does not grow allocates nothing.
        let mut left = [LogExtent::default(); 3];
        let mut count = 0;
        for extent in [before, new, behind].into_iter().flatten() {
            left[count] = extent;
            count += 1;
        }
        self.0.splice(touched, left[..count].iter().copied());
    }

    /// The records of the bytes of `range`, all of which must have one; ascending.
    pub(crate) fn records(&self, range: ByteRange) -> impl Iterator<Item = (ByteRange, Lsn)> {
        let first = self.0.partition_point(|known| known.end() <= range.start);
        let mut extents = self.0[first..].iter().peekable();
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let next = extents.peek().map_or(range.end, |next| next.start());
            let found = if next <= at {
                let extent = extents.next()?;
                (ByteRange::new(at, extent.end().min(range.end)), extent.lsn)
            } else {
                debug_assert!(false, "bytes in the log alone have a record");
                (ByteRange::new(at, next.min(range.end)), NO_RECORD)
            };
            at = found.0.end;
            Some(found)
        })
    }

    /// The extents, ascending.
    pub(crate) fn all(&self) -> impl Iterator<Item = (ByteRange, Lsn)> {
        self.0.iter().map(|extent| (extent.range(), extent.lsn))
    }

    /// The extents whose record begins before `settled`, ascending.
    pub(crate) fn before(&self, settled: Lsn) -> impl Iterator<Item = ByteRange> {
        let extents = self.0.iter();
        let settled = extents.filter(move |extent| extent.lsn < settled);
        settled.map(LogExtent::range)
    }

    /// A map of the parts of this one in these ranges, which are ascending, and all bytes of which must have a record.
    pub(crate) fn cut_out(&self, ranges: impl Iterator<Item = ByteRange>) -> LogMap {
        let records = ranges.flat_map(|range| self.records(range));
        LogMap(
            records
                .map(|(range, lsn)| LogExtent::new(range, lsn))
                .collect(),
        )
    }

    /// Gives back heap memory that it does not need.
    pub(crate) fn shrink(&mut self) {
        self.0.shrink_to_fit();
    }

    /// Whether there are no extents.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of heap memory.
    pub(crate) fn heap_bytes(&self) -> u64 {
        (self.0.capacity() * size_of::<LogExtent>()) as u64
    }
}
