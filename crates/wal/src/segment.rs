//! Segments in the state of the log, and the names of their files.

use std::sync::Arc;

use forebay_types::{Lsn, to_usize};

use crate::layout::{SEGMENT_HEADER, Salt, SegmentHeader, SegmentNumber};
use crate::map::Unwritten;
use crate::seal::SegmentSealer;
use crate::storage::SegmentMemory;

/// The role of a file in the log's folder, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileName {
    /// `<number>.seg`: a segment, begun or prepared.
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

/// The name of a file in the log's folder that the log itself no longer reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArchivedName {
    /// The label under which it was archived; none for `<number>.aside`.
    pub(crate) label: Option<String>,
    pub(crate) number: SegmentNumber,
    pub(crate) kind: ArchivedKind,
}

/// The role of a file before it was archived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArchivedKind {
    Segment,
    Spare,
    /// `.aside`: a segment behind a damaged place.
    CutOff,
}

impl ArchivedName {
    /// Parses `<label>-<number>.seg`, `.spare` and `.aside`, and `<number>.aside`.
    pub(crate) fn parse(name: &str) -> Option<ArchivedName> {
        let (label, plain) = match name.rsplit_once('-') {
            Some((label, plain)) => (Some(label.to_owned()), plain),
            None => (None, name),
        };
        let (kind, number) = match FileName::parse(plain) {
            Some(FileName::Segment(number)) => (ArchivedKind::Segment, number),
            Some(FileName::Spare(number)) => (ArchivedKind::Spare, number),
            None => {
                let digits = plain.strip_suffix(".aside")?;
                let number = FileName::parse(&format!("{digits}.seg"))?.number();
                (ArchivedKind::CutOff, number)
            }
        };
        let is_archived = match &label {
            Some(label) => !label.is_empty(),
            None => kind == ArchivedKind::CutOff,
        };
        is_archived.then_some(ArchivedName {
            label,
            number,
            kind,
        })
    }
}

/// A segment with records that may be needed again.
pub(crate) struct Retained {
    pub(crate) name: String,
    /// As it is in the file.
    pub(crate) header: SegmentHeader,
    /// Bytes of the file.
    pub(crate) bytes: u64,
    /// Where the records end; `None` while they are still being appended.
    pub(crate) end: Option<Lsn>,
    /// Number of the log's appends up to its end; of a segment of an earlier run 0.
    pub(crate) appends: u64,
    /// Mapped until it is full and flushed, or until it is recycled if it lies in memory; never for segments of an
    /// earlier run.
    pub(crate) unwritten: Option<Unwritten>,
    /// Whether the header is on stable storage.
    pub(crate) header_flushed: bool,
    /// Seals its records, if the log is sealed; never for segments of an earlier run.
    pub(crate) sealer: Option<Arc<SegmentSealer>>,
    /// Number of readers of its file, which it stays for.
    pub(crate) readers: usize,
}

impl Retained {
    /// LSN of the first record.
    #[inline]
    pub(crate) fn base(&self) -> Lsn {
        self.header.base
    }

    /// Where in the file the record with this LSN lies.
    pub(crate) fn position(&self, lsn: Lsn) -> usize {
        SEGMENT_HEADER + to_usize(lsn.0.saturating_sub(self.header.base.0))
    }
}

/// A segment that is ready to be begun.
pub(crate) struct Prepared {
    pub(crate) number: SegmentNumber,
    pub(crate) name: String,
    pub(crate) salt: Salt,
    pub(crate) bytes: u64,
    pub(crate) unwritten: Unwritten,
    /// Seals its records, if the log is sealed.
    pub(crate) sealer: Option<Arc<SegmentSealer>>,
}

/// A file whose records are no longer needed.
pub(crate) struct Spare {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// Kept if it was still mapped: its pages are present and dirty, so that it is the fastest one to write again.
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

    #[test]
    fn names_of_what_was_put_aside_tell_label_number_and_kind() {
        let parsed =
            |name: &str| ArchivedName::parse(name).map(|it| (it.label, it.number.0, it.kind));
        assert_eq!(
            parsed("epoch-7-00000000000000a5.seg"),
            Some((Some("epoch-7".into()), 0xa5, ArchivedKind::Segment))
        );
        assert_eq!(
            parsed("x-0000000000000001.spare"),
            Some((Some("x".into()), 1, ArchivedKind::Spare))
        );
        assert_eq!(
            parsed("0000000000000002.aside"),
            Some((None, 2, ArchivedKind::CutOff))
        );
        for other in [
            "0000000000000002.seg",
            "-0000000000000002.seg",
            "epoch-7-2.seg",
            "epoch-7.note",
            "epoch-7-00000000000000A5.seg",
        ] {
            assert_eq!(parsed(other), None, "{other}");
        }
    }
}
