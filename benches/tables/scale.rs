//! How costs grow with the files of a volume and the distance of its bucket. `cargo bench --bench tables -- scale`.
//!
//! Volumes of 1,000, 10,000 and 100,000 files of 1 KiB, a thousand in each directory, are made in memory, before any
//! time is measured: the last directory by itself, all others up to 64 at the same time, so that the inodes of one
//! directory lie among those of 63 others. Then gateways with an empty local folder (in `TMPDIR`, which should be on a
//! disk) open copies of them that are [far away](crate::far): 1, 10 and 100 ms. Each finds the bucket as the volume's
//! maker left it.
//!
//! *Round trips* are the growth of the time for each millisecond of distance, from 10 to 100 ms: the requests that wait
//! for one another. The *requests* beside them are all requests, at 100 ms: including concurrent ones, and those of
//! background work within that time.
//!
//! The figures are medians of the rounds and, in brackets, quartiles; the round trips are medians of the rounds' own.
//! `--rounds N`: 5 by default. Run by `cargo test`, a small volume and short distances show that it works.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_fs::Volume;
use forebay_measure::{Arguments, Machine, Round, Rounds, table};
use forebay_object::{RetrySettings, Store};
use forebay_types::Inode;
use forebay_vfs::{FileSystem, Stability};
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use tokio::runtime::Builder;

use crate::names::{self, Gateway, IN_DIRECTORY};
use crate::{Failure, ROOT, far, requests, surroundings};

const COMMAND: &str = "cargo bench --bench tables -- scale";
const FILE_BYTES: usize = 1 << 10;
static CONTENT: [u8; FILE_BYTES] = [0x5a; FILE_BYTES];
/// Number of pieces of work of one kind whose mean a round takes.
const FEW: u64 = 5;
const COMMITS: u64 = 20;

const OPENED: &str = "opened with an empty local folder";
const FIRST: &str = "the first path looked up and looked at";
const OTHERS: &str = "others, anywhere";
const READ: &str = "files of 1 KiB read, anywhere, looked up before";
const LISTED: &str = "a directory of 1,000 listed with attributes, made by itself";
const SCATTERED: &str = "one of 1,000 that was made while others were";
const MADE: &str = "a file made in a directory that nobody has looked at";
const PUBLISHED: &str = "a checkpoint of that file";
const COMMITTED: &str = "4 KiB of it written and committed";
const WORKS: [&str; 9] = [
    OPENED, FIRST, OTHERS, READ, LISTED, SCATTERED, MADE, PUBLISHED, COMMITTED,
];

/// Amounts of work.
struct Effort {
    files: Vec<u64>,
    /// Distances of the bucket in milliseconds. The last two give the round trips.
    away: [u64; 3],
    rounds: usize,
    /// Time without requests after which a volume is complete.
    quiet: Duration,
}

/// A volume that exists only in a bucket.
struct Made {
    bucket: InMemory,
    files: u64,
    /// The first of its directories, and the last one, whose files were made by themselves.
    directories: [Inode; 2],
}

fn store(bucket: InMemory) -> Store {
    let (root, url) = (ObjectPath::default(), "memory://".to_owned());
    Store::new(Arc::new(bucket), root, url, RetrySettings::default())
}

impl Made {
    fn new(files: u64, quiet: Duration) -> Result<Made, Failure> {
        let bucket = InMemory::new();
        let near = store(bucket.clone());
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(Volume::format(&near))?;
        let local = tempfile::tempdir_in(surroundings::memory_folder())?;
        let gateway = Gateway::open(&near, local.path().to_owned(), |_| ())?;
        let alone = files.saturating_sub(IN_DIRECTORY);
        gateway.fill(0..alone, &CONTENT)?;
        gateway.fill(alone..files, &CONTENT)?;
        let directories = gateway.run(async {
            gateway.volume.flush().await?;
            // Metadata are merged after that.
            requests::silence(&gateway.requests, quiet).await;
            let mut directories = [Inode::ROOT; 2];
            for (found, number) in directories.iter_mut().zip([0, alone / IN_DIRECTORY]) {
                let name = names::directory(number);
                let looked = gateway.volume.lookup(&ROOT, Inode::ROOT, name.as_bytes());
                *found = looked.await?.inode;
            }
            Ok(directories)
        })?;
        gateway.close()?;
        Ok(Made {
            bucket,
            files,
            directories,
        })
    }

    /// Opens a gateway that has nothing of the volume, `away` milliseconds from it.
    fn open(&self, local: &Path, away: u64) -> Result<Gateway, Failure> {
        let near = store(self.bucket.fork());
        let (far, _) = far::way_to(&near, Duration::from_millis(away));
        Gateway::open(&far, local.to_owned(), |_| ())
    }
}

/// One round of one volume at one distance.
struct Turn<'a> {
    made: &'a Made,
    away: u64,
    round: &'a mut Round,
}

fn key(files: u64, work: &str, of: &str) -> String {
    format!("{files} {work} {of}")
}

fn milliseconds(away: u64) -> String {
    format!("{away} ms")
}

impl Turn<'_> {
    fn keep(&mut self, work: &str, count: u64, taken: Duration, requests: u64) {
        let files = self.made.files;
        let (taken, requests) = (taken.as_secs_f64() * 1e3, requests as f64);
        let time = key(files, work, &milliseconds(self.away));
        self.round.insert(time, taken / count as f64);
        // The largest distance comes last, and its requests stay.
        let requests = requests / count as f64;
        self.round.insert(key(files, work, "requests"), requests);
    }

    /// Does `count` pieces of work, one after the other, and keeps the cost of each.
    fn row(
        &mut self,
        work: &str,
        gateway: &Gateway,
        count: u64,
        piece: impl AsyncFn(&Volume, u64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let before = gateway.requests.counts().requests();
        let began = Instant::now();
        gateway.run(async {
            for number in 0..count {
                piece(&gateway.volume, number).await?;
            }
            Ok(())
        })?;
        let taken = began.elapsed();
        let requests = gateway.requests.counts().requests() - before;
        self.keep(work, count, taken, requests);
        Ok(())
    }

    /// Lookups and reads with nothing in memory. `turn` chooses the files.
    fn looking(&mut self, turn: u64) -> Result<(), Failure> {
        let files = self.made.files;
        let local = tempfile::tempdir()?;
        let gateway = self.made.open(local.path(), self.away)?;
        let requests = gateway.requests.counts().requests();
        self.keep(OPENED, 1, gateway.opened, requests);

        let anywhere = |number: u64| names::shuffled(turn * (2 * FEW + 1) + number, files);
        let look = async |volume: &Volume, number: u64| {
            let file = names::look(volume, number).await?;
            volume.getattr(file).await?;
            Ok(file)
        };
        self.row(FIRST, &gateway, 1, async |volume, _| {
            look(volume, anywhere(0)).await.map(drop)
        })?;
        self.row(OTHERS, &gateway, FEW, async |volume, number| {
            look(volume, anywhere(1 + number)).await.map(drop)
        })?;
        let read = gateway.run(async {
            let mut read = Vec::new();
            for number in 0..FEW {
                read.push(look(&gateway.volume, anywhere(1 + FEW + number)).await?);
            }
            Ok(read)
        })?;
        self.row(READ, &gateway, FEW, async |volume, number| {
            let file = read[number as usize];
            let read = volume.read(&ROOT, file, 0, FILE_BYTES as u32).await?;
            assert_eq!(read.data.concat(), CONTENT);
            Ok(())
        })?;
        gateway.close()
    }

    /// The first work of a client in a directory.
    fn working(&mut self) -> Result<(), Failure> {
        let [scattered, directory] = self.made.directories;
        for (work, directory) in [(SCATTERED, scattered), (LISTED, directory)] {
            let local = tempfile::tempdir()?;
            let gateway = self.made.open(local.path(), self.away)?;
            let before = gateway.requests.counts().requests();
            let (count, taken) = gateway.list(directory)?;
            let all = self.made.files.min(IN_DIRECTORY) + 2;
            assert_eq!(count, all, "and the two dots");
            let requests = gateway.requests.counts().requests() - before;
            self.keep(work, 1, taken, requests);
            gateway.close()?;
        }

        let local = tempfile::tempdir()?;
        let gateway = self.made.open(local.path(), self.away)?;
        let name = "a new one";
        self.row(MADE, &gateway, 1, async |volume, _| {
            let file = names::make(volume, directory, name).await?;
            let written = volume.write(&ROOT, file, 0, &CONTENT, Stability::Unstable);
            written.await?;
            Ok(())
        })?;
        self.row(PUBLISHED, &gateway, 1, async |volume, _| {
            volume.flush().await?;
            Ok(())
        })?;
        let file = gateway.run(async {
            let found = gateway.volume.lookup(&ROOT, directory, name.as_bytes());
            Ok(found.await?.inode)
        })?;
        self.row(COMMITTED, &gateway, COMMITS, async |volume, number| {
            let bytes = surroundings::noise(number, 4096);
            let at = number * 4096;
            let written = volume.write(&ROOT, file, at, &bytes, Stability::Unstable);
            written.await?;
            volume.commit(&ROOT, file, 0, 0).await?;
            Ok(())
        })?;
        gateway.close()
    }
}

/// One round of a volume at all distances.
fn turns(made: &Made, away: [u64; 3], turn: u64) -> Result<Round, Failure> {
    let mut round = Round::default();
    for away in away {
        let mut turn_of_it = Turn {
            made,
            away,
            round: &mut round,
        };
        turn_of_it.looking(turn)?;
        turn_of_it.working()?;
    }
    let [_, near, far] = away;
    for work in WORKS {
        let at = |away| round.get(&key(made.files, work, &milliseconds(away)));
        if let (Some(at_near), Some(at_far)) = (at(near), at(far)) {
            let grown = (at_far - at_near) / (far - near) as f64;
            round.insert(key(made.files, work, "round trips"), grown);
        }
    }
    Ok(round)
}

fn shown(rounds: &Rounds, effort: &Effort) -> String {
    let away = effort.away.map(|away| format!("{away} ms away, ms"));
    let mut head = vec!["", "files in the volume", "requests"];
    head.extend(away.iter().map(String::as_str));
    head.push("round trips");
    let mut text = table::head(&head);
    for work in WORKS {
        for (number, files) in effort.files.iter().enumerate() {
            let name = if number == 0 { work } else { "" };
            let median = |of: &str| rounds.median(&key(*files, work, of));
            let mut cells = vec![name.to_owned(), files.to_string()];
            cells.push(table::three(median("requests").value));
            cells.extend(
                effort
                    .away
                    .map(|away| table::digits(median(&milliseconds(away)))),
            );
            // A cost that does not grow may be measured slightly below zero.
            let grown = |trips: f64| if trips.abs() < 0.005 { 0.0 } else { trips };
            cells.push(table::times(median("round trips").map(grown)));
            text += &table::line(cells);
        }
    }
    text
}

/// The table, with the machine it was measured on.
pub(crate) fn tables(arguments: &Arguments) -> Result<String, Failure> {
    let effort = match arguments.full() {
        true => Effort {
            files: vec![1_000, 10_000, 100_000],
            away: [1, 10, 100],
            rounds: arguments.after("--rounds").map_or(Ok(5), str::parse)?,
            quiet: Duration::from_secs(5),
        },
        false => Effort {
            files: vec![20],
            away: [1, 2, 4],
            rounds: 1,
            quiet: Duration::from_millis(100),
        },
    };
    let mut rounds = vec![Round::default(); effort.rounds];
    for files in &effort.files {
        let made = Made::new(*files, effort.quiet)?;
        for (number, round) in (0..).zip(&mut rounds) {
            round.extend(turns(&made, effort.away, number)?);
        }
    }
    let figures = format!("medians of {} rounds (quartiles)", effort.rounds);
    let caption = Machine::this().caption(COMMAND, &figures);
    let table = shown(&Rounds::new(rounds), &effort);
    Ok(format!("{caption}\n\n{table}"))
}
