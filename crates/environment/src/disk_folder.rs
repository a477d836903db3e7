//! The [local folder](crate::folder) on a disk: state file, mark, log and disk cache under their names.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_types::unhex;
use forebay_wal::{FileStorage, Storage};

use crate::folder::{LOG_FOLDER, LocalFolder, STATE_FILE, note_path};

/// Folder of the disk cache in the local folder.
const CACHE_FOLDER: &str = "cache";

/// The mark in the local folder.
const MARK_FILE: &str = "published";

/// A folder on a disk.
pub(crate) struct DiskFolder {
    path: PathBuf,
    state: StateFile,
}

impl DiskFolder {
    /// The folder at `path`, which need not exist.
    pub(crate) fn new(path: PathBuf) -> DiskFolder {
        DiskFolder {
            state: StateFile::new(&path),
            path,
        }
    }
}

impl LocalFolder for DiskFolder {
    fn path(&self) -> &Path {
        &self.path
    }

    fn log(&self) -> io::Result<Arc<dyn Storage>> {
        let log = self.path.join(LOG_FOLDER);
        fs::create_dir_all(&log)?;
        Ok(Arc::new(FileStorage::open(&log)?))
    }

    fn load_state(&self) -> io::Result<Option<Vec<u8>>> {
        self.state.load()
    }

    fn replace_state(&self, content: &[u8]) -> io::Result<()> {
        self.state.replace(content)
    }

    fn mark(&self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.path.join(MARK_FILE)) {
            Ok(line) => Ok(Some(line)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn set_mark(&self, line: &[u8]) -> io::Result<()> {
        let mut options = File::options();
        options.create(true).truncate(false).write(true);
        let file = options.open(self.path.join(MARK_FILE))?;
        file.write_all_at(line, 0)
    }

    fn write_note(&self, label: &str, text: &[u8]) -> io::Result<()> {
        fs::write(note_path(&self.path.join(LOG_FOLDER), label), text)
    }

    fn boot_id(&self) -> [u8; 16] {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id");
        text.ok()
            .and_then(|text| unhex(&text.trim().replace('-', "")).ok())
            .unwrap_or_default()
    }

    fn disk_cache(&self) -> Option<PathBuf> {
        Some(self.path.join(CACHE_FOLDER))
    }
}

/// The state file.
#[derive(Clone, Debug)]
struct StateFile {
    folder: PathBuf,
}

impl StateFile {
    fn new(folder: &Path) -> StateFile {
        StateFile {
            folder: folder.to_owned(),
        }
    }

    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.folder.join(STATE_FILE)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn replace(&self, content: &[u8]) -> io::Result<()> {
        let beside = self.folder.join(format!("{STATE_FILE}.new"));
        let mut file = File::create(&beside)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&beside, self.folder.join(STATE_FILE))?;
        File::open(&self.folder)?.sync_all()
    }
}
