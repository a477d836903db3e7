//! Segments that are read while the log is open.

use std::task::Waker;

use forebay_types::Lsn;

use super::State;
use crate::layout::SegmentHeader;

/// A segment that has a reader.
#[derive(Clone)]
pub(crate) struct Readable {
    pub(crate) name: String,
    pub(crate) header: SegmentHeader,
    /// Where its complete records end.
    pub(crate) end: Lsn,
    /// Bytes of the file up to there.
    pub(crate) bytes: u64,
}

impl State {
    /// Adds a reader to the segment of the record at `lsn`; `None` if the log has no complete record there.
    pub(crate) fn begin_reading(&mut self, lsn: Lsn) -> Option<Readable> {
        let behind = self
            .retained
            .partition_point(|segment| segment.base() <= lsn);
        let segment = self.retained.get_mut(behind.checked_sub(1)?)?;
        let end = segment.end.unwrap_or(self.complete).min(self.complete);
        if lsn >= end || self.restarting {
            return None;
        }
        segment.readers += 1;
        Some(Readable {
            name: segment.name.clone(),
            header: segment.header,
            end,
            bytes: segment.position(end) as u64,
        })
    }

    /// Removes a reader of the segment that begins at `base`, and recycles what has waited for it.
    pub(crate) fn end_reading(&mut self, base: Lsn, due: &mut Vec<Waker>) {
        // An empty segment before it has the same base.
        let mut segments = self.retained.iter_mut();
        if let Some(segment) = segments.rfind(|segment| segment.base() == base) {
            segment.readers -= 1;
        }
        self.recycle(Lsn::ZERO, due);
    }

    /// Whether a segment has a reader.
    pub(crate) fn is_read(&self) -> bool {
        self.retained.iter().any(|segment| segment.readers > 0)
    }
}
