//! Criterion benchmarks of the block buffers: what a write, a read, and the questions of the
//! uploader and the evictor cost. `cargo bench -p forebay-cache`.

// The macro of criterion makes a public function without documentation.
#![allow(missing_docs)]

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use forebay_cache::{Cache, FileBlocks};
use forebay_types::{BLOCK_SIZE, BlockIndex, ByteRange, CheckpointId, Inode};
use std::hint::black_box;
use std::sync::Arc;

const KIB: usize = 1 << 10;
const MIB: u64 = 1 << 20;

/// Several times the last-level cache of most machines.
const WORKING_SET: u64 = 256 * MIB;
const FILES: u64 = 8;

fn cache() -> Arc<Cache> {
    Cache::new(4 << 30)
}

fn file(cache: &Arc<Cache>, inode: u64) -> FileBlocks {
    FileBlocks::new(Inode(inode), Arc::clone(cache))
}

/// Makes the next checkpoint the open one: the one before is uploaded and published.
fn publish(file: &mut FileBlocks, open: &mut CheckpointId) {
    for block in file.dirty_blocks(*open) {
        drop(file.snapshot(block, *open));
    }
    file.published(*open);
    *open = open.next();
}

/// Every write goes to a place that was not touched for a whole round of the working set, over
/// eight files in turn; a file is published each time it was written through.
fn sequential_write(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sequential write");
    for size in [4, 16, 32, 64, 128].map(|kib| kib * KIB) {
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(BenchmarkId::from_parameter(size / KIB), |bencher| {
            let cache = cache();
            let mut open = [CheckpointId(1); FILES as usize];
            let mut files: Vec<_> = (0..FILES).map(|inode| file(&cache, inode)).collect();
            let data = vec![7; size];
            let file_bytes = WORKING_SET / FILES;
            for file in &mut files {
                for offset in (0..file_bytes).step_by(size) {
                    file.write(offset, &data, CheckpointId(1));
                }
            }
            let (mut turn, mut offset) = (0, 0);
            bencher.iter(|| {
                files[turn].write(offset, black_box(&data), open[turn]);
                turn += 1;
                if turn == files.len() {
                    turn = 0;
                    offset += size as u64;
                    if offset == file_bytes {
                        offset = 0;
                        for (file, open) in files.iter_mut().zip(&mut open) {
                            publish(file, open);
                        }
                    }
                }
            });
        });
    }
    group.finish();
}

/// The same 32 KiB again and again: the bookkeeping without the memory.
fn overwrite(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("overwrite in place");
    for size in [4, 32].map(|kib| kib * KIB) {
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(BenchmarkId::from_parameter(size / KIB), |bencher| {
            let cache = cache();
            let mut file = file(&cache, 1);
            let data = vec![7; size];
            bencher.iter(|| file.write(4096, black_box(&data), CheckpointId(1)));
        });
    }
    group.finish();
}

/// `hot`: one block, again and again; `cold`: a working set beyond the last-level cache.
fn read(criterion: &mut Criterion) {
    for (name, span) in [("read hot", MIB / 2), ("read cold", WORKING_SET)] {
        let mut group = criterion.benchmark_group(name);
        for size in [4, 32, 64, 128].map(|kib| kib * KIB) {
            group.throughput(Throughput::Bytes(size as u64));
            group.bench_function(BenchmarkId::from_parameter(size / KIB), |bencher| {
                let cache = cache();
                let mut file = file(&cache, 1);
                let mut out = vec![7; size];
                for offset in (0..span).step_by(size) {
                    file.write(offset, &out, CheckpointId(1));
                }
                let mut missing = Vec::new();
                let mut offset = 0;
                bencher.iter(|| {
                    file.read(offset, black_box(&mut out), &mut missing);
                    offset = (offset + size as u64) % span;
                });
                assert!(missing.is_empty());
            });
        }
        group.finish();
    }
}

fn coverage(criterion: &mut Criterion) {
    let cache = cache();
    let mut file = file(&cache, 1);
    file.write(0, &vec![1; BLOCK_SIZE as usize], CheckpointId(1));
    file.write(BLOCK_SIZE + 5, &vec![1; 100 * KIB], CheckpointId(1));
    let mut group = criterion.benchmark_group("covered 32 KiB");
    for (name, start) in [("aligned", 64 << 10), ("ragged", BLOCK_SIZE + 5)] {
        let range = ByteRange::at(start, 32 << 10);
        group.bench_function(name, |bencher| {
            bencher.iter(|| assert!(file.is_covered(black_box(range))));
        });
    }
    group.finish();
}

fn dirty_blocks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("dirty blocks");
    for count in [1, 10, 100] {
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            let cache = cache();
            let mut file = file(&cache, 1);
            for block in 0..count {
                file.write(block * BLOCK_SIZE, &[1; 4096], CheckpointId(1));
            }
            bencher.iter(|| {
                let blocks = file.dirty_blocks(black_box(CheckpointId(1)));
                assert_eq!(blocks.len() as u64, count);
            });
        });
    }
    group.finish();
}

fn uploader(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("uploader");
    let cache = cache();
    let whole = vec![1; BLOCK_SIZE as usize];
    group.bench_function("snapshot of a whole block", |bencher| {
        let mut file = file(&cache, 1);
        file.write(0, &whole, CheckpointId(1));
        bencher.iter(|| file.snapshot(BlockIndex(0), CheckpointId(1)));
    });
    for count in [1, 100] {
        let mark = BenchmarkId::new("mark blocks uploaded", count);
        group.bench_function(mark, |bencher| {
            let written = || {
                let mut file = file(&cache, 1);
                for block in 0..count {
                    file.write(block * BLOCK_SIZE, &[1; 4096], CheckpointId(1));
                }
                file
            };
            let publish = |file: &mut FileBlocks| file.published(CheckpointId(1));
            bencher.iter_batched_ref(written, publish, BatchSize::SmallInput);
        });
    }
    group.bench_function("first write to a held piece", |bencher| {
        let mut file = file(&cache, 1);
        let mut open = CheckpointId(1);
        file.write(0, &whole, open);
        bencher.iter(|| {
            let snapshot = file.snapshot(BlockIndex(0), open);
            open = open.next();
            file.write(0, &[2; 4096], open);
            drop(snapshot);
            file.published(CheckpointId(open.0 - 1));
        });
    });
    group.finish();
}

fn evict(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("evict");
    for size in [4 * KIB, BLOCK_SIZE as usize] {
        group.bench_function(BenchmarkId::from_parameter(size / KIB), |bencher| {
            let cache = cache();
            let data = vec![1; size];
            let filled = || {
                let mut file = file(&cache, 1);
                file.fill(0, &data);
                file
            };
            let evict_coldest = |file: &mut FileBlocks| {
                let coldest = cache.coldest().expect("a clean block");
                file.evict(coldest.block)
            };
            bencher.iter_batched_ref(filled, evict_coldest, BatchSize::PerIteration);
        });
    }
    group.finish();
}

/// Reads one file and writes another in calls of 1 MiB; the target is new each time.
fn file_copy(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("file copy");
    group.sample_size(20);
    for mebibytes in [1, 10, 100] {
        group.throughput(Throughput::Bytes(mebibytes * MIB));
        group.bench_function(BenchmarkId::from_parameter(mebibytes), |bencher| {
            let cache = cache();
            let mut source = file(&cache, 1);
            let mut call = vec![1; MIB as usize];
            for offset in (0..mebibytes * MIB).step_by(MIB as usize) {
                source.write(offset, &call, CheckpointId(1));
            }
            let mut missing = Vec::new();
            bencher.iter(|| {
                let mut target = file(&cache, 2);
                for offset in (0..mebibytes * MIB).step_by(MIB as usize) {
                    source.read(offset, &mut call, &mut missing);
                    target.write(offset, &call, CheckpointId(1));
                }
            });
        });
    }
    group.finish();
}

criterion_group!(
    benches,
    sequential_write,
    overwrite,
    read,
    coverage,
    dirty_blocks,
    uploader,
    evict,
    file_copy
);
criterion_main!(benches);
