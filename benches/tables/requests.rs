//! Requests and bytes of everyday work, as on the bill for a bucket. `cargo bench --bench tables -- requests`.
//!
//! The rows are pieces of work, one after the other, on volumes with the default settings: one of small files, one with
//! a large file, and some with a file that was written in pieces of 4 KiB in any order, with a flush after each of so
//! many parts. That file is read by a gateway with nothing in memory, then by one whose collector copies fragmented blocks
//! into one place (at once and as fast as it can, where the default waits a minute), then by a third one.
//! Each row begins when the bucket has the state before it, and ends when it has all of the work.
//! Names are made as the kernel's client makes them: CREATE, then a WRITE that is stable before its reply. The bucket
//! is in memory; the counts are those of S3 except retries, pages of listings (1,000 names each) and parts of uploads.
//!
//! *Within the work* counts up to the moment at which the bucket has it. Merging of metadata and garbage collection
//! come later or not at all, as needed: they are *afterwards*, up to 20 s without any request. *Idle* begins after
//! that, and lasts two minutes, or as many seconds as `--idle` says.
//!
//! Run by `cargo test`, less of each work shows that it works.

use std::sync::Arc;
use std::time::Duration;

use crate::{Failure, ROOT, surroundings};
use forebay_fs::{FsConfig, Volume};
use forebay_measure::{Arguments, Machine, table};
use forebay_object::{CountingStore, RequestCounts, Store, StoreOptions};
use forebay_types::Inode;
use forebay_vfs::{CreateMode, FileSystem, SetAttributes, Stability};

const COMMAND: &str = "cargo bench --bench tables -- requests";
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Amounts of work.
#[derive(Clone, Copy)]
struct Effort {
    files: u64,
    large_bytes: u64,
    /// Bytes of files that are written in pieces.
    fragmented_bytes: u64,
    /// In how many checkpoints they are written, each in another volume.
    checkpoints: &'static [u64],
    /// Time without requests after which no more are expected.
    quiet: Duration,
    idle: Duration,
}

impl Effort {
    const FULL: Effort = Effort {
        files: 10_000,
        large_bytes: 1024 * MIB,
        fragmented_bytes: 256 * MIB,
        checkpoints: &[4, 20, 60],
        quiet: Duration::from_secs(20),
        idle: Duration::from_secs(120),
    };
    const QUICK: Effort = Effort {
        files: 50,
        large_bytes: 8 * MIB,
        fragmented_bytes: 8 * MIB,
        checkpoints: &[6],
        quiet: Duration::from_millis(100),
        idle: Duration::from_millis(100),
    };
}

/// A bucket, and a gateway on it.
struct Gateway {
    volume: Volume,
    requests: Arc<CountingStore>,
    bucket: Store,
    _local: tempfile::TempDir,
}

impl Gateway {
    async fn new(name: &str) -> Result<Gateway, Failure> {
        let options = StoreOptions::default();
        let bucket = forebay_object::open(&format!("memory://{name}"), &options).await?;
        Volume::format(&bucket).await?;
        Gateway::open(bucket).await
    }

    async fn open(bucket: Store) -> Result<Gateway, Failure> {
        Gateway::open_with(bucket, |_| ()).await
    }

    async fn open_with(bucket: Store, set: impl FnOnce(&mut FsConfig)) -> Result<Gateway, Failure> {
        let local = tempfile::tempdir_in(surroundings::memory_folder())?;
        let requests = Arc::new(CountingStore::new(bucket.store.clone()));
        let counted = Store {
            store: requests.clone(),
            ..bucket.clone()
        };
        let mut config = FsConfig::new(local.path().to_owned());
        set(&mut config);
        let volume = Volume::open(&counted, config).await?;
        Ok(Gateway {
            volume,
            requests,
            bucket,
            _local: local,
        })
    }

    /// A gateway on the same bucket, on a machine that has nothing of it.
    async fn elsewhere(self) -> Result<Gateway, Failure> {
        self.elsewhere_with(|_| ()).await
    }

    async fn elsewhere_with(self, set: impl FnOnce(&mut FsConfig)) -> Result<Gateway, Failure> {
        self.volume.close(Duration::from_secs(60)).await;
        Gateway::open_with(self.bucket, set).await
    }

    async fn close(self) {
        self.volume.close(Duration::from_secs(60)).await;
    }

    async fn create(&self, name: &str, bytes: u64) -> Result<Inode, Failure> {
        let mode = CreateMode::Guarded(SetAttributes::default());
        let made = self
            .volume
            .create(&ROOT, Inode::ROOT, name.as_bytes(), &mode);
        let inode = made.await?.attributes.inode;
        for offset in (0..bytes).step_by(MIB as usize) {
            let len = (bytes - offset).min(MIB);
            self.write(inode, offset, len, Stability::Unstable).await?;
        }
        self.volume.commit(&ROOT, inode, 0, 0).await?;
        Ok(inode)
    }

    async fn write(
        &self,
        file: Inode,
        offset: u64,
        len: u64,
        stability: Stability,
    ) -> Result<(), Failure> {
        let bytes = surroundings::noise(file.0 ^ offset.rotate_left(20), len as usize);
        let written = self
            .volume
            .write(&ROOT, file, offset, &bytes, stability)
            .await?;
        assert_eq!(u64::from(written.count), len);
        Ok(())
    }

    /// Makes a file in pieces of 4 KiB, each of them once, in an order without pattern.
    async fn create_in_pieces(
        &self,
        name: &str,
        bytes: u64,
        checkpoints: u64,
    ) -> Result<Inode, Failure> {
        let inode = self.create(name, 0).await?;
        let mut pieces: Vec<u64> = (0..bytes / (4 * KIB)).collect();
        pieces.sort_by_cached_key(|piece| surroundings::noise(*piece, 8));
        for part in pieces.chunks(pieces.len().div_ceil(checkpoints as usize)) {
            for piece in part {
                let offset = piece * 4 * KIB;
                self.write(inode, offset, 4 * KIB, Stability::Unstable)
                    .await?;
            }
            self.volume.flush().await?;
        }
        Ok(inode)
    }

    /// Reads a file from its beginning to its end.
    async fn read_all(&self, inode: Inode, bytes: u64) -> Result<(), Failure> {
        for offset in (0..bytes).step_by(MIB as usize) {
            self.volume.read(&ROOT, inode, offset, MIB as u32).await?;
        }
        Ok(())
    }

    async fn remove(&self, name: &str) -> Result<(), Failure> {
        self.volume
            .remove(&ROOT, Inode::ROOT, name.as_bytes())
            .await?;
        Ok(())
    }

    /// Writes the small files.
    async fn small_files(&self, count: u64) -> Result<(), Failure> {
        for number in 0..count {
            self.create(&small(number), 4 * KIB).await?;
        }
        Ok(())
    }
}

/// Waits until the bucket has received no requests for a while.
pub(crate) async fn silence(requests: &CountingStore, quiet: Duration) {
    let mut last = requests.counts();
    loop {
        tokio::time::sleep(quiet).await;
        let now = requests.counts();
        if now == last {
            return;
        }
        last = now;
    }
}

fn small(number: u64) -> String {
    format!("small file {number}")
}

/// The table, row by row.
struct Table {
    effort: Effort,
    text: String,
}

impl Table {
    /// Counts the requests of `work` until the bucket has all of it, and the later ones of background work.
    async fn row(
        &mut self,
        name: &str,
        gateway: &Gateway,
        work: impl AsyncFnOnce(&Gateway) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        gateway.volume.flush().await?;
        silence(&gateway.requests, self.effort.quiet).await;
        let before = gateway.requests.counts();
        work(gateway).await?;
        gateway.volume.flush().await?;
        let done = gateway.requests.counts();
        silence(&gateway.requests, self.effort.quiet).await;
        let after = gateway.requests.counts();
        let mut cells = vec![name.to_owned()];
        cells.extend(within(&before, &done));
        cells.push((after.requests() - done.requests()).to_string());
        self.text.push_str(&table::line(cells));
        Ok(())
    }
}

/// PUTs, GETs, other requests, bytes up, bytes down.
fn within(before: &RequestCounts, after: &RequestCounts) -> [String; 5] {
    let (puts, gets) = (after.puts - before.puts, after.gets - before.gets);
    let others = after.requests() - before.requests() - puts - gets;
    [
        puts.to_string(),
        gets.to_string(),
        others.to_string(),
        bytes(after.bytes_put - before.bytes_put),
        bytes(after.bytes_got - before.bytes_got),
    ]
}

fn bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        _ => format!("{:.1} MB", count as f64 / 1e6),
    }
}

async fn measure(effort: Effort) -> Result<String, Failure> {
    let Effort {
        files, large_bytes, ..
    } = effort;
    let mut table = Table {
        effort,
        text: table::head(&["", "PUT", "GET", "others", "up", "down", "afterwards"]),
    };

    let gateway = Gateway::new("small").await?;
    let name = format!("{files} files of 4 KiB made");
    table
        .row(&name, &gateway, async |gateway| {
            gateway.small_files(files).await
        })
        .await?;
    let name = "one of them rewritten";
    table
        .row(name, &gateway, async |gateway| {
            let name = small(7);
            let found = gateway.volume.lookup(&ROOT, Inode::ROOT, name.as_bytes());
            let inode = found.await?.inode;
            gateway.write(inode, 0, 4 * KIB, Stability::FileSync).await
        })
        .await?;

    let gateway = gateway.elsewhere().await?;
    let name = format!("all {files} looked up and read, with nothing in memory");
    table
        .row(&name, &gateway, async |gateway| {
            for number in 0..files {
                let name = small(number);
                let found = gateway.volume.lookup(&ROOT, Inode::ROOT, name.as_bytes());
                let inode = found.await?.inode;
                let read = gateway.volume.read(&ROOT, inode, 0, 4 * KIB as u32).await?;
                assert_eq!(
                    read.data.iter().map(|piece| piece.len()).sum::<usize>(),
                    4096
                );
            }
            Ok(())
        })
        .await?;
    let name = format!("all {files} renamed");
    table
        .row(&name, &gateway, async |gateway| {
            for number in 0..files {
                let (from, to) = (small(number), format!("renamed {number}"));
                let from = (Inode::ROOT, from.as_bytes());
                let to = (Inode::ROOT, to.as_bytes());
                gateway.volume.rename(&ROOT, from, to).await?;
            }
            Ok(())
        })
        .await?;
    let name = format!("all {files} removed");
    table
        .row(&name, &gateway, async |gateway| {
            for number in 0..files {
                gateway.remove(&format!("renamed {number}")).await?;
            }
            Ok(())
        })
        .await?;
    gateway.close().await;

    let gateway = Gateway::new("large").await?;
    let large = format!("a file of {} MiB", large_bytes / MIB);
    table
        .row(&format!("{large} written"), &gateway, async |gateway| {
            gateway.create("large", large_bytes).await.map(drop)
        })
        .await?;
    let found = gateway.volume.lookup(&ROOT, Inode::ROOT, b"large").await?;
    let inode = found.inode;
    table
        .row("4 KiB of it rewritten", &gateway, async |gateway| {
            gateway
                .write(inode, MIB + 4 * KIB, 4 * KIB, Stability::FileSync)
                .await
        })
        .await?;
    let blocks = large_bytes / (4 * KIB);
    let rewritten = blocks / 100;
    let name = format!("1 % of it rewritten, {rewritten} times 4 KiB anywhere");
    table
        .row(&name, &gateway, async |gateway| {
            for turn in 0..rewritten {
                let block = turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks;
                let offset = block * 4 * KIB;
                gateway
                    .write(inode, offset, 4 * KIB, Stability::Unstable)
                    .await?;
            }
            Ok(())
        })
        .await?;
    table
        .row(
            "100 times 4 KiB appended, each with a flush",
            &gateway,
            async |gateway| {
                for turn in 0..100 {
                    let offset = large_bytes + turn * 4 * KIB;
                    gateway
                        .write(inode, offset, 4 * KIB, Stability::FileSync)
                        .await?;
                }
                Ok(())
            },
        )
        .await?;
    let name = "made and removed within five seconds, 100 MiB";
    table
        .row(name, &gateway, async |gateway| {
            gateway
                .create("short", (100 * MIB).min(large_bytes))
                .await?;
            gateway.remove("short").await
        })
        .await?;
    let gateway = gateway.elsewhere().await?;
    table
        .row(
            &format!("{large} read, with nothing in memory"),
            &gateway,
            async |gateway| gateway.read_all(inode, large_bytes).await,
        )
        .await?;
    table
        .row(&format!("{large} removed"), &gateway, async |gateway| {
            gateway.remove("large").await
        })
        .await?;
    let name = format!("idle, {} s", effort.idle.as_secs());
    table
        .row(&name, &gateway, async |_| {
            tokio::time::sleep(effort.idle).await;
            Ok(())
        })
        .await?;
    gateway.close().await;
    for checkpoints in effort.checkpoints {
        fragmented(&mut table, *checkpoints).await?;
    }
    Ok(table.text)
}

/// The rows of a file that was written in pieces in this many checkpoints.
async fn fragmented(table: &mut Table, checkpoints: u64) -> Result<(), Failure> {
    const NEVER: Duration = Duration::ZERO;
    let bytes = table.effort.fragmented_bytes;
    let mut gateway = Gateway::new(&format!("pieces-{checkpoints}")).await?;
    gateway = gateway
        .elsewhere_with(|config| config.defragment_after = NEVER)
        .await?;
    let inode = gateway
        .create_in_pieces("pieces", bytes, checkpoints)
        .await?;
    gateway = gateway
        .elsewhere_with(|config| config.defragment_after = NEVER)
        .await?;
    let name = format!(
        "a file of {} MiB written in random 4 KiB pieces over {checkpoints} checkpoints, read, with nothing in memory",
        bytes / MIB
    );
    let read = async |gateway: &Gateway| gateway.read_all(inode, bytes).await;
    table.row(&name, &gateway, read).await?;
    gateway = gateway
        .elsewhere_with(|config| {
            config.defragment_after = Duration::from_millis(1);
            config.background_rate = 1 << 30;
            config.background_requests = 10_000;
        })
        .await?;
    // The collector begins with a commit.
    gateway.create("other", 4 * KIB).await?;
    table
        .row(
            "the same, and copied into one place",
            &gateway,
            async |gateway| {
                read(gateway).await?;
                while gateway.volume.status().collector.fragmented_blocks > 0 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Ok(())
            },
        )
        .await?;
    gateway = gateway.elsewhere().await?;
    table
        .row("read again, with nothing in memory", &gateway, read)
        .await?;
    gateway.close().await;
    Ok(())
}

/// The tables, with the machine they were measured on.
pub(crate) fn tables(arguments: &Arguments) -> Result<String, Failure> {
    let runtime = crate::runtime()?;
    let mut effort = match arguments.full() {
        true => Effort::FULL,
        false => Effort::QUICK,
    };
    if let Some(seconds) = arguments.after("--idle") {
        effort.idle = Duration::from_secs(seconds.parse()?);
    }
    let table = runtime.block_on(measure(effort));
    // Tasks of the metadata store may wait for each other when they are cut off.
    runtime.shutdown_background();
    let caption = Machine::this().caption(
        &arguments.command(COMMAND, &["--idle"]),
        "one run; what is counted does not depend on the machine",
    );
    Ok(format!("{caption}\n\n{}", table?))
}
