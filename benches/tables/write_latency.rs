//! The time of a write while earlier data are compressed, sealed, deduplicated and uploaded:
//! `cargo bench --bench tables -- write_latency [--rounds N]`.
//!
//! Two volumes take turns: one with nothing on, and one that compresses, is sealed, and looks for content that it has.
//! A client writes text that never repeats, at a rate that leaves the machine time, and waits for each write: its
//! duration is measured. Checkpoints close every 200 ms, so that packs are made and uploaded all the time; a turn
//! without any is refused. Every 16th write is followed by a COMMIT, which is measured by itself. The log is on the
//! disk of the temporary folder (`TMPDIR`), the bucket in memory.

use std::time::{Duration, Instant};

use forebay_fs::{Compression, FsConfig, LogConfig, Volume};
use forebay_measure::{Arguments, Machine, Round, Rounds, in_turns, table};
use forebay_object::StoreOptions;
use forebay_types::Inode;
use forebay_vfs::{CreateMode, FileSystem, SetAttributes, Stability};
use tokio::runtime::Runtime;

use crate::clocks::percentile;
use crate::sealed_log::set_everything_on;
use crate::{Failure, ROOT, surroundings};

const COMMAND: &str = "cargo bench --bench tables -- write_latency";
/// Name and size of a write, and the interval of writes: 8, 22 and 21 MB/s.
const WRITES: [(&str, usize, Duration); 3] = [
    ("4 KiB", 4 << 10, Duration::from_micros(500)),
    ("64 KiB", 64 << 10, Duration::from_millis(3)),
    ("1 MiB", 1 << 20, Duration::from_millis(50)),
];
/// Duration of a turn.
const TURN: Duration = Duration::from_millis(1500);
const COMMIT_EVERY: usize = 16;
const KINDS: [(&str, bool); 2] = [("nothing on", false), ("everything on", true)];

struct Opened {
    kind: &'static str,
    volume: Volume,
    file: Inode,
    _local: tempfile::TempDir,
}

async fn open(kind: &'static str, everything: bool) -> Result<Opened, Failure> {
    let local = tempfile::tempdir()?;
    let store = forebay_object::open("memory://", &StoreOptions::default()).await?;
    let mut config = FsConfig::new(local.path().to_owned());
    config.compression = Compression::Off;
    if everything {
        set_everything_on(&mut config)?;
    }
    config.checkpoint_interval = Duration::from_millis(200);
    config.log = LogConfig::Disk {
        limit: 512 << 20,
        segment: 32 << 20,
    };
    Volume::format_as(&store, &config.expected).await?;
    let volume = Volume::open(&store, config).await?;
    let mode = CreateMode::Guarded(SetAttributes::default());
    let made = volume.create(&ROOT, Inode::ROOT, b"file", &mode).await?;
    Ok(Opened {
        kind,
        volume,
        file: made.attributes.inode,
        _local: local,
    })
}

/// Times in microseconds, ascending.
struct Taken {
    writes: Vec<f64>,
    commits: Vec<f64>,
}

impl Taken {
    fn sorted(mut self) -> Taken {
        self.writes.sort_by(f64::total_cmp);
        self.commits.sort_by(f64::total_cmp);
        self
    }
}

fn micros(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e6
}

/// Writes one after the other, each at its due time.
async fn write(
    opened: &Opened,
    text: &[u8],
    (bytes, apart): (usize, Duration),
) -> Result<Taken, Failure> {
    let before = opened.volume.status().published;
    let mut taken = Taken {
        writes: Vec::new(),
        commits: Vec::new(),
    };
    let began = Instant::now();
    for (number, data) in text.chunks_exact(bytes).enumerate() {
        let due = began + apart * number as u32;
        // A timer of the runtime has a resolution of only a millisecond.
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let offset = (number * bytes) as u64;
        let asked = Instant::now();
        let written = opened
            .volume
            .write(&ROOT, opened.file, offset, data, Stability::Unstable)
            .await?;
        taken.writes.push(micros(asked));
        assert_eq!(written.count as usize, data.len());
        if number % COMMIT_EVERY == COMMIT_EVERY - 1 {
            let asked = Instant::now();
            opened.volume.commit(&ROOT, opened.file, 0, 0).await?;
            taken.commits.push(micros(asked));
        }
    }
    if opened.volume.status().published == before {
        return Err("nothing was published meanwhile".into());
    }
    opened.volume.flush().await?;
    Ok(taken.sorted())
}

fn key(kind: &str, size: &str, figure: &str) -> String {
    format!("{figure} of {size}, {kind}")
}

const FIGURES: [&str; 3] = ["median", "p99", "COMMIT"];

fn one_round(
    runtime: &Runtime,
    volumes: &[Opened],
    number: u64,
    turn: Duration,
) -> Result<Round, Failure> {
    let mut round = Round::default();
    for (size, bytes, apart) in WRITES {
        let count = (turn.as_nanos() / apart.as_nanos()) as usize;
        for (at, opened) in volumes.iter().enumerate() {
            let text = surroundings::text(2 * number + at as u64, count * bytes);
            let taken = runtime.block_on(write(opened, &text, (bytes, apart)))?;
            let figures = [
                percentile(&taken.writes, 50),
                percentile(&taken.writes, 99),
                percentile(&taken.commits, 50),
            ];
            for (figure, value) in FIGURES.into_iter().zip(figures) {
                round.insert(key(opened.kind, size, figure), value);
            }
        }
    }
    Ok(round)
}

pub(crate) fn tables(arguments: &Arguments) -> Result<String, Failure> {
    let full = arguments.full();
    let count = crate::rounds(arguments, 25)?;
    // Long enough for a checkpoint to be published, and for one COMMIT of the largest writes.
    let turn = if full {
        TURN
    } else {
        Duration::from_millis(800)
    };
    let runtime = crate::runtime()?;
    let mut volumes = Vec::new();
    for (kind, everything) in KINDS {
        volumes.push(runtime.block_on(open(kind, everything))?);
    }
    let mut number = 0;
    if full {
        // Buffers, tables and segments reach their size.
        one_round(&runtime, &volumes, number, turn)?;
    }
    let mut once = || {
        number += 1;
        volumes.reverse();
        one_round(&runtime, &volumes, number, turn)
    };
    let rounds = in_turns(count, &mut [&mut once])?;
    for opened in volumes {
        runtime.block_on(opened.volume.close(Duration::from_secs(60)));
    }
    let caption = Machine::this().caption(COMMAND, "medians of rounds in turns (quartiles)");
    Ok(rounds
        .iter()
        .map(|rounds| format!("{caption}\n\n{}", shown(rounds)))
        .collect())
}

fn shown(rounds: &Rounds) -> String {
    let mut text = table::head(&[
        "a write of",
        "of the calls",
        "nothing on, µs",
        "everything on, µs",
        "to nothing on",
    ]);
    for (size, ..) in WRITES {
        for figure in FIGURES {
            let [nothing, everything] = KINDS.map(|(kind, _)| key(kind, size, figure));
            let what = match figure {
                "COMMIT" => "COMMIT, median",
                "p99" => "99 of 100 are not longer",
                _ => "median",
            };
            text += &table::line([
                size.to_owned(),
                what.to_owned(),
                table::digits(rounds.median(&nothing)),
                table::digits(rounds.median(&everything)),
                table::times(rounds.ratio(&everything, &nothing)),
            ]);
        }
    }
    text
}
