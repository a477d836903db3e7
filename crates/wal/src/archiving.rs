//! Logs that must not be replayed: archiving and discarding them, and access to the folder without its lock.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use forebay_types::Lsn;

use crate::inspect::Label;
use crate::layout::{HeaderBytes, SEGMENT_HEADER, SEGMENT_PAGE_USED, SIZE_BYTES, SegmentHeader};
use crate::log_files::LogFiles;
use crate::position;
use crate::recovery::cursor::{SegmentCursor, first_record};
use crate::segment::{ArchivedKind, ArchivedName, FileName};
use crate::storage::{SegmentReader, Storage, open_for_reading};

/// Archives a log that must not be replayed: one of another volume, or one that a fenced gateway wrote. Its segments
/// are renamed to `<label>-<its name>`, so that the log no longer sees them, and cut behind their last record.
/// Returns the number of archived files and the label. The operator recognises the files by their names; renaming
/// them back restores the log. Segments that were cut off behind a damaged place are archived as well. A segment
/// without records, or without records at or behind `published` where that is given, becomes a spare file for the
/// next log.
///
/// Nothing that was archived before is replaced: if `label` has a file of the same name already,
/// the label becomes `<label>-2`, and so on.
///
/// `InvalidInput` for a label that is empty or has other characters than ASCII letters, digits and `-`. Otherwise an
/// error of the storage; some of the segments are renamed then, and the call can be repeated.
pub fn archive(
    storage: &dyn Storage,
    label: &str,
    published: Option<Lsn>,
) -> io::Result<(usize, String)> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if label.is_empty() || !label.bytes().all(plain) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{label:?} is not a valid label: use letters, digits and dashes"),
        ));
    }
    let names = storage.list()?;
    let segments: Vec<&String> = names.iter().filter(|name| belongs_to_log(name)).collect();
    // A completely archived log has a note. A label without a note may belong to this log, of which a part was
    // renamed.
    let is_free = |label: &str| {
        let taken = |name: &&String| names.contains(&format!("{label}-{name}"));
        !segments.iter().any(taken) && !names.contains(&format!("{label}.note"))
    };
    let mut chosen = label.to_owned();
    let mut next = 2_u64;
    while !is_free(&chosen) {
        chosen = format!("{label}-{next}");
        next += 1;
    }
    position::forget(storage)?;
    let mut archived = 0;
    for name in &segments {
        let content = Content::of(storage, name);
        if let Some(FileName::Segment(number)) = FileName::parse(name)
            && content.is_published(published)
        {
            storage.rename(name, &FileName::Spare(number).text())?;
            continue;
        }
        let renamed = format!("{chosen}-{name}");
        storage.rename(name, &renamed)?;
        if let Content::Until(_, bytes) = content {
            shorten(storage, &renamed, bytes);
        }
        archived += 1;
    }
    Ok((archived, chosen))
}

/// Whether [`archive`] would archive anything.
///
/// # Errors
/// An error of the storage.
pub fn has_to_be_archived(storage: &dyn Storage, published: Option<Lsn>) -> io::Result<bool> {
    let names = storage.list()?;
    let mut segments = names.iter().filter(|name| belongs_to_log(name));
    Ok(segments.any(|name| !Content::of(storage, name).is_published(published)))
}

/// The records in a file of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// No record.
    Nothing,
    /// Records up to this LSN, in this number of bytes of the file.
    Until(Lsn, u64),
    /// Not known.
    Unknown,
}

impl Content {
    fn of(storage: &dyn Storage, name: &str) -> Content {
        let Some(FileName::Segment(number)) = FileName::parse(name) else {
            // Files that were cut off behind a damaged place are not shortened.
            return Content::Unknown;
        };
        let found = || -> io::Result<Content> {
            let reader = storage.read(name)?;
            let bytes = reader.size()?;
            let mut page = [0; SEGMENT_PAGE_USED];
            reader.read_at(0, &mut page)?;
            let header = match SegmentHeader::decode_page(&page) {
                HeaderBytes::Valid(header) if header.number == number => header,
                // Prepared, but not begun.
                HeaderBytes::Valid(_) => return Ok(Content::Nothing),
                HeaderBytes::Invalid if bytes >= SEGMENT_HEADER as u64 => {
                    return Ok(match first_record(&*reader, bytes)? {
                        None => Content::Nothing,
                        Some(_) => Content::Unknown,
                    });
                }
                _ => return Ok(Content::Unknown),
            };
            let base = header.base;
            let mut cursor = SegmentCursor::new(reader, name.to_owned(), header, bytes, None);
            let end = cursor.content_end().map_err(io::Error::other)?;
            if end == base {
                return Ok(Content::Nothing);
            }
            let used = (SEGMENT_HEADER as u64).saturating_add(end.0.saturating_sub(base.0));
            Ok(Content::Until(end, used.min(bytes)))
        };
        // A file that cannot be read now may be readable later.
        found().unwrap_or(Content::Unknown)
    }

    /// Whether discarding the file loses nothing.
    fn is_published(self, published: Option<Lsn>) -> bool {
        match self {
            Content::Nothing => true,
            Content::Until(end, _) => published.is_some_and(|published| end <= published),
            Content::Unknown => false,
        }
    }
}

/// Cuts an archived segment behind its last record. If that fails, the file only takes more room.
fn shorten(storage: &dyn Storage, name: &str, bytes: u64) {
    // The file becomes shorter than its recorded size.
    let cleared = storage.open(name).map(|memory| memory.clear(SIZE_BYTES));
    let _ = cleared.and_then(|()| storage.shorten(name, bytes));
}

/// The archived logs of a folder, and the bytes of their files.
///
/// # Errors
/// An error of the operating system.
pub fn archived(files: &(impl LogFiles + ?Sized)) -> io::Result<BTreeMap<Label, u64>> {
    let mut found = BTreeMap::new();
    for name in files.list()? {
        if let Some(archived_name) = ArchivedName::parse(&name) {
            let bytes = files.read(&name)?.size()?;
            *found.entry(Label::of(&archived_name)).or_insert(0) += bytes;
        }
    }
    Ok(found)
}

/// Whether a file is a segment of the current log, or was cut off from it.
fn belongs_to_log(name: &str) -> bool {
    matches!(FileName::parse(name), Some(FileName::Segment(_)))
        || ArchivedName::parse(name).is_some_and(|archived_name| archived_name.label.is_none())
}

/// Discards a log whose every record is in the bucket: its segments become spare files for the next log. Returns the
/// number of segments.
///
/// # Errors
/// An error of the storage; some of the segments are renamed then, and the call can be repeated.
pub fn discard(storage: &dyn Storage) -> io::Result<usize> {
    position::forget(storage)?;
    let mut discarded = 0;
    for name in storage.list()? {
        if let Some(FileName::Segment(number)) = FileName::parse(&name) {
            storage.rename(&name, &FileName::Spare(number).text())?;
            discarded += 1;
        }
    }
    Ok(discarded)
}

/// A log's folder seen from outside: for reading while a gateway may be using it, and for deleting archived logs,
/// which no gateway reads. Takes no lock.
#[derive(Debug)]
pub struct LogFolder {
    path: PathBuf,
}

impl LogFolder {
    /// Opens a folder, which must exist.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn open(path: impl AsRef<Path>) -> io::Result<LogFolder> {
        let path = path.as_ref().to_path_buf();
        std::fs::read_dir(&path)?;
        Ok(LogFolder { path })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Deletes all files that were archived under `label`, and returns the number of bytes that they had. When it
    /// returns, the deletion survives a power cut.
    ///
    /// # Errors
    /// `InvalidInput` for the current log, which is not archived. Otherwise an error of the operating system; some of
    /// the files are deleted then, and the call can be repeated.
    pub fn forget(&self, label: &Label) -> io::Result<u64> {
        if *label == Label::Current {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the log itself was not archived",
            ));
        }
        let mut bytes = 0;
        for name in self.list()? {
            if ArchivedName::parse(&name)
                .is_some_and(|archived_name| Label::of(&archived_name) == *label)
            {
                let path = self.path.join(name);
                bytes += std::fs::metadata(&path)?.len();
                std::fs::remove_file(&path)?;
            }
        }
        File::open(&self.path)?.sync_all()?;
        Ok(bytes)
    }
}

impl LogFiles for LogFolder {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            // A name that is not UTF-8 is not a name of the log.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn SegmentReader>> {
        open_for_reading(&self.path.join(name))
    }
}

impl Label {
    pub(crate) fn of(archived_name: &ArchivedName) -> Label {
        let label = match (&archived_name.label, archived_name.kind) {
            (Some(label), ArchivedKind::CutOff) => format!("{label}-cut-off"),
            (Some(label), _) => label.clone(),
            (None, _) => "cut-off".to_owned(),
        };
        Label::Archived(label)
    }
}
