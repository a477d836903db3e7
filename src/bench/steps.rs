//! The measured steps, one method each.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use forebay_types::to_usize;
use rustix::fs::{Advice, fadvise};

use super::data::Pattern;
use super::work::{Work, failed};
use super::{BenchError, Interrupt};

const LARGE_PIECE: usize = 1 << 20;
const SMALL_PIECE: usize = 4 << 10;
/// Number of small pieces that are appended and flushed.
const STABLE_APPENDS: u64 = 256;
/// One in this many pieces of the large file is written, and read, at random.
const RANDOM_SHARE: u64 = 8;
/// The pattern of the large file; those of small files follow.
const LARGE: u64 = 0;
/// The pattern of the large file after it was overwritten.
const LARGE_AGAIN: u64 = 1;
const FIRST_SMALL: u64 = 2;

/// One large file.
pub(super) struct Large {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// Which small pieces were overwritten.
    rewritten: Vec<bool>,
}

impl Large {
    pub(super) fn create(folder: &Path, bytes: u64) -> Result<Large, BenchError> {
        let path = folder.join("large");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let file = options
            .open(&path)
            .map_err(failed(format!("cannot make {}", path.display())))?;
        Ok(Large {
            path,
            file,
            bytes,
            rewritten: vec![false; to_usize(bytes / SMALL_PIECE as u64)],
        })
    }

    /// Writes it from beginning to end, and flushes it.
    pub(super) fn write(&mut self, interrupt: &Interrupt) -> Result<Work, BenchError> {
        let mut work = Work::default();
        let mut pattern = Pattern::new(LARGE, SMALL_PIECE);
        let mut piece = vec![0; LARGE_PIECE];
        for offset in (0..self.bytes).step_by(LARGE_PIECE) {
            interrupt.check()?;
            for (index, small) in piece.chunks_mut(SMALL_PIECE).enumerate() {
                let offset = offset + (index * SMALL_PIECE) as u64;
                small.copy_from_slice(pattern.at(offset, SMALL_PIECE));
            }
            work.time(LARGE_PIECE as u64, || self.put(&piece, offset))?;
        }
        self.flush()?;
        Ok(work)
    }

    /// Reads it from beginning to end.
    pub(super) fn read(&self, interrupt: &Interrupt) -> Result<Work, BenchError> {
        let mut work = Work::default();
        let mut pattern = Pattern::new(LARGE, SMALL_PIECE);
        let mut piece = vec![0; LARGE_PIECE];
        for offset in (0..self.bytes).step_by(LARGE_PIECE) {
            interrupt.check()?;
            work.time(LARGE_PIECE as u64, || self.get(&mut piece, offset))?;
            for (index, small) in piece.chunks(SMALL_PIECE).enumerate() {
                let offset = offset + (index * SMALL_PIECE) as u64;
                self.compare(&mut pattern, small, offset)?;
            }
        }
        Ok(work)
    }

    /// Writes pieces at random places, and flushes them.
    pub(super) fn write_randomly(&mut self, interrupt: &Interrupt) -> Result<Work, BenchError> {
        let mut work = Work::default();
        let mut pattern = Pattern::new(LARGE_AGAIN, SMALL_PIECE);
        let mut random = Rng::with_seed(1);
        for _ in 0..self.random_pieces() {
            interrupt.check()?;
            let index = random.usize(..self.rewritten.len());
            let offset = (index * SMALL_PIECE) as u64;
            let piece = pattern.at(offset, SMALL_PIECE);
            work.time(SMALL_PIECE as u64, || self.put(piece, offset))?;
            self.rewritten[index] = true;
        }
        self.flush()?;
        Ok(work)
    }

    /// Reads pieces at random places, in several threads at once.
    pub(super) fn read_randomly(
        &self,
        interrupt: &Interrupt,
        threads: usize,
    ) -> Result<Work, BenchError> {
        in_parallel(threads, self.random_pieces(), |thread, pieces| {
            let mut work = Work::default();
            let (mut old, mut new) = (
                Pattern::new(LARGE, SMALL_PIECE),
                Pattern::new(LARGE_AGAIN, SMALL_PIECE),
            );
            let mut random = Rng::with_seed(1000 * threads as u64 + thread);
            let mut piece = vec![0; SMALL_PIECE];
            for _ in pieces {
                interrupt.check()?;
                let index = random.usize(..self.rewritten.len());
                let offset = (index * SMALL_PIECE) as u64;
                work.time(SMALL_PIECE as u64, || self.get(&mut piece, offset))?;
                let pattern = if self.rewritten[index] {
                    &mut new
                } else {
                    &mut old
                };
                self.compare(pattern, &piece, offset)?;
            }
            Ok(work)
        })
    }

    /// Appends like a log or a database: each piece is on stable storage before the next.
    pub(super) fn append_stable(&self, interrupt: &Interrupt) -> Result<Work, BenchError> {
        let mut work = Work::default();
        let mut pattern = Pattern::new(LARGE, SMALL_PIECE);
        for index in 0..STABLE_APPENDS {
            interrupt.check()?;
            let offset = self.bytes + index * SMALL_PIECE as u64;
            let piece = pattern.at(offset, SMALL_PIECE);
            work.time(SMALL_PIECE as u64, || {
                self.put(piece, offset)?;
                self.file.sync_data().map_err(failed("cannot flush"))
            })?;
        }
        Ok(work)
    }

    /// Has the system drop it from the page cache.
    pub(super) fn forget(&self) -> Result<(), BenchError> {
        fadvise(&self.file, 0, None, Advice::DontNeed)
            .map_err(|error| failed("cannot drop a file from the page cache")(error.into()))
    }

    fn random_pieces(&self) -> u64 {
        (self.rewritten.len() as u64 / RANDOM_SHARE).max(1)
    }

    fn put(&self, piece: &[u8], offset: u64) -> Result<(), BenchError> {
        let written = self.file.write_all_at(piece, offset);
        written.map_err(failed(format!("cannot write {}", self.path.display())))
    }

    fn get(&self, piece: &mut [u8], offset: u64) -> Result<(), BenchError> {
        let read = self.file.read_exact_at(piece, offset);
        read.map_err(failed(format!("cannot read {}", self.path.display())))
    }

    fn flush(&self) -> Result<(), BenchError> {
        let flushed = self.file.sync_all();
        flushed.map_err(failed(format!("cannot flush {}", self.path.display())))
    }

    fn compare(&self, pattern: &mut Pattern, piece: &[u8], offset: u64) -> Result<(), BenchError> {
        if pattern.at(offset, piece.len()) == piece {
            return Ok(());
        }
        Err(BenchError::Different {
            path: self.path.clone(),
            offset,
        })
    }
}

/// Many small files in one folder.
pub(super) struct Files {
    folder: PathBuf,
    count: u64,
}

impl Files {
    pub(super) fn new(folder: &Path, name: &str, count: u64) -> Result<Files, BenchError> {
        let folder = folder.join(name);
        fs::create_dir(&folder).map_err(failed(format!("cannot make {}", folder.display())))?;
        Ok(Files { folder, count })
    }

    /// Creates each of them, and flushes it.
    pub(super) fn create(&self, interrupt: &Interrupt, threads: usize) -> Result<Work, BenchError> {
        self.each(interrupt, threads, SMALL_PIECE, |path, piece| {
            let mut options = OpenOptions::new();
            let file = options.write(true).create_new(true).open(path)?;
            file.write_all_at(piece, 0)?;
            file.sync_all()
        })
    }

    /// Reads the folder and the attributes of all entries, like `ls -l`.
    pub(super) fn list(&self, interrupt: &Interrupt) -> Result<Work, BenchError> {
        interrupt.check()?;
        let mut work = Work::default();
        let what = format!("cannot list {}", self.folder.display());
        let found = work.time(0, || {
            let list = || {
                let mut found = 0;
                for entry in fs::read_dir(&self.folder)? {
                    found += u64::from(entry?.metadata()?.is_file());
                }
                Ok(found)
            };
            list().map_err(failed(what))
        })?;
        match found == self.count {
            true => Ok(work),
            false => Err(BenchError::Listed {
                path: self.folder.clone(),
                found,
                expected: self.count,
            }),
        }
    }

    /// Reads the attributes of each.
    pub(super) fn stat(&self, interrupt: &Interrupt, threads: usize) -> Result<Work, BenchError> {
        self.each(interrupt, threads, 0, |path, _| {
            fs::metadata(path).map(|_| ())
        })
    }

    /// Reads each.
    pub(super) fn read(&self, interrupt: &Interrupt, threads: usize) -> Result<Work, BenchError> {
        self.each(interrupt, threads, SMALL_PIECE, |path, expected| {
            if fs::read(path)? == expected {
                return Ok(());
            }
            Err(io::Error::other(
                "the bytes read differ from the bytes written; do not trust this folder",
            ))
        })
    }

    /// Renames each.
    pub(super) fn rename(&self, interrupt: &Interrupt, threads: usize) -> Result<Work, BenchError> {
        self.each(interrupt, threads, 0, |path, _| {
            fs::rename(path, path.with_extension("renamed"))
        })
    }

    /// Removes each, after it was renamed.
    pub(super) fn remove(&self, interrupt: &Interrupt, threads: usize) -> Result<Work, BenchError> {
        self.each(interrupt, threads, 0, |path, _| {
            fs::remove_file(path.with_extension("renamed"))
        })
    }

    /// Has the system drop all of them from the page cache.
    pub(super) fn forget(&self) -> Result<(), BenchError> {
        for index in 0..self.count {
            let path = self.path(index);
            let what = format!("cannot drop {} from the page cache", path.display());
            File::open(&path)
                .and_then(|file| Ok(fadvise(&file, 0, None, Advice::DontNeed)?))
                .map_err(failed(what))?;
        }
        Ok(())
    }

    /// Runs one operation for each file, which gets its path and its expected content.
    fn each(
        &self,
        interrupt: &Interrupt,
        threads: usize,
        bytes: usize,
        operation: impl Fn(&Path, &[u8]) -> io::Result<()> + Sync,
    ) -> Result<Work, BenchError> {
        in_parallel(threads, self.count, |_, indices| {
            let mut work = Work::default();
            for index in indices {
                interrupt.check()?;
                let path = self.path(index);
                let mut pattern = Pattern::new(FIRST_SMALL + index, bytes);
                let piece = pattern.at(0, bytes);
                work.time(bytes as u64, || {
                    operation(&path, piece).map_err(failed(path.display().to_string()))
                })?;
            }
            Ok(work)
        })
    }

    fn path(&self, index: u64) -> PathBuf {
        self.folder.join(format!("file-{index:08}"))
    }
}

/// Divides the numbers up to `count` among threads; `run` gets the number of the thread and its part.
fn in_parallel(
    threads: usize,
    count: u64,
    work: impl Fn(u64, Range<u64>) -> Result<Work, BenchError> + Sync,
) -> Result<Work, BenchError> {
    let threads = threads as u64;
    std::thread::scope(|scope| {
        let work = &work;
        let begin = |thread| count * thread / threads;
        let running: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || work(thread, begin(thread)..begin(thread + 1))))
            .collect();
        let mut all = Work::default();
        for thread in running {
            match thread.join() {
                Ok(work) => all.join(work?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(all)
    })
}
