//! Segments in memory, for tests: the storage can lose power, run full and fail.

mod pages;

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_types::to_usize;
use parking_lot::{Condvar, Mutex};

use super::{PAGE, SegmentMemory, SegmentReader, Storage};
use crate::position::{POSITION_BYTES, POSITION_FILE};
use pages::Pages;

/// The unit in which a disk writes.
const SECTOR: usize = 512;

/// A folder in memory. Each file has two images: the page cache, and the stable storage. Clones are the same folder.
/// As on Linux, bytes of a failed flush count as clean from then on, although they are not on stable storage.
///
/// Images are taken ([`kill`](Self::kill), [`power_cut`](Self::power_cut)) and files edited only while no append is
/// running.
#[derive(Clone, Default)]
pub struct MemoryStorage {
    disk: Arc<Disk>,
}

#[derive(Default)]
struct Disk {
    state: Mutex<DiskState>,
    released: Condvar,
}

#[derive(Default)]
struct DiskState {
    files: BTreeMap<String, Arc<MemoryFile>>,
    capacity_bytes: Option<u64>,
    flushes_fail: bool,
    flushes_held: bool,
    flushes: u64,
    write_backs: WriteBacks,
    write_backs_held: bool,
    /// Files and ranges of the write-backs so far.
    written_back: Vec<(String, Range<usize>)>,
    salts: u64,
    observer: Option<Observer>,
}

type Observer = Arc<dyn Fn() + Send + Sync>;

/// The outcome of write-backs of a [`MemoryStorage`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteBacks {
    /// They succeed.
    #[default]
    Work,
    /// They are not supported.
    Unsupported,
    /// They fail at once.
    Fail,
    /// They succeed, but the disk loses the bytes: the pages count as clean, and the next flush of the file fails, as
    /// on Linux.
    FailLater,
}

impl MemoryStorage {
    /// An empty folder without limits or faults.
    pub fn new() -> MemoryStorage {
        MemoryStorage::default()
    }

    /// The storage as the next process finds it after `kill -9`: everything that was written. The stable image does
    /// not change. The copy has no faults and no limits.
    pub fn kill(&self) -> MemoryStorage {
        self.image(|file| MemoryFile {
            cache: Pages::holding(file.cache.bytes()),
            stable: Mutex::new(file.stable.lock().clone()),
            given_up: Mutex::new(file.given_up.lock().clone()),
            error: AtomicBool::new(file.error.load(Ordering::Relaxed)),
        })
    }

    /// The storage as the next process finds it after a power cut: for each unflushed sector the old bytes, the new
    /// ones, or a mixture, as `seed` decides. The copy has no faults and no limits.
    pub fn power_cut(&self, seed: u64) -> MemoryStorage {
        let mut random = Random(seed);
        self.image(|file| {
            let mut left = file.stable.lock().clone();
            let sectors = file
                .cache
                .bytes()
                .chunks(SECTOR)
                .zip(left.chunks_mut(SECTOR));
            for (new, old) in sectors.filter(|(new, old)| new != old) {
                let cut = random.below(new.len());
                match random.below(5) {
                    0 | 1 => {}
                    2 => old.copy_from_slice(new),
                    3 => old[..cut].copy_from_slice(&new[..cut]),
                    _ => old[cut..].copy_from_slice(&new[cut..]),
                }
            }
            MemoryFile::flushed(left)
        })
    }

    /// The storage as the next process finds it after a power cut that lost everything unflushed.
    pub fn power_cut_losing_all(&self) -> MemoryStorage {
        self.image(|file| MemoryFile::flushed(file.stable.lock().clone()))
    }

    fn image(&self, mut left: impl FnMut(&MemoryFile) -> MemoryFile) -> MemoryStorage {
        let state = self.disk.state.lock();
        let files = state
            .files
            .iter()
            .map(|(name, file)| (name.clone(), Arc::new(left(file))));
        let copy = DiskState {
            files: files.collect(),
            salts: state.salts,
            ..DiskState::default()
        };
        MemoryStorage {
            disk: Arc::new(Disk {
                state: Mutex::new(copy),
                ..Disk::default()
            }),
        }
    }

    /// Limits the bytes of all files together from now on; `None` lifts the limit.
    pub fn limit_capacity(&self, bytes: Option<u64>) {
        self.disk.state.lock().capacity_bytes = bytes;
    }

    /// Makes flushes fail from now on, or work again.
    pub fn fail_flushes(&self, fail: bool) {
        self.disk.state.lock().flushes_fail = fail;
    }

    /// Makes flushes wait from now on, or continue.
    pub fn hold_flushes(&self, hold: bool) {
        self.disk.state.lock().flushes_held = hold;
        self.disk.released.notify_all();
    }

    /// Decides the outcome of write-backs from now on.
    pub fn set_write_backs(&self, outcome: WriteBacks) {
        self.disk.state.lock().write_backs = outcome;
    }

    /// Makes write-backs wait from now on, or continue.
    pub fn hold_write_backs(&self, hold: bool) {
        self.disk.state.lock().write_backs_held = hold;
        self.disk.released.notify_all();
    }

    /// The files and ranges of all write-backs requested so far, in order. Files have the names that they had then.
    pub fn written_back(&self) -> Vec<(String, Range<usize>)> {
        self.disk.state.lock().written_back.clone()
    }

    /// Number of flushes requested so far, including failed ones.
    pub fn flushes(&self) -> u64 {
        self.disk.state.lock().flushes
    }

    /// Calls `observer` before every change of the folder, every flush and every write-back: a crash has different results before and
    /// after each of them.
    pub fn observe(&self, observer: impl Fn() + Send + Sync + 'static) {
        self.disk.state.lock().observer = Some(Arc::new(observer));
    }

    /// Changes a file behind the log's back, in both images. Creates an empty one if it does not exist.
    pub fn edit(&self, name: &str, edit: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.disk.state.lock();
        let mut bytes = state
            .files
            .get(name)
            .map_or(Vec::new(), |file| file.cache.bytes().to_vec());
        edit(&mut bytes);
        state
            .files
            .insert(name.to_owned(), Arc::new(MemoryFile::flushed(bytes)));
    }

    /// Calls the observer without holding the lock, which it needs to take an image.
    fn step(&self) {
        let observer = self.disk.state.lock().observer.clone();
        if let Some(observer) = observer {
            observer();
        }
    }

    fn file(&self, name: &str) -> io::Result<Arc<MemoryFile>> {
        let state = self.disk.state.lock();
        state
            .files
            .get(name)
            .cloned()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn handle(&self, file: Arc<MemoryFile>) -> Box<dyn SegmentMemory> {
        Box::new(Handle {
            storage: self.clone(),
            file,
        })
    }
}

impl Storage for MemoryStorage {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.disk.state.lock().files.keys().cloned().collect())
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn SegmentMemory>> {
        self.step();
        let mut state = self.disk.state.lock();
        // The position's page is not a segment.
        let segments = state
            .files
            .iter()
            .filter(|(name, _)| *name != POSITION_FILE);
        let used: u64 = segments.map(|(_, file)| file.cache.len() as u64).sum();
        if state
            .capacity_bytes
            .is_some_and(|capacity| used + bytes > capacity)
        {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if state.files.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let size = usize::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let file = Arc::new(MemoryFile::flushed(vec![0; size]));
        state.files.insert(name.to_owned(), Arc::clone(&file));
        Ok(self.handle(file))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn SegmentMemory>> {
        Ok(self.handle(self.file(name)?))
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn SegmentReader>> {
        Ok(Box::new(Reader(self.file(name)?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.step();
        let mut state = self.disk.state.lock();
        let file = state.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.step();
        let mut state = self.disk.state.lock();
        state
            .files
            .remove(name)
            .map(|_| ())
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn position(&self) -> io::Result<Box<dyn SegmentMemory>> {
        let mut state = self.disk.state.lock();
        let made = || Arc::new(MemoryFile::flushed(vec![0; POSITION_BYTES]));
        let file = state
            .files
            .entry(POSITION_FILE.to_owned())
            .and_modify(|file| {
                if file.cache.len() < POSITION_BYTES {
                    *file = made();
                }
            })
            .or_insert_with(made);
        Ok(self.handle(Arc::clone(file)))
    }

    fn shorten(&self, name: &str, bytes: u64) -> io::Result<()> {
        self.step();
        let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.file(name)?;
        self.edit(name, |content| content.truncate(bytes));
        Ok(())
    }

    fn salt(&self) -> u64 {
        let mut state = self.disk.state.lock();
        state.salts += 1;
        Random(state.salts).next()
    }
}

struct MemoryFile {
    cache: Pages,
    stable: Mutex<Vec<u8>>,
    /// By page, the offset and the old content of the bytes of a failed flush: the page counts as clean until it
    /// changes.
    given_up: Mutex<BTreeMap<usize, (usize, Vec<u8>)>>,
    /// The next flush reports an error of an earlier write-back.
    error: AtomicBool,
}

impl MemoryFile {
    /// A file that is completely on stable storage.
    fn flushed(bytes: Vec<u8>) -> MemoryFile {
        MemoryFile {
            cache: Pages::holding(&bytes),
            stable: Mutex::new(bytes),
            given_up: Mutex::default(),
            error: AtomicBool::new(false),
        }
    }

    /// Writes bytes to the stable image, except on pages that a failed flush has left behind.
    fn flush(&self, range: Range<usize>) -> Option<()> {
        let mut stable = self.stable.lock();
        let given_up = self.given_up.lock();
        for page in pages(range) {
            let written = self.cache.part(page.clone())?;
            let known = |(at, byte): (usize, &u8)| match given_up.get(&(page.start / PAGE * PAGE)) {
                None => false,
                Some((start, then)) => match at.checked_sub(*start).and_then(|i| then.get(i)) {
                    Some(then) => then == byte,
                    None => stable.get(at) == Some(byte),
                },
            };
            let clean = page.clone().zip(written).all(known);
            if !clean {
                stable.get_mut(page)?.copy_from_slice(written);
            }
        }
        Some(())
    }

    /// Writes some sectors of a range to the stable image, as `random` decides.
    fn write_some(&self, range: Range<usize>, random: &mut Random) -> Option<()> {
        let first = range.start / SECTOR * SECTOR;
        for sector in (first..range.end).step_by(SECTOR) {
            if random.below(2) == 0 {
                self.flush(sector.max(range.start)..(sector + SECTOR).min(range.end))?;
            }
        }
        Some(())
    }

    /// The effect of a failed flush.
    fn give_up(&self, range: Range<usize>) {
        let mut given_up = self.given_up.lock();
        for page in pages(range) {
            if let Some(written) = self.cache.part(page.clone()) {
                given_up.insert(page.start / PAGE * PAGE, (page.start, written.to_vec()));
            }
        }
    }
}

/// A range, divided at page boundaries.
fn pages(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let first = range.start / PAGE * PAGE;
    (first..range.end)
        .step_by(PAGE)
        .map(move |page| page.max(range.start)..(page + PAGE).min(range.end))
}

struct Handle {
    storage: MemoryStorage,
    file: Arc<MemoryFile>,
}

// SAFETY: the pages belong to the file, which this handle keeps alive, and never move. `flush` and `write_back` read only
// their range.
unsafe impl SegmentMemory for Handle {
    fn memory(&self) -> NonNull<[u8]> {
        self.file.cache.memory()
    }

    fn flush(&self, range: Range<usize>) -> io::Result<()> {
        self.storage.step();
        let disk = &self.storage.disk;
        let mut state = disk.state.lock();
        state.flushes += 1;
        disk.released
            .wait_while(&mut state, |state| state.flushes_held);
        if self.file.error.swap(false, Ordering::Relaxed) || state.flushes_fail {
            self.file.give_up(range);
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.file
            .flush(range)
            .ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    fn write_back(&self, range: Range<usize>) -> io::Result<()> {
        self.storage.step();
        let disk = &self.storage.disk;
        let mut state = disk.state.lock();
        let files = state.files.iter();
        let names = files.filter(|(_, file)| Arc::ptr_eq(file, &self.file));
        let name = names.map(|(name, _)| name.clone()).collect();
        state.written_back.push((name, range.clone()));
        disk.released
            .wait_while(&mut state, |state| state.write_backs_held);
        match state.write_backs {
            WriteBacks::Work => {
                let mut random = Random(state.written_back.len() as u64);
                let written = self.file.write_some(range, &mut random);
                written.ok_or_else(|| io::ErrorKind::InvalidInput.into())
            }
            WriteBacks::Unsupported => Err(io::ErrorKind::Unsupported.into()),
            WriteBacks::Fail => Err(io::Error::from_raw_os_error(libc::EIO)),
            WriteBacks::FailLater => {
                self.file.give_up(range);
                self.file.error.store(true, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    fn rewrite(&self, range: Range<usize>) {
        let mut given_up = self.file.given_up.lock();
        given_up.retain(|page, _| *page >= range.end || page + PAGE <= range.start);
    }

    fn prefault(&self) {}
}

struct Reader(Arc<MemoryFile>);

impl SegmentReader for Reader {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.cache.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.0.cache.len();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(len);
        let count = buffer.len().min(len - start);
        // These bytes alone: appends go on elsewhere in the file.
        let bytes = self.0.cache.part(start..start + count);
        buffer[..count].copy_from_slice(bytes.unwrap_or_default());
        Ok(count)
    }
}

/// SplitMix64: random enough for a test, and repeatable.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        to_usize(self.next() % limit.max(1) as u64)
    }
}
