//! File copy of 1, 10, 100 MiB with and without the log, through the whole file system except the network.
//! `cargo bench --bench file_copy`.
//!
//! A copy writes a new file in calls of 1 MiB or 32 KiB and then reads it back in the same calls. `log on disk` has the
//! log in the temporary folder (`TMPDIR`), `log in memory` in `/dev/shm`, and `no log` has none; the bucket is in
//! memory. `file copy` never asks for stable storage: it shows the cost of recording. `file copy with commit` ends the
//! writing as `close` of an NFS client does, with a COMMIT: a flush of the log, or, without a log, all of the file in
//! the bucket.
//!
//! Every copy begins with a new empty file, the old one removed, and everything published; checkpoints that close
//! during the copy are published in the background meanwhile.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]
// The macro of criterion makes a public function without documentation.
#![allow(missing_docs)]

mod surroundings;
mod volume;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use criterion::{
    BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main,
};
use forebay_fs::{LogConfig, Volume};
use forebay_types::Inode;
use forebay_vfs::{CreateMode, Credentials, FileSystem, SetAttributes, Stability};
use tokio::runtime::{Builder, Runtime};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const SIZES: [usize; 3] = [MIB, 10 * MIB, 100 * MIB];
const CALLS: [(&str, usize); 2] = [("1 MiB calls", MIB), ("32 KiB calls", 32 * KIB)];
const NAME: &[u8] = b"copy";

const ROOT: Credentials = Credentials::ROOT;

/// A log, or none, and the location of the local folder.
struct Variant {
    name: &'static str,
    log: LogConfig,
    folder: PathBuf,
}

fn variants() -> [Variant; 3] {
    let in_memory = surroundings::memory_folder().to_owned();
    [
        Variant {
            name: "log on disk",
            log: volume::LOG,
            folder: std::env::temp_dir(),
        },
        Variant {
            name: "log in memory",
            log: volume::LOG,
            folder: in_memory.clone(),
        },
        Variant {
            name: "no log",
            log: LogConfig::None,
            folder: in_memory,
        },
    ]
}

fn runtime() -> Runtime {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime")
}

/// Removes the last copy, makes an empty file, and waits until the bucket has that state. Without a log the changes of
/// names wait for the bucket as well; requesting a flush saves the wait for the next checkpoint.
async fn refill(volume: &Volume) -> Inode {
    let publish = async |change: tokio::task::JoinHandle<_>| {
        while !change.is_finished() {
            volume.flush().await.expect("everything published");
            tokio::task::yield_now().await;
        }
        change.await.expect("a change that ends")
    };
    let own = volume.clone();
    let removed = tokio::spawn(async move { own.remove(&ROOT, Inode::ROOT, NAME).await.map(drop) });
    // The first time there is no file to remove.
    let _: forebay_vfs::Result<()> = publish(removed).await;
    let own = volume.clone();
    let made = tokio::spawn(async move {
        let mode = CreateMode::Guarded(SetAttributes::default());
        own.create(&ROOT, Inode::ROOT, NAME, &mode).await.map(drop)
    });
    publish(made).await.expect("a new file");
    volume.flush().await.expect("everything published");
    let found = volume.lookup(&ROOT, Inode::ROOT, NAME).await;
    found.expect("the new file").inode
}

/// Writes the file, commits it if `commit`, and reads it back.
async fn copy(volume: &Volume, file: Inode, source: &[u8], call: usize, commit: bool) {
    let mut offset = 0;
    for data in source.chunks(call) {
        let written = volume
            .write(&ROOT, file, offset, data, Stability::Unstable)
            .await
            .expect("a write");
        assert_eq!(written.count as usize, data.len());
        offset += data.len() as u64;
    }
    if commit {
        volume.commit(&ROOT, file, 0, 0).await.expect("a commit");
    }
    let mut offset = 0;
    for data in source.chunks(call) {
        let read = volume
            .read(&ROOT, file, offset, data.len() as u32)
            .await
            .expect("a read");
        assert_eq!(
            read.data.iter().map(|piece| piece.len()).sum::<usize>(),
            data.len()
        );
        offset += data.len() as u64;
    }
}

/// Checks that the copy has the source's bytes.
async fn check(volume: &Volume, file: Inode, source: &[u8]) {
    for (turn, data) in source.chunks(MIB).enumerate() {
        let offset = (turn * MIB) as u64;
        let read = volume.read(&ROOT, file, offset, data.len() as u32).await;
        assert!(read.expect("a read").data.concat() == data);
    }
}

fn file_copy(criterion: &mut Criterion) {
    copies(criterion, "file copy", false);
}

fn file_copy_with_commit(criterion: &mut Criterion) {
    copies(criterion, "file copy with commit", true);
}

fn copies(criterion: &mut Criterion, name: &str, commit: bool) {
    for Variant {
        name: log,
        log: config,
        folder,
    } in variants()
    {
        let runtime = runtime();
        let opened = runtime.block_on(volume::open(config, &folder));
        let volume = &opened.volume;
        let mut group = criterion.benchmark_group(format!("{name}/{log}"));
        group
            .sample_size(10)
            .sampling_mode(SamplingMode::Flat)
            .warm_up_time(Duration::from_millis(300))
            .measurement_time(Duration::from_secs(1));
        for size in SIZES {
            let source = surroundings::noise(size as u64, size);
            group.throughput(Throughput::Bytes(size as u64));
            for (calls, call) in CALLS {
                let id = BenchmarkId::new(calls, format!("{} MiB", size / MIB));
                group.bench_function(id, |bencher| {
                    bencher.iter_custom(|count| {
                        runtime.block_on(async {
                            let mut taken = Duration::ZERO;
                            for _ in 0..count {
                                let file = refill(volume).await;
                                let begin = Instant::now();
                                copy(volume, file, &source, call, commit).await;
                                taken += begin.elapsed();
                                check(volume, file, &source).await;
                            }
                            taken
                        })
                    });
                });
            }
        }
        group.finish();
        runtime.block_on(opened.close());
    }
}

criterion_group!(benches, file_copy, file_copy_with_commit);
criterion_main!(benches);
