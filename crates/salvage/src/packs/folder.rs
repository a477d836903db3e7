//! The folder that files are salvaged to.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use forebay_types::Inode;

use super::SalvageError;

/// Most files in one folder, by their numbers.
const FILES_A_FOLDER: u64 = 10_000;

/// A new folder with files that are named by their inode numbers.
pub(super) struct Folder {
    path: PathBuf,
    /// The file that was written last: frames of one file are usually adjacent.
    opened: Option<(Inode, File)>,
    made: u64,
}

impl Folder {
    /// Makes the folder, accessible to this user alone.
    pub(super) fn make(path: &Path) -> Result<Folder, SalvageError> {
        let folder = Folder {
            path: path.to_owned(),
            opened: None,
            made: 0,
        };
        let made = DirBuilder::new().mode(0o700).create(path);
        made.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => SalvageError::Exists(path.to_owned()),
            _ => failed(path)(source),
        })?;
        let files = path.join("files");
        let made = DirBuilder::new().mode(0o700).create(&files);
        made.map_err(failed(&files))?;
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes bytes of a file. Its first bytes create it, and it ends where its last bytes end.
    pub(super) fn write(
        &mut self,
        inode: Inode,
        offset: u64,
        data: &Bytes,
    ) -> Result<(), SalvageError> {
        let (path, file) = match self.opened.take() {
            Some((opened, file)) if opened == inode => (None, file),
            _ => {
                let path = self.place(inode);
                let file = self.open(&path).map_err(failed(&path))?;
                (Some(path), file)
            }
        };
        file.write_all_at(data, offset).map_err(|source| {
            let path = path.unwrap_or_else(|| self.place(inode));
            failed(&path)(source)
        })?;
        self.opened = Some((inode, file));
        Ok(())
    }

    fn place(&self, inode: Inode) -> PathBuf {
        let folder = inode.0 / FILES_A_FOLDER;
        let folder = self.path.join("files").join(folder.to_string());
        folder.join(inode.to_string())
    }

    fn open(&mut self, path: &Path) -> io::Result<File> {
        match OpenOptions::new().write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        if let Some(folder) = path.parent() {
            let made = DirBuilder::new().mode(0o700).create(folder);
            made.or_else(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => Ok(()),
                _ => Err(error),
            })?;
        }
        self.made += 1;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(path)
    }

    /// Puts everything on stable storage. Returns the number of files.
    pub(super) fn finish(self) -> Result<u64, SalvageError> {
        drop(self.opened);
        sync(&self.path).map_err(failed(&self.path))?;
        Ok(self.made)
    }
}

fn sync(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => sync(&entry.path())?,
            false => File::open(entry.path())?.sync_all()?,
        }
    }
    File::open(folder)?.sync_all()
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> SalvageError {
    let path = path.to_owned();
    move |source| SalvageError::Io { path, source }
}
