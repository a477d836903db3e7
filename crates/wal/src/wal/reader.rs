//! Reads single records of a log that is open, or that was scanned and is about to be.

use std::sync::Arc;

use forebay_types::Lsn;

use super::preparer;
use super::shared::Shared;
use crate::error::ReadFailed;
use crate::recovery::{Record, ScanResult, SegmentCursor};
use crate::seal::{LogKeys, SegmentOpener};
use crate::state::Readable;
use crate::storage::Storage;

/// Reads records of a log by their LSN: of one that is [open](crate::Wal::reader), or of one that was
/// [scanned](crate::Recovery::reader), until it is opened. Clones read the same log.
///
/// Each record is checked as at recovery: LSN, salt and CRC32, and in a sealed segment its tag. Bytes come from the file and
/// not from mapped memory, so a bad sector is an error. Reads do not wait for flushes, and appends wait for no read.
#[derive(Clone)]
pub struct RecordReader {
    log: Log,
}

#[derive(Clone)]
enum Log {
    Open(Arc<Shared>),
    Scanned(Arc<Scanned>),
}

/// A log that was scanned. Nothing is recycled before it is opened.
struct Scanned {
    storage: Arc<dyn Storage>,
    keys: LogKeys,
    /// Ascending.
    segments: Vec<Readable>,
}

impl Log {
    fn storage(&self) -> &dyn Storage {
        match self {
            Log::Open(shared) => &*shared.storage,
            Log::Scanned(scanned) => &*scanned.storage,
        }
    }

    fn keys(&self) -> &LogKeys {
        match self {
            Log::Open(shared) => &shared.keys,
            Log::Scanned(scanned) => &scanned.keys,
        }
    }

    /// The segment of the record at `lsn`, which stays until the end of the reading.
    fn begin_reading(&self, lsn: Lsn) -> Option<Readable> {
        match self {
            Log::Open(shared) => shared.state.lock().begin_reading(lsn),
            Log::Scanned(scanned) => {
                let segments = &scanned.segments;
                let behind = segments.partition_point(|segment| segment.header.base <= lsn);
                let segment = segments.get(behind.checked_sub(1)?)?;
                (lsn < segment.end).then(|| segment.clone())
            }
        }
    }
}

impl RecordReader {
    pub(super) fn new(shared: Arc<Shared>) -> RecordReader {
        RecordReader {
            log: Log::Open(shared),
        }
    }

    /// Reads these segments, which ascend.
    pub(crate) fn of_scanned(
        storage: Arc<dyn Storage>,
        keys: LogKeys,
        segments: Vec<Readable>,
    ) -> RecordReader {
        RecordReader {
            log: Log::Scanned(Arc::new(Scanned {
                storage,
                keys,
                segments,
            })),
        }
    }

    /// Reads the records that begin at these LSNs, which ascend, and passes each of them to `each` or the reason why it
    /// cannot be read. Records that lie close together come with one read. The segment of a record is not recycled before
    /// `each` has returned.
    pub fn read(&self, lsns: &[Lsn], mut each: impl FnMut(Lsn, Result<Record<'_>, ReadFailed>)) {
        let mut rest = lsns;
        while let Some(first) = rest.first() {
            let Some(segment) = Reading::begin(&self.log, *first) else {
                each(*first, Err(ReadFailed::Gone));
                rest = rest.get(1..).unwrap_or_default();
                continue;
            };
            let within = |lsn: &Lsn| (segment.file.header.base..segment.file.end).contains(lsn);
            let (here, behind) = rest.split_at(rest.partition_point(within).max(1));
            segment.read(here, &mut each);
            rest = behind;
        }
    }
}

/// A segment that is being read.
struct Reading<'a> {
    log: &'a Log,
    file: Readable,
}

impl<'a> Reading<'a> {
    fn begin(log: &'a Log, lsn: Lsn) -> Option<Reading<'a>> {
        let file = log.begin_reading(lsn)?;
        Some(Reading { log, file })
    }

    fn read(&self, lsns: &[Lsn], each: &mut impl FnMut(Lsn, Result<Record<'_>, ReadFailed>)) {
        let mut cursor = match self.open() {
            Ok(cursor) => cursor,
            Err(failed) => {
                for lsn in lsns {
                    each(*lsn, Err(failed.clone()));
                }
                return;
            }
        };
        for lsn in lsns {
            let look = cursor.look(*lsn);
            if !matches!(look, Ok(ScanResult::Record { .. })) {
                // Only the page cache may be wrong: the next attempt asks the disk.
                cursor.drop_cached(*lsn);
            }
            let found = match look {
                Ok(ScanResult::Record { kind, end, payload }) => Ok(Record {
                    kind,
                    lsn: *lsn,
                    end,
                    payload: cursor.payload(payload),
                }),
                Ok(place) => Err(self.damaged(*lsn, &place)),
                Err(error) => Err(ReadFailed::Unreadable {
                    segment: self.file.name.clone(),
                    why: error.to_string(),
                }),
            };
            each(*lsn, found);
        }
    }

    fn open(&self) -> Result<SegmentCursor, ReadFailed> {
        let Readable {
            name,
            header,
            bytes,
            ..
        } = &self.file;
        let opener = SegmentOpener::of(self.log.keys(), header, name);
        let opener = opener.map_err(|error| self.failed(&error))?;
        let reader = self.log.storage().read(name);
        let reader = reader.map_err(|error| self.failed(&error))?;
        Ok(SegmentCursor::new(
            reader,
            name.clone(),
            *header,
            *bytes,
            opener,
        ))
    }

    fn failed(&self, error: &impl ToString) -> ReadFailed {
        ReadFailed::NotOpened {
            segment: self.file.name.clone(),
            why: error.to_string(),
        }
    }

    fn damaged(&self, lsn: Lsn, found: &ScanResult) -> ReadFailed {
        let what = match found {
            ScanResult::Forged { .. } => "does not authenticate: somebody has changed it",
            ScanResult::Locked { .. } => "was sealed with a key that is missing",
            ScanResult::Torn => "does not match its checksum",
            ScanResult::Record { .. } | ScanResult::End => "is not there",
        };
        ReadFailed::Damaged {
            segment: self.file.name.clone(),
            why: format!("the record at LSN {lsn} {what}"),
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let Log::Open(shared) = self.log else {
            return;
        };
        let (is_due, restarts) = shared.change(|state, due| {
            state.end_reading(self.file.header.base, due);
            (preparer::is_due(state), state.restarting)
        });
        if is_due {
            shared.preparer.notify_one();
        }
        if restarts {
            shared.restarter.notify_all();
        }
    }
}
