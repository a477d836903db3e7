//! Segments as the log keeps book of them, and the names of their files.

use std::sync::Arc;

use forebay_types::Lsn;

use crate::layout::{SEGMENT_HEADER, Salt, SegmentNumber};
use crate::map::SegmentMap;
use crate::storage::SegmentMemory;

/// What a file of the log's folder is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileName {
    /// `<number>.seg`: a segment, begun or prepared to be.
    Segment(SegmentNumber),
    /// `<number>.spare`: a file whose content is void, kept for its space.
    Spare(SegmentNumber),
}

impl FileName {
    pub(crate) fn parse(name: &str) -> Option<FileName> {
        let (digits, kind) = name.split_once('.')?;
        let lowercase = digits
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if digits.len() != 16 || !lowercase {
            return None;
        }
        let number = SegmentNumber(u64::from_str_radix(digits, 16).ok()?);
        match kind {
            "seg" => Some(FileName::Segment(number)),
            "spare" => Some(FileName::Spare(number)),
            _ => None,
        }
    }

    pub(crate) fn number(self) -> SegmentNumber {
        match self {
            FileName::Segment(number) | FileName::Spare(number) => number,
        }
    }

    pub(crate) fn text(self) -> String {
        match self {
            FileName::Segment(SegmentNumber(number)) => format!("{number:016x}.seg"),
            FileName::Spare(SegmentNumber(number)) => format!("{number:016x}.spare"),
        }
    }
}

/// A segment that holds records which may be needed again.
pub(crate) struct Retained {
    pub(crate) name: String,
    pub(crate) salt: Salt,
    /// Bytes of the file.
    pub(crate) bytes: u64,
    /// LSN of the first record.
    pub(crate) base: Lsn,
    /// Where the records end; `None` while they are still being appended.
    pub(crate) end: Option<Lsn>,
    /// Mapped until it is full and flushed; never for segments of an earlier run.
    pub(crate) map: Option<Arc<SegmentMap>>,
    /// Whether the header is on stable storage.
    pub(crate) header_flushed: bool,
}

impl Retained {
    /// Where in the file the record with this LSN lies.
    pub(crate) fn position(&self, lsn: Lsn) -> usize {
        SEGMENT_HEADER + lsn.0.saturating_sub(self.base.0) as usize
    }
}

/// A segment that is ready to be begun.
pub(crate) struct Prepared {
    pub(crate) number: SegmentNumber,
    pub(crate) name: String,
    pub(crate) salt: Salt,
    pub(crate) bytes: u64,
    pub(crate) map: Arc<SegmentMap>,
}

/// A file whose records are not needed any more.
pub(crate) struct Spare {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// Kept when it was still mapped: its pages are present and dirty, which makes it the fastest
    /// to write again.
    pub(crate) memory: Option<Box<dyn SegmentMemory>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_the_round_trip_and_others_are_foreign() {
        for name in [
            FileName::Segment(SegmentNumber(0xa5)),
            FileName::Spare(SegmentNumber(1)),
        ] {
            assert_eq!(FileName::parse(&name.text()), Some(name));
        }
        for foreign in [
            "",
            "lost+found",
            "1.seg",
            "00000000000000A5.seg",
            "00000000000000a5.aside",
        ] {
            assert_eq!(FileName::parse(foreign), None, "{foreign}");
        }
    }
}
