//! Reads logs without changing anything: the one that a gateway writes or left behind, and those that were
//! [archived](crate::archive).
//!
//! Recovery stops at the first record that is not valid in sequence, since nothing behind it may be replayed. Here
//! the reader is a person who wants everything that can be read: reading continues behind a damaged place or a
//! missing segment at the next whole record, and reports what it [skipped](Gap). Every record that is shown has
//! passed all checks.
//!
//! Nothing is locked and nothing is mapped, so the log of a running gateway may be read. Segments that are recycled
//! meanwhile read as the end of a segment, or as missing.

mod reader;
mod summary;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use forebay_seal::{DataKeys, Purpose};
use forebay_types::{Epoch, Lsn, VolumeId};

use crate::layout::{HeaderBytes, SEGMENT_HEADER_USED, SegmentHeader};
use crate::log_files::LogFiles;
use crate::position;
use crate::seal::LogKeys;
use crate::segment::{ArchivedKind, ArchivedName, FileName};

pub use reader::{Gap, GapReason, LockedRecord, LogReader, Piece};
pub use summary::{Counts, Ending, SegmentSummary, Summary};

/// Which log of a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Label {
    /// The log that is written, or replayed at the next start: `current`.
    Current,
    /// A log that was archived under this label. Segments that were cut off behind a damaged place have a label that
    /// ends in `cut-off`.
    Archived(String),
}

impl Label {
    /// Parses a label that a person has typed.
    pub fn parse(text: &str) -> Label {
        if text == "current" {
            Label::Current
        } else {
            Label::Archived(text.to_owned())
        }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Label::Current => f.write_str("current"),
            Label::Archived(label) => f.write_str(label),
        }
    }
}

/// All logs of a folder.
pub struct Inspection {
    logs: Vec<KeptLog>,
}

/// The files of one log.
pub struct KeptLog {
    label: Label,
    files: Arc<dyn LogFiles>,
    keys: Option<Arc<DataKeys>>,
    /// Whether records that are not sealed are skipped, in a log that must be sealed.
    only_sealed: bool,
    /// Ordered by number.
    segments: Vec<Segment>,
    unusable: Vec<(String, String)>,
    /// Bytes of all files, spare ones included.
    bytes: u64,
}

/// A segment that was begun.
#[derive(Clone, Debug)]
struct Segment {
    file: String,
    bytes: u64,
    header: SegmentHeader,
}

impl Inspection {
    /// Reads the headers of all segments of a folder. Records of sealed ones are counted and not read.
    ///
    /// # Errors
    /// When the folder cannot be listed. A file that cannot be read is [named](KeptLog::unusable).
    pub fn open(files: Arc<dyn LogFiles>) -> io::Result<Inspection> {
        Inspection::open_with(files, None, false)
    }

    /// Like [`open`](Self::open), with the keys of a volume: sealed segments of that volume are read with them. With
    /// `only_sealed`, for a gateway that seals its log, records that are not sealed are [gaps](GapReason::NotSealed):
    /// all of those of the current log, and those of an archived log that has sealed segments. An archived log
    /// without sealed segments dates from before sealing was switched on.
    pub fn open_with(
        files: Arc<dyn LogFiles>,
        keys: Option<Arc<DataKeys>>,
        only_sealed: bool,
    ) -> io::Result<Inspection> {
        let mut logs = BTreeMap::new();
        let mut names = files.list()?;
        names.sort();
        for name in names {
            let (label, is_spare) = match (FileName::parse(&name), ArchivedName::parse(&name)) {
                (Some(file), _) => (Label::Current, matches!(file, FileName::Spare(_))),
                (None, Some(archived_name)) => (
                    Label::of(&archived_name),
                    archived_name.kind == ArchivedKind::Spare,
                ),
                (None, None) => continue,
            };
            logs.entry(label.clone())
                .or_insert_with(|| KeptLog {
                    label,
                    files: files.clone(),
                    keys: keys.clone(),
                    only_sealed,
                    segments: Vec::new(),
                    unusable: Vec::new(),
                    bytes: 0,
                })
                .add(name, is_spare);
        }
        let mut logs: Vec<KeptLog> = logs.into_values().collect();
        for log in &mut logs {
            log.segments.sort_by_key(|segment| segment.header.number);
        }
        Ok(Inspection { logs })
    }

    /// Every log: the current one first, then the others by label.
    pub fn logs(&self) -> &[KeptLog] {
        &self.logs
    }

    /// One log; `None` if the folder has no file of it.
    pub fn log(&self, label: &Label) -> Option<&KeptLog> {
        self.logs.iter().find(|log| log.label == *label)
    }
}

impl KeptLog {
    fn add(&mut self, name: String, is_spare: bool) {
        let opened = self.files.read(&name).and_then(|reader| {
            let mut header = [0; SEGMENT_HEADER_USED];
            let bytes = reader.size()?;
            if !is_spare {
                reader.read_at(0, &mut header)?;
            }
            Ok((bytes, SegmentHeader::decode(&header)))
        });
        let (bytes, header) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.unusable.push((name, error.to_string()));
                return;
            }
        };
        self.bytes += bytes;
        let number = FileName::parse(&name)
            .map(FileName::number)
            .or_else(|| ArchivedName::parse(&name).map(|archived_name| archived_name.number));
        match header {
            HeaderBytes::Valid(header) if Some(header.number) == number => {
                self.segments.push(Segment {
                    file: name,
                    bytes,
                    header,
                });
            }
            HeaderBytes::Newer(version) => {
                let why = format!("it has format version {version}; use a newer program");
                self.unusable.push((name, why));
            }
            // Prepared for its next life, or torn while it was being begun: it has no valid records.
            HeaderBytes::Valid(_) | HeaderBytes::Invalid => {}
        }
    }

    /// The label of this log.
    pub fn label(&self) -> &Label {
        &self.label
    }

    /// Volume of the newest segment; `None` if no segment has a valid header.
    pub fn volume(&self) -> Option<VolumeId> {
        self.segments.last().map(|segment| segment.header.volume)
    }

    /// Lowest and highest epoch under which its segments were written.
    pub fn epochs(&self) -> Option<(Epoch, Epoch)> {
        let epochs = || self.segments.iter().map(|segment| segment.header.epoch);
        Some((epochs().min()?, epochs().max()?))
    }

    /// Bytes on disk of all its files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Files that cannot be read at all, and why.
    pub fn unusable(&self) -> &[(String, String)] {
        &self.unusable
    }

    /// Whether it has records that cannot be read because their keys are missing.
    pub fn is_locked(&self) -> bool {
        let keys = self.keys();
        let mut sealed = self.segments.iter().filter_map(|segment| {
            let seal = segment.header.seal?;
            Some((segment.header.number.0, seal))
        });
        sealed.any(|(number, seal)| {
            keys.keys().is_none_or(|keys| {
                let opener = keys.opener(Purpose::Log, number, seal.key, &seal.salt);
                opener.is_err()
            })
        })
    }

    /// The keys, if they are those of its volume.
    fn keys(&self) -> LogKeys {
        let own = self.keys.as_ref();
        match own.filter(|keys| self.volume() == Some(keys.volume())) {
            Some(keys) => LogKeys::Optional(Arc::clone(keys)),
            None => LogKeys::None,
        }
    }

    /// Reads the records that lie at `from` or behind it.
    pub fn read_from(&self, from: Lsn) -> LogReader {
        let (files, segments) = (self.files.clone(), self.segments.clone());
        let is_of_sealed = self.label == Label::Current
            || segments.iter().any(|segment| segment.header.seal.is_some());
        let only_sealed = self.only_sealed && is_of_sealed;
        LogReader::new(files, (self.keys(), only_sealed), segments, from)
    }

    /// Whether it is certain that the log holds no record at `published` or behind it, so that deleting it loses
    /// nothing. Also false where something in it is damaged.
    pub fn has_nothing_from(&self, published: Lsn) -> bool {
        let mut reader = self.read_from(published);
        let is_empty = reader.next().is_none();
        is_empty
            && !reader.is_torn()
            && self.unusable.is_empty()
            && self.reached() <= Some(published)
    }

    /// The LSN up to which the log has had records, by its headers and its position.
    fn reached(&self) -> Option<Lsn> {
        let durable = self.segments.iter().map(|segment| segment.header.durable);
        let noted = self.volume().filter(|_| self.label == Label::Current);
        let noted = noted.and_then(|volume| position::reached(&*self.files, volume).ok()?);
        let noted = noted.map(|reached| reached.complete.max(reached.durable));
        durable.chain(noted).max()
    }

    /// Reads everything once and counts it.
    pub fn summarize(&self) -> Summary {
        summary::of(self)
    }
}
