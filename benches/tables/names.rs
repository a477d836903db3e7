//! Many names: one large directory, and a volume of many files. `cargo bench --bench tables -- names`.
//!
//! * *One directory* of 100,000 files: made, listed with attributes, looked up in any order, renamed, removed, 64 calls
//!   at a time, through the whole file system except the network; and listed and looked up by a gateway that has
//!   nothing of it in memory. The log is in the temporary folder (`TMPDIR`), so that stable operations wait for a disk;
//!   the bucket is a folder beside it.
//! * *A volume* of a million files, a thousand in each directory: the time that a gateway with an empty local folder
//!   takes to open it, its rate of lookups then, with 16 and with 64 MiB for metadata, and the memory that takes; and
//!   the start after a kill with a gigabyte in the log, in large records and in small ones. `--files N` for a volume
//!   alone of another size, whose table has a place of its own: ten million do not fit into the memory for metadata by
//!   far.
//!
//! `--update FILE` puts the tables in that file. Run by `cargo test`, few files show that it works.

use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::{Failure, ROOT, surroundings};
use forebay_fs::{FsConfig, LogConfig, Volume};
use forebay_measure::{Arguments, Machine, table};
use forebay_object::{CountingStore, Store, StoreOptions};
use forebay_types::Inode;
use forebay_vfs::{CreateMode, FileSystem, NewNode, SetAttributes, Stability};
use tokio::runtime::{Builder, Runtime};

const COMMAND: &str = "cargo bench --bench tables -- names";
const MIB: u64 = 1 << 20;
/// Calls in flight.
const AT_ONCE: u64 = 64;
/// Entries listed at once: as many as fit into a READDIRPLUS reply of the kernel's client.
const PAGE: usize = 500;
/// Files in each directory of the volume.
pub(crate) const IN_DIRECTORY: u64 = 1000;
/// Lookups of files of the volume.
const LOOKS: u64 = 10_000;
/// Sizes of the metadata cache during the lookups: small, and the default.
const METADATA_CACHES: [u64; 2] = [16 * MIB, 64 * MIB];

/// Amounts of work.
#[derive(Clone, Copy)]
struct Effort {
    directory: Option<u64>,
    volume: u64,
    log_bytes: u64,
}

/// A gateway with a runtime of its own, which ends like a killed process when it is dropped.
pub(crate) struct Gateway {
    runtime: Option<Runtime>,
    pub(crate) volume: Volume,
    pub(crate) requests: Arc<CountingStore>,
    /// Duration of the opening.
    pub(crate) opened: Duration,
}

/// Makes a volume in a folder.
fn format(folder: &Path) -> Result<Store, Failure> {
    let bucket = folder.join("bucket");
    std::fs::create_dir(&bucket)?;
    let url = format!("file://{}", bucket.display());
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = forebay_object::open(&url, &StoreOptions::default()).await?;
        Volume::format(&store).await?;
        Ok(store)
    })
}

impl Gateway {
    pub(crate) fn open(
        store: &Store,
        local: PathBuf,
        set: impl FnOnce(&mut FsConfig),
    ) -> Result<Gateway, Failure> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(32)
            .enable_all()
            .build()?;
        let requests = Arc::new(CountingStore::new(store.store.clone()));
        let counted = Store {
            store: requests.clone(),
            ..store.clone()
        };
        let mut config = FsConfig::new(local);
        set(&mut config);
        let began = Instant::now();
        let volume = runtime.block_on(Volume::open(&counted, config))?;
        Ok(Gateway {
            runtime: Some(runtime),
            volume,
            requests,
            opened: began.elapsed(),
        })
    }

    pub(crate) fn run<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        match &self.runtime {
            Some(runtime) => runtime.block_on(work),
            None => Err("the gateway has ended".into()),
        }
    }

    /// Runs `work` `count` times, many at a time; returns the duration.
    fn each<W>(&self, count: u64, work: impl Fn(Volume, u64) -> W) -> Result<Duration, Failure>
    where
        W: Future<Output = Result<(), Failure>> + Send + 'static,
        W: Sized,
    {
        let work = &work;
        self.run(async {
            let began = Instant::now();
            let mut tasks = tokio::task::JoinSet::new();
            for number in 0..count {
                if tasks.len() as u64 == AT_ONCE
                    && let Some(done) = tasks.join_next().await
                {
                    done??;
                }
                tasks.spawn(work(self.volume.clone(), number));
            }
            while let Some(done) = tasks.join_next().await {
                done??;
            }
            Ok(began.elapsed())
        })
    }

    /// Lists a directory with attributes; returns the number of entries and the duration.
    pub(crate) fn list(&self, directory: Inode) -> Result<(u64, Duration), Failure> {
        self.run(async {
            let began = Instant::now();
            let (mut cookie, mut count) = (0, 0);
            loop {
                let listing = self
                    .volume
                    .readdir(&ROOT, directory, cookie, PAGE, true)
                    .await?;
                count += listing.entries.len() as u64;
                match listing.entries.last() {
                    Some(last) if !listing.end => cookie = last.cookie,
                    _ => return Ok((count, began.elapsed())),
                }
            }
        })
    }

    /// Makes these files, a thousand in each directory, from the first of a directory on, each with `bytes`.
    pub(crate) fn fill(
        &self,
        files: Range<u64>,
        bytes: &'static [u8],
    ) -> Result<Duration, Failure> {
        let (first, end) = (files.start / IN_DIRECTORY, files.end);
        let directories = end.div_ceil(IN_DIRECTORY) - first;
        self.each(directories, move |volume, number| async move {
            let number = first + number;
            let directory = make_directory(&volume, &directory(number)).await?;
            for file in 0..IN_DIRECTORY.min(end - number * IN_DIRECTORY) {
                let file = make(&volume, directory, &before(file)).await?;
                if !bytes.is_empty() {
                    volume
                        .write(&ROOT, file, 0, bytes, Stability::Unstable)
                        .await?;
                }
            }
            Ok(())
        })
    }

    pub(crate) fn close(self) -> Result<(), Failure> {
        self.run(async {
            self.volume.close(Duration::from_secs(600)).await;
            Ok(())
        })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }
}

/// MiB that this program has allocated.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let anonymous = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB"));
    anonymous
        .and_then(|kib| kib.parse::<u64>().ok())
        .unwrap_or(0)
        / 1024
}

/// A permutation of the numbers below `count`: each `turn` gives another number.
pub(crate) fn shuffled(turn: u64, count: u64) -> u64 {
    // A prime that is larger than any count here, so that it shares no factor with one.
    const STRIDE: u64 = 2_147_483_647;
    turn.wrapping_mul(STRIDE) % count
}

pub(crate) fn directory(number: u64) -> String {
    format!("directory {number}")
}

fn before(number: u64) -> String {
    format!("a name of middling length {number}")
}

fn after(number: u64) -> String {
    format!("renamed from what it was {number}")
}

pub(crate) async fn make(volume: &Volume, directory: Inode, name: &str) -> Result<Inode, Failure> {
    let mode = CreateMode::Guarded(SetAttributes::default());
    let made = volume.create(&ROOT, directory, name.as_bytes(), &mode);
    Ok(made.await?.attributes.inode)
}

async fn make_directory(volume: &Volume, name: &str) -> Result<Inode, Failure> {
    let kind = NewNode::Directory;
    let set = SetAttributes::default();
    let made = volume.make(&ROOT, Inode::ROOT, name.as_bytes(), kind, &set);
    Ok(made.await?.attributes.inode)
}

/// Looks up the path of one of the files that [`Gateway::fill`] has made.
pub(crate) async fn look(volume: &Volume, number: u64) -> Result<Inode, Failure> {
    let name = directory(number / IN_DIRECTORY);
    let directory = volume.lookup(&ROOT, Inode::ROOT, name.as_bytes()).await?;
    let name = before(number % IN_DIRECTORY);
    let found = volume.lookup(&ROOT, directory.inode, name.as_bytes());
    Ok(found.await?.inode)
}

/// Rows of the table of one directory.
struct Rows {
    text: String,
    log: u64,
    requests: u64,
}

impl Rows {
    fn new(gateway: &Gateway) -> Rows {
        let mut rows = Rows {
            text: table::head(&[
                "",
                "thousand a second",
                "log bytes each",
                "requests to the bucket",
                "MiB allocated",
            ]),
            log: 0,
            requests: 0,
        };
        rows.begin(gateway);
        rows
    }

    fn begin(&mut self, gateway: &Gateway) {
        self.log = gateway.volume.status().end.0;
        self.requests = gateway.requests.counts().requests();
    }

    fn add(&mut self, name: &str, gateway: &Gateway, count: u64, taken: Duration) {
        let log = gateway.volume.status().end.0 - self.log;
        let requests = gateway.requests.counts().requests() - self.requests;
        self.text.push_str(&table::line([
            name.to_owned(),
            table::three(count as f64 / 1e3 / taken.as_secs_f64()),
            (log / count.max(1)).to_string(),
            requests.to_string(),
            memory().to_string(),
        ]));
        self.begin(gateway);
    }
}

fn one_directory(files: u64) -> Result<String, Failure> {
    let folder = tempfile::tempdir()?;
    let store = format(folder.path())?;
    let gateway = Gateway::open(&store, folder.path().join("one"), |_| ())?;
    let directory = gateway.run(make_directory(&gateway.volume, "large"))?;
    let mut rows = Rows::new(&gateway);

    let taken = gateway.each(files, |volume, number| async move {
        make(&volume, directory, &before(number)).await.map(drop)
    })?;
    rows.add("made", &gateway, files, taken);

    let (count, taken) = gateway.list(directory)?;
    assert_eq!(count, files + 2, "all, and the two dots");
    rows.add("listed with attributes", &gateway, files, taken);

    let look = move |volume: Volume, turn| async move {
        let name = before(shuffled(turn, files));
        let found = volume.lookup(&ROOT, directory, name.as_bytes()).await?;
        volume.getattr(found.inode).await?;
        Ok(())
    };
    let taken = gateway.each(files, look)?;
    rows.add(
        "looked up and looked at, in any order",
        &gateway,
        files,
        taken,
    );
    gateway.close()?;

    let gateway = Gateway::open(&store, folder.path().join("two"), |_| ())?;
    rows.begin(&gateway);
    let (count, taken) = gateway.list(directory)?;
    assert_eq!(count, files + 2, "all, and the two dots");
    rows.add("listed, with nothing in memory", &gateway, files, taken);
    gateway.close()?;

    let gateway = Gateway::open(&store, folder.path().join("three"), |_| ())?;
    rows.begin(&gateway);
    let taken = gateway.each(files, look)?;
    rows.add("looked up, with nothing in memory", &gateway, files, taken);

    let taken = gateway.each(files, |volume, number| async move {
        let (from, to) = (before(number), after(number));
        let from = (directory, from.as_bytes());
        volume
            .rename(&ROOT, from, (directory, to.as_bytes()))
            .await?;
        Ok(())
    })?;
    rows.add("renamed", &gateway, files, taken);
    let taken = gateway.each(files, |volume, number| async move {
        volume
            .remove(&ROOT, directory, after(number).as_bytes())
            .await?;
        Ok(())
    })?;
    rows.add("removed", &gateway, files, taken);
    gateway.close()?;
    Ok(rows.text)
}

fn seconds(time: Duration) -> String {
    format!("{} s", table::three(time.as_secs_f64()))
}

/// Looks up paths all over the volume; returns the rate per second. `others` selects other paths than the first time.
fn looks(gateway: &Gateway, files: u64, others: bool) -> Result<String, Failure> {
    let slowest = Arc::new(AtomicU64::new(0));
    let worst = slowest.clone();
    let looks = LOOKS.min(files / 2);
    let first = if others { looks } else { 0 };
    let stride = files / (2 * looks);
    let taken = gateway.each(looks, move |volume, turn| {
        let worst = worst.clone();
        async move {
            let number = shuffled((first + turn) * stride, files);
            let began = Instant::now();
            look(&volume, number).await?;
            worst.fetch_max(began.elapsed().as_micros() as u64, Ordering::Relaxed);
            Ok(())
        }
    })?;
    Ok(format!(
        "{} thousand a second, the slowest {} ms",
        table::three(looks as f64 / 1e3 / taken.as_secs_f64()),
        table::three(slowest.load(Ordering::Relaxed) as f64 / 1e3)
    ))
}

fn a_volume(files: u64, log_bytes: u64) -> Result<String, Failure> {
    let folder = tempfile::tempdir()?;
    let store = format(folder.path())?;
    let mut text = table::head(&["", "", "requests to the bucket", "MiB allocated"]);
    let mut row = |name: &str, figure: String, gateway: &Gateway, requests: u64| {
        let now = gateway.requests.counts().requests();
        let cells = [
            name.to_owned(),
            figure,
            (now - requests).to_string(),
            memory().to_string(),
        ];
        text.push_str(&table::line(cells));
        now
    };

    // Without a disk for its log: another table shows how fast names are made.
    let filling = tempfile::tempdir_in(surroundings::memory_folder())?;
    let gateway = Gateway::open(&store, filling.path().to_owned(), |_| ())?;
    let taken = gateway.fill(0..files, &[])?;
    row("made, its log in memory", seconds(taken), &gateway, 0);
    gateway.close()?;

    for (number, cache_bytes) in METADATA_CACHES.into_iter().enumerate() {
        let local = folder.path().join(format!("cold {number}"));
        let gateway = Gateway::open(&store, local, |config| config.metadata_cache = cache_bytes)?;
        let mut requests = 0;
        if number == 0 {
            let opened = seconds(gateway.opened);
            requests = row("opened with an empty local folder", opened, &gateway, 0);
        }
        let cache = format!("with {} MiB for metadata", cache_bytes >> 20);
        // The second time they find the cache as the first time left it.
        for time in ["paths looked up, anywhere", "others"] {
            let figure = looks(&gateway, files, time == "others")?;
            requests = row(&format!("{time}, {cache}"), figure, &gateway, requests);
        }
        gateway.close()?;
    }

    for (number, (record, told)) in [(MIB, "1 MiB"), (4096, "4 KiB")].into_iter().enumerate() {
        let local = folder.path().join(format!("killed {number}"));
        let (gateway, unpublished) = killed(&store, &local, log_bytes, record)?;
        let name = format!(
            "opened again with {} MiB in its log, written by {told}",
            unpublished >> 20
        );
        row(&name, seconds(gateway.opened), &gateway, 0);
        gateway.close()?;
    }
    Ok(text)
}

/// Kills a gateway with `log_bytes` bytes in its log, written in pieces of `record` bytes, and opens it again. Returns
/// the gateway and the bytes that were not published.
fn killed(
    store: &Store,
    local: &Path,
    log_bytes: u64,
    record: u64,
) -> Result<(Gateway, u64), Failure> {
    // Most of the written data stay in the log.
    let hold = |config: &mut FsConfig| {
        config.checkpoint_interval = Duration::from_secs(3600);
        config.checkpoint_bytes = 4 * log_bytes;
        config.memory_limit = 16 * log_bytes;
        config.log = LogConfig::Disk {
            limit: 8 * log_bytes,
            segment: 32 << 20,
        };
    };
    let gateway = Gateway::open(store, local.to_owned(), hold)?;
    let noise = surroundings::noise(7, MIB as usize);
    let name = format!("unpublished {record}");
    let last = gateway.run(async {
        let volume = &gateway.volume;
        let file = make(volume, Inode::ROOT, &name).await?;
        for offset in (0..log_bytes).step_by(record as usize) {
            let at = (offset % MIB) as usize;
            let bytes = &noise[at..at + record as usize];
            let written = volume.write(&ROOT, file, offset, bytes, Stability::Unstable);
            written.await?;
        }
        volume.commit(&ROOT, file, 0, 0).await?;
        Ok(file)
    })?;
    let unpublished = gateway.volume.status().unpublished_bytes();
    assert!(
        unpublished >= log_bytes / 2,
        "{unpublished} bytes are in the log"
    );
    drop(gateway);
    let gateway = Gateway::open(store, local.to_owned(), hold)?;
    gateway.run(async {
        let read = gateway.volume.read(&ROOT, last, 0, MIB as u32).await?;
        assert!(read.data.concat() == noise);
        Ok(())
    })?;
    Ok((gateway, unpublished))
}

fn measure(effort: Effort, command: &str) -> Result<String, Failure> {
    let Effort {
        directory,
        volume,
        log_bytes,
    } = effort;
    let mut text = String::new();
    let figures = format!("one run, {AT_ONCE} calls at a time");
    writeln!(text, "{}", Machine::this().caption(command, &figures))?;
    if let Some(files) = directory {
        writeln!(text, "\nOne directory of {files} files:\n")?;
        text.push_str(&one_directory(files)?);
    }
    writeln!(text, "\nA volume of {volume} files:\n")?;
    text.push_str(&a_volume(volume, log_bytes)?);
    Ok(text)
}

/// The tables, with the machine they were measured on.
pub(crate) fn tables(arguments: &Arguments) -> Result<String, Failure> {
    let files = arguments.after("--files");
    let effort = match arguments.full() {
        true => Effort {
            directory: files.is_none().then_some(100_000),
            volume: files.map_or(Ok(1_000_000), str::parse)?,
            log_bytes: 1024 * MIB,
        },
        false => Effort {
            directory: Some(200),
            volume: 1500,
            log_bytes: 16 * MIB,
        },
    };
    measure(effort, &arguments.command(COMMAND, &["--files"]))
}
