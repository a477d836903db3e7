//! Classifies the files of a log by the first table.

use forebay_types::{Lsn, VolumeId};

use super::cursor::{self, ScanResult, SegmentCursor};
use super::rules::{self, FileVerdict};
use super::{Begun, LogFile, within_limit};
use crate::error::OpenError;
use crate::layout::{HeaderBytes, SEGMENT_HEADER, SEGMENT_PAGE_USED, SegmentHeader};
use crate::seal::{LogKeys, SegmentOpener};
use crate::segment::FileName;
use crate::storage::Storage;

/// A segment that has records but has lost its header.
pub(super) struct Headless {
    pub(super) file: LogFile,
    /// LSN of its first record.
    pub(super) first: Lsn,
    /// The end of that record.
    pub(super) end: Lsn,
}

/// The files of a log.
#[derive(Default)]
pub(super) struct Folder {
    pub(super) begun: Vec<Begun>,
    pub(super) void: Vec<LogFile>,
    pub(super) headless: Vec<Headless>,
    /// Segments that are shorter than a header's page and have no header: their former content is not known.
    pub(super) stumps: Vec<LogFile>,
    /// Segments whose headers are valid, but of which nothing is to be replayed.
    pub(super) discarded: Vec<LogFile>,
    /// The highest number that appears in a name or a header: a file may carry the header of a name that no longer
    /// exists.
    pub(super) numbers: u64,
}

impl Folder {
    /// Sorts segments that are not sealed into `discarded`, or refuses them.
    pub(super) fn discard_unsealed(
        &mut self,
        storage: &dyn Storage,
        from: Lsn,
        is_published: bool,
    ) -> Result<(), OpenError> {
        let (sealed, unsealed): (Vec<_>, Vec<_>) = std::mem::take(&mut self.begun)
            .into_iter()
            .partition(|segment| segment.header.seal.is_some());
        self.begun = sealed;
        for segment in unsealed {
            if !is_published && holds_any_from(storage, &segment, from)? {
                return Err(OpenError::NotSealed {
                    segment: segment.file.name.text(),
                });
            }
            self.discarded.push(segment.file);
        }
        Ok(())
    }
}

/// Whether a segment that is not sealed has a record at `from` or behind it, or a trace of one.
fn holds_any_from(storage: &dyn Storage, segment: &Begun, from: Lsn) -> Result<bool, OpenError> {
    let mut cursor = SegmentCursor::open(storage, segment, &LogKeys::None)?;
    let mut at = segment.header.base;
    while let ScanResult::Record { end, .. } = cursor.look(at)? {
        at = end;
    }
    Ok(at > from || cursor.traces_after(from.max(at))?.any)
}

/// Applies the first table to all files.
pub(super) fn classify(
    storage: &dyn Storage,
    volume: VolumeId,
    keys: &LogKeys,
) -> Result<Folder, OpenError> {
    let names = storage
        .list()
        .map_err(OpenError::io("list the log folder"))?;
    let mut folder = Folder::default();
    for name in names.iter().filter_map(|name| FileName::parse(name)) {
        let text = name.text();
        let failed = |source| OpenError::Io {
            action: format!("read the header of {text}"),
            source,
        };
        let reader = storage.read(&text).map_err(failed)?;
        let bytes = reader.size().map_err(failed)?;
        let mut page = [0; SEGMENT_PAGE_USED];
        // A file that is too short leaves zeros, which are not a header.
        reader.read_at(0, &mut page).map_err(failed)?;
        let header = SegmentHeader::decode_page(&page);
        folder.numbers = folder.numbers.max(name.number().0);
        if let HeaderBytes::Valid(header) = &header {
            folder.numbers = folder.numbers.max(header.number.0);
            let lsns = [header.base, header.previous_end, header.durable];
            for lsn in lsns {
                within_limit(lsn.0, || format!("an LSN in the header of {text}"))?;
            }
        }
        within_limit(folder.numbers, || format!("the number of {text}"))?;
        let file = LogFile { name, bytes };
        match rules::segment_file(name, header, volume) {
            FileVerdict::Begun(header) => {
                SegmentOpener::of(keys, &header, &text)?;
                let made_with = header.file_bytes(&page);
                folder.begun.push(Begun {
                    file,
                    header,
                    made_with,
                });
            }
            FileVerdict::Void => {
                let lost = header == HeaderBytes::Invalid && matches!(name, FileName::Segment(_));
                let record = match lost {
                    true => cursor::first_record(&*reader, bytes).map_err(failed)?,
                    false => None,
                };
                match record {
                    Some((first, end)) => folder.headless.push(Headless { file, first, end }),
                    // A segment gets its whole length before it gets its name.
                    None if lost && bytes < SEGMENT_HEADER as u64 => folder.stumps.push(file),
                    None => folder.void.push(file),
                }
            }
            FileVerdict::Foreign(found) => {
                return Err(OpenError::ForeignVolume {
                    segment: text,
                    expected: volume,
                    found,
                });
            }
            FileVerdict::Newer(found) => {
                let supported = crate::layout::VERSION;
                return Err(OpenError::NewerFormat {
                    segment: text,
                    found,
                    supported,
                });
            }
        }
    }
    Ok(folder)
}
