//! A gateway's local folder in memory, with a disk that fails and loses power on a test's order.
//!
//! A fault is planned for the calls of one kind: let some pass, then fail some. A failed call had no effect, unless
//! the fault says so.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

use forebay_fs::LocalFolder;
use forebay_wal::{MemoryStorage, SegmentMemory, SegmentReader, Storage};
use parking_lot::Mutex;

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A segment is made, and its space reserved.
    Create,
    /// A segment is renamed.
    Rename,
    /// A segment is removed.
    Remove,
    /// A segment is mapped.
    Open,
    /// Bytes of a segment are read.
    Read,
    /// Bytes of a segment are flushed to stable storage.
    Flush,
    /// The log folder is opened.
    Folder,
    /// The state file is replaced.
    ReplaceState,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    NoSpace,
    Io,
    ReadOnly,
    Denied,
    /// Half of the file is made, and stays.
    Short,
}

impl Fault {
    fn error(self) -> io::Error {
        io::Error::from_raw_os_error(match self {
            Fault::NoSpace | Fault::Short => libc::ENOSPC,
            Fault::Io => libc::EIO,
            Fault::ReadOnly => libc::EROFS,
            Fault::Denied => libc::EACCES,
        })
    }
}

struct Plan {
    step: Step,
    fault: Fault,
    /// Number of calls that pass first.
    pass: u64,
    /// Number of calls that fail then.
    fail: u64,
}

type Hook = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    plans: Vec<Plan>,
    /// Number of faults that have struck.
    struck: u64,
    after_replace: Option<Hook>,
}

/// The local folder. Clones share it.
#[derive(Clone)]
pub struct Disk {
    path: PathBuf,
    log: Arc<Mutex<MemoryStorage>>,
    state_file: Arc<Mutex<Option<Vec<u8>>>>,
    mark: Arc<Mutex<Option<Vec<u8>>>>,
    boot: Arc<Mutex<u8>>,
    state: Arc<Mutex<State>>,
}

impl Default for Disk {
    fn default() -> Self {
        Disk {
            path: PathBuf::from("/a/disk/for/tests"),
            log: Arc::default(),
            state_file: Arc::default(),
            mark: Arc::default(),
            boot: Arc::new(Mutex::new(1)),
            state: Arc::default(),
        }
    }
}

impl Disk {
    /// A disk with the same content, as after a kill.
    pub fn copy(&self) -> Disk {
        let copy = Disk::default();
        *copy.log.lock() = self.log.lock().kill();
        copy.state_file.lock().clone_from(&self.state_file.lock());
        copy.mark.lock().clone_from(&self.mark.lock());
        *copy.boot.lock() = *self.boot.lock();
        copy
    }

    /// Lets `pass` calls of this kind pass, and makes the next `fail` calls fail.
    pub fn fail(&self, step: Step, fault: Fault, pass: u64, fail: u64) {
        self.state.lock().plans.push(Plan {
            step,
            fault,
            pass,
            fail,
        });
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.state.lock().plans.clear();
    }

    /// Number of faults that have struck.
    pub fn struck(&self) -> u64 {
        self.state.lock().struck
    }

    /// Runs a hook right after the next replacement of the state file.
    pub fn after_replace(&self, hook: impl FnOnce() + Send + 'static) {
        self.state.lock().after_replace = Some(Box::new(hook));
    }

    /// The log's files.
    pub fn log_files(&self) -> MemoryStorage {
        self.log.lock().clone()
    }

    /// Names of the log's files, in order.
    pub fn names(&self) -> Vec<String> {
        let mut names = self.log_files().list().unwrap();
        names.sort();
        names
    }

    /// Content of the state file.
    pub fn state_text(&self) -> String {
        String::from_utf8(self.state_file.lock().clone().unwrap()).unwrap()
    }

    /// The process was killed: to be called when it has ended. The kernel keeps its pages.
    pub fn kill(&self) {
        let mut log = self.log.lock();
        *log = log.kill();
        self.heal();
    }

    /// The power was cut: to be called when the process has ended. `seed` decides which unflushed bytes are left.
    pub fn power_cut(&self, seed: u64) {
        let mut log = self.log.lock();
        *log = log.power_cut(seed);
        *self.boot.lock() += 1;
        self.heal();
    }

    /// Like [`Disk::power_cut`], and all unflushed bytes are lost.
    pub fn power_cut_losing_all(&self) {
        let mut log = self.log.lock();
        *log = log.power_cut_losing_all();
        *self.boot.lock() += 1;
        self.heal();
    }

    fn step(&self, step: Step) -> Result<(), Fault> {
        let mut state = self.state.lock();
        let Some(at) = state.plans.iter().position(|plan| plan.step == step) else {
            return Ok(());
        };
        let plan = &mut state.plans[at];
        if plan.pass > 0 {
            plan.pass -= 1;
            return Ok(());
        }
        let fault = plan.fault;
        plan.fail -= 1;
        if plan.fail == 0 {
            state.plans.remove(at);
        }
        state.struck += 1;
        Err(fault)
    }

    fn check(&self, step: Step) -> io::Result<()> {
        self.step(step).map_err(Fault::error)
    }
}

impl LocalFolder for Disk {
    fn path(&self) -> &Path {
        &self.path
    }

    fn log(&self) -> io::Result<Arc<dyn Storage>> {
        self.check(Step::Folder)?;
        Ok(Arc::new(Files {
            disk: self.clone(),
            inner: self.log_files(),
        }))
    }

    fn load_state(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.state_file.lock().clone())
    }

    fn replace_state(&self, content: &[u8]) -> io::Result<()> {
        self.check(Step::ReplaceState)?;
        *self.state_file.lock() = Some(content.to_vec());
        let hook = self.state.lock().after_replace.take();
        if let Some(hook) = hook {
            hook();
        }
        Ok(())
    }

    fn mark(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.mark.lock().clone())
    }

    fn set_mark(&self, line: &[u8]) -> io::Result<()> {
        *self.mark.lock() = Some(line.to_vec());
        Ok(())
    }

    fn write_note(&self, label: &str, text: &[u8]) -> io::Result<()> {
        let name = format!("{label}.note");
        self.log_files()
            .edit(&name, |content| *content = text.to_vec());
        Ok(())
    }

    fn boot_id(&self) -> [u8; 16] {
        [*self.boot.lock(); 16]
    }
}

/// The log folder.
struct Files {
    disk: Disk,
    inner: MemoryStorage,
}

impl Storage for Files {
    fn list(&self) -> io::Result<Vec<String>> {
        self.inner.list()
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn SegmentMemory>> {
        self.disk.step(Step::Create).map_err(|fault| {
            if fault == Fault::Short {
                let half = (bytes / 2) as usize;
                self.inner.edit(name, |content| content.resize(half, 0));
            }
            fault.error()
        })?;
        self.memory(self.inner.create(name, bytes)?)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn SegmentMemory>> {
        self.disk.check(Step::Open)?;
        self.memory(self.inner.open(name)?)
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn SegmentReader>> {
        Ok(Box::new(Reader {
            disk: self.disk.clone(),
            inner: self.inner.read(name)?,
        }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.check(Step::Rename)?;
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.check(Step::Remove)?;
        self.inner.remove(name)
    }

    fn salt(&self) -> u64 {
        self.inner.salt()
    }
}

impl Files {
    fn memory(&self, inner: Box<dyn SegmentMemory>) -> io::Result<Box<dyn SegmentMemory>> {
        Ok(Box::new(Memory {
            disk: self.disk.clone(),
            files: self.inner.clone(),
            inner,
        }))
    }
}

struct Memory {
    disk: Disk,
    files: MemoryStorage,
    inner: Box<dyn SegmentMemory>,
}

// SAFETY: every call goes to a memory that keeps the promises.
unsafe impl SegmentMemory for Memory {
    fn memory(&self) -> NonNull<[u8]> {
        self.inner.memory()
    }

    fn flush(&self, range: Range<usize>) -> io::Result<()> {
        if let Err(fault) = self.disk.step(Step::Flush) {
            // The pages count as clean from now on.
            self.files.fail_flushes(true);
            let failed = self.inner.flush(range);
            self.files.fail_flushes(false);
            assert!(failed.is_err());
            return Err(fault.error());
        }
        self.inner.flush(range)
    }

    fn rewrite(&self, range: Range<usize>) {
        self.inner.rewrite(range);
    }

    fn prefault(&self) {}
}

struct Reader {
    disk: Disk,
    inner: Box<dyn SegmentReader>,
}

impl SegmentReader for Reader {
    fn size(&self) -> io::Result<u64> {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.disk.check(Step::Read)?;
        self.inner.read_at(offset, buffer)
    }
}
