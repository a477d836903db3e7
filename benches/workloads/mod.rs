//! The same work for every server and folder: its data, and its rate.
//!
//! ```text
//!  Data (made once, by seed) --> Place: prepare, perform (timed), check --> Round: rates
//!                                  |
//!                                  +-- over_nfs   calls to a server, 32 in flight
//!                                  +-- in_folder  system calls in a mounted folder
//! ```
//!
//! Each workload ends with the call that makes it durable: COMMIT or FILE_SYNC, or fsync. The promise of the answer to
//! that differs between servers. The written data are read back and compared, outside the measured time.

mod in_folder;
mod over_nfs;
mod tree;
mod unpack;

use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use forebay_measure::Round;

use crate::surroundings;

pub(crate) use in_folder::Folder;
pub(crate) use over_nfs::{Server, ServerSpec};
use tree::Tree;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Size in bytes of random reads and writes.
pub(crate) const BLOCK: usize = 4 * KIB;
/// Concurrent calls or threads, except for sequential work in folders and for trees.
const AT_ONCE: usize = 32;
/// Files of a tree that are unpacked concurrently.
const FILES_AT_ONCE: usize = 8;

/// Amounts of work.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    /// Size of the large file; a multiple of `piece_bytes`.
    pub(crate) file_bytes: usize,
    /// Size of one sequential read or write, if the server takes that much.
    pub(crate) piece_bytes: usize,
    /// Random writes, and random reads.
    pub(crate) random: usize,
    /// Files in one directory.
    pub(crate) names: usize,
    /// How often each of them is looked up, and its attributes read.
    pub(crate) looks: usize,
    /// Files in the source tree.
    pub(crate) tree_files: usize,
}

impl Effort {
    /// Enough for figures.
    pub(crate) const FULL: Effort = Effort {
        file_bytes: 256 * MIB,
        piece_bytes: MIB,
        random: 8000,
        names: 2000,
        looks: 3,
        tree_files: 1500,
    };
    /// Enough to show that it works.
    pub(crate) const TINY: Effort = Effort {
        file_bytes: MIB,
        piece_bytes: 64 * KIB,
        random: 100,
        names: 70,
        looks: 2,
        tree_files: 60,
    };
}

/// The workloads, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    SequentialWrite,
    SequentialRead,
    RandomWrite,
    RandomRead,
    Create,
    LookUp,
    GetAttributes,
    List,
    Remove,
    Unpack,
}

impl Workload {
    const ALL: [Workload; 10] = [
        Workload::SequentialWrite,
        Workload::SequentialRead,
        Workload::RandomWrite,
        Workload::RandomRead,
        Workload::Create,
        Workload::LookUp,
        Workload::GetAttributes,
        Workload::List,
        Workload::Remove,
        Workload::Unpack,
    ];

    /// The workload with this [`key`](Self::key).
    pub(crate) fn named(key: &str) -> Option<Workload> {
        Workload::ALL.into_iter().find(|own| own.key() == key)
    }

    /// Earlier workloads whose results this one needs, in their order.
    fn needs(self) -> &'static [Workload] {
        match self {
            Workload::SequentialRead | Workload::RandomWrite => &[Workload::SequentialWrite],
            Workload::RandomRead => &[Workload::SequentialWrite, Workload::RandomWrite],
            Workload::LookUp | Workload::GetAttributes | Workload::List | Workload::Remove => {
                &[Workload::Create]
            }
            Workload::SequentialWrite | Workload::Create | Workload::Unpack => &[],
        }
    }

    /// Its name in tables, with the unit.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Workload::SequentialWrite => "write, MB/s",
            Workload::SequentialRead => "read, MB/s",
            Workload::RandomWrite => "write, a second",
            Workload::RandomRead => "read, a second",
            Workload::Create => "create",
            Workload::LookUp => "look up",
            Workload::GetAttributes => "attributes",
            Workload::List => "list",
            Workload::Remove => "remove",
            Workload::Unpack => "files a second",
        }
    }

    /// Its key in a round.
    pub(crate) fn key(self) -> String {
        format!("{self:?}")
    }

    /// Amount of its work, in the unit of its name.
    fn amount(self, effort: &Effort) -> f64 {
        let count = |count: usize| count as f64;
        match self {
            Workload::SequentialWrite | Workload::SequentialRead => count(effort.file_bytes) / 1e6,
            Workload::RandomWrite | Workload::RandomRead => count(effort.random),
            Workload::Create | Workload::List | Workload::Remove => count(effort.names),
            Workload::LookUp | Workload::GetAttributes => count(effort.names * effort.looks),
            Workload::Unpack => count(effort.tree_files),
        }
    }
}

/// The data of the work: the same for all contenders.
pub(crate) struct Data {
    pub(crate) effort: Effort,
    /// Bytes of the large file, as first written.
    file: Vec<u8>,
    /// Blocks of it that are written or read at random, each at most once.
    blocks: Vec<usize>,
    /// The bytes written to them, one block after another.
    overwrites: Vec<u8>,
    /// For each block of the file its overwrite, if it has one.
    overwritten: Vec<Option<usize>>,
    names: Vec<String>,
    tree: Tree,
}

impl Data {
    pub(crate) fn new(effort: Effort) -> Data {
        let count = effort.file_bytes / BLOCK;
        let mut blocks: Vec<usize> = (0..count).collect();
        let mut random = Random(7);
        for place in 0..count {
            blocks.swap(place, place + random.below(count - place));
        }
        blocks.truncate(effort.random);
        let mut overwritten = vec![None; count];
        for (number, block) in blocks.iter().enumerate() {
            overwritten[*block] = Some(number);
        }
        Data {
            file: surroundings::noise(1, effort.file_bytes),
            overwrites: surroundings::noise(2, blocks.len() * BLOCK),
            names: (0..effort.names)
                .map(|number| format!("a name of middling length {number}"))
                .collect(),
            tree: Tree::new(effort.tree_files),
            blocks,
            overwritten,
            effort,
        }
    }

    /// Bytes of all files of the tree.
    pub(crate) fn tree_bytes(&self) -> usize {
        self.tree.total_bytes()
    }

    /// Offset and bytes of overwrite `number`.
    fn overwrite(&self, number: usize) -> (u64, &[u8]) {
        let at = number * BLOCK;
        let offset = self.blocks[number] * BLOCK;
        (offset as u64, &self.overwrites[at..at + BLOCK])
    }

    /// Index of a name to look up: over all turns, every name comes equally often.
    fn look(&self, turn: usize) -> usize {
        // A prime that is larger than any number of names, and so shares no factor with it.
        const STRIDE: usize = 2_147_483_647;
        turn.wrapping_mul(STRIDE) % self.names.len()
    }

    /// Compares bytes of the large file, which begin with a block, with the bytes written there.
    fn compare(&self, offset: usize, bytes: &[u8], after_overwrites: bool) -> io::Result<()> {
        for (index, found) in bytes.chunks(BLOCK).enumerate() {
            let at = offset + index * BLOCK;
            let wanted = match self.overwritten[at / BLOCK] {
                Some(number) if after_overwrites => self.overwrite(number).1,
                _ => &self.file[at..at + BLOCK],
            };
            if found != wanted {
                return Err(wrong(format!(
                    "the block at byte {at} is not what was written"
                )));
            }
        }
        Ok(())
    }

    /// Compares a listing of the directory of names with the names made there.
    fn compare_names(&self, mut found: Vec<Vec<u8>>, made: bool) -> io::Result<()> {
        let mut wanted: Vec<&[u8]> = match made {
            true => self.names.iter().map(|name| name.as_bytes()).collect(),
            false => Vec::new(),
        };
        found.sort_unstable();
        wanted.sort_unstable();
        if found != wanted {
            let (found, wanted) = (found.len(), wanted.len());
            return Err(wrong(format!(
                "{found} names are listed that are not the {wanted} that should be there"
            )));
        }
        Ok(())
    }
}

/// A server or a folder, and the objects made there so far.
pub(crate) trait Place {
    /// Whether this workload is possible here.
    fn has(&self, workload: Workload) -> bool;

    /// Makes a folder of this name for the work that follows.
    fn begin(&mut self, folder: &str) -> io::Result<()>;

    /// Makes what the workload needs in addition to the results of earlier ones.
    fn prepare(&mut self, workload: Workload, data: &Data) -> io::Result<()>;

    /// Does the work, up to the answer that it is durable. Its time is measured.
    fn perform(&mut self, workload: Workload, data: &Data) -> io::Result<()>;

    /// Reads back the results of the work, and compares them.
    fn check(&mut self, workload: Workload, data: &Data) -> io::Result<()>;

    /// Removes everything that is left.
    fn end(&mut self, data: &Data) -> io::Result<()>;
}

/// Results of one turn.
#[derive(Default)]
pub(crate) struct Turn {
    /// Rates, by [`Workload::key`].
    pub(crate) round: Round,
    /// The failures, with their errors.
    pub(crate) failures: Vec<String>,
}

/// Options of the work.
#[derive(Default)]
pub(crate) struct Manner {
    /// Pause before each workload.
    pub(crate) pause: Duration,
    /// Only this workload, with the ones it needs; all if `None`.
    pub(crate) only: Option<Workload>,
    /// A pipe of `perf record --control`: it samples while a workload is performed, and not before or after.
    pub(crate) profiler: Option<PathBuf>,
}

impl Manner {
    /// Makes the profiler begin or stop.
    fn tell_profiler(&self, command: &str) -> io::Result<()> {
        match &self.profiler {
            Some(pipe) => std::fs::write(pipe, format!("{command}\n")),
            None => Ok(()),
        }
    }
}

impl Turn {
    fn measure(&mut self, place: &mut dyn Place, workload: Workload, data: &Data, manner: &Manner) {
        thread::sleep(manner.pause);
        match timed(place, workload, data, manner) {
            Ok(rate) => self.round.insert(workload.key(), rate),
            Err(error) => self.failures.push(format!("{workload:?}: {error}")),
        }
    }

    /// The same with the workloads needed before it, and removal of what another one would have removed after it.
    fn measure_alone(
        &mut self,
        place: &mut dyn Place,
        workload: Workload,
        data: &Data,
        manner: &Manner,
    ) -> io::Result<()> {
        for needed in workload.needs() {
            place.prepare(*needed, data)?;
            place.perform(*needed, data)?;
        }
        self.measure(place, workload, data, manner);
        let has_names = workload == Workload::Create || workload.needs() == [Workload::Create];
        match has_names && workload != Workload::Remove {
            true => place.perform(Workload::Remove, data),
            false => Ok(()),
        }
    }
}

/// Does all workloads once, or only the requested one. Failures are recorded, and their rates are missing.
pub(crate) fn turn(place: &mut dyn Place, folder: &str, data: &Data, manner: &Manner) -> Turn {
    let mut turn = Turn::default();
    if let Err(error) = place.begin(folder) {
        turn.failures.push(format!("making a folder: {error}"));
        return turn;
    }
    let left = match manner.only {
        None => {
            for workload in Workload::ALL {
                if place.has(workload) {
                    turn.measure(place, workload, data, manner);
                }
            }
            Ok(())
        }
        Some(only) => turn.measure_alone(place, only, data, manner),
    };
    if let Err(error) = left.and_then(|()| place.end(data)) {
        turn.failures.push(format!("cleaning up: {error}"));
    }
    turn
}

fn timed(
    place: &mut dyn Place,
    workload: Workload,
    data: &Data,
    manner: &Manner,
) -> io::Result<f64> {
    place.prepare(workload, data)?;
    manner.tell_profiler("enable")?;
    let began = Instant::now();
    place.perform(workload, data)?;
    let seconds = began.elapsed().as_secs_f64();
    manner.tell_profiler("disable")?;
    place.check(workload, data)?;
    Ok(workload.amount(&data.effort) / seconds)
}

fn wrong(problem: String) -> io::Error {
    io::Error::other(problem)
}

/// Pseudo-random numbers (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `limit`, which is not 0.
    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 16) as usize % limit
    }

    /// A number from 0 to 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
