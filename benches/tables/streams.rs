//! The memory that sequential writers hold. `cargo bench --bench tables -- streams`.
//!
//! 1, 4 and 16 writers at once, each of a file of 256 MiB from its beginning to its end, in writes of 1 MiB through the
//! file layer, with a volume's default settings. The bucket is [far away](crate::far); the log is in memory.
//!
//! * *Paced*: all of them together write 128 MiB a second, which four uploads at a time can carry.
//! * *As fast as they go*: writers are ahead of the bucket, until a limit slows them.
//!
//! Every millisecond the volume reports the bytes of files that the bucket does not have (*dirty*), and the bytes of
//! packs that are being built or uploaded. The difference is in block buffers only, and *each writer* has an equal
//! share of it. The figures are the medians of each round's maximum and, in brackets, quartiles. `--rounds N`: 3 by
//! default. Run by `cargo test`, short files show that it works.

use std::sync::Arc;
use std::time::Duration;

use forebay_fs::{FsConfig, Volume};
use forebay_measure::{Arguments, Machine, Round, Rounds, table};
use forebay_object::StoreOptions;
use forebay_types::Inode;
use forebay_vfs::{CreateMode, FileSystem, SetAttributes, Stability};
use tokio::time::{sleep, sleep_until};

use crate::{Failure, ROOT, far, surroundings, volume};

const COMMAND: &str = "cargo bench --bench tables -- streams";
const MIB: u64 = 1 << 20;
const STREAMS: [u64; 3] = [1, 4, 16];
/// Bytes per second of all writers together.
const RATE: u64 = 128 * MIB;

/// Maxima of the samples, in MiB.
#[derive(Clone, Copy, Debug, Default)]
struct Most {
    dirty: f64,
    packs: f64,
    /// Dirty bytes that are in no pack.
    left: f64,
}

impl Most {
    /// Samples a volume until the future is dropped.
    async fn of(volume: Volume, seen: Arc<std::sync::Mutex<Most>>) {
        loop {
            let status = volume.status();
            let mib = |bytes: u64| bytes as f64 / MIB as f64;
            let (dirty, packs) = (mib(status.dirty_bytes), mib(status.leased_bytes));
            if let Ok(mut most) = seen.lock() {
                most.dirty = most.dirty.max(dirty);
                most.packs = most.packs.max(packs);
                most.left = most.left.max(dirty - packs);
            }
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Writes `streams` files at the same time.
async fn written(streams: u64, file_bytes: u64, paced: bool) -> Result<Most, Failure> {
    let near = forebay_object::open("memory://", &StoreOptions::default()).await?;
    Volume::format(&near).await?;
    let (far, _) = far::way_to(&near, far::ROUND_TRIP);
    let local = tempfile::tempdir_in(surroundings::memory_folder())?;
    let mut config = FsConfig::new(local.path().to_owned());
    config.log = volume::LOG;
    let volume = Volume::open(&far, config).await?;

    let mut files = Vec::new();
    for number in 0..streams {
        let mode = CreateMode::Guarded(SetAttributes::default());
        let name = number.to_string();
        let made = volume.create(&ROOT, Inode::ROOT, name.as_bytes(), &mode);
        files.push(made.await?.attributes.inode);
    }
    let seen = Arc::default();
    let looking = tokio::spawn(Most::of(volume.clone(), Arc::clone(&seen)));
    let began = tokio::time::Instant::now();
    let noise = Arc::new(surroundings::noise(1, MIB as usize));
    let mut writers = tokio::task::JoinSet::new();
    for (number, file) in (0..).zip(files) {
        let (volume, noise) = (volume.clone(), Arc::clone(&noise));
        writers.spawn(async move {
            for offset in (0..file_bytes).step_by(MIB as usize) {
                if paced {
                    let before = offset * streams + number * MIB;
                    let due = Duration::from_secs_f64(before as f64 / RATE as f64);
                    sleep_until(began + due).await;
                }
                volume
                    .write(&ROOT, file, offset, &noise, Stability::Unstable)
                    .await?;
            }
            Ok::<_, Failure>(())
        });
    }
    while let Some(done) = writers.join_next().await {
        done??;
    }
    looking.abort();
    volume.close(Duration::from_secs(60)).await;
    let most = *seen.lock().map_err(|error| error.to_string())?;
    Ok(most)
}

fn key(streams: u64, paced: bool, of: &str) -> String {
    format!("{streams} {paced} {of}")
}

async fn round(file_bytes: u64) -> Result<Round, Failure> {
    let mut round = Round::default();
    for streams in STREAMS {
        for paced in [true, false] {
            let most = written(streams, file_bytes, paced).await?;
            round.insert(key(streams, paced, "dirty"), most.dirty);
            round.insert(key(streams, paced, "each"), most.left / streams as f64);
            round.insert(key(streams, paced, "packs"), most.packs);
        }
    }
    Ok(round)
}

fn shown(rounds: &Rounds) -> String {
    let mut text = table::head(&[
        "writers in a row",
        "paced: MiB dirty",
        "MiB in packs",
        "beyond packs, of each writer",
        "as fast as they go: MiB dirty",
        "MiB in packs",
        "beyond packs, of each writer",
    ]);
    for streams in STREAMS {
        let mut cells = vec![streams.to_string()];
        for paced in [true, false] {
            let median = |of: &str| table::digits(rounds.median(&key(streams, paced, of)));
            cells.extend(["dirty", "packs", "each"].map(median));
        }
        text += &table::line(cells);
    }
    text
}

/// The table, with the machine it was measured on.
pub(crate) fn tables(arguments: &Arguments) -> Result<String, Failure> {
    let (count, file_bytes) = match arguments.full() {
        true => (
            arguments.after("--rounds").map_or(Ok(3), str::parse)?,
            256 * MIB,
        ),
        false => (1, 4 * MIB),
    };
    let runtime = crate::runtime()?;
    let rounds: Result<Vec<Round>, Failure> = (0..count)
        .map(|_| runtime.block_on(round(file_bytes)))
        .collect();
    // Tasks of the metadata store may wait for each other when they are cut off.
    runtime.shutdown_background();
    let figures = format!("medians of {count} rounds (quartiles)");
    let caption = Machine::this().caption(COMMAND, &figures);
    Ok(format!("{caption}\n\n{}", shown(&Rounds::new(rounds?))))
}
