//! Segments as memory-mapped files.

use std::collections::hash_map::RandomState;
use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use memmap2::{Advice, MmapRaw, UncheckedAdvice};

use super::{PAGE, PIECE, SegmentMemory, SegmentReader, Storage};
use crate::position::{POSITION_BYTES, POSITION_FILE};

/// Name of a segment that is being made. There is only one at a time.
const NEW_FILE: &str = "segment.new";

/// A folder of segment files, locked against other processes.
///
/// Expects a file system that reserves space for overwriting (ext4, XFS, tmpfs): on one that copies on write, a full
/// disk can still end the process with SIGBUS.
#[derive(Debug)]
pub struct FileStorage {
    path: PathBuf,
    /// Open for the whole life of the value: holds the lock, and flushes changes of the folder.
    folder: File,
}

impl FileStorage {
    /// Opens the folder, creates it if it does not exist, and locks it until the value is dropped.
    ///
    /// # Errors
    /// `WouldBlock` if another process (or another `FileStorage` of this one) has it open; otherwise an error of the
    /// operating system, with the path.
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
            // A name that is not UTF-8 is not a name of the log.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn SegmentMemory>> {
        let path = self.path.join(name);
        if path.try_exists()? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        // A file gets its name after it has its size: a segment that is shorter was cut.
        let beside = self.path.join(NEW_FILE);
        let mut last = beside.as_path();
        let made = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&beside)
            .and_then(|file| {
                reserve(&file, bytes)?;
                file.sync_all()?;
                std::fs::rename(&beside, &path)?;
                last = &path;
                self.folder.sync_all()?;
                write_zeros(&file, bytes)?;
                Mapped::new(file)
            });
        match made {
            Ok(mapped) => Ok(Box::new(mapped)),
            Err(error) => {
                // Report the first error; a leftover file is found at the next start.
                let _ = std::fs::remove_file(last);
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

    fn position(&self) -> io::Result<Box<dyn SegmentMemory>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.path.join(POSITION_FILE))?;
        reserve(&file, POSITION_BYTES as u64)?;
        Ok(Box::new(Mapped::new(file)?))
    }

    fn shorten(&self, name: &str, bytes: u64) -> io::Result<()> {
        let file = self.writable(name)?;
        if file.metadata()?.len() > bytes {
            file.set_len(bytes)?;
            file.sync_all()?;
        }
        Ok(())
    }

    fn salt(&self) -> u64 {
        // Its keys come from the operating system's generator and differ with every call.
        RandomState::new().build_hasher().finish()
    }
}

/// Opens a segment for reading only.
pub(crate) fn open_for_reading(path: &Path) -> io::Result<Box<dyn SegmentReader>> {
    Ok(Box::new(Opened(File::open(path)?)))
}

/// Gives a file its size and allocates all its blocks.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    let bytes = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
    // SAFETY: the descriptor belongs to `file`, which outlives the call; no memory is passed.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Fills the page cache of a new file with zeros, in [`PIECE`]s. They need not reach the disk: reserved space reads
/// as zeros.
fn write_zeros(file: &File, bytes: u64) -> io::Result<()> {
    let zeros = [0; PIECE];
    let mut at = 0;
    while at < bytes {
        let left = usize::try_from(bytes - at).unwrap_or(PIECE);
        let piece = &zeros[..left.min(PIECE)];
        file.write_all_at(piece, at)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// Number of names of a file. Requests no other field: after a request for its times, the next change of the file
/// would update them, and the next flush would write the file system's journal for them (Linux from 6.13 on).
fn links(file: &File) -> io::Result<u64> {
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the descriptor belongs to `file`, which outlives the call; the path is empty and ends with a zero;
    // `found` has room for the result.
    let outcome = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_NLINK,
            found.as_mut_ptr(),
        )
    };
    if outcome != 0 {
        // Some sandboxes do not support that call.
        return Ok(file.metadata()?.nlink());
    }
    // SAFETY: zeros are a valid value, and the call has overwritten them.
    Ok(unsafe { found.assume_init() }.stx_nlink.into())
}

/// Whether a file lies in a file system that is kept in memory and writes nothing to a disk.
fn is_in_memory(file: &File) -> bool {
    let mut found = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the descriptor belongs to `file`, which outlives the call; `found` has room for the result.
    let outcome = unsafe { libc::fstatfs(file.as_raw_fd(), found.as_mut_ptr()) };
    // SAFETY: zeros are a valid value, and a successful call has overwritten them.
    outcome == 0 && unsafe { found.assume_init() }.f_type == libc::TMPFS_MAGIC
}

/// Begins to write a part of a file to the disk, and waits for nothing. Not with one of the flags that wait: they
/// would report an error of the disk once, and the flush that follows would then succeed.
fn begin_write_back(file: &File, range: &Range<usize>) -> io::Result<()> {
    let too_large = |_| io::ErrorKind::InvalidInput;
    let start = libc::off64_t::try_from(range.start).map_err(too_large)?;
    let bytes = libc::off64_t::try_from(range.len()).map_err(too_large)?;
    // SAFETY: the descriptor belongs to `file`, which outlives the call; no memory is passed.
    let outcome = unsafe {
        libc::sync_file_range(file.as_raw_fd(), start, bytes, libc::SYNC_FILE_RANGE_WRITE)
    };
    if outcome == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // Some file systems and sandboxes do not support that call.
        Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::EINVAL | libc::ESPIPE | libc::EPERM) => {
            Err(io::Error::new(io::ErrorKind::Unsupported, error))
        }
        _ => Err(error),
    }
}

/// A whole file, mapped shared and writable.
struct Mapped {
    map: MmapRaw,
    file: File,
    /// Whether the file lies in a file system that is kept in memory.
    in_memory: bool,
    /// Whether its pages have been made present.
    faulted_in: AtomicBool,
}

impl Mapped {
    fn new(file: File) -> io::Result<Mapped> {
        let map = MmapRaw::map_raw(&file)?;
        Ok(Mapped {
            map,
            in_memory: is_in_memory(&file),
            faulted_in: AtomicBool::new(false),
            file,
        })
    }

    /// Removes the pages from the beginning of `range` to the end of its last page from the page table. Normally
    /// nothing more is stored there; if it is, the page faults in again. Removing them together costs the other
    /// processors one interruption; pages that are still mapped when they are flushed are write-protected one by one,
    /// with an interruption for each. For a few pages that costs no more.
    fn forget_mapping(&self, range: &Range<usize>) {
        let first = range.start / PAGE * PAGE;
        let bytes = (range.end / PAGE * PAGE).saturating_sub(first);
        if bytes >= PIECE {
            // SAFETY: the map is shared and backed by a file, so its content is that of the page cache, and does not
            // change.
            let forgotten = unsafe {
                self.map
                    .unchecked_advise_range(UncheckedAdvice::DontNeed, first, bytes)
            };
            // Fails for locked memory, which can be flushed as it is.
            let _ = forgotten;
        }
    }
}

// SAFETY: the map is made once and unmapped when `Mapped` is dropped, so its address and length stay the same; it
// starts at a page. The kernel does the flush.
unsafe impl SegmentMemory for Mapped {
    fn memory(&self) -> NonNull<[u8]> {
        let start = NonNull::new(self.map.as_mut_ptr()).unwrap_or(NonNull::dangling());
        NonNull::slice_from_raw_parts(start, self.map.len())
    }

    fn flush(&self, range: Range<usize>) -> io::Result<()> {
        if !self.in_memory {
            self.forget_mapping(&range);
        }
        self.map.flush_range(range.start, range.len())?;
        // A file without a name cannot be read again after a crash.
        if links(&self.file)? == 0 {
            return Err(io::Error::other("its file was removed"));
        }
        Ok(())
    }

    fn write_back(&self, range: Range<usize>) -> io::Result<()> {
        if self.in_memory {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.forget_mapping(&range);
        begin_write_back(&self.file, &range)
    }

    fn prefault(&self) {
        // These pages leave the page table only when they are swapped out.
        if self.in_memory && self.faulted_in.swap(true, Ordering::Relaxed) {
            return;
        }
        // Linux before 5.14 does not support this: then the stores fault one by one.
        let _ = self.map.advise(Advice::PopulateWrite);
    }

    fn is_in_memory(&self) -> bool {
        self.in_memory
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

    fn drop_cached(&self, range: Range<u64>) {
        let bytes = range.end.saturating_sub(range.start);
        let (start, bytes) = (range.start.try_into(), bytes.try_into());
        if let (Ok(start), Ok(bytes)) = (start, bytes) {
            let fd = self.0.as_raw_fd();
            // SAFETY: the descriptor belongs to the file, which outlives the call; no memory is passed.
            unsafe { libc::posix_fadvise(fd, start, bytes, libc::POSIX_FADV_DONTNEED) };
        }
    }
}
