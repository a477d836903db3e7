//! Logs that must not be replayed: putting them aside, letting go of them, and the folder as somebody
//! sees it who owns no lock on it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::inspect::{Label, LogFiles};
use crate::segment::{AsideKind, AsideName, FileName};
use crate::storage::{SegmentReader, Storage, open_for_reading};

/// Renames every segment of a log to `<label>-<its name>`, so that the log no longer sees it, and
/// gives how many there were and the label. For a log that must not be replayed: of another volume,
/// or written by a gateway that was fenced. The names tell the operator what they are; renaming them
/// back brings the log back. Segments that were cut off behind a damaged place go along; spare files
/// stay for the next log.
///
/// Nothing that was put aside before is replaced: if `label` has a file of the same name already,
/// the label becomes `<label>-2`, and so on.
///
/// # Errors
/// `InvalidInput` for a label that is empty or has other characters than ASCII letters, digits and
/// `-`; otherwise what the storage says, with some of the segments renamed: call it again.
pub fn put_aside(storage: &dyn Storage, label: &str) -> io::Result<(usize, String)> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if label.is_empty() || !label.bytes().all(plain) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{label:?} is no label: use letters, digits and dashes"),
        ));
    }
    let names = storage.list()?;
    let segments: Vec<&String> = names.iter().filter(|name| belongs_to_log(name)).collect();
    let is_free = |label: &str| {
        let taken = |name: &&String| names.contains(&format!("{label}-{name}"));
        !segments.iter().any(taken)
    };
    let mut chosen = label.to_owned();
    let mut next = 2_u64;
    while !is_free(&chosen) {
        chosen = format!("{label}-{next}");
        next += 1;
    }
    for name in &segments {
        storage.rename(name, &format!("{chosen}-{name}"))?;
    }
    Ok((segments.len(), chosen))
}

/// Whether a file is a segment of the log as it is, or was cut off from it.
fn belongs_to_log(name: &str) -> bool {
    matches!(FileName::parse(name), Some(FileName::Segment(_)))
        || AsideName::parse(name).is_some_and(|aside| aside.label.is_none())
}

/// Lets go of a log whose every record is in the bucket: its segments become spare files, which the
/// next log uses. Says how many there were.
///
/// # Errors
/// What the storage says, with some of the segments renamed: call it again.
pub fn discard(storage: &dyn Storage) -> io::Result<usize> {
    let mut discarded = 0;
    for name in storage.list()? {
        if let Some(FileName::Segment(number)) = FileName::parse(&name) {
            storage.rename(&name, &FileName::Spare(number).text())?;
            discarded += 1;
        }
    }
    Ok(discarded)
}

/// A log's folder seen from outside: for reading while a gateway may be using it, and for
/// forgetting what was put aside, which no gateway looks at. Takes no lock.
#[derive(Debug)]
pub struct LogFolder {
    path: PathBuf,
}

impl LogFolder {
    /// A folder that must be there already.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn open(path: impl AsRef<Path>) -> io::Result<LogFolder> {
        let path = path.as_ref().to_path_buf();
        std::fs::read_dir(&path)?;
        Ok(LogFolder { path })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Deletes all files that were put aside under `label`, and says how many bytes they had. They
    /// are gone for good, also after a power cut, when it returns.
    ///
    /// # Errors
    /// `InvalidInput` for the log itself, which is not put aside; otherwise what the operating
    /// system says, with some of the files deleted: call it again.
    pub fn forget(&self, label: &Label) -> io::Result<u64> {
        if *label == Label::Current {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the log itself was not put aside",
            ));
        }
        let mut bytes = 0;
        for name in self.list()? {
            if AsideName::parse(&name).is_some_and(|aside| Label::of(&aside) == *label) {
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
            // A name that is no UTF-8 is none of ours.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn SegmentReader>> {
        open_for_reading(&self.path.join(name))
    }
}

impl Label {
    pub(crate) fn of(aside: &AsideName) -> Label {
        let label = match (&aside.label, aside.kind) {
            (Some(label), AsideKind::CutOff) => format!("{label}-cut-off"),
            (Some(label), _) => label.clone(),
            (None, _) => "cut-off".to_owned(),
        };
        Label::Aside(label)
    }
}
