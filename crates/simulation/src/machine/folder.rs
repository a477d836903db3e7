//! A machine's disk as the product accesses it.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use forebay_fs::LocalFolder;
use forebay_wal::{OpenError, Options, Recovery, SegmentMemory, SegmentReader, Storage, Wal};

use super::file::{File, Pages};
use crate::random::Random;
use crate::world::{Step, World};

/// Reads of the log that fail in a life, at most. An upload gives up after seven failures in a row.
const MOST_FAILED_READS: u64 = 6;

/// The local folder of one machine of a world.
#[derive(Clone)]
pub(crate) struct Folder {
    pub(crate) world: World,
    pub(crate) machine: usize,
}

impl LocalFolder for Folder {
    fn path(&self) -> &Path {
        Path::new("/simulated")
    }

    fn log(&self) -> io::Result<Arc<dyn Storage>> {
        Ok(Arc::new(self.clone()))
    }

    fn load_state(&self) -> io::Result<Option<Vec<u8>>> {
        let state = self
            .world
            .machine(self.machine, |machine| machine.state.clone());
        Ok(state.map(|bytes| bytes.to_vec()))
    }

    fn replace_state(&self, content: &[u8]) -> io::Result<()> {
        self.world.step(Step::ReplaceState);
        self.world
            .machine(self.machine, |machine| machine.state = Some(content.into()));
        self.world.step(Step::ReplacedState);
        Ok(())
    }

    fn mark(&self) -> io::Result<Option<Vec<u8>>> {
        let mark = self
            .world
            .machine(self.machine, |machine| machine.mark.clone());
        Ok(mark.map(|line| line.to_vec()))
    }

    fn set_mark(&self, line: &[u8]) -> io::Result<()> {
        self.world
            .machine(self.machine, |machine| machine.mark = Some(line.into()));
        Ok(())
    }

    fn write_note(&self, _label: &str, _text: &[u8]) -> io::Result<()> {
        // The note is for operators, who are not simulated.
        Ok(())
    }

    fn boot_id(&self) -> [u8; 16] {
        let boot = self.world.machine(self.machine, |machine| machine.boot);
        u128::from(boot + 1).to_le_bytes()
    }

    fn start_log(&self, recovery: Recovery, options: Options) -> Result<Wal, OpenError> {
        let (wal, hand) = recovery.into_wal_by_hand(options)?;
        self.world
            .machine(self.machine, |machine| machine.hand = Some(Arc::new(hand)));
        Ok(wal)
    }
}

impl Folder {
    fn file<T>(&self, name: &str, look: impl FnOnce(&mut File) -> T) -> io::Result<T> {
        self.world.machine(self.machine, |machine| {
            let file = machine.files.get_mut(name);
            file.map(look).ok_or_else(|| io::ErrorKind::NotFound.into())
        })
    }

    fn handle(&self, name: &str) -> io::Result<Box<dyn SegmentMemory>> {
        let pages = self.file(name, File::pages)?;
        Ok(Box::new(Mapped {
            folder: self.clone(),
            pages,
        }))
    }
}

impl Storage for Folder {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.world.machine(self.machine, |machine| {
            machine.files.keys().cloned().collect()
        }))
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn SegmentMemory>> {
        self.world.step(Step::CreateFile);
        self.world.machine(self.machine, |machine| {
            if machine.faults.full {
                machine.full_disks += 1;
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            if machine.files.contains_key(name) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            machine
                .files
                .insert(name.to_owned(), File::zeros(bytes as usize));
            Ok(())
        })?;
        self.world.step(Step::CreatedFile);
        self.handle(name)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn SegmentMemory>> {
        self.handle(name)
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn SegmentReader>> {
        let pages = self.file(name, File::pages)?;
        Ok(Box::new(Reader {
            folder: self.clone(),
            pages,
        }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.world.step(Step::RenameFile);
        self.world.machine(self.machine, |machine| {
            let file = machine.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
            machine.files.insert(to.to_owned(), file);
            Ok::<(), io::Error>(())
        })?;
        self.world.step(Step::RenamedFile);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.world.step(Step::RemoveFile);
        self.world.machine(self.machine, |machine| {
            let file = machine.files.remove(name).map(drop);
            file.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        })?;
        self.world.step(Step::RemovedFile);
        Ok(())
    }

    fn salt(&self) -> u64 {
        self.world.number()
    }
}

/// A mapped file. It stays the same file when it is renamed or removed.
struct Mapped {
    folder: Folder,
    pages: Arc<Pages>,
}

// SAFETY: the pages are kept alive by this handle and never move. `flush` and `write_back` read memory only through
// the world's one thread.
unsafe impl SegmentMemory for Mapped {
    fn memory(&self) -> NonNull<[u8]> {
        self.pages.memory()
    }

    fn flush(&self, range: Range<usize>) -> io::Result<()> {
        let world = &self.folder.world;
        world.step(Step::Flush);
        let seed = world.number();
        let outcome = world.machine(self.folder.machine, |machine| {
            let mut fails = machine.faults.failing_flushes > 0;
            if fails {
                machine.faults.failing_flushes -= 1;
            }
            let mut files = machine.files.values_mut();
            // A file that was removed is never read again.
            if let Some(file) = files.find(|file| file.has(&self.pages)) {
                fails |= file.take_error();
                if fails {
                    file.fail_flush(range.clone(), &mut Random::new(seed));
                    let drops = machine.faults.drops_pages && file.drop_pages(range);
                    machine.dropped_pages += u64::from(drops);
                } else {
                    file.flush(range);
                }
            }
            if fails {
                machine.failed_flushes += 1;
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            Ok(())
        });
        world.step(Step::Flushed);
        outcome
    }

    fn write_back(&self, range: Range<usize>) -> io::Result<()> {
        let world = &self.folder.world;
        world.step(Step::WriteBack);
        let mut random = Random::new(world.number());
        let outcome = world.machine(self.folder.machine, |machine| {
            let mut files = machine.files.values_mut();
            let Some(file) = files.find(|file| file.has(&self.pages)) else {
                return Ok(());
            };
            if machine.faults.failing_flushes == 0 {
                file.write_back(range, &mut random);
                return Ok(());
            }
            machine.faults.failing_flushes -= 1;
            // The system finds out at once, or when the disk has answered.
            if random.percent(50) {
                machine.failed_flushes += 1;
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            file.fail_write_back(range.clone(), &mut random);
            let drops = machine.faults.drops_pages && file.drop_pages(range);
            machine.dropped_pages += u64::from(drops);
            Ok(())
        });
        world.step(Step::WroteBack);
        outcome
    }

    fn rewrite(&self, _range: Range<usize>) {
        // Recovery names the whole part of the file that counts.
        self.folder.world.machine(self.folder.machine, |machine| {
            let mut files = machine.files.values_mut();
            if let Some(file) = files.find(|file| file.has(&self.pages)) {
                file.dirty_all();
            }
        });
    }

    fn prefault(&self) {}
}

/// A file that is read. It stays the same file when it is renamed or removed, and a read finds what is in it then.
struct Reader {
    folder: Folder,
    pages: Arc<Pages>,
}

impl SegmentReader for Reader {
    fn size(&self) -> io::Result<u64> {
        Ok(self.pages.memory().len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let Folder { world, machine } = &self.folder;
        // Reads before the log is open are part of the step in which the process starts.
        if world.machine(*machine, |machine| machine.hand.is_none()) {
            return Ok(self.pages.read(offset, buffer));
        }
        world.step(Step::ReadLog);
        let outcome = world.machine(*machine, |machine| {
            if machine.faults.failing_reads == 0 || machine.failed_reads >= MOST_FAILED_READS {
                return Ok(self.pages.read(offset, buffer));
            }
            machine.faults.failing_reads -= 1;
            machine.failed_reads += 1;
            Err(io::Error::from_raw_os_error(libc::EIO))
        });
        world.step(Step::LogRead);
        outcome
    }
}
