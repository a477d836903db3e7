//! Reads of data that only a distant bucket has. `cargo bench --bench tables -- cold_reads`.
//!
//! The bucket is in memory, [far away](crate::far): 1, 20 and 100 ms. Every measurement opens the volume again, so that
//! nothing is in memory, and uses the whole file system except the network.
//!
//! * *Sequential*: a file of 1 GiB from its beginning to its end, in reads of 1 MiB, 4 of them in flight, as from an
//!   NFS client with read-ahead. Beside it: the rate of 32 parallel GETs of 4 MiB of the same packs.
//! * *Out of order*: the same with 16 in flight, which arrive in any order among 16, as from a client with several
//!   connections.
//! * *Two streams*: the same of two files at once. *Two readers of one file*: each reads a half of it.
//! * *Random*: 4 KiB at random offsets, one after the other: the median of 100, and the slowest tenth of them. Also
//!   given in round trips.
//! * *From the disk cache*: the first and the last of these by a gateway that was stopped and started again, with a
//!   disk cache (in `TMPDIR`, which should be on a disk) that has all of the file. The kernel's copy of it was dropped.
//!
//! *GETs* are those of the bucket, and *amplification* is the number of bytes fetched for each byte read. The figures
//! are medians of rounds, and quartiles. `--rounds N`: 3 by default; `--store s3://BUCKET/PREFIX` for a bucket of a
//! server at its real distance; `--update FILE` puts the tables in that file. Run by `cargo test`, a small file shows
//! that it works.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::far::Place;
use crate::{Failure, ROOT, surroundings};
use forebay_fs::{FsConfig, Takeover, Volume};
use forebay_measure::{Arguments, Machine, Round, Rounds, table};
use forebay_object::{CountingStore, Store};
use forebay_types::Inode;
use forebay_vfs::{CreateMode, FileSystem, SetAttributes, Stability};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use object_store::{ObjectStore, ObjectStoreExt};

const COMMAND: &str = "cargo bench --bench tables -- cold_reads";
const MIB: u64 = 1 << 20;
/// A client's reads in flight.
const UNDER_WAY: usize = 4;
/// Number of reads that arrive in any order.
const SHUFFLED: u64 = 16;
/// GETs of the bucket alone in flight.
const PARALLEL: usize = 32;
const GET_BYTES: u64 = 4 * MIB;
const RANDOM_BYTES: u32 = 4096;
/// Size in bytes of a disk cache that has one file, and room for a second.
const DISK_CACHE: u64 = 2 << 30;

/// The bucket, and the files in it.
struct Bucket<'a> {
    place: Place<'a>,
    near: Store,
    files: Vec<Inode>,
    file_bytes: u64,
    /// Its round trip.
    round_trip: Duration,
}

/// A gateway with nothing in memory, and the connection to its bucket.
struct Cold {
    volume: Volume,
    requests: Arc<CountingStore>,
    _local: Option<tempfile::TempDir>,
}

impl Bucket<'_> {
    /// Makes a bucket with two files of `file_bytes` bytes.
    async fn fill<'a>(
        place: Place<'a>,
        name: &str,
        file_bytes: u64,
    ) -> Result<Bucket<'a>, Failure> {
        let near = place.open(name).await?;
        Volume::format(&near).await?;
        let local = tempfile::tempdir_in(surroundings::memory_folder())?;
        let volume = Volume::open(&near, FsConfig::new(local.path().to_owned())).await?;
        let mut files = Vec::new();
        for name in [&b"one"[..], b"two"] {
            let mode = CreateMode::Unchecked(SetAttributes::default());
            let made = volume.create(&ROOT, Inode::ROOT, name, &mode).await?;
            let made = made.attributes.inode;
            for offset in (0..file_bytes).step_by(MIB as usize) {
                let bytes = surroundings::noise(offset ^ made.0, MIB as usize);
                volume
                    .write(&ROOT, made, offset, &bytes, Stability::Unstable)
                    .await?;
            }
            files.push(made);
        }
        volume.flush().await?;
        volume.close(Duration::from_secs(60)).await;
        Ok(Bucket {
            place,
            near,
            files,
            file_bytes,
            round_trip: Duration::ZERO,
        })
    }

    async fn open(&self) -> Result<Cold, Failure> {
        let local = tempfile::tempdir_in(surroundings::memory_folder())?;
        let mut cold = self
            .open_with(FsConfig::new(local.path().to_owned()))
            .await?;
        cold._local = Some(local);
        Ok(cold)
    }

    async fn open_with(&self, mut config: FsConfig) -> Result<Cold, Failure> {
        // From far away the end of the volume before may not have reached the bucket.
        config.takeover = Takeover::Allow;
        let (far, requests) = self.place.way_to(&self.near, self.round_trip);
        Ok(Cold {
            volume: Volume::open(&far, config).await?,
            requests,
            _local: None,
        })
    }

    /// Fills the disk cache in this folder with the first file, slowly enough that nothing is left out.
    async fn fill_disk_cache(&self, folder: &Path) -> Result<(), Failure> {
        let mut config = with_disk_cache(folder);
        config.prefetch_bytes = 0;
        let cold = self.open_with(config).await?;
        for offset in (0..self.file_bytes).step_by(MIB as usize) {
            cold.volume
                .read(&ROOT, self.files[0], offset, MIB as u32)
                .await?;
        }
        cold.close().await;
        Ok(())
    }

    /// Opens a gateway again on this folder.
    async fn restart(&self, folder: &Path) -> Result<Cold, Failure> {
        forget(folder)?;
        self.open_with(with_disk_cache(folder)).await
    }

    /// MB/s of 32 parallel GETs.
    async fn parallel_gets(&self) -> Result<f64, Failure> {
        let (far, _) = self.place.way_to(&self.near, self.round_trip);
        let packs: Vec<_> = self
            .near
            .store
            .list(Some(&far.path("packs")))
            .try_collect()
            .await?;
        let ranges: Vec<_> = packs
            .iter()
            .flat_map(|pack| {
                let whole = pack.size - pack.size % GET_BYTES;
                (0..whole)
                    .step_by(GET_BYTES as usize)
                    .map(|start| (pack.location.clone(), start..start + GET_BYTES))
            })
            .collect();
        let count = ranges.len() as u64;
        let began = Instant::now();
        stream::iter(ranges)
            .map(|(pack, range)| {
                let store = far.store.clone();
                async move { store.get_range(&pack, range).await }
            })
            .buffer_unordered(PARALLEL)
            .try_for_each(|_| async { Ok(()) })
            .await?;
        Ok(rate(count * GET_BYTES, began.elapsed()))
    }
}

impl Cold {
    /// Reads a stretch of a file.
    async fn read(&self, stretch: Stretch) -> Result<(), Failure> {
        let Stretch { file, from, to, .. } = stretch;
        let reads = (from..to).step_by(MIB as usize).enumerate();
        // Every seventh within each group: nearly all neighbours are far apart.
        let shuffled = |at: u64| at / SHUFFLED * SHUFFLED + (at * 7 + 5) % SHUFFLED;
        let whole = (to - from) / MIB / SHUFFLED * SHUFFLED;
        let offsets = reads.map(|(at, _)| {
            let at = at as u64;
            let is_shuffled = stretch.shuffled && at < whole;
            from + if is_shuffled { shuffled(at) } else { at } * MIB
        });
        let under_way = if stretch.shuffled {
            SHUFFLED as usize
        } else {
            UNDER_WAY
        };
        stream::iter(offsets)
            .map(|offset| async move { self.volume.read(&ROOT, file, offset, MIB as u32).await })
            .buffered(under_way)
            .try_for_each(|read| async move {
                assert_eq!(
                    read.data
                        .iter()
                        .map(|piece| piece.len() as u64)
                        .sum::<u64>(),
                    MIB
                );
                Ok(())
            })
            .await?;
        Ok(())
    }

    /// Reads at random offsets, and returns the time of each.
    async fn randomly(
        &self,
        file: Inode,
        bytes: u64,
        count: u64,
    ) -> Result<Vec<Duration>, Failure> {
        let mut times = Vec::new();
        for index in 0..count {
            // Far apart, and never the same block twice in a row.
            let block =
                index.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (bytes / u64::from(RANDOM_BYTES));
            let began = Instant::now();
            self.volume
                .read(&ROOT, file, block * u64::from(RANDOM_BYTES), RANDOM_BYTES)
                .await?;
            times.push(began.elapsed());
        }
        times.sort_unstable();
        Ok(times)
    }

    async fn close(self) {
        self.volume.close(Duration::from_secs(10)).await;
    }
}

fn with_disk_cache(folder: &Path) -> FsConfig {
    let mut config = FsConfig::new(folder.to_owned());
    config.disk_cache_limit = DISK_CACHE;
    config
}

/// Makes the kernel drop its copies of all files in a folder.
fn forget(folder: &Path) -> Result<(), Failure> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            forget(&path)?;
        } else {
            let file = File::open(path)?;
            // The kernel does not drop pages that are not on the disk yet.
            file.sync_all()?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
    }
    Ok(())
}

fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / 1e6 / time.as_secs_f64()
}

/// The range that one reader reads sequentially.
#[derive(Clone, Copy)]
struct Stretch {
    file: Inode,
    from: u64,
    to: u64,
    shuffled: bool,
}

/// The sequential reads: the name of a row, its concurrent stretches, and whether the gateway has a disk cache.
fn in_a_row(bucket: &Bucket<'_>) -> [(&'static str, Vec<Stretch>, bool); 5] {
    let end = bucket.file_bytes;
    let half = end / 2 / MIB * MIB;
    let stretch = |file: usize, from, to| Stretch {
        file: bucket.files[file],
        from,
        to,
        shuffled: false,
    };
    let whole = stretch(0, 0, end);
    let shuffled = Stretch {
        shuffled: true,
        ..whole
    };
    let halves = vec![stretch(0, 0, half), stretch(0, half, end)];
    let two = vec![whole, stretch(1, 0, end)];
    [
        ("sequential, one stream", vec![whole], false),
        ("the same, out of order", vec![shuffled], false),
        ("the same, from the disk cache", vec![whole], true),
        ("sequential, two streams", two, false),
        ("two readers of one file", halves, false),
    ]
}

const RANDOM: [(&str, bool); 2] = [
    ("random reads of 4 KiB", false),
    ("of them from the disk cache", true),
];

/// Key of a figure in a round.
fn key(away: Duration, row: &str, figure: &str) -> String {
    format!("{} ms, {row}: {figure}", away.as_millis())
}

/// All figures of a bucket at this distance. A disk cache in `folder` has the first file.
async fn measure(
    bucket: &Bucket<'_>,
    random: u64,
    folder: &Path,
    round: &mut Round,
) -> Result<(), Failure> {
    let away = bucket.round_trip;
    let mut note =
        |row: &str, figure: &str, value: f64| round.insert(key(away, row, figure), value);
    let open = async |restarted: bool| match restarted {
        true => bucket.restart(folder).await,
        false => bucket.open().await,
    };
    note("alone", "rate", bucket.parallel_gets().await?);
    for (row, stretches, restarted) in in_a_row(bucket) {
        let cold = open(restarted).await?;
        let (before, began) = (cold.requests.counts(), Instant::now());
        let readers = stretches.iter().map(|stretch| cold.read(*stretch));
        futures_util::future::try_join_all(readers).await?;
        let bytes = stretches
            .iter()
            .map(|stretch| stretch.to - stretch.from)
            .sum();
        note(row, "rate", rate(bytes, began.elapsed()));
        let now = cold.requests.counts();
        note(row, "GETs", (now.gets - before.gets) as f64);
        note(
            row,
            "fetched",
            (now.bytes_got - before.bytes_got) as f64 / bytes as f64,
        );
        cold.close().await;
    }
    for (row, restarted) in RANDOM {
        let cold = open(restarted).await?;
        let before = cold.requests.counts();
        let times = cold
            .randomly(bucket.files[0], bucket.file_bytes, random)
            .await?;
        let now = cold.requests.counts();
        let bytes = random * u64::from(RANDOM_BYTES);
        note(row, "GETs", (now.gets - before.gets) as f64);
        note(
            row,
            "fetched",
            (now.bytes_got - before.bytes_got) as f64 / bytes as f64,
        );
        cold.close().await;
        let time = |of_ten: usize| times[times.len() * of_ten / 10].as_secs_f64() * 1e3;
        note(row, "median", time(5));
        note(row, "of ten", time(9));
    }
    Ok(())
}

fn shown(bucket: &Bucket<'_>, distances: &[Duration], random: u64, rounds: &Rounds) -> String {
    let head = [
        "away",
        "",
        "MB/s",
        "of 32 parallel GETs",
        "of those, MB/s",
        "GETs",
        "amplification",
    ];
    let mut text = table::head(&head);
    let told = |away: Duration| match bucket.place.is_server() {
        true => "as it is".to_owned(),
        false => format!("{} ms", away.as_millis()),
    };
    for &away in distances {
        for (row, ..) in in_a_row(bucket) {
            let key = |figure| key(away, row, figure);
            let alone = self::key(away, "alone", "rate");
            text += &table::line([
                told(away),
                row.to_owned(),
                table::digits(rounds.median(&key("rate"))),
                table::times(rounds.ratio(&key("rate"), &alone)),
                table::digits(rounds.median(&alone)),
                table::whole(rounds.median(&key("GETs"))),
                table::three(rounds.median(&key("fetched")).value),
            ]);
        }
    }
    text += "\n";
    let head = [
        "away",
        "",
        "ms, median",
        "round trips",
        "ms, of one in ten",
        "GETs",
        "amplification",
    ];
    text += &table::head(&head);
    for &away in distances {
        for (row, _) in RANDOM {
            let key = |figure| key(away, row, figure);
            let median = rounds.median(&key("median"));
            let trips = match away.is_zero() {
                true => String::new(),
                false => table::times(median.map(|time| time / 1e3 / away.as_secs_f64())),
            };
            text += &table::line([
                told(away),
                format!("{random} {row}"),
                table::digits(median),
                trips,
                table::digits(rounds.median(&key("of ten"))),
                table::whole(rounds.median(&key("GETs"))),
                table::three(rounds.median(&key("fetched")).value),
            ]);
        }
    }
    text
}

async fn all(place: Place<'_>, full: bool, count: usize) -> Result<String, Failure> {
    let (file_bytes, random) = match full {
        true => (1024 * MIB, 100),
        false => (12 * MIB, 3),
    };
    let mut bucket = Bucket::fill(place, "cold-reads", file_bytes).await?;
    let distances = match place.is_server() {
        true => vec![Duration::ZERO],
        false => [1, 20, 100].map(Duration::from_millis).to_vec(),
    };
    let folder = tempfile::tempdir()?;
    bucket.round_trip = distances[0];
    bucket.fill_disk_cache(folder.path()).await?;
    let mut rounds = Vec::new();
    for _ in 0..count.max(1) {
        let mut round = Round::default();
        for &away in &distances {
            bucket.round_trip = away;
            measure(&bucket, random, folder.path(), &mut round).await?;
        }
        rounds.push(round);
    }
    place.remove(&bucket.near).await?;
    Ok(shown(&bucket, &distances, random, &Rounds::new(rounds)))
}

/// The tables, with the machine they were measured on.
pub(crate) fn tables(arguments: &Arguments) -> Result<String, Failure> {
    let runtime = crate::runtime()?;
    let full = arguments.full();
    let count = match full {
        true => arguments.after("--rounds").map_or(Ok(3), str::parse)?,
        false => 1,
    };
    let tables = runtime.block_on(all(Place::of(arguments), full, count));
    // Tasks of the metadata store may wait for each other when they are cut off.
    runtime.shutdown_background();
    let figures = format!("medians of {count} rounds (quartiles)");
    let command = arguments.command(COMMAND, &["--store"]);
    let caption = Machine::this().caption(&command, &figures);
    Ok(format!("{caption}\n\n{}", tables?))
}
