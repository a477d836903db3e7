//! The rate at which written data reach a distant bucket. `cargo bench --bench tables -- uploads`.
//!
//! * *A burst*: 512 MiB are written to memory and log, and then all of it is flushed to the bucket.
//! * *A stream*: 4 GiB are written as fast as the volume takes them with its default memory of 1 GiB; the time runs
//!   until all of it is in the bucket.
//! * *Small files*: 10,000 files of 16 KiB, and then all of them flushed to the bucket.
//!
//! The volume has uploaded some 512 MiB of the same kind just before, so that its memory is that of a volume in use.
//!
//! Beside each: the time that the bucket takes for as many bytes in plain parallel PUTs, with the size and concurrency
//! of the volume's packs, out of at most 512 MiB that are put repeatedly; and a volume that looks for content which it
//! has already (`dedup = "full"`), and finds none. The bucket is [far away](crate::far), and [drops
//! packs](far::way_to_sink). The log is in memory. Bytes are noise: compressible data would be faster. No two pieces of
//! 16 KiB are the same.
//!
//! With `--store s3://BUCKET/PREFIX` that bucket is used at its real distance: the PUTs are then those of the S3
//! client, and its server uses a part of the machine.
//!
//! Rounds of each and its plain PUTs take turns; the figures are medians and quartiles. `--rounds N`: 5 by default;
//! `--only PART-OF-A-NAME`; `--update FILE` puts the table in that file. Run by `cargo test`, a little of it shows that
//! it works.

use std::time::{Duration, Instant};

use crate::far::{self, Place};
use crate::{Failure, ROOT, surroundings};
use bytes::Bytes;
use forebay_fs::{Compression, Dedup, FsConfig, Volume};
use forebay_measure::{Arguments, Machine, Round, Rounds, table};
use forebay_object::Store;
use forebay_types::Inode;
use forebay_vfs::{CreateMode, FileSystem, SetAttributes, Stability};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use object_store::ObjectStoreExt;

const COMMAND: &str = "cargo bench --bench tables -- uploads";
const MIB: u64 = 1 << 20;
/// No two pieces of this size are the same.
const PIECE: usize = 16 << 10;

/// Bytes that a volume has written and uploaded before, so that its memory is that of a gateway in use.
const BEFORE: u64 = 512 * MIB;

/// Memory from which plain PUTs take their bytes: more than the processor's caches hold, as with a volume's.
const PUT_AGAIN: u64 = 512 * MIB;

/// The data that are written.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    files: u64,
    file_bytes: u64,
    /// Whether the writing is part of the time.
    streamed: bool,
    /// Whether it is measured, and not only shown to work.
    full: bool,
}

impl Load {
    fn all(full: bool) -> [Load; 3] {
        let part = if full { 1 } else { 64 };
        let load = |name, files, file_bytes, streamed| Load {
            name,
            files,
            file_bytes,
            streamed,
            full,
        };
        [
            load("a burst of 512 MiB", 1, 512 * MIB / part, false),
            load("a stream of 4 GiB", 1, 4096 * MIB / part, true),
            load("10,000 files of 16 KiB", 10_000 / part, 16 << 10, false),
        ]
    }

    fn bytes(&self) -> u64 {
        self.files * self.file_bytes
    }

    /// Brings the memory of the machine into the same state before each measurement.
    fn prepare_memory(&self) {
        if self.full {
            surroundings::use_memory_once();
        }
    }

    /// The part of the load with this number of bytes: fewer files, or a shorter file.
    fn part(&self, bytes: u64) -> Load {
        Load {
            files: self.files.min(bytes.div_ceil(self.file_bytes)),
            file_bytes: self.file_bytes.min(bytes),
            ..*self
        }
    }
}

/// A new bucket, without its distance.
async fn bucket(place: Place<'_>, number: u64) -> Result<Store, Failure> {
    let near = place.open(&format!("uploads-{number}")).await?;
    Volume::format(&near).await?;
    Ok(near)
}

/// Generates bytes in which no two pieces are the same.
struct Noise {
    bytes: Vec<u8>,
    pieces: u64,
}

impl Noise {
    fn new(seed: u64) -> Noise {
        Noise {
            bytes: surroundings::noise(seed, MIB as usize),
            pieces: 0,
        }
    }

    /// The next bytes, at most a MiB.
    fn next(&mut self, bytes: u64) -> &[u8] {
        let data = &mut self.bytes[..bytes.min(MIB) as usize];
        for piece in data.chunks_mut(PIECE) {
            self.pieces += 1;
            piece[..8].copy_from_slice(&self.pieces.to_le_bytes());
        }
        data
    }
}

/// Writes files whose names begin like this.
async fn write(volume: &Volume, name: &str, load: &Load, noise: &mut Noise) -> Result<(), Failure> {
    for file in 0..load.files {
        let name = format!("{name} {file}");
        let mode = CreateMode::Guarded(SetAttributes::default());
        let made = volume.create(&ROOT, Inode::ROOT, name.as_bytes(), &mode);
        let inode = made.await?.attributes.inode;
        for offset in (0..load.file_bytes).step_by(MIB as usize) {
            let data = noise.next(load.file_bytes - offset);
            volume
                .write(&ROOT, inode, offset, data, Stability::Unstable)
                .await?;
        }
    }
    Ok(())
}

/// Seconds until the bucket has all of it, and the number of bytes put for that.
async fn through_a_volume(
    place: Place<'_>,
    load: &Load,
    number: u64,
    dedup: Dedup,
) -> Result<(f64, u64), Failure> {
    let near = bucket(place, number).await?;
    let (far, requests) = place.way_to_sink(&near);
    let local = tempfile::tempdir_in(surroundings::memory_folder())?;
    let mut config = FsConfig::new(local.path().to_owned());
    config.compression = Compression::Off;
    config.dedup = dedup;
    if !load.streamed {
        // All of it is in memory before any of it is uploaded.
        config.checkpoint_interval = Duration::from_secs(3600);
        config.checkpoint_bytes = 2 * load.bytes();
        config.early_bytes = u64::MAX;
    }
    let volume = Volume::open(&far, config).await?;
    volume.flush().await?;
    load.prepare_memory();
    let mut noise = Noise::new(number);
    write(&volume, "before", &load.part(BEFORE), &mut noise).await?;
    volume.flush().await?;
    let before = requests.counts().bytes_put;
    let mut began = Instant::now();
    write(&volume, "file", load, &mut noise).await?;
    if !load.streamed {
        began = Instant::now();
    }
    volume.flush().await?;
    let taken = began.elapsed();
    let put = requests.counts().bytes_put - before;
    volume.close(Duration::from_secs(60)).await;
    place.remove(&near).await?;
    Ok((taken.as_secs_f64(), put))
}

/// Packs of `bytes` bytes, at most those that are put repeatedly; of more than these only whole packs.
fn packs(bytes: u64, pack_bytes: u64, seed: u64) -> Vec<Bytes> {
    let bytes = bytes.min(PUT_AGAIN);
    let sizes = (0..bytes)
        .step_by(pack_bytes as usize)
        .map(|at| pack_bytes.min(bytes - at));
    let noise =
        |(at, size)| Bytes::from(surroundings::noise(seed ^ (at as u64) << 32, size as usize));
    sizes.enumerate().map(noise).collect()
}

/// Seconds that as many bytes take in PUTs of the size of packs.
async fn plain(place: Place<'_>, load: &Load, number: u64) -> Result<f64, Failure> {
    let near = bucket(place, number).await?;
    let (far, _) = place.way_to_sink(&near);
    let config = FsConfig::new("unused".into());
    let packs = packs(load.bytes(), config.pack_bytes, number);
    let again = packs.len();
    let packs = (0..load.bytes().div_ceil(config.pack_bytes) as usize)
        .map(|at| (at, packs[at % again].clone()));
    load.prepare_memory();
    let began = Instant::now();
    stream::iter(packs)
        .map(|(number, bytes)| {
            let store = far.store.clone();
            let path = far.path(&format!("{}{number}", far::PACKS));
            // Each in a task of its own, as the volume's are.
            async move { tokio::spawn(async move { store.put(&path, bytes.into()).await }).await }
        })
        .buffer_unordered(config.upload_parallel)
        .map(|put| -> Result<(), Failure> {
            put??;
            Ok(())
        })
        .try_for_each(|()| async { Ok(()) })
        .await?;
    let taken = began.elapsed();
    place.remove(&near).await?;
    Ok(taken.as_secs_f64())
}

/// Keys of a load's figures in a round.
fn keys(load: &Load) -> [String; 4] {
    ["volume", "plain", "bytes put", "sharing"].map(|figure| format!("{figure}, {}", load.name))
}

async fn round(place: Place<'_>, loads: &[Load], number: u64) -> Result<Round, Failure> {
    let mut round = Round::default();
    for (at, load) in loads.iter().enumerate() {
        let number = 3 * (number * loads.len() as u64 + at as u64);
        let [volume, bare, put, sharing] = keys(load);
        let (taken, bytes) = through_a_volume(place, load, number, Dedup::Off).await?;
        // The share of the bucket's rate that the volume reaches: less time is more.
        round.insert(bare, plain(place, load, number + 1).await?);
        let (taken_sharing, _) = through_a_volume(place, load, number + 2, Dedup::Full).await?;
        round.insert(sharing, taken_sharing);
        round.insert(volume, taken);
        round.insert(put, bytes as f64 / load.bytes() as f64);
    }
    Ok(round)
}

fn shown(loads: &[Load], rounds: &Rounds) -> String {
    let head = [
        "",
        "MB/s",
        "plain parallel PUTs, MB/s",
        "share",
        "bytes put for each byte",
        "looking for shared content, MB/s",
        "share",
    ];
    let mut text = table::head(&head);
    for load in loads {
        let [volume, bare, put, sharing] = keys(load);
        let rate = |seconds: f64| load.bytes() as f64 / 1e6 / seconds;
        text += &table::line([
            load.name.to_owned(),
            table::digits(rounds.median(&volume).reversed(rate)),
            table::digits(rounds.median(&bare).reversed(rate)),
            table::times(rounds.ratio(&bare, &volume)),
            table::three(rounds.median(&put).value),
            table::digits(rounds.median(&sharing).reversed(rate)),
            table::times(rounds.ratio(&bare, &sharing)),
        ]);
    }
    text
}

/// The tables, with the machine they were measured on.
pub(crate) fn tables(arguments: &Arguments) -> Result<String, Failure> {
    let runtime = crate::runtime()?;
    let only = arguments.after("--only").unwrap_or_default();
    let loads = Load::all(arguments.full());
    let loads: Vec<_> = loads
        .into_iter()
        .filter(|load| load.name.contains(only))
        .collect();
    if loads.is_empty() {
        return Err(format!("--only {only}: no load has that in its name").into());
    }
    let place = Place::of(arguments);
    let count = match arguments.full() {
        true => arguments.after("--rounds").map_or(Ok(5), str::parse)?,
        false => 1,
    };
    let rounds: Result<Vec<Round>, Failure> = runtime.block_on(async {
        let mut rounds = Vec::new();
        for number in 0..count {
            rounds.push(round(place, &loads, number).await?);
        }
        Ok(rounds)
    });
    // Tasks of the metadata store may wait for each other when they are cut off.
    runtime.shutdown_background();
    let figures = format!("medians of {count} rounds (quartiles)");
    let caption = Machine::this().caption(
        &arguments.command(COMMAND, &["--only", "--store"]),
        &figures,
    );
    let tables = shown(&loads, &Rounds::new(rounds?));
    Ok(format!("{caption}\n\n{tables}"))
}
