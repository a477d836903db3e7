//! The gain from recycling block buffers, seen from a client. `cargo bench --bench tables -- buffers`.
//!
//! A client with up to 32 calls in flight writes to a volume over the loopback; its log and its bucket are in memory.
//! Everything written is published and dropped, so that buffers are allocated and freed as in normal operation. In one
//! half of each round they go to the pool and come back from it, in the other to the allocator (the program's,
//! mimalloc).
//!
//! The figures are medians of the rounds and, in brackets, quartiles; the ratio is the median of the rounds' ratios.
//! `--rounds N`: 9 by default. Run by `cargo test`, one short round shows that it works.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_cache::measuring;
use forebay_fs::{Compression, LogConfig};
use forebay_measure::{Arguments, Machine, Round, in_turns, table};
use forebay_types::Inode;
use forebay_vfs::FileSystem;
use tokio::runtime::{Builder, Runtime};

use crate::nfs_client::{Call, Client};
use crate::{Failure, ROOT, server, surroundings, volume};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The writes to each of some new files.
struct Load {
    name: &'static str,
    files: usize,
    writes: u64,
    len: usize,
    /// Offsets of the file's writes, in order.
    at: fn(u64) -> u64,
}

impl Load {
    fn all(part: usize) -> [Load; 3] {
        [
            Load {
                name: "1 MiB in a row, a file of 256 MiB",
                files: 1,
                writes: 256 / part as u64,
                len: MIB,
                at: |turn| turn * MIB as u64,
            },
            Load {
                // An odd factor: each of the 16,384 pages once, and never two of one piece in a row.
                name: "4 KiB anywhere in 64 MiB",
                files: 1,
                writes: 16_384 / part as u64,
                len: 4 * KIB,
                at: |turn| (turn * 5_077) % 16_384 * (4 * KIB as u64),
            },
            Load {
                name: "2,000 files of 16 KiB made",
                files: 2_000 / part,
                writes: 1,
                len: 16 * KIB,
                at: |_| 0,
            },
        ]
    }

    fn bytes(&self) -> f64 {
        (self.files * self.len) as f64 * self.writes as f64
    }
}

fn name(load: &Load, turn: usize, number: usize) -> String {
    format!("{}, {turn}, {number}", load.name)
}

/// Files have new names each time: a repeated call would be taken for a retransmission.
async fn written(
    client: &mut Client,
    load: &Load,
    data: &[u8],
    turn: usize,
) -> Result<Duration, Failure> {
    let root = client.mount().await?;
    let began = Instant::now();
    for number in 0..load.files {
        let file = client.create(&root, &name(load, turn, number)).await?;
        let write = |turn| Call::write(&file, (load.at)(turn), data);
        client.pipeline(load.writes, 0, write).await?;
    }
    Ok(began.elapsed())
}

/// MB/s of each load, in a volume that has run it once before.
fn half(client: &Runtime, loads: &[Load], recycled: bool) -> Result<Round, Failure> {
    measuring::recycle(recycled);
    let runtime = crate::runtime()?;
    let folder = surroundings::memory_folder();
    let set = |config: &mut forebay_fs::FsConfig| config.compression = Compression::Off;
    let log = LogConfig::Disk {
        limit: 1 << 30,
        segment: 32 << 20,
    };
    let opened = runtime.block_on(volume::open_with(log, folder, set));
    let volume = opened.volume.clone();
    let running = runtime.block_on(server::start(Arc::new(volume.clone())));
    let noise = surroundings::noise(1, MIB);
    let mut rates = Round::default();
    for load in loads {
        let mut taken = Duration::ZERO;
        for turn in 0..2 {
            let mut connected = client.block_on(Client::connect(running.address))?;
            let data = &noise[..load.len];
            taken = client.block_on(written(&mut connected, load, data, turn))?;
            runtime.block_on(async {
                volume.flush().await?;
                for number in 0..load.files {
                    let name = name(load, turn, number);
                    volume.remove(&ROOT, Inode::ROOT, name.as_bytes()).await?;
                }
                volume.flush().await?;
                Ok::<_, Failure>(())
            })?;
        }
        rates.insert(load.name, load.bytes() / 1e6 / taken.as_secs_f64());
    }
    runtime.block_on(async {
        running.stop().await;
        opened.close().await;
    });
    // Tasks of the metadata store may wait for each other when they are cut off.
    runtime.shutdown_background();
    measuring::recycle(true);
    Ok(rates)
}

/// The table, with the machine it was measured on.
pub(crate) fn tables(arguments: &Arguments) -> Result<String, Failure> {
    let (part, count) = match arguments.full() {
        true => (1, arguments.after("--rounds").map_or(Ok(9), str::parse)?),
        false => (64, 1),
    };
    let loads = Load::all(part);
    let client = Builder::new_current_thread().enable_all().build()?;
    let mut recycled = || half(&client, &loads, true);
    let mut allocated = || half(&client, &loads, false);
    let rounds = in_turns(count, &mut [&mut recycled, &mut allocated])?;
    let [recycled, allocated] = rounds.as_slice() else {
        return Err("rounds of both".into());
    };
    let mut text = table::head(&["", "recycled", "from the allocator", "ratio"]);
    for Load { name, .. } in &loads {
        text += &table::line([
            (*name).to_owned(),
            table::digits(recycled.median(name)),
            table::digits(allocated.median(name)),
            table::times(recycled.ratio_to(allocated, name)),
        ]);
    }
    let figures = format!("MB/s, medians of {count} rounds (quartiles)");
    let caption = Machine::this().caption("cargo bench --bench tables -- buffers", &figures);
    Ok(format!("{caption}\n\n{text}"))
}
