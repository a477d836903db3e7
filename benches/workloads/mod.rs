//! The same work for every server and folder, on what it is done, and what it comes to in a second.
//!
//! ```text
//!  Data (made once, by seed) --> Place: prepare, perform (timed), check --> Round: work done in a second
//!                                  |
//!                                  +-- over_nfs   calls to a server, 32 under way
//!                                  +-- in_folder  system calls in a mounted folder
//! ```
//!
//! Each workload ends with what makes it durable: COMMIT or FILE_SYNC, or fsync. What a server promises by its answer to that
//! is not the same everywhere. What was written is read back and compared, outside of the time.

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
/// What random reads and writes move.
pub(crate) const BLOCK: usize = 4 * KIB;
/// Calls or threads at the same time, but for sequential work in folders and for trees.
const AT_ONCE: usize = 32;
/// Files of a tree that are unpacked at the same time.
const FILES_AT_ONCE: usize = 8;

/// How much of everything.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    /// Of the large file; a multiple of `piece_bytes`.
    pub(crate) file_bytes: usize,
    /// Of one sequential read or write, if the server takes that much.
    pub(crate) piece_bytes: usize,
    /// Random writes, and random reads.
    pub(crate) random: usize,
    /// Files in one directory.
    pub(crate) names: usize,
    /// How often each of them is looked up, and asked for its attributes.
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

/// What is done, in the order in which it is done.
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

    /// The one that [`key`](Self::key) calls so.
    pub(crate) fn named(key: &str) -> Option<Workload> {
        Workload::ALL.into_iter().find(|own| own.key() == key)
    }

    /// Those before it without which it has nothing to work on, in their order.
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

    /// What it is called in tables, with the unit.
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

    /// How a round calls it.
    pub(crate) fn key(self) -> String {
        format!("{self:?}")
    }

    /// How much work it is, in the unit of its name.
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

/// What the work is done on: the same for everyone.
pub(crate) struct Data {
    pub(crate) effort: Effort,
    /// Bytes of the large file, as they are written at first.
    file: Vec<u8>,
    /// Blocks of it that are written or read at random, each at most once.
    blocks: Vec<usize>,
    /// What is written to them, one after another.
    overwrites: Vec<u8>,
    /// For each block of the file: which of the overwrites is the block's.
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

    /// Overwrite `number`: its place in the file, and its bytes.
    fn overwrite(&self, number: usize) -> (u64, &[u8]) {
        let at = number * BLOCK;
        let offset = self.blocks[number] * BLOCK;
        (offset as u64, &self.overwrites[at..at + BLOCK])
    }

    /// Any of the names, each of them as often as the others.
    fn look(&self, turn: usize) -> usize {
        // A prime that is larger than any number of names, and so shares no factor with it.
        const STRIDE: usize = 2_147_483_647;
        turn.wrapping_mul(STRIDE) % self.names.len()
    }

    /// Compares bytes of the large file, which begin with a block, with what has been written there.
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

    /// Compares a listing of the directory of names with what has been made there.
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

/// A server, or a folder, and what has been made there so far.
pub(crate) trait Place {
    /// Whether there is such a work here.
    fn has(&self, workload: Workload) -> bool;

    /// Makes a folder of this name for all that follows.
    fn begin(&mut self, folder: &str) -> io::Result<()>;

    /// Makes what the workload needs beside what those before it have made.
    fn prepare(&mut self, workload: Workload, data: &Data) -> io::Result<()>;

    /// Does the work, up to the answer that it is durable. The time is that of this.
    fn perform(&mut self, workload: Workload, data: &Data) -> io::Result<()>;

    /// Reads back what the work has made, and compares it.
    fn check(&mut self, workload: Workload, data: &Data) -> io::Result<()>;

    /// Removes everything that is left.
    fn end(&mut self, data: &Data) -> io::Result<()>;
}

/// What one turn has given.
#[derive(Default)]
pub(crate) struct Turn {
    /// Work done in a second, by [`Workload::key`].
    pub(crate) round: Round,
    /// What has failed, and how.
    pub(crate) failures: Vec<String>,
}

/// How work is done.
#[derive(Default)]
pub(crate) struct Manner {
    /// Before each workload.
    pub(crate) pause: Duration,
    /// This one alone, and what the others have to make for it; all without it.
    pub(crate) only: Option<Workload>,
    /// A pipe of `perf record --control`: it samples while a workload is performed, and not before or after.
    pub(crate) profiler: Option<PathBuf>,
}

impl Manner {
    /// Has the profiler begin or stop.
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

    /// The same with what it needs before, and what another workload would have removed after it.
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

/// Does everything once, or what is asked for. What fails is told, and is missing in the round.
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

/// Numbers that look random (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// One below `limit`, which is not 0.
    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 16) as usize % limit
    }

    /// One from 0 to 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
