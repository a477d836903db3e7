//! Counts the records of a log.

use std::fmt;

use forebay_types::{Epoch, Lsn};

use super::{Gap, KeptLog, Piece};
use crate::layout::RecordKind;

/// The content of a log, counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// LSN of the first record.
    pub first: Lsn,
    /// LSN after the last record that can be read.
    pub end: Lsn,
    /// Its segments in their order.
    pub segments: Vec<SegmentSummary>,
    /// Stretches that cannot be read although records follow them.
    pub gaps: Vec<Gap>,
    /// How it ends.
    pub ending: Ending,
}

/// A segment that was begun, and its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentSummary {
    /// Its file.
    pub file: String,
    /// The epoch under which it was written.
    pub epoch: Epoch,
    /// LSN of its first record.
    pub base: Lsn,
    /// LSN after its last record that can be read.
    pub end: Lsn,
    /// Whether it is sealed.
    pub sealed: bool,
    /// Its data records.
    pub data: Counts,
    /// Its batches of metadata changes.
    pub metadata: Counts,
    /// Its truncations.
    pub truncate: Counts,
    /// Its snapshots.
    pub snapshot: Counts,
}

/// Records of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of records.
    pub records: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
}

/// How a log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// After a whole record.
    Clean,
    /// Within an unfinished write.
    Torn,
    /// Before records that were once on stable storage.
    Damaged {
        /// Records had been durable at least up to this LSN.
        durable_until: Lsn,
    },
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Clean => f.write_str("after a whole record"),
            Ending::Torn => f.write_str("within a record that was being written"),
            Ending::Damaged { durable_until } => write!(
                f,
                "too early: records up to LSN {durable_until} were on stable storage and are gone"
            ),
        }
    }
}

impl SegmentSummary {
    fn count(&mut self, kind: RecordKind, bytes: u64, end: Lsn) {
        let counts = match kind {
            RecordKind::Data => &mut self.data,
            RecordKind::Metadata => &mut self.metadata,
            RecordKind::Truncate => &mut self.truncate,
            RecordKind::Snapshot => &mut self.snapshot,
            // This version does not write any.
            RecordKind::Checkpoint => &mut Counts::default(),
        };
        counts.records += 1;
        counts.bytes += bytes;
        self.end = end;
    }
}

pub(super) fn of(log: &KeptLog) -> Summary {
    let mut segments: Vec<SegmentSummary> = log
        .segments
        .iter()
        .map(|segment| SegmentSummary {
            file: segment.file.clone(),
            epoch: segment.header.epoch,
            base: segment.header.base,
            end: segment.header.base,
            sealed: segment.header.seal.is_some(),
            data: Counts::default(),
            metadata: Counts::default(),
            truncate: Counts::default(),
            snapshot: Counts::default(),
        })
        .collect();
    let first = log.segments.first().map(|segment| segment.header.base);
    let first = first.unwrap_or(Lsn::ZERO);
    let (mut reader, mut gaps, mut end) = (log.read_from(Lsn::ZERO), Vec::new(), first);
    loop {
        let (kind, bytes, after) = match reader.next() {
            None => break,
            Some(Piece::Gap(gap)) => {
                gaps.push(gap);
                continue;
            }
            Some(Piece::Record(record, _)) => {
                (record.kind, record.payload.len() as u64, record.end)
            }
            Some(Piece::Locked(record)) => (record.kind, record.bytes, record.end),
        };
        end = end.max(after);
        let file = reader.file();
        let segment = segments
            .iter_mut()
            .find(|segment| Some(segment.file.as_str()) == file);
        if let Some(segment) = segment {
            segment.count(kind, bytes, after);
        }
    }
    let durable = log.segments.iter().map(|segment| segment.header.durable);
    let durable_until = durable.max().unwrap_or(Lsn::ZERO);
    let ending = if durable_until > end {
        Ending::Damaged { durable_until }
    } else if reader.is_torn() {
        Ending::Torn
    } else {
        Ending::Clean
    };
    Summary {
        first,
        end,
        segments,
        gaps,
        ending,
    }
}
