//! The cost of callers for one another: `cargo bench --bench tables -- sharing [--rounds N]`.
//!
//! Calls of a volume from one thread, from two threads at once, and from two threads that have a volume each, so that
//! they share nothing but the machine. Each thread has a file and a directory of its own. The difference between the
//! second and the third is the cost of the volume's locks and cache lines that callers share: those of the log, the
//! checkpoint lock, the overlay, the cache's accounts and pool.
//!
//! Times are wall times of a call, with its thread's processor time beside them: a thread that waits for a lock sleeps.
//! Log and bucket are in memory; nothing is published before the round is over. CREATE waits for the log's flush, which
//! costs next to nothing there, and for the thread that flushes. Rounds take turns; the figures are medians and
//! quartiles. `--rounds N`: 9 by default; `--update FILE` puts the table in that file. Run by `cargo test`, a few calls
//! show that it works.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use forebay_measure::{Arguments, Machine, Round, Rounds, table};
use forebay_types::Inode;
use forebay_vfs::{CreateMode, FileSystem, NewNode, SetAttributes, Stability};
use tokio::runtime::{Builder, Runtime};

use crate::clocks::own_time;
use crate::volume::{self, Opened};
use crate::{Failure, ROOT, surroundings};

const COMMAND: &str = "cargo bench --bench tables -- sharing";
const CALL_BYTES: u64 = 4 << 10;
/// Size of each thread's file: more than a processor's caches hold.
const FILE_BYTES: u64 = 64 << 20;

#[derive(Clone, Copy)]
enum Calls {
    GetAttr,
    Lookup,
    Read,
    Write,
    Create,
}

/// The changes of a turn fit into the segments that the log has prepared, so that its threads, for which there is no
/// third processor, are idle meanwhile.
const CALLS: [(Calls, &str, u64); 5] = [
    (Calls::GetAttr, "GETATTR", 200_000),
    (Calls::Lookup, "LOOKUP", 100_000),
    (Calls::Read, "READ of 4 KiB, random", 50_000),
    (Calls::Write, "WRITE of 4 KiB, random, unstable", 3000),
    (Calls::Create, "CREATE", 2000),
];

/// Time that the log's threads need to prepare a segment.
const SETTLES: Duration = Duration::from_millis(100);

const SCENES: [&str; 3] = ["one thread", "two, one volume", "two, a volume each"];

/// A volume, and the files and directories of each thread in it.
struct Scene {
    opened: Opened,
    files: [Inode; 2],
    folders: [Inode; 2],
}

async fn scene() -> Result<Scene, Failure> {
    let folder = surroundings::memory_folder();
    let opened = volume::open_with(volume::LOG, folder, volume::publish_on_request).await;
    let volume = &opened.volume;
    let (mut files, mut folders) = ([Inode::ROOT; 2], [Inode::ROOT; 2]);
    let piece = surroundings::noise(1, 1 << 20);
    for (index, (file, folder)) in files.iter_mut().zip(&mut folders).enumerate() {
        let name = format!("folder {index}");
        let set = SetAttributes::default();
        let made = volume.make(
            &ROOT,
            Inode::ROOT,
            name.as_bytes(),
            NewNode::Directory,
            &set,
        );
        *folder = made.await?.attributes.inode;
        let mode = CreateMode::Unchecked(SetAttributes::default());
        let made = volume.create(&ROOT, *folder, b"file", &mode).await?;
        *file = made.attributes.inode;
        for offset in (0..FILE_BYTES).step_by(piece.len()) {
            volume
                .write(&ROOT, *file, offset, &piece, Stability::Unstable)
                .await?;
        }
    }
    volume.flush().await?;
    Ok(Scene {
        opened,
        files,
        folders,
    })
}

/// One thread's calls, and their targets.
#[derive(Clone, Copy)]
struct Caller<'a> {
    scene: &'a Scene,
    index: usize,
    round: u64,
}

impl Caller<'_> {
    async fn call(self, calls: Calls, turn: u64, data: &[u8]) -> Result<(), Failure> {
        let volume = &self.scene.opened.volume;
        let (file, folder) = (self.scene.files[self.index], self.scene.folders[self.index]);
        let offset = turn * 7919 % (FILE_BYTES / CALL_BYTES) * CALL_BYTES;
        match calls {
            Calls::GetAttr => drop(volume.getattr(file).await?),
            Calls::Lookup => drop(volume.lookup(&ROOT, folder, b"file").await?),
            Calls::Read => drop(volume.read(&ROOT, file, offset, CALL_BYTES as u32).await?),
            Calls::Write => {
                let written = volume.write(&ROOT, file, offset, data, Stability::Unstable);
                written.await?;
            }
            Calls::Create => {
                let name = format!("{} {turn}", self.round);
                let mode = CreateMode::Unchecked(SetAttributes::default());
                volume.create(&ROOT, folder, name.as_bytes(), &mode).await?;
            }
        }
        Ok(())
    }

    /// Wall time and processor time of a call, in seconds.
    fn run(self, calls: Calls, count: u64, begin: &Barrier) -> Result<(f64, f64), Failure> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let data = surroundings::noise(self.index as u64, CALL_BYTES as usize);
        begin.wait();
        let (began, before) = (Instant::now(), own_time());
        runtime.block_on(async {
            for turn in 0..count {
                self.call(calls, turn, &data).await?;
            }
            Ok::<_, Failure>(())
        })?;
        let processor = own_time().saturating_sub(before);
        Ok((
            began.elapsed().as_secs_f64() / count as f64,
            processor.as_secs_f64() / count as f64,
        ))
    }
}

/// Runs all callers at once; returns the means of their times.
fn at_once(callers: &[Caller<'_>], calls: Calls, count: u64) -> Result<(f64, f64), Failure> {
    let begin = Barrier::new(callers.len());
    let taken: Result<Vec<_>, Failure> = thread::scope(|scope| {
        let begin = &begin;
        let threads = callers.iter().map(|caller| {
            let caller = *caller;
            scope.spawn(move || caller.run(calls, count, begin))
        });
        let threads: Vec<_> = threads.collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|taken| taken.unwrap_or_else(|_| Err("a caller panicked".into())))
            .collect()
    });
    let taken = taken?;
    let mean = |of: fn(&(f64, f64)) -> f64| taken.iter().map(of).sum::<f64>() / taken.len() as f64;
    Ok((mean(|taken| taken.0), mean(|taken| taken.1)))
}

fn key(scene: &str, call: &str, figure: &str) -> String {
    format!("{scene}, {call}: {figure}")
}

fn measure(
    runtime: &Runtime,
    scenes: &[Scene; 2],
    full: bool,
    number: u64,
) -> Result<Round, Failure> {
    let caller = |scene: usize, index| Caller {
        scene: &scenes[scene],
        index,
        round: number,
    };
    let mut round = Round::default();
    for (calls, name, count) in CALLS {
        let count = if full { count } else { 8 };
        let callers: [&[Caller<'_>]; 3] = [
            &[caller(0, 0)],
            &[caller(0, 0), caller(0, 1)],
            &[caller(0, 0), caller(1, 0)],
        ];
        // The first one finds another state of the machine than the last one.
        let mut order = [0, 1, 2];
        order.rotate_left(number as usize % 3);
        for at in order {
            let callers: Vec<Caller<'_>> = callers[at]
                .iter()
                .map(|caller| Caller {
                    round: number * 3 + at as u64,
                    ..*caller
                })
                .collect();
            let (wall, processor) = at_once(&callers, calls, count)?;
            round.insert(key(SCENES[at], name, "wall"), wall);
            round.insert(key(SCENES[at], name, "processor"), processor);
            if matches!(calls, Calls::Write | Calls::Create) {
                for scene in scenes {
                    runtime.block_on(scene.opened.volume.flush())?;
                }
                thread::sleep(SETTLES);
            }
        }
    }
    Ok(round)
}

fn shown(rounds: &Rounds) -> String {
    let head = [
        "ns a call, on the wall [of the processor]",
        SCENES[0],
        SCENES[1],
        "to one",
        SCENES[2],
        "to one",
        "one volume to a volume each",
    ];
    let mut text = table::head(&head);
    for (_, name, _) in CALLS {
        let [one, shared, apart] = SCENES.map(|scene| key(scene, name, "wall"));
        let told = |scene: &str| {
            let nanoseconds = |figure| rounds.median(&key(scene, name, figure)).map(|s| s * 1e9);
            let processor = table::three(nanoseconds("processor").value);
            format!("{} [{processor}]", table::digits(nanoseconds("wall")))
        };
        text += &table::line([
            name.to_owned(),
            told(SCENES[0]),
            told(SCENES[1]),
            table::times(rounds.ratio(&shared, &one)),
            told(SCENES[2]),
            table::times(rounds.ratio(&apart, &one)),
            table::times(rounds.ratio(&shared, &apart)),
        ]);
    }
    text
}

/// The table, with the machine it was measured on.
pub(crate) fn tables(arguments: &Arguments) -> Result<String, Failure> {
    let runtime = crate::runtime()?;
    let full = arguments.full();
    let count = match full {
        true => arguments.after("--rounds").map_or(Ok(9), str::parse)?,
        false => 1,
    };
    let scenes = [runtime.block_on(scene())?, runtime.block_on(scene())?];
    let rounds: Result<Vec<Round>, Failure> = (0..count)
        .map(|number| measure(&runtime, &scenes, full, number))
        .collect();
    for scene in scenes {
        runtime.block_on(scene.opened.close());
    }
    let figures = format!("medians of {count} rounds in turns (quartiles)");
    let caption = Machine::this().caption(COMMAND, &figures);
    Ok(format!("{caption}\n\n{}", shown(&Rounds::new(rounds?))))
}
