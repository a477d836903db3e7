//! The cost of compression, sealing and deduplication for a write, and of a sealed log, through the whole file layer:
//! `cargo bench --bench tables -- sealed_log [--rounds N]`.
//!
//! Three volumes are written to in turns: one with nothing on; one that compresses, is sealed, and looks for content
//! that it has; and one whose log is sealed as well. Every other round begins with the last one. Calls of one size
//! overwrite a file from its beginning to its end; no call asks for stable storage, and everything is published between
//! the turns. The processor time of the writing thread is counted; the work that it leaves to other threads, packs and
//! uploads, is not part of it. The log is in memory, and the bucket as well.

use std::sync::Arc;
use std::time::Duration;

use forebay_fs::{Compression, Dedup, Expected, FsConfig, LogConfig, Unlock, Volume};
use forebay_measure::{Arguments, Machine, Round, Rounds, in_turns, table};
use forebay_object::StoreOptions;
use forebay_seal::KeyFile;
use forebay_types::Inode;
use forebay_vfs::{CreateMode, FileSystem, SetAttributes, Stability};
use tokio::runtime::Runtime;

use crate::{Failure, ROOT, surroundings, volume};

const COMMAND: &str = "cargo bench --bench tables -- sealed_log";
const FILE_BYTES: usize = 32 << 20;
const SIZES: [(&str, usize); 4] = [
    ("512 B", 512),
    ("4 KiB", 4 << 10),
    ("32 KiB", 32 << 10),
    ("1 MiB", 1 << 20),
];
/// Name, whether everything is on, and whether the log is sealed.
const KINDS: [(&str, bool, bool); 3] = [
    ("nothing on", false, false),
    ("everything on", true, false),
    ("log sealed as well", true, true),
];

struct Opened {
    kind: &'static str,
    volume: Volume,
    file: Inode,
    _local: tempfile::TempDir,
}

/// Makes the volume compress, seal, and look for content that it has.
pub(crate) fn set_everything_on(config: &mut FsConfig) -> Result<(), Failure> {
    config.compression = Compression::default();
    config.dedup = Dedup::Full;
    let key_file = KeyFile::new(vec![7; KeyFile::MIN_LEN].into())?;
    config.expected = Expected::Sealed(Arc::new(Unlock::KeyFile(key_file)));
    Ok(())
}

async fn open(kind: &'static str, everything: bool, seal_log: bool) -> Result<Opened, Failure> {
    let local = tempfile::tempdir_in(surroundings::memory_folder())?;
    let store = forebay_object::open("memory://", &StoreOptions::default()).await?;
    let mut config = FsConfig::new(local.path().to_owned());
    config.compression = Compression::Off;
    if everything {
        set_everything_on(&mut config)?;
    }
    config.seal_log = seal_log;
    // Published between the turns, and not during them.
    volume::publish_on_request(&mut config);
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

/// Processor time of this thread, in ns.
fn thread_ns() -> Result<u64, Failure> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let first = stat.split_whitespace().next().unwrap_or_default();
    Ok(first.parse()?)
}

/// Writes `data` `count` times; returns ns for each.
async fn write(opened: &Opened, data: &[u8], count: usize) -> Result<f64, Failure> {
    let began = thread_ns()?;
    let mut offset = 0;
    for _ in 0..count {
        let written = opened
            .volume
            .write(&ROOT, opened.file, offset, data, Stability::Unstable)
            .await?;
        assert_eq!(written.count as usize, data.len());
        offset = (offset + data.len() as u64) % FILE_BYTES as u64;
    }
    let each = (thread_ns()? - began) as f64 / count as f64;
    opened.volume.flush().await?;
    Ok(each)
}

fn key(kind: &str, size: &str) -> String {
    format!("{kind} {size}")
}

fn one_round(runtime: &Runtime, volumes: &[Opened], full: bool) -> Result<Round, Failure> {
    let mut round = Round::default();
    for (size, bytes) in SIZES {
        let data = surroundings::noise(bytes as u64, bytes);
        let count = if full { FILE_BYTES / bytes } else { 4 };
        let count = count.min(20_000);
        for opened in volumes {
            let each = runtime.block_on(write(opened, &data, count))?;
            round.insert(key(opened.kind, size), each);
        }
    }
    Ok(round)
}

pub(crate) fn tables(arguments: &Arguments) -> Result<String, Failure> {
    let full = arguments.full();
    let rounds = crate::rounds(arguments, 31)?;
    let runtime = crate::runtime()?;
    let mut volumes = Vec::new();
    for (kind, everything, seal_log) in KINDS {
        volumes.push(runtime.block_on(open(kind, everything, seal_log))?);
    }
    // Buffers, tables and segments reach their size.
    one_round(&runtime, &volumes, full)?;
    let mut once = || {
        volumes.reverse();
        one_round(&runtime, &volumes, full)
    };
    let rounds = in_turns(rounds, &mut [&mut once])?;
    for opened in volumes {
        runtime.block_on(opened.volume.close(Duration::from_secs(60)));
    }
    let caption = Machine::this().caption(COMMAND, "medians, quartiles in brackets");
    Ok(rounds
        .iter()
        .map(|rounds| format!("{caption}\n\n{}", shown(rounds)))
        .collect())
}

fn shown(rounds: &Rounds) -> String {
    let mut text = table::head(&[
        "a write of",
        "nothing on, ns",
        "everything on, ns",
        "to nothing on",
        "log sealed as well, ns",
        "to everything on",
    ]);
    for (size, _) in SIZES {
        let [nothing, everything, log] = KINDS.map(|(kind, ..)| key(kind, size));
        text += &table::line([
            size.to_owned(),
            table::digits(rounds.median(&nothing)),
            table::digits(rounds.median(&everything)),
            table::times(rounds.ratio(&everything, &nothing)),
            table::digits(rounds.median(&log)),
            table::times(rounds.ratio(&log, &everything)),
        ]);
    }
    text
}
