//! Reads records in their order, and skips what is damaged or missing.

use std::fmt;
use std::sync::Arc;

use forebay_types::{Epoch, Lsn};

use super::Segment;
use crate::RecordKind;
use crate::error::OpenError;
use crate::layout::SegmentHeader;
use crate::log_files::LogFiles;
use crate::recovery::cursor::{ScanResult, SegmentCursor};
use crate::recovery::{Record, follows};
use crate::seal::{LogKeys, SegmentOpener};

/// Behind an unreadable place, reading resumes at the next page.
const PAGE: u64 = 4096;

/// The next item that the reader finds in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A record, and the epoch under which it was written.
    Record(Record<'a>, Epoch),
    /// A sealed record without a key to open it.
    Locked(LockedRecord),
    /// A place where records are missing or not whole; others follow.
    Gap(Gap),
}

/// The fields of a sealed record that can be read without its key. They may be forged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockedRecord {
    /// The kind of the record.
    pub kind: RecordKind,
    /// LSN of its first byte.
    pub lsn: Lsn,
    /// LSN after its last byte.
    pub end: Lsn,
    /// Bytes of its payload.
    pub bytes: u64,
    /// The epoch under which it was written.
    pub epoch: Epoch,
}

/// A stretch of the log that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Where it begins.
    pub from: Lsn,
    /// Where records continue; equal to `from` for a skipped file that is not part of the sequence.
    pub to: Lsn,
    /// The reason.
    pub why: GapReason,
}

/// Why a stretch of the log cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GapReason {
    /// Bytes of this file differ from the written ones.
    Damaged {
        /// The file.
        file: String,
    },
    /// The disk cannot read these bytes of the file.
    Unreadable {
        /// The file.
        file: String,
        /// The error.
        error: String,
    },
    /// The bytes at that place of the file are whole but do not authenticate, or the file belongs to another history
    /// of the log: somebody has changed it.
    Forged {
        /// The file.
        file: String,
    },
    /// The records at that place of the file are not sealed, although they must be: anybody can have written them.
    NotSealed {
        /// The file.
        file: String,
    },
    /// The segment with this number, at least, is missing or has lost its header.
    Missing {
        /// Its number, as in the name of its file.
        number: u64,
    },
    /// The file does not continue where the one before it ended: it belongs to another volume or an older epoch, or
    /// its header names another place.
    Misplaced {
        /// The file.
        file: String,
    },
}

impl fmt::Display for GapReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GapReason::Damaged { file } => write!(f, "{file} is damaged there"),
            GapReason::Unreadable { file, error } => write!(f, "{file} cannot be read: {error}"),
            GapReason::Forged { file } => {
                write!(
                    f,
                    "{file} does not authenticate there: it was changed without the keys"
                )
            }
            GapReason::NotSealed { file } => {
                write!(
                    f,
                    "{file} is not sealed, but seal_log requires it: it is unknown who has written it"
                )
            }
            GapReason::Missing { number } => {
                write!(f, "segment {number:016x} is missing")
            }
            GapReason::Misplaced { file } => {
                write!(f, "{file} does not belong to this sequence")
            }
        }
    }
}

/// Reads the records of one log in their order.
pub struct LogReader {
    files: Arc<dyn LogFiles>,
    keys: LogKeys,
    /// Whether records that are not sealed are skipped.
    only_sealed: bool,
    segments: std::vec::IntoIter<Segment>,
    from: Lsn,
    reading: Option<Reading>,
    /// The segment that was read last.
    before: Option<SegmentHeader>,
    at: Lsn,
    torn: bool,
    /// A segment that follows a gap, already taken from `segments`.
    pending: Option<Segment>,
}

struct Reading {
    cursor: SegmentCursor,
    segment: Segment,
}

/// The item at a place, without a borrow of its bytes.
enum Found {
    Record {
        kind: RecordKind,
        end: Lsn,
        payload: std::ops::Range<usize>,
    },
    Locked(LockedRecord),
    Gap(Gap),
    End,
}

impl LogReader {
    pub(super) fn new(
        files: Arc<dyn LogFiles>,
        (keys, only_sealed): (LogKeys, bool),
        segments: Vec<Segment>,
        from: Lsn,
    ) -> LogReader {
        // The places of records are known from the base of a segment on.
        let first = segments
            .iter()
            .rposition(|segment| segment.header.base <= from)
            .unwrap_or(0);
        let mut segments = segments.into_iter();
        if first > 0 {
            segments.nth(first - 1);
        }
        let at = segments
            .as_slice()
            .first()
            .map_or(from, |first| first.header.base);
        LogReader {
            files,
            keys,
            only_sealed,
            segments,
            from,
            reading: None,
            before: None,
            at,
            torn: false,
            pending: None,
        }
    }

    /// The next record or gap; `None` after the last.
    #[allow(
        clippy::should_implement_trait,
        reason = "lends, which Iterator cannot"
    )]
    pub fn next(&mut self) -> Option<Piece<'_>> {
        loop {
            if self.reading.is_none() {
                match self.next_segment()? {
                    Some(gap) => return Some(Piece::Gap(gap)),
                    None => continue,
                }
            }
            let lsn = self.at;
            match self.find() {
                Found::Record { kind, end, payload } => {
                    (self.at, self.torn) = (end, false);
                    if lsn < self.from {
                        continue;
                    }
                    let reading = self.reading.as_ref()?;
                    let record = Record {
                        kind,
                        lsn,
                        end,
                        payload: reading.cursor.payload(payload),
                    };
                    return Some(Piece::Record(record, reading.segment.header.epoch));
                }
                Found::Locked(record) => {
                    (self.at, self.torn) = (record.end, false);
                    if lsn >= self.from {
                        return Some(Piece::Locked(record));
                    }
                }
                Found::Gap(gap) => {
                    self.at = gap.to;
                    if gap.to > self.from {
                        return Some(Piece::Gap(gap));
                    }
                }
                Found::End => {
                    if let Some(reading) = self.reading.take() {
                        self.before = Some(reading.segment.header);
                    }
                }
            }
        }
    }

    /// The LSN behind the records that have been read so far.
    pub fn position(&self) -> Lsn {
        self.at
    }

    /// Whether the last segment that was read ended within an unfinished write.
    pub(super) fn is_torn(&self) -> bool {
        self.torn
    }

    /// The file that is being read.
    pub(super) fn file(&self) -> Option<&str> {
        let reading = self.reading.as_ref()?;
        Some(&reading.segment.file)
    }

    /// Takes the next segment. Returns the gap before it first, if there is one; `None` when no segment is left.
    fn next_segment(&mut self) -> Option<Option<Gap>> {
        if let Some(segment) = self.pending.take() {
            return Some(self.begin(segment));
        }
        let segment = self.segments.next()?;
        let header = &segment.header;
        let Some(before) = self.before else {
            return Some(self.begin(segment));
        };
        if header.epoch < before.epoch || header.base < self.at {
            return Some(Some(Gap {
                from: self.at,
                to: self.at,
                why: GapReason::Misplaced { file: segment.file },
            }));
        }
        if header.previous_end == self.at {
            if !follows(&before, header) {
                return Some(Some(Gap {
                    from: self.at,
                    to: self.at,
                    why: GapReason::Forged { file: segment.file },
                }));
            }
            return Some(self.begin(segment));
        }
        let why = if header.previous == before.number {
            GapReason::Damaged {
                file: format!("the end of segment {:016x}", before.number.0),
            }
        } else {
            GapReason::Missing {
                number: header.previous.0,
            }
        };
        let gap = Gap {
            from: self.at,
            to: header.base,
            why,
        };
        self.pending = Some(segment);
        Some(Some(gap))
    }

    /// Opens a segment; returns a gap if that fails.
    fn begin(&mut self, segment: Segment) -> Option<Gap> {
        self.torn = false;
        match self.files.read(&segment.file) {
            Ok(reader) => {
                let (name, header) = (segment.file.clone(), segment.header);
                let opener = match SegmentOpener::of(&self.keys, &header, &name) {
                    Ok(opener) => opener,
                    Err(OpenError::Forged { .. }) => {
                        return Some(Gap {
                            from: self.at,
                            to: self.at,
                            why: GapReason::Forged { file: name },
                        });
                    }
                    // Its records are counted only.
                    Err(_) => None,
                };
                // A restart may skip LSNs.
                self.at = header.base;
                let cursor = SegmentCursor::new(reader, name, header, segment.bytes, opener);
                self.reading = Some(Reading { cursor, segment });
                None
            }
            Err(error) => Some(Gap {
                from: self.at,
                to: self.at,
                why: GapReason::Unreadable {
                    file: segment.file,
                    error: error.to_string(),
                },
            }),
        }
    }

    fn find(&mut self) -> Found {
        let Some(reading) = &mut self.reading else {
            return Found::End;
        };
        let (cursor, file) = (&mut reading.cursor, &reading.segment.file);
        let from = self.at;
        let end = Lsn(reading
            .segment
            .header
            .base
            .0
            .saturating_add(reading.segment.bytes));
        let is_sealed = reading.segment.header.seal.is_some();
        let error = match cursor.look(from) {
            Ok(ScanResult::Record { end: to, .. }) if self.only_sealed && !is_sealed => {
                let why = GapReason::NotSealed { file: file.clone() };
                return Found::Gap(Gap { from, to, why });
            }
            Ok(ScanResult::Record { kind, end, payload }) => {
                return Found::Record { kind, end, payload };
            }
            Ok(ScanResult::Locked { kind, end, bytes }) => {
                return Found::Locked(LockedRecord {
                    kind,
                    lsn: from,
                    end,
                    bytes,
                    epoch: reading.segment.header.epoch,
                });
            }
            Ok(ScanResult::Forged { end: to }) => {
                let why = GapReason::Forged { file: file.clone() };
                return Found::Gap(Gap { from, to, why });
            }
            Ok(place) => {
                self.torn |= place == ScanResult::Torn;
                None
            }
            Err(error) => Some(error),
        };
        let (next, error) = match error {
            None => match cursor.find_after(from) {
                Ok(next) => (next, None),
                Err(error) => (next_readable(cursor, from, end), Some(error)),
            },
            Some(error) => (next_readable(cursor, from, end), Some(error)),
        };
        self.torn |= error.is_some();
        let file = file.clone();
        match (next, error) {
            (None, _) => Found::End,
            (Some(to), None) => Found::Gap(Gap {
                from,
                to,
                why: GapReason::Damaged { file },
            }),
            (Some(to), Some(error)) => Found::Gap(Gap {
                from,
                to,
                why: GapReason::Unreadable {
                    file,
                    error: error.to_string(),
                },
            }),
        }
    }
}

/// The first record behind a place that the disk cannot read.
fn next_readable(cursor: &mut SegmentCursor, from: Lsn, end: Lsn) -> Option<Lsn> {
    let mut at = from;
    while at < end {
        at = at.advance(PAGE);
        let found: Result<Option<Lsn>, OpenError> = cursor.find_after(at);
        if let Ok(found) = found {
            return found;
        }
    }
    None
}
