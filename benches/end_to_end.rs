//! Times that a client sees over TCP: our engine beside `nfsserve`, and our engine over a real volume.
//! `cargo bench --bench end_to_end`.
//!
//! One connection over the loopback, 32 calls in flight, client and server on the same processors. `forebay` and
//! `nfsserve` have the very same file system in memory behind them, so that only the protocol engine differs. `volume`
//! is our engine over a volume with its log and its bucket in memory: the whole path of a byte except the disk, with
//! publishing in the background.
//!
//! Every sample begins with a server just started, and a volume of which everything is published. This is the best case
//! of `nfsserve`: it keeps a history of its calls and searches all of it at every call, and so becomes slower with
//! every second that it runs.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers here are small"
)]
// The macro of criterion makes a public function without documentation.
#![allow(missing_docs)]

mod nfs_client;
mod nfsserve_adapter;
mod server;
mod surroundings;
mod volume;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::{
    BenchmarkGroup, Criterion, SamplingMode, Throughput, criterion_group, criterion_main,
    measurement::WallTime,
};
use forebay_fs::Volume;
use forebay_vfs::memory::MemoryFileSystem;
use tokio::runtime::{Builder, Runtime};

use nfs_client::{Call, Client, Handle};
use server::Running;

const KIB_4: u64 = 4 << 10;
const MIB: u64 = 1 << 20;
/// Size of the file that is read and written.
const FILE_BYTES: u64 = 256 * MIB;
const FILE: &str = "file";

/// The server behind the port.
enum Contender {
    Forebay(Arc<MemoryFileSystem>),
    Nfsserve(Arc<MemoryFileSystem>),
    Volume(Volume),
}

impl Contender {
    fn name(&self) -> &'static str {
        match self {
            Contender::Forebay(_) => "forebay",
            Contender::Nfsserve(_) => "nfsserve",
            Contender::Volume(_) => "volume",
        }
    }

    /// Brings it into the state in which every sample begins.
    async fn settle(&self) {
        if let Contender::Volume(volume) = self {
            volume.flush().await.expect("everything published");
        }
    }

    async fn start(&self) -> Running {
        match self {
            Contender::Forebay(fs) => server::start(fs.clone()).await,
            Contender::Volume(volume) => server::start(Arc::new(volume.clone())).await,
            Contender::Nfsserve(fs) => nfsserve_adapter::start(fs.clone()).await,
        }
    }
}

/// The repeated call.
#[derive(Clone, Copy)]
enum Operation {
    GetAttr,
    Create,
    RandomRead,
    RandomWrite,
    SequentialRead,
    SequentialWrite,
}

impl Operation {
    const ALL: [Operation; 6] = [
        Operation::GetAttr,
        Operation::Create,
        Operation::RandomRead,
        Operation::RandomWrite,
        Operation::SequentialRead,
        Operation::SequentialWrite,
    ];

    fn name(self) -> &'static str {
        match self {
            Operation::GetAttr => "GETATTR",
            Operation::Create => "CREATE",
            Operation::RandomRead => "READ 4 KiB random",
            Operation::RandomWrite => "WRITE 4 KiB random unstable",
            Operation::SequentialRead => "READ 1 MiB sequential",
            Operation::SequentialWrite => "WRITE 1 MiB sequential unstable",
        }
    }

    /// Bytes of the file that one call moves.
    fn bytes(self) -> u64 {
        match self {
            Operation::GetAttr | Operation::Create => 0,
            Operation::RandomRead | Operation::RandomWrite => KIB_4,
            Operation::SequentialRead | Operation::SequentialWrite => MIB,
        }
    }

    fn throughput(self) -> Throughput {
        match self.bytes() {
            0 => Throughput::Elements(1),
            bytes => Throughput::Bytes(bytes),
        }
    }
}

/// Everything that a sample needs besides a contender.
struct Course {
    servers: Runtime,
    client: Runtime,
    payload: Vec<u8>,
    /// Number of directories made so far: each sample of CREATE has one of its own.
    directories: AtomicU64,
}

impl Course {
    fn new() -> Course {
        let servers = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        let client = Builder::new_current_thread().enable_all().build();
        Course {
            servers: servers.expect("a runtime"),
            client: client.expect("a runtime"),
            payload: surroundings::noise(1, MIB as usize),
            directories: AtomicU64::new(0),
        }
    }

    /// Makes the file, and checks that the bytes read are those written.
    fn prepare(&self, contender: &Contender) {
        let running = self.servers.block_on(contender.start());
        self.client
            .block_on(async {
                let mut client = Client::connect(running.address).await?;
                let root = client.mount().await?;
                let file = client.create(&root, FILE).await?;
                client
                    .pipeline(FILE_BYTES / MIB, 0, |turn| {
                        Call::write(&file, turn * MIB, &self.payload)
                    })
                    .await?;
                for offset in [0, 7 * MIB + KIB_4, FILE_BYTES - KIB_4] {
                    let read = client.read(&file, offset, KIB_4 as u32).await?;
                    let start = (offset % MIB) as usize;
                    assert!(read == self.payload[start..start + KIB_4 as usize]);
                }
                std::io::Result::Ok(())
            })
            .unwrap_or_else(|error| panic!("{}: {error}", contender.name()));
        self.servers.block_on(running.stop());
    }

    /// Time of `count` calls.
    fn sample(&self, contender: &Contender, operation: Operation, count: u64) -> Duration {
        let running = self.servers.block_on(async {
            contender.settle().await;
            contender.start().await
        });
        let taken = self
            .client
            .block_on(self.run(running.address, operation, count))
            .unwrap_or_else(|error| panic!("{}: {error}", contender.name()));
        self.servers.block_on(running.stop());
        taken
    }

    async fn run(
        &self,
        address: SocketAddr,
        operation: Operation,
        count: u64,
    ) -> std::io::Result<Duration> {
        let mut client = Client::connect(address).await?;
        let root = client.mount().await?;
        let file = client.lookup(&root, FILE).await?;
        let directory = match operation {
            Operation::Create => {
                let number = self.directories.fetch_add(1, Ordering::Relaxed);
                client.mkdir(&root, &format!("directory {number}")).await?
            }
            _ => root,
        };
        let bytes = operation.bytes();
        let reply_bytes = match operation {
            Operation::RandomRead | Operation::SequentialRead => bytes as usize,
            _ => 0,
        };
        let mut random = count | 1;
        let begin = Instant::now();
        client
            .pipeline(count, reply_bytes, |turn| {
                let sequential = turn * MIB % FILE_BYTES;
                let anywhere =
                    surroundings::next_random(&mut random) % (FILE_BYTES / KIB_4) * KIB_4;
                self.call(operation, &file, &directory, turn, sequential, anywhere)
            })
            .await?;
        Ok(begin.elapsed())
    }

    fn call(
        &self,
        operation: Operation,
        file: &Handle,
        directory: &Handle,
        turn: u64,
        sequential: u64,
        anywhere: u64,
    ) -> Call<'_> {
        let bytes = operation.bytes() as usize;
        match operation {
            Operation::GetAttr => Call::getattr(file),
            Operation::Create => Call::create(directory, &format!("file {turn}")),
            Operation::RandomRead => Call::read(file, anywhere, bytes as u32),
            Operation::RandomWrite => Call::write(file, anywhere, &self.payload[..bytes]),
            Operation::SequentialRead => Call::read(file, sequential, bytes as u32),
            Operation::SequentialWrite => Call::write(file, sequential, &self.payload),
        }
    }
}

fn compare(
    group: &mut BenchmarkGroup<'_, WallTime>,
    course: &Course,
    contenders: &[Contender],
    operation: Operation,
) {
    group.throughput(operation.throughput());
    for contender in contenders {
        group.bench_function(contender.name(), |bencher| {
            bencher.iter_custom(|count| course.sample(contender, operation, count));
        });
    }
}

fn end_to_end(criterion: &mut Criterion) {
    let course = Course::new();
    let memory = Arc::new(MemoryFileSystem::new());
    let opened = course
        .servers
        .block_on(volume::open(volume::LOG, surroundings::memory_folder()));
    let contenders = [
        Contender::Forebay(memory.clone()),
        Contender::Nfsserve(memory),
        Contender::Volume(opened.volume.clone()),
    ];
    for contender in &contenders {
        course.prepare(contender);
    }
    for operation in Operation::ALL {
        let mut group = criterion.benchmark_group(format!("end to end/{}", operation.name()));
        group
            .sample_size(10)
            .sampling_mode(SamplingMode::Flat)
            .warm_up_time(Duration::from_millis(500))
            .measurement_time(Duration::from_secs(2));
        compare(&mut group, &course, &contenders, operation);
        group.finish();
    }
    drop(contenders);
    course.servers.block_on(opened.close());
}

criterion_group!(benches, end_to_end);
criterion_main!(benches);
