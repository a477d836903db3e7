//! Writes.

use crate::files::{KIB, MIB, OPEN, Rewritten, WORKING_SET, cache, file, fill, shuffled};
use criterion::{BenchmarkId, Criterion, Throughput};
use forebay_cache::FileBlocks;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

const FILES: u64 = 8;
const CALL: usize = 32 * KIB;

/// Honest: every write goes to a place that was not touched for a whole round of the working set, over eight files in
/// turn; they are published after each complete rewrite. Published: one file of 64 MiB, over and over in one
/// checkpoint.
pub(crate) fn sequential(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sequential write");
    for size in [4, 16, 32, 64, 128].map(|kib| kib * KIB) {
        let data = vec![7; size];
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(BenchmarkId::new("published", size / KIB), |bencher| {
            let cache = cache();
            let mut file = file(&cache, 1);
            let mut offset = 0;
            bencher.iter(|| {
                file.write(offset, black_box(&data), OPEN, None);
                offset = (offset + size as u64) % (64 * MIB);
            });
        });
        group.bench_function(BenchmarkId::from_parameter(size / KIB), |bencher| {
            let cache = cache();
            let file_bytes = WORKING_SET / FILES;
            let new = |inode| Rewritten::new(&cache, inode, file_bytes);
            let mut files: Vec<_> = (0..FILES).map(new).collect();
            let (mut turn, mut offset) = (0, 0);
            bencher.iter(|| {
                files[turn].write(offset, black_box(&data));
                turn += 1;
                if turn == files.len() {
                    turn = 0;
                    offset += size as u64;
                    if offset == file_bytes {
                        offset = 0;
                        files.iter_mut().for_each(Rewritten::publish);
                    }
                }
            });
        });
    }
    group.finish();
}

/// 32 KiB to each of many files in turn, found by name. Published: the same 32 KiB of each; honest: all of the
/// working set, in an unpredictable order, published after each round.
pub(crate) fn many_files(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("write to files");
    group.throughput(Throughput::Bytes(CALL as u64));
    let data = vec![7; CALL];
    for count in [10_u64, 100, 1000] {
        group.bench_function(BenchmarkId::new("published", count), |bencher| {
            let cache = cache();
            let mut files: HashMap<_, _> = (0..count)
                .map(|inode| (inode, file(&cache, inode)))
                .collect();
            let mut turn = 0;
            bencher.iter(|| {
                let file = files.get_mut(&turn).expect("made above");
                file.write(0, black_box(&data), OPEN, None);
                turn = (turn + 1) % count;
            });
        });
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            let cache = cache();
            let calls = (WORKING_SET / CALL as u64).div_ceil(count);
            let new = |inode| (inode, Rewritten::new(&cache, inode, calls * CALL as u64));
            let mut files: HashMap<_, _> = (0..count).map(new).collect();
            let order = shuffled((calls * count) as usize);
            let mut turn = 0;
            bencher.iter(|| {
                let place = order[turn] as u64;
                let file = files.get_mut(&(place % count)).expect("made above");
                file.write(place / count * CALL as u64, black_box(&data));
                turn += 1;
                if turn == order.len() {
                    turn = 0;
                    files.values_mut().for_each(Rewritten::publish);
                }
            });
        });
    }
    group.finish();
}

/// As many threads as processors, each file under a lock as in the file system. Published: all threads write the same
/// 32 KiB of the same hundred files. Honest: each thread writes a part of the working set, in files of its own.
pub(crate) fn concurrent(criterion: &mut Criterion) {
    let threads = std::thread::available_parallelism().map_or(2, usize::from) as u64;
    let mut group = criterion.benchmark_group("concurrent write");
    group.throughput(Throughput::Bytes(CALL as u64));
    let data = vec![7; CALL];
    group.bench_function(BenchmarkId::new("published", 32), |bencher| {
        let cache = cache();
        let files: Vec<_> = (0..100)
            .map(|inode| Mutex::new(file(&cache, inode)))
            .collect();
        bencher.iter_custom(|count| {
            together(threads, count, |_, calls| {
                for turn in 0..calls as usize {
                    files[turn % files.len()]
                        .lock()
                        .write(0, black_box(&data), OPEN, None);
                }
            })
        });
    });
    group.bench_function(BenchmarkId::from_parameter(32), |bencher| {
        let cache = cache();
        let share = WORKING_SET / threads / FILES;
        let new = |inode| Mutex::new(Rewritten::new(&cache, inode, share));
        let files: Vec<_> = (0..threads * FILES).map(new).collect();
        bencher.iter_custom(|count| {
            together(threads, count, |thread, calls| {
                let own = &files[(thread * FILES) as usize..][..FILES as usize];
                let mut offset = 0;
                for turn in 0..calls {
                    let mut file = own[(turn % FILES) as usize].lock();
                    file.write(offset, black_box(&data));
                    if turn % FILES == FILES - 1 {
                        offset += CALL as u64;
                        if offset == share {
                            offset = 0;
                            drop(file);
                            own.iter().for_each(|file| file.lock().publish());
                        }
                    }
                }
            })
        });
    });
    group.finish();
}

/// Divides `count` calls among threads that begin together. Returns the time per call of all of them, times `count`.
fn together(threads: u64, count: u64, run: impl Fn(u64, u64) + Sync) -> Duration {
    let each = count.div_ceil(threads);
    let begin = Barrier::new(threads as usize + 1);
    let taken = std::thread::scope(|scope| {
        let spawn = |thread| {
            let (begin, run) = (&begin, &run);
            scope.spawn(move || {
                begin.wait();
                run(thread, each);
            })
        };
        let running: Vec<_> = (0..threads).map(spawn).collect();
        begin.wait();
        let start = Instant::now();
        for thread in running {
            thread.join().expect("a thread that ends");
        }
        start.elapsed()
    });
    taken.mul_f64(count as f64 / (each * threads) as f64)
}

/// The same 32 KiB again and again: the bookkeeping without the memory accesses.
pub(crate) fn in_place(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("overwrite in place");
    for size in [4, 32].map(|kib| kib * KIB) {
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(BenchmarkId::from_parameter(size / KIB), |bencher| {
            let cache = cache();
            let mut file = file(&cache, 1);
            let data = vec![7; size];
            bencher.iter(|| file.write(4096, black_box(&data), OPEN, None));
        });
    }
    group.finish();
}

/// Write, read and write again the same 32 KiB, then the next. Published: in one file of 32 MiB;
/// honest: in eight that are the working set, published after each round.
pub(crate) fn with_reads_between(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("write read write");
    group.throughput(Throughput::Bytes(3 * CALL as u64));
    let data = vec![7; CALL];
    let mut out = vec![0; CALL];
    let mut missing = Vec::new();
    let mut once = |file: &mut FileBlocks, offset, open| {
        file.write(offset, black_box(&data), open, None);
        file.read(offset, black_box(&mut out), &mut missing, &mut Vec::new());
        file.write(offset, black_box(&data), open, None);
    };
    group.bench_function(BenchmarkId::new("published", 32), |bencher| {
        let cache = cache();
        let mut file = file(&cache, 1);
        fill(&mut file, 32 * MIB);
        let mut offset = 0;
        bencher.iter(|| {
            once(&mut file, offset, OPEN);
            offset = (offset + CALL as u64) % (32 * MIB);
        });
    });
    group.bench_function(BenchmarkId::from_parameter(32), |bencher| {
        let cache = cache();
        let file_bytes = WORKING_SET / FILES;
        let new = |inode| Rewritten::new(&cache, inode, file_bytes);
        let mut files: Vec<_> = (0..FILES).map(new).collect();
        let (mut turn, mut offset) = (0, 0);
        bencher.iter(|| {
            let file = &mut files[turn];
            once(&mut file.file, offset, file.open);
            turn += 1;
            if turn == files.len() {
                turn = 0;
                offset = (offset + CALL as u64) % file_bytes;
                if offset == 0 {
                    files.iter_mut().for_each(Rewritten::publish);
                }
            }
        });
    });
    group.finish();
    assert!(missing.is_empty());
}
