//! The scene of a run: the program, the writers, and the facts known of both.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::landmark::Landmark;
use super::{ALLOWANCE, Failure, Figures};
use crate::check::{Then, compare};
use crate::gate::Shared;
use crate::history::Stamp;
use crate::kept::{self, Keeper, Kept, SharedKept};
use crate::ledger::{Identity, Ledger};
use crate::observe::Observer;
use crate::options::{Mode, Options};
use crate::random::Random;
use crate::server::{Program, Server, free_address};
use crate::writer::{SharedLedger, Style, Writer, open_book};

/// Names in a directory whose listing has to go on from any cookie.
const STATIC_NAMES: usize = 120;

pub(super) struct Scene {
    pub(super) program: Program,
    pub(super) shared: Arc<Shared>,
    pub(super) figures: Figures,
    pub(super) interval: Duration,
    mode: Mode,
    seed: u64,
    writers: usize,
    work: TempDir,
    ledgers: Vec<SharedLedger>,
    landmark: Option<Landmark>,
    kept: Option<SharedKept>,
    observers: u32,
    folders: u32,
    /// Stamps, each with the time it was taken at.
    moments: Vec<(Stamp, Instant)>,
    /// Everything answered before this stamp is in the bucket, because a flush has succeeded since.
    flushed: Stamp,
    /// The cut of the last comparison.
    cut: Stamp,
    starts: Vec<Duration>,
    segments_seen: u64,
}

/// Makes a file of random bytes, readable by this user alone.
fn new_key_file(folder: &Path) -> Result<PathBuf, Failure> {
    let path = folder.join("key");
    let make = || {
        let mut random = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let mut options = File::options();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        file.write_all(&random)
    };
    make().map_err(files(format!("make {}", path.display())))?;
    Ok(path)
}

impl Scene {
    pub(super) fn new(options: &Options) -> Result<Scene, Failure> {
        let work = tempfile::Builder::new()
            .prefix("forebay-crash.")
            .tempdir_in(&options.folder)
            .map_err(files(format!(
                "make a folder in {}",
                options.folder.display()
            )))?;
        let store = match &options.store {
            Some(url) => format!(
                "{}/{}-{}",
                url.trim_end_matches('/'),
                options.mode,
                options.seed
            ),
            None => format!("file://{}", work.path().join("bucket").display()),
        };
        let program = Program {
            path: options.program.clone(),
            store,
            data_dir: work.path().join("data-0"),
            address: free_address()?,
            flags: Vec::new(),
            key_file: match options.sealed {
                true => Some(new_key_file(work.path())?),
                false => None,
            },
            messages: work.path().join("messages"),
        };
        Ok(Scene {
            program,
            shared: Arc::default(),
            figures: Figures::default(),
            interval: Duration::from_millis(500),
            mode: options.mode,
            seed: options.seed,
            writers: options.writers,
            work,
            ledgers: Vec::new(),
            landmark: None,
            kept: None,
            observers: 0,
            folders: 0,
            moments: Vec::new(),
            flushed: 0,
            cut: 0,
            starts: Vec::new(),
            segments_seen: 0,
        })
    }

    fn observer(&mut self) -> Observer {
        self.observers += 1;
        Observer::new(self.program.address, self.observers & 0x7fff)
    }

    /// Chooses the flags of the next start: some starts close checkpoints all the time, others hardly ever.
    fn choose_flags(&mut self, random: &mut Random) {
        let interval = match self.mode {
            Mode::LostMachine => "500ms",
            _ => random
                .pick(&["100ms", "300ms", "1s", "5s"])
                .copied()
                .unwrap_or("1s"),
        };
        let sizes = match self.mode {
            Mode::Recovery => ["4MiB", "16MiB", "4MiB"],
            _ => ["8MiB", "256MiB", "16MiB"],
        };
        let flags = ["--log-segment", "--log-limit", "--checkpoint-bytes"];
        self.program.flags = vec!["--checkpoint-interval".to_owned(), interval.to_owned()];
        for (flag, value) in flags.into_iter().zip(sizes) {
            self.program
                .flags
                .extend([flag.to_owned(), value.to_owned()]);
        }
        self.program
            .flags
            .extend(["--memory-limit", "128MiB", "--log-level", "info"].map(str::to_owned));
    }

    pub(super) fn start_unready(&mut self, random: &mut Random) -> Result<Server, Failure> {
        self.choose_flags(random);
        if !self.program.has_folder() {
            // The machine that held the volume is lost.
            self.program.flags.push("--take-over".to_owned());
        }
        Ok(self.program.start()?)
    }

    pub(super) fn start(&mut self, random: &mut Random) -> Result<Server, Failure> {
        let mut server = self.start_unready(random)?;
        let time = server.wait_ready()?;
        self.starts.push(time);
        self.figures.slowest_start = self.figures.slowest_start.max(time);
        Ok(server)
    }

    /// The usual time of a start.
    pub(super) fn usual_start(&self) -> Duration {
        let mut recent: Vec<_> = self.starts.iter().rev().take(9).copied().collect();
        recent.sort_unstable();
        recent.get(recent.len() / 2).copied().unwrap_or_default()
    }

    /// First start: directories for all, the landmark, and the writers.
    pub(super) fn begin(&mut self) -> Result<Server, Failure> {
        let mut random = Random::new(self.seed);
        let server = self.start(&mut random)?;
        let mut observer = self.observer();
        let root = observer.mount()?;
        let identity = |(handle, fileid)| Identity { handle, fileid };
        let shared = identity(observer.make_directory(&root, "shared")?);
        let (directory, _) = observer.make_directory(&root, "landmark")?;
        for number in 0..STATIC_NAMES {
            observer.make_file(&directory, &format!("name-{number}"))?;
        }
        let file = observer.make_file(&root, "file")?;
        observer.put(&file, b"this stays as it is")?;
        let listed = observer.list(&directory, 0)?;
        self.landmark = Some(Landmark {
            names: listed
                .into_iter()
                .map(|(name, _, cookie)| (name, cookie))
                .collect(),
            directory,
            verifier: observer.verifier(&file)?,
            file,
        });
        for number in 0..self.writers {
            let own = identity(observer.make_directory(&root, &format!("w{number}"))?);
            let ledger = Ledger::new(number, own, shared.clone());
            self.ledgers.push(Arc::new(Mutex::new(ledger)));
        }
        let known = Kept::begin(&mut observer, root, &self.program)?;
        let known = Arc::new(Mutex::new(known));
        self.kept = Some(known.clone());
        self.program.ask(&["flush"])?;
        self.flushed = self.shared.clock.tick();
        let random = Random::new(self.seed ^ 0x6b65_7074);
        let keeper = Keeper::new(self.shared.clone(), known, random);
        self.shared.begin();
        thread::spawn(move || keeper.run());
        for (number, ledger) in self.ledgers.iter().enumerate() {
            let style = Style {
                window: if number == 0 { 1 } else { 5 },
                sequencer: number == 0,
                longest_write: match self.mode {
                    Mode::Recovery => 200 << 10,
                    _ => 64 << 10,
                },
            };
            let random = Random::new(self.seed.wrapping_mul(31).wrapping_add(number as u64));
            let writer = Writer::new(self.shared.clone(), ledger.clone(), random, style);
            self.shared.begin();
            thread::spawn(move || writer.run());
        }
        self.open(true);
        Ok(server)
    }

    fn open(&self, retransmit: bool) {
        if let Some(landmark) = &self.landmark {
            self.shared
                .open(self.program.address, landmark.verifier, retransmit);
        }
    }

    /// Lets the writers work for `time`.
    pub(super) fn linger(&mut self, server: &mut Server, time: Duration) -> Result<(), Failure> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let fine = self.shared.sleep(left.min(Duration::from_millis(20)));
            server.still_runs()?;
            if !fine {
                return Err(Failure::Writers(self.shared.failures()));
            }
            self.moments
                .push((self.shared.clock.tick(), Instant::now()));
            if left.is_zero() {
                return Ok(());
            }
        }
    }

    /// Sends SIGKILL. Returns when all writers have noticed, with a stamp that is later than all answers. Whatever the
    /// program was doing, the bucket must be a consistent volume.
    pub(super) fn kill(&mut self, server: Server) -> Result<Stamp, Failure> {
        self.shared.close();
        server.kill()?;
        let store = self.program.store.clone();
        self.program
            .ask(&["fsck", "--read-data", "--store", &store])?;
        self.figures.checks += 1;
        self.count_segments();
        self.figures.kills += 1;
        if !self.shared.all_wait(Duration::from_secs(60)) {
            let mut failures = self.shared.failures();
            if failures.is_empty() {
                failures.push("not all writers have noticed the kill".to_owned());
            }
            return Err(Failure::Writers(failures));
        }
        Ok(self.shared.clock.tick())
    }

    /// Compares everything, and lets the writers continue.
    pub(super) fn look(
        &mut self,
        mut server: Server,
        floor: Stamp,
        then: Then,
    ) -> Result<Server, Failure> {
        let mut observer = self.observer();
        let mut random = Random::new(floor ^ self.figures.kills);
        if let Some(landmark) = &mut self.landmark {
            landmark.look(&mut observer, &mut random, then)?;
        }
        if let Some(known) = &self.kept {
            let mut known = kept::open(known);
            known.serves(&self.program);
            let now = self.shared.clock.tick();
            let looked = known.compare(&mut observer, (floor, now), then)?;
            self.figures.trees += looked.trees;
            self.figures.bytes += looked.bytes;
        }
        let books = self.ledgers.clone();
        let mut books: Vec<_> = books.iter().map(open_book).collect();
        let mut ledgers: Vec<&mut Ledger> = books.iter_mut().map(|book| &mut **book).collect();
        let compared = compare(&mut observer, &mut ledgers, floor, then)?;
        drop(books);
        self.cut = compared.cut;
        self.figures.comparisons += 1;
        self.figures.names += compared.names;
        self.figures.files += compared.files;
        self.figures.bytes += compared.bytes;
        server.still_runs()?;
        self.open(then != Then::Forget);
        Ok(server)
    }

    /// Flushes, which must succeed. Returns the stamp before which everything is in the bucket.
    pub(super) fn flush(&mut self, server: &mut Server) -> Result<Stamp, Failure> {
        let stamp = self.shared.clock.tick();
        let began = Instant::now();
        self.program.ask(&["flush", "--timeout", "60s"])?;
        self.figures.flushes += 1;
        self.figures.slowest_flush = self.figures.slowest_flush.max(began.elapsed());
        self.flushed = stamp;
        server.still_runs()?;
        Ok(stamp)
    }

    /// Time that an upload may take beyond the interval.
    pub(super) fn allowance(&self) -> Duration {
        ALLOWANCE + 4 * self.figures.slowest_flush
    }

    /// The stamp before which every answered operation must be in the bucket of a machine that was lost at this time.
    pub(super) fn promised(&self, killed: Instant) -> Stamp {
        let age = self.interval + self.allowance();
        let old = |(_, at): &&(Stamp, Instant)| killed.saturating_duration_since(*at) > age;
        let by_age = self
            .moments
            .iter()
            .rev()
            .find(old)
            .map_or(0, |(stamp, _)| *stamp);
        by_age.max(self.flushed)
    }

    /// Records how old the bucket's state was at this time.
    pub(super) fn note_age(&mut self, killed: Instant) {
        let before = self
            .moments
            .partition_point(|(stamp, _)| *stamp <= self.cut);
        let last = before
            .checked_sub(1)
            .and_then(|last| self.moments.get(last));
        // A cut after the last stamp has the least age.
        if let Some((_, at)) = last.filter(|_| before < self.moments.len()) {
            self.figures.oldest = self
                .figures
                .oldest
                .max(killed.saturating_duration_since(*at));
        }
        // No stamp of this machine counts for the next one.
        self.moments.clear();
    }

    /// Deletes the local folder; the next start has a new one.
    pub(super) fn lose_folder(&mut self) -> Result<(), Failure> {
        if !self.program.has_folder() {
            return Err(Failure::Other(
                "the program has not used its local folder".to_owned(),
            ));
        }
        let lost = &self.program.data_dir;
        fs::remove_dir_all(lost).map_err(files(format!("delete {}", lost.display())))?;
        self.folders += 1;
        self.segments_seen = 0;
        self.program.data_dir = self.work.path().join(format!("data-{}", self.folders));
        Ok(())
    }

    /// Checks at the end, after everything was committed, that every file is as its client intends.
    pub(super) fn all_as_meant(&self) -> Result<(), Failure> {
        for ledger in &self.ledgers {
            let ledger = open_book(ledger);
            for (node, file) in &ledger.files {
                if file.parts.iter().any(|part| part.now != part.meant) {
                    let writer = ledger.writer;
                    return Err(Failure::Other(format!(
                        "writer {writer}: {node:?} is not as its client has committed it"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Counts segments by their numbers: the highest one shows how many were begun or prepared.
    fn count_segments(&mut self) {
        let Ok(entries) = fs::read_dir(self.program.data_dir.join("log")) else {
            return;
        };
        let number = |path: &Path| u64::from_str_radix(path.file_stem()?.to_str()?, 16).ok();
        let numbers = entries.flatten().filter_map(|entry| number(&entry.path()));
        let highest = numbers.max().unwrap_or_default();
        self.figures.segments += highest.saturating_sub(self.segments_seen);
        self.segments_seen = self.segments_seen.max(highest);
    }

    pub(super) fn gather_counts(&mut self) {
        self.shared.give_up();
        let counts = &self.shared.counts;
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.figures.operations = get(&counts.answered);
        self.figures.stable = get(&counts.stable);
        self.figures.commits = get(&counts.commits);
        self.figures.read_back = get(&counts.read_back);
        self.figures.resent = get(&counts.resent);
        self.figures.repeated = get(&counts.repeated);
        self.figures.known_repeats = get(&counts.known_repeats);
        if let Some(known) = &self.kept {
            self.figures.snapshots = kept::open(known).counts;
        }
    }

    /// Writes the failure and the ledgers beside the files that are kept.
    pub(super) fn note(&self, failure: &Failure) {
        let status = self.program.ask(&["status", "--json"]);
        let status = status.unwrap_or_else(|error| error.to_string());
        let mut text = format!(
            "mode {}, seed {}, after {} kills\n\n{failure}\n\nflags: {:?}\n\n{status}\n",
            self.mode, self.seed, self.figures.kills, self.program.flags
        );
        for ledger in &self.ledgers {
            // Does not wait for the lock: the ledger's writer may be the one that is stuck.
            let book = match ledger.try_lock() {
                Ok(book) => book,
                Err(std::sync::TryLockError::Poisoned(book)) => PoisonError::into_inner(book),
                Err(std::sync::TryLockError::WouldBlock) => continue,
            };
            text.push_str(&format!(
                "\nwriter {}: under way {:#?}\n",
                book.writer, book.pending
            ));
        }
        // The failure itself is reported in any case.
        let _ = fs::write(self.work.path().join("failure"), text);
    }

    /// Keeps the work folder, and returns its path.
    pub(super) fn keep(self) -> PathBuf {
        self.work.keep()
    }
}

fn files(what: String) -> impl FnOnce(std::io::Error) -> Failure {
    move |source| Failure::Files { what, source }
}
