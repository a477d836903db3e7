//! A write as the file system makes it, without the file system: the record in the log, then the bytes in the block
//! buffers. `cargo bench --bench log_and_buffers`.
//!
//! These are the benchmarks of a published cache with a log that need both. `published` does the same work as theirs:
//! one file, or each time a new one that is written once, and no flush. Those without the word write eight files in
//! turn, together larger than the processor's caches, that are published after each pass, and only then is the log
//! recycled; `on disk` flushes every segment before that. The benchmark `file_copy` shows what the whole file system
//! adds.
//!
//! The log lies in the temporary folder (`TMPDIR`).

// The macro of criterion makes a public function without documentation.
#![allow(missing_docs)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use forebay_cache::{Cache, FileBlocks};
use forebay_types::{CheckpointId, Epoch, Inode, Lsn, VolumeId};
use forebay_wal::{AppendError, FileStorage, Options, RecordKind, Recovery, Wal};
use tempfile::TempDir;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MIB: u64 = 1 << 20;
const CALL: usize = 32 << 10;
const COPY_BYTES: u64 = 10 * MIB;
const OPEN: CheckpointId = CheckpointId(1);
const VOLUME: VolumeId = VolumeId([1; 16]);
/// Several times the last-level cache of most machines.
const WORKING_SET: u64 = 256 * MIB;
const FILES: u64 = 8;
/// Bytes of the log after which it is recycled, before it flushes by itself.
const RECYCLED_EARLY: u64 = 48 * MIB;
/// Bytes after which it is recycled when it has flushed all of them before.
const RECYCLED_LATE: u64 = 512 * MIB;

/// A log, if there is one, and block buffers.
struct Local {
    log: Option<(Wal, TempDir)>,
    recycled: Lsn,
    cache: Arc<Cache>,
}

impl Local {
    fn new(with_log: bool) -> Local {
        let log = with_log.then(|| {
            let folder = tempfile::tempdir().expect("a folder");
            let storage = Arc::new(FileStorage::open(folder.path()).expect("opened"));
            let recovery = Recovery::scan(storage, VOLUME, Lsn::ZERO).expect("scanned");
            let wal = recovery.into_wal(Options::new(VOLUME, Epoch(1)));
            (wal.expect("a log"), folder)
        });
        Local {
            log,
            recycled: Lsn::ZERO,
            cache: Cache::new(4 << 30),
        }
    }

    fn file(&self, inode: u64) -> FileBlocks {
        FileBlocks::new(Inode(inode), Arc::clone(&self.cache))
    }

    /// Record, then bytes. The log is recycled whenever `retained` bytes of it are in use.
    fn write(
        &mut self,
        file: &mut FileBlocks,
        offset: u64,
        data: &[u8],
        open: CheckpointId,
        retained: u64,
    ) {
        if let Some((wal, _)) = &self.log {
            let place = [1_u64.to_le_bytes(), offset.to_le_bytes()].concat();
            let end = loop {
                match wal.append(RecordKind::Data, &[&place, data]) {
                    Ok(appended) => break appended.end,
                    Err(AppendError::Full) => std::thread::yield_now(),
                    Err(error) => panic!("{error}"),
                }
            };
            if end.0 - self.recycled.0 > retained {
                wal.recycle(end);
                self.recycled = end;
            }
        }
        file.write(offset, data, open, None);
    }
}

const LOGS: [(&str, bool); 2] = [("in memory", false), ("with log", true)];

/// Copies of 10 MiB in calls of 32 KiB. `published`: a new file in memory that was never used before; otherwise in
/// buffers that are recycled, like those of a full cache.
fn copies(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("copy 10 MiB");
    group.throughput(Throughput::Bytes(COPY_BYTES));
    let data = vec![7; CALL];
    let copy = |local: &mut Local, file: &mut FileBlocks| {
        for offset in (0..COPY_BYTES).step_by(CALL) {
            local.write(file, offset, black_box(&data), OPEN, RECYCLED_EARLY);
        }
    };
    for (name, with_log) in LOGS {
        group.bench_function(BenchmarkId::new("published", name), |bencher| {
            let mut local = Local::new(with_log);
            let cache = Arc::clone(&local.cache);
            let new = || {
                cache.trim();
                FileBlocks::new(Inode(1), Arc::clone(&cache))
            };
            bencher.iter_batched_ref(new, |file| copy(&mut local, file), BatchSize::PerIteration);
        });
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            let mut local = Local::new(with_log);
            // As many as do not fit into the processor's caches.
            let mut files: Vec<_> = (0..WORKING_SET / COPY_BYTES)
                .map(|inode| local.file(inode))
                .collect();
            let mut turn = 0;
            bencher.iter(|| {
                files[turn] = local.file(turn as u64);
                copy(&mut local, &mut files[turn]);
                turn = (turn + 1) % files.len();
            });
        });
    }
    group.finish();
}

/// Sequential writes of 32 KiB.
fn writes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("write 32 KiB");
    group.throughput(Throughput::Bytes(CALL as u64));
    let data = vec![7; CALL];
    for (name, with_log) in LOGS {
        group.bench_function(BenchmarkId::new("published", name), |bencher| {
            let mut local = Local::new(with_log);
            let mut file = local.file(1);
            let mut offset = 0;
            bencher.iter(|| {
                local.write(&mut file, offset, black_box(&data), OPEN, RECYCLED_EARLY);
                offset = (offset + CALL as u64) % (64 * MIB);
            });
        });
    }
    for (name, with_log, retained) in [
        ("in memory", false, RECYCLED_EARLY),
        ("with log", true, RECYCLED_EARLY),
        ("with log on disk", true, RECYCLED_LATE),
    ] {
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            let mut local = Local::new(with_log);
            let mut files: Vec<_> = (0..FILES).map(|inode| local.file(inode)).collect();
            let (mut turn, mut offset, mut open) = (0, 0, OPEN);
            bencher.iter(|| {
                local.write(&mut files[turn], offset, black_box(&data), open, retained);
                turn = (turn + 1) % files.len();
                if turn == 0 {
                    offset = (offset + CALL as u64) % (WORKING_SET / FILES);
                    if offset == 0 {
                        files.iter_mut().for_each(|file| publish(file, open));
                        open = open.next();
                    }
                }
            });
        });
    }
    group.finish();
}

/// Uploads and publishes the data of the checkpoint.
fn publish(file: &mut FileBlocks, open: CheckpointId) {
    for block in file.dirty_blocks(open) {
        drop(file.image(block, open));
    }
    file.published(open);
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = copies, writes
}
criterion_main!(benches);
