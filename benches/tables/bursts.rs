//! A burst of twenty times the memory, and one that is larger than the log. `cargo bench --bench tables -- bursts`.
//!
//! Four writers, each of a file of its own from its beginning to its end, in writes of 1 MiB through the file layer, and one
//! commit at the end. `memory_limit` is 256 MiB, the log is on a disk, and the bucket takes 10 MiB a second. Beside it as
//! many bytes by `write` with one `fdatasync` at the end, as `dd bs=1M conv=fdatasync` writes them, to a new file in the same folder,
//! before and after the burst. Both write the same bytes, which do not compress.
//!
//! * *Most memory*: of blocks, packs and frames, looked at each millisecond.
//! * *Read back*: all of it, one file after the other, while the bucket takes what it can. Most of it comes from the log.
//!
//! * *In the log alone*: bytes at the end of the burst that neither memory nor the bucket has.
//!
//! `--rounds N`: 3 by default. Run by `cargo test`, a small burst shows that it works.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay_fs::{FsConfig, LogConfig, Volume};
use forebay_measure::{Arguments, Machine, Round, Rounds, table};
use forebay_object::StoreOptions;
use forebay_types::Inode;
use forebay_vfs::{CreateMode, FileSystem, SetAttributes, Stability};
use tokio::time::sleep;

use crate::{Failure, ROOT, far, surroundings};

const COMMAND: &str = "cargo bench --bench tables -- bursts";
const MIB: u64 = 1 << 20;
const WRITERS: u64 = 4;
/// Bytes per second that the bucket takes.
const BUCKET: u64 = 10 * MIB;

const BURST: &str = "burst";
const BARE: &str = "bare";
const MEMORY: &str = "memory";
const ALONE: &str = "alone";
const LONGEST: &str = "longest";
const BACK: &str = "back";

/// The sizes of a burst.
#[derive(Clone, Copy)]
struct Sizes {
    memory: u64,
    log: u64,
    bytes: u64,
}

/// Looks at a volume until the future is dropped.
async fn watch(volume: Volume, most: Arc<AtomicU64>) {
    loop {
        let status = volume.status();
        let bytes = status.memory_bytes + status.leased_bytes;
        most.fetch_max(bytes, Ordering::Relaxed);
        sleep(Duration::from_millis(1)).await;
    }
}

/// Writes as many bytes to a new file, and flushes it.
fn bare(bytes: u64, noise: &[u8]) -> Result<Duration, Failure> {
    let mut file = tempfile::tempfile()?;
    let began = Instant::now();
    for _ in 0..bytes / MIB {
        file.write_all(noise)?;
    }
    file.sync_data()?;
    Ok(began.elapsed())
}

fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64() / 1e6
}

async fn round(sizes: Sizes) -> Result<Round, Failure> {
    let Sizes { memory, log, bytes } = sizes;
    let near = forebay_object::open("memory://", &StoreOptions::default()).await?;
    Volume::format(&near).await?;
    let slow = far::way_to_slow(&near, far::ROUND_TRIP, BUCKET);
    let local = tempfile::tempdir()?;
    let mut config = FsConfig::new(local.path().to_owned()).with_memory(memory);
    config.log = LogConfig::Disk {
        limit: log,
        segment: 32 * MIB,
    };
    config.checkpoint_bytes = config.checkpoint_bytes.min(log / 8);
    let volume = Volume::open(&slow, config).await?;
    let noise = Arc::new(surroundings::noise(1, MIB as usize));
    let before = bare(bytes, &noise)?;

    let mut files = Vec::new();
    for number in 0..WRITERS {
        let mode = CreateMode::Guarded(SetAttributes::default());
        let name = number.to_string();
        let made = volume.create(&ROOT, Inode::ROOT, name.as_bytes(), &mode);
        files.push(made.await?.attributes.inode);
    }
    let most = Arc::new(AtomicU64::new(0));
    let watching = tokio::spawn(watch(volume.clone(), most.clone()));
    let began = Instant::now();
    let mut writers = tokio::task::JoinSet::new();
    for file in files.clone() {
        let (volume, noise) = (volume.clone(), noise.clone());
        writers.spawn(async move {
            let mut longest = Duration::ZERO;
            for offset in (0..bytes / WRITERS).step_by(MIB as usize) {
                let begun = Instant::now();
                volume
                    .write(&ROOT, file, offset, &noise, Stability::Unstable)
                    .await?;
                longest = longest.max(begun.elapsed());
            }
            volume.commit(&ROOT, file, 0, 0).await?;
            Ok::<_, Failure>(longest)
        });
    }
    let mut longest = Duration::ZERO;
    while let Some(done) = writers.join_next().await {
        longest = longest.max(done??);
    }
    let took = began.elapsed();
    let alone = volume.status().spilled_bytes;

    let began = Instant::now();
    for file in files {
        for offset in (0..bytes / WRITERS).step_by(MIB as usize) {
            let read = volume.read(&ROOT, file, offset, MIB as u32).await?;
            let bytes: usize = read.data.iter().map(|piece| piece.len()).sum();
            if bytes as u64 != MIB {
                return Err("a READ returned less than was written".into());
            }
        }
    }
    let back = began.elapsed();
    watching.abort();
    // What is not in the bucket stays in the log, which goes with its folder.
    volume.close(Duration::ZERO).await;
    let after = bare(bytes, &noise)?;
    let mut round = Round::default();
    round.insert(BURST.to_owned(), rate(bytes, took));
    round.insert(BARE.to_owned(), rate(bytes * 2, before + after));
    let mib = |bytes: u64| bytes as f64 / MIB as f64;
    round.insert(MEMORY.to_owned(), mib(most.load(Ordering::Relaxed)));
    round.insert(ALONE.to_owned(), mib(alone));
    round.insert(LONGEST.to_owned(), longest.as_secs_f64() * 1e3);
    round.insert(BACK.to_owned(), rate(bytes, back));
    Ok(round)
}

fn shown(bursts: &[(Sizes, Rounds)]) -> String {
    let mut text = table::head(&[
        "burst, MiB",
        "log, MiB",
        "MB/s",
        "to `write` and `fdatasync`",
        "longest WRITE, ms",
        "in the log alone at its end, MiB",
        "most memory, MiB",
        "limit, MiB",
        "read back, MB/s",
    ]);
    for (sizes, rounds) in bursts {
        let median = |of: &str| table::digits(rounds.median(of));
        text += &table::line([
            (sizes.bytes / MIB).to_string(),
            (sizes.log / MIB).to_string(),
            median(BURST),
            table::digits(rounds.ratio(BURST, BARE)),
            median(LONGEST),
            median(ALONE),
            median(MEMORY),
            (sizes.memory / MIB).to_string(),
            median(BACK),
        ]);
    }
    text
}

/// The bursts that are measured, with this many MiB of memory: twenty times as many bytes in a log that has room for them, and
/// half as many again as the log has.
fn sizes(memory: u64) -> [Sizes; 2] {
    let memory = memory * MIB;
    let of = |log, bytes| Sizes { memory, log, bytes };
    [of(32 * memory, 20 * memory), of(8 * memory, 12 * memory)]
}

/// The table, with the machine it was measured on.
pub(crate) fn tables(arguments: &Arguments) -> Result<String, Failure> {
    let (count, sizes) = match arguments.full() {
        true => (
            arguments.after("--rounds").map_or(Ok(3), str::parse)?,
            sizes(256).to_vec(),
        ),
        false => (
            1,
            vec![Sizes {
                memory: 64 * MIB,
                log: 512 * MIB,
                bytes: 128 * MIB,
            }],
        ),
    };
    let runtime = crate::runtime()?;
    let mut bursts = Vec::new();
    for sizes in sizes {
        let rounds: Result<Vec<Round>, Failure> =
            (0..count).map(|_| runtime.block_on(round(sizes))).collect();
        bursts.push((sizes, Rounds::new(rounds?)));
    }
    // Tasks of the metadata store may wait for each other when they are cut off.
    runtime.shutdown_background();
    let figures = format!("medians of {count} rounds (quartiles)");
    let caption = Machine::this().caption(COMMAND, &figures);
    Ok(format!("{caption}\n\n{}", shown(&bursts)))
}
