//! The work as system calls in a folder, such as one that is mounted.
//!
//! The kernel's page cache of a file is dropped before the file is read again. The kernel may keep names and attributes
//! as long as it likes: that is part of using such a folder.

use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::fs::Advice;

use super::tree::{Entry, Kind, Tree};
use super::{AT_ONCE, BLOCK, Data, FILES_AT_ONCE, Place, Workload, wrong};

/// See the module.
pub(crate) struct Folder {
    root: PathBuf,
    /// The folder of this turn.
    own: PathBuf,
}

impl Folder {
    pub(crate) fn new(root: PathBuf) -> Folder {
        Folder {
            own: root.clone(),
            root,
        }
    }

    fn file(&self) -> PathBuf {
        self.own.join("large file")
    }

    fn names(&self) -> PathBuf {
        self.own.join("names")
    }

    fn tree(&self) -> PathBuf {
        self.own.join("tree")
    }

    fn name(&self, data: &Data, number: usize) -> PathBuf {
        self.names().join(&data.names[number])
    }

    fn compare_names(&self, data: &Data, made: bool) -> io::Result<()> {
        let names = fs::read_dir(self.names())?.map(|entry| {
            let entry = entry?;
            entry.metadata()?;
            Ok(entry.file_name().into_vec())
        });
        data.compare_names(names.collect::<io::Result<_>>()?, made)
    }

    fn check_file(&self, data: &Data, after_overwrites: bool) -> io::Result<()> {
        let mut file = File::open(self.file())?;
        forget(&file)?;
        let mut piece = vec![0; data.effort.piece_bytes];
        for offset in (0..data.file.len()).step_by(piece.len()) {
            file.read_exact(&mut piece)?;
            data.compare(offset, &piece, after_overwrites)?;
        }
        match file.read(&mut piece)? {
            0 => Ok(()),
            _ => Err(wrong("the large file is too long".to_owned())),
        }
    }

    fn check_tree(&self, tree: &Tree) -> io::Result<()> {
        let paths = paths(tree, &self.tree());
        for (entry, path) in tree.entries.iter().zip(&paths) {
            if let Kind::File { text, .. } = &entry.kind
                && fs::read(path)? != tree.bytes(text)
            {
                return Err(wrong(format!("{} is not what was written", path.display())));
            }
        }
        Ok(())
    }
}

impl Place for Folder {
    /// Only NFS clients can ask for attributes without looking up the name.
    fn has(&self, workload: Workload) -> bool {
        workload != Workload::GetAttributes
    }

    fn begin(&mut self, folder: &str) -> io::Result<()> {
        self.own = self.root.join(folder);
        fs::create_dir(&self.own)?;
        fs::create_dir(self.names())
    }

    fn prepare(&mut self, workload: Workload, _data: &Data) -> io::Result<()> {
        match workload {
            Workload::SequentialRead | Workload::RandomRead => forget(&File::open(self.file())?),
            Workload::Unpack => fs::create_dir(self.tree()),
            _ => Ok(()),
        }
    }

    fn perform(&mut self, workload: Workload, data: &Data) -> io::Result<()> {
        match workload {
            Workload::SequentialWrite => {
                let mut file = File::create_new(self.file())?;
                for piece in data.file.chunks(data.effort.piece_bytes) {
                    file.write_all(piece)?;
                }
                file.sync_all()
            }
            Workload::SequentialRead => {
                let mut file = File::open(self.file())?;
                let mut piece = vec![0; data.effort.piece_bytes];
                for _ in data.file.chunks(piece.len()) {
                    file.read_exact(&mut piece)?;
                }
                Ok(())
            }
            Workload::RandomWrite => {
                let file = OpenOptions::new().write(true).open(self.file())?;
                at_once(AT_ONCE, data.blocks.len(), |number| {
                    let (offset, bytes) = data.overwrite(number);
                    file.write_all_at(bytes, offset)
                })?;
                file.sync_all()
            }
            Workload::RandomRead => {
                let file = File::open(self.file())?;
                let count = data.blocks.len();
                at_once(AT_ONCE, count, |turn| {
                    // In another order than they were written in.
                    let (offset, _) = data.overwrite(count - 1 - turn);
                    file.read_exact_at(&mut [0; BLOCK], offset)
                })
            }
            Workload::Create => {
                at_once(AT_ONCE, data.names.len(), |number| {
                    File::create_new(self.name(data, number)).map(drop)
                })?;
                File::open(self.names())?.sync_all()
            }
            Workload::LookUp => at_once(AT_ONCE, data.names.len() * data.effort.looks, |turn| {
                fs::symlink_metadata(self.name(data, data.look(turn))).map(drop)
            }),
            Workload::GetAttributes => Ok(()),
            Workload::List => self.compare_names(data, true),
            Workload::Remove => {
                at_once(AT_ONCE, data.names.len(), |number| {
                    fs::remove_file(self.name(data, number))
                })?;
                File::open(self.names())?.sync_all()
            }
            Workload::Unpack => unpack(&data.tree, &self.tree()),
        }
    }

    fn check(&mut self, workload: Workload, data: &Data) -> io::Result<()> {
        match workload {
            Workload::SequentialWrite => self.check_file(data, false),
            Workload::RandomWrite => self.check_file(data, true),
            Workload::Create => self.compare_names(data, true),
            Workload::Remove => self.compare_names(data, false),
            Workload::Unpack => self.check_tree(&data.tree),
            _ => Ok(()),
        }
    }

    fn end(&mut self, _data: &Data) -> io::Result<()> {
        fs::remove_dir_all(&self.own)
    }
}

/// Makes the kernel drop its cached pages of a file.
fn forget(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?)
}

/// Does `count` pieces of work with `threads` threads; ends with the first failure.
fn at_once(
    threads: usize,
    count: usize,
    work: impl Fn(usize) -> io::Result<()> + Sync,
) -> io::Result<()> {
    let next = AtomicUsize::new(0);
    let each = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return Ok(());
            }
            work(number)?;
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(each)).collect();
        let panicked = |_| wrong("a thread has panicked".to_owned());
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().map_err(panicked)?);
        ended.collect()
    })
}

/// Path of each entry of a tree.
fn paths(tree: &Tree, into: &Path) -> Vec<PathBuf> {
    let mut directories = vec![into.to_owned(); tree.directories];
    let path = |entry: &Entry| {
        let path = directories[entry.parent].join(&entry.name);
        if let Kind::Directory(number) = entry.kind {
            directories[number].clone_from(&path);
        }
        path
    };
    tree.entries.iter().map(path).collect()
}

/// Unpacks several files at the same time, in the order of the archive; a directory before its content.
fn unpack(tree: &Tree, into: &Path) -> io::Result<()> {
    let paths = paths(tree, into);
    let next = Mutex::new(tree.entries.iter().zip(&paths));
    at_once(FILES_AT_ONCE, FILES_AT_ONCE, |_| {
        loop {
            let taken = {
                let mut next = next
                    .lock()
                    .map_err(|_| wrong("a thread has panicked".to_owned()))?;
                let taken = next.next();
                if let Some((entry, path)) = taken
                    && let Kind::Directory(_) = entry.kind
                {
                    fs::create_dir(path)?;
                }
                taken
            };
            let Some((entry, path)) = taken else {
                return Ok(());
            };
            if let Kind::File {
                text,
                mode,
                modified,
            } = &entry.kind
            {
                let mut file = File::create_new(path)?;
                file.write_all(tree.bytes(text))?;
                file.set_permissions(Permissions::from_mode(*mode))?;
                let modified = Duration::from_secs(u64::from(*modified));
                let modified = SystemTime::UNIX_EPOCH + modified;
                let times = FileTimes::new()
                    .set_modified(modified)
                    .set_accessed(modified);
                file.set_times(times)?;
                file.sync_all()?;
            }
        }
    })
}
