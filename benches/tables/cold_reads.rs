//! Reads of what only the bucket has, far away. `cargo bench --bench tables -- cold_reads`.
//!
//! The bucket is in memory, [far away](crate::far): 1, 20 and 100 ms. Every measurement opens the volume anew, so that nothing is in
//! memory, and goes through all of the file system but the network.
//!
//! * *Sequential*: a file of 1 GiB from its beginning to its end, in reads of 1 MiB, 4 of them under way, as
//!   an NFS client with read-ahead has them. Beside it: what the bucket gives to 32 parallel GETs of 4 MiB of the
//!   same packs.
//! * *Two streams*: the same of two files at once.
//! * *Random*: 4 KiB anywhere in the file, one after the other. Its latency is told in round trips.
//! * *From the disk cache*: the first and the last of these by a gateway that was stopped and started again, with a disk cache
//!   (in `TMPDIR`, which should be on a disk) that has all of the file. The kernel has been told to forget its copy of it.
//!
//! *GETs* are those of the bucket, and *amplification* is what they fetched for each byte that was read. `--update FILE` puts the tables in that text. Run by `cargo test`, a small file shows that it
//! works.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{Failure, ROOT, far, surroundings};
use forebay_fs::{FsConfig, Volume};
use forebay_measure::{Arguments, Machine, table};
use forebay_object::{CountingStore, RequestCounts, Store, StoreOptions};
use forebay_types::Inode;
use forebay_vfs::{CreateMode, FileSystem, SetAttributes, Stability};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use object_store::{ObjectStore, ObjectStoreExt};

const MIB: u64 = 1 << 20;
/// Reads that a client has under way.
const UNDER_WAY: usize = 4;
/// GETs of the bucket alone, at once.
const PARALLEL: usize = 32;
const GET_BYTES: u64 = 4 * MIB;
const RANDOM_BYTES: u32 = 4096;
/// Bytes of a disk cache that has one file, and room for a second.
const DISK_CACHE: u64 = 2 << 30;

/// The bucket, and the files in it.
struct Bucket {
    near: Store,
    files: Vec<Inode>,
    file_bytes: u64,
    /// How far away it is.
    round_trip: Duration,
}

/// A gateway that has nothing in memory, and the way to its bucket.
struct Cold {
    volume: Volume,
    requests: Arc<CountingStore>,
    _local: Option<tempfile::TempDir>,
}

impl Bucket {
    /// With two files of so many bytes.
    async fn fill(name: &str, file_bytes: u64) -> Result<Bucket, Failure> {
        let near =
            forebay_object::open(&format!("memory://{name}"), &StoreOptions::default()).await?;
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
            near,
            files,
            file_bytes,
            round_trip: far::ROUND_TRIP,
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

    async fn open_with(&self, config: FsConfig) -> Result<Cold, Failure> {
        let (far, requests) = far::way_to(&self.near, self.round_trip);
        Ok(Cold {
            volume: Volume::open(&far, config).await?,
            requests,
            _local: None,
        })
    }

    /// Has the disk cache in this folder take the first file, slowly enough that nothing is left out.
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

    /// A gateway that is started again in this folder.
    async fn restart(&self, folder: &Path) -> Result<Cold, Failure> {
        forget(folder)?;
        self.open_with(with_disk_cache(folder)).await
    }

    /// MB/s of 32 parallel GETs.
    async fn parallel_gets(&self) -> Result<f64, Failure> {
        let (far, _) = far::way_to(&self.near, self.round_trip);
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
    /// All of a file in order; gives its bytes.
    async fn sequentially(&self, file: Inode, bytes: u64) -> Result<(), Failure> {
        stream::iter((0..bytes).step_by(MIB as usize))
            .map(|offset| async move { self.volume.read(&ROOT, file, offset, MIB as u32).await })
            .buffered(UNDER_WAY)
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

    /// Reads anywhere, and how long each took.
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

/// Has the kernel forget what it keeps in memory of all files in a folder.
fn forget(folder: &Path) -> Result<(), Failure> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            forget(&path)?;
        } else {
            let file = File::open(path)?;
            // What is not on the disk yet is not forgotten.
            file.sync_all()?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
    }
    Ok(())
}

fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / 1e6 / time.as_secs_f64()
}

/// GETs since `before`, and how much they fetched for each of so many bytes that were read.
fn requests(cold: &Cold, before: RequestCounts, read: u64) -> (String, String) {
    let now = cold.requests.counts();
    let fetched = now.bytes_got - before.bytes_got;
    (
        (now.gets - before.gets).to_string(),
        table::three(fetched as f64 / read as f64),
    )
}

/// All that is told of a bucket as far away as this one is. A disk cache in `folder` has the first file.
async fn rows(
    bucket: &Bucket,
    random: u64,
    folder: &Path,
    text: &mut String,
) -> Result<(), Failure> {
    let alone = bucket.parallel_gets().await?;
    let away = format!("{} ms", bucket.round_trip.as_millis());
    for (name, files, restarted) in [
        ("sequential, one stream", &bucket.files[..1], false),
        ("the same, from the disk cache", &bucket.files[..1], true),
        ("sequential, two streams", &bucket.files[..], false),
    ] {
        let cold = match restarted {
            true => bucket.restart(folder).await?,
            false => bucket.open().await?,
        };
        let (before, began) = (cold.requests.counts(), Instant::now());
        let streams = files
            .iter()
            .map(|file| cold.sequentially(*file, bucket.file_bytes));
        futures_util::future::try_join_all(streams).await?;
        let bytes = files.len() as u64 * bucket.file_bytes;
        let speed = rate(bytes, began.elapsed());
        let (gets, amplification) = requests(&cold, before, bytes);
        let told = [
            away.clone(),
            name.to_owned(),
            format!("{} MB/s", table::three(speed)),
            format!(
                "{:.0} % of {} MB/s",
                speed / alone * 100.0,
                table::three(alone)
            ),
            gets,
            amplification,
        ];
        *text += &table::line(told);
        cold.close().await;
    }

    for (name, restarted) in [
        ("random reads of 4 KiB", false),
        ("of them from the disk cache", true),
    ] {
        let cold = match restarted {
            true => bucket.restart(folder).await?,
            false => bucket.open().await?,
        };
        let before = cold.requests.counts();
        let times = cold
            .randomly(bucket.files[0], bucket.file_bytes, random)
            .await?;
        let (gets, amplification) = requests(&cold, before, random * u64::from(RANDOM_BYTES));
        cold.close().await;
        let time = |of_ten: usize| times[times.len() * of_ten / 10].as_secs_f64();
        let told = [
            away.clone(),
            format!("{random} {name}"),
            format!("{} ms", table::three(time(5) * 1e3)),
            format!(
                "{} round trips, p90 {}",
                table::three(time(5) / bucket.round_trip.as_secs_f64()),
                table::three(time(9) / bucket.round_trip.as_secs_f64())
            ),
            gets,
            amplification,
        ];
        *text += &table::line(told);
    }
    Ok(())
}

async fn measure(name: &str, file_bytes: u64, random: u64) -> Result<String, Failure> {
    let mut bucket = Bucket::fill(name, file_bytes).await?;
    bucket.round_trip = Duration::from_millis(1);
    let folder = tempfile::tempdir()?;
    bucket.fill_disk_cache(folder.path()).await?;
    let head = [
        "away",
        "",
        "",
        "beside 32 parallel GETs",
        "GETs",
        "amplification",
    ];
    let mut text = table::head(&head);
    for milliseconds in [1, 20, 100] {
        bucket.round_trip = Duration::from_millis(milliseconds);
        rows(&bucket, random, folder.path(), &mut text).await?;
    }
    Ok(text)
}

/// The tables, with what they were measured on.
pub(crate) fn tables(arguments: &Arguments) -> Result<String, Failure> {
    let runtime = crate::runtime()?;
    let tables = match arguments.full() {
        true => runtime.block_on(measure("cold-reads", 1024 * MIB, 100)),
        false => runtime.block_on(measure("cold-reads", 12 * MIB, 3)),
    };
    // Tasks of the metadata store may wait for each other when they are cut off.
    runtime.shutdown_background();
    let caption = Machine::this().caption("cargo bench --bench tables -- cold_reads", "one run");
    Ok(format!("{caption}\n\n{}", tables?))
}
