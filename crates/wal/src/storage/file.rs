//! Segments as memory-mapped files.

use std::collections::hash_map::RandomState;
use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use memmap2::{Advice, MmapRaw};

use super::{SegmentMemory, SegmentReader, Storage};

/// A folder of segment files, locked against other processes.
///
/// A file system that reserves space for overwriting (ext4, XFS, tmpfs) is expected: on one that
/// copies on write a full disk can still end the process with SIGBUS.
#[derive(Debug)]
pub struct FileStorage {
    path: PathBuf,
    /// Open for the whole life: carries the lock, and flushes changes of the folder.
    folder: File,
}

impl FileStorage {
    /// Opens the folder, makes it if there is none, and locks it until the value is dropped.
    ///
    /// # Errors
    /// `WouldBlock` when another process (or another `FileStorage` of this one) has it open;
    /// otherwise what the operating system says, with the path.
    pub fn open(path: impl AsRef<Path>) -> io::Result<FileStorage> {
        let path = path.as_ref().to_path_buf();
        let named = |error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("log folder {}: {error}", path.display()),
            )
        };
        std::fs::create_dir_all(&path).map_err(named)?;
        if let Some(parent) = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            File::open(parent)
                .and_then(|parent| parent.sync_all())
                .map_err(named)?;
        }
        let folder = File::open(&path).map_err(named)?;
        match folder.try_lock() {
            Ok(()) => Ok(FileStorage { path, folder }),
            Err(TryLockError::WouldBlock) => Err(io::Error::new(
                io::ErrorKind::WouldBlock,
                format!(
                    "log folder {} is in use by another process: stop that gateway, or give this \
                     one a folder of its own",
                    path.display()
                ),
            )),
            Err(TryLockError::Error(error)) => Err(named(error)),
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn writable(&self, name: &str) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.path.join(name))
    }
}

impl Storage for FileStorage {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            // A name that is no UTF-8 is none of ours.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn SegmentMemory>> {
        let path = self.path.join(name);
        let made = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .and_then(|file| {
                reserve(&file, bytes)?;
                file.sync_all()?;
                self.folder.sync_all()?;
                Mapped::new(file)
            });
        match made {
            Ok(mapped) => Ok(Box::new(mapped)),
            Err(error) => {
                if error.kind() != io::ErrorKind::AlreadyExists {
                    // The first error is the one to report; a leftover is found at the next start.
                    let _ = std::fs::remove_file(&path);
                }
                Err(error)
            }
        }
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn SegmentMemory>> {
        Ok(Box::new(Mapped::new(self.writable(name)?)?))
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn SegmentReader>> {
        open_for_reading(&self.path.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))?;
        self.folder.sync_all()
    }

    fn rename_all(&self, names: &[(String, String)]) -> io::Result<()> {
        for (from, to) in names {
            std::fs::rename(self.path.join(from), self.path.join(to))?;
        }
        self.folder.sync_all()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))?;
        self.folder.sync_all()
    }

    fn salt(&self) -> u64 {
        // Its keys come from the operating system's generator and differ with every call.
        RandomState::new().build_hasher().finish()
    }
}

/// Opens a segment that is only looked at.
pub(crate) fn open_for_reading(path: &Path) -> io::Result<Box<dyn SegmentReader>> {
    Ok(Box::new(Opened(File::open(path)?)))
}

/// Gives a file its size and all its blocks.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    let bytes = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
    // SAFETY: the descriptor belongs to `file`, which outlives the call; no memory is passed.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// A whole file, mapped shared and writable.
struct Mapped {
    map: MmapRaw,
    file: File,
}

impl Mapped {
    fn new(file: File) -> io::Result<Mapped> {
        let map = MmapRaw::map_raw(&file)?;
        Ok(Mapped { map, file })
    }
}

// SAFETY: the map is made once and unmapped when `Mapped` is dropped, so its address and length
// stay; it starts at a page. `flush` is done by the kernel.
unsafe impl SegmentMemory for Mapped {
    fn memory(&self) -> NonNull<[u8]> {
        let start = NonNull::new(self.map.as_mut_ptr()).unwrap_or(NonNull::dangling());
        NonNull::slice_from_raw_parts(start, self.map.len())
    }

    fn flush(&self, range: Range<usize>) -> io::Result<()> {
        self.map.flush_range(range.start, range.len())?;
        // What no name leads to cannot be read again after a crash.
        if self.file.metadata()?.nlink() == 0 {
            return Err(io::Error::other("its file was removed"));
        }
        Ok(())
    }

    fn prefault(&self) {
        // Linux before 5.14 does not know it: then the stores fault one by one.
        let _ = self.map.advise(Advice::PopulateWrite);
    }
}

struct Opened(File);

impl SegmentReader for Opened {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.0.read_at(rest, offset + filled as u64) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}
