//! Reads of cached bytes.

use crate::files::{KIB, MIB, OPEN, WORKING_SET, cache, file, fill, shuffled};
use criterion::{BenchmarkId, Criterion, Throughput};
use forebay_cache::FileBlocks;
use forebay_types::ByteRange;
use std::hint::black_box;

/// `read hot`: half a MiB, again and again; `read published`: 10 MiB; `read cold`: a working set
/// beyond the last-level cache.
pub(crate) fn copied(criterion: &mut Criterion) {
    for (name, span) in [
        ("read hot", MIB / 2),
        ("read published", 10 * MIB),
        ("read cold", WORKING_SET),
    ] {
        let mut group = criterion.benchmark_group(name);
        for size in [4, 32, 64, 128].map(|kib| kib * KIB) {
            group.throughput(Throughput::Bytes(size as u64));
            group.bench_function(BenchmarkId::from_parameter(size / KIB), |bencher| {
                let cache = cache();
                let mut file = file(&cache, 1);
                fill(&mut file, span);
                let mut out = vec![7; size];
                let mut missing = Vec::new();
                let mut offset = 0;
                bencher.iter(|| {
                    file.read(offset, black_box(&mut out), &mut missing, &mut Vec::new());
                    offset = (offset + size as u64) % span;
                });
                assert!(missing.is_empty());
            });
        }
        group.finish();
    }
}

const CALL: u64 = 32 << 10;

/// Bytes of a small write, and where the next one begins.
const SMALL: usize = 4 * KIB;
const STEP: u64 = 2 << 10;

/// Writes 32 KiB at `offset`, and `count` small writes over it that overlap one another.
fn overlap(file: &mut FileBlocks, offset: u64, count: u64) {
    file.write(offset, &[1; CALL as usize], OPEN, None);
    for turn in 0..count {
        let at = turn * STEP % (CALL - SMALL as u64);
        file.write(offset + at, &[turn as u8; SMALL], OPEN, None);
    }
}

/// Reads 32 KiB that were written in many overlapping small calls. Published: the same bytes again and again; honest:
/// any of the working set.
pub(crate) fn overlapped(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("read overlapped");
    group.throughput(Throughput::Bytes(CALL));
    for count in [1, 5, 10, 25, 50] {
        let mut out = vec![0; CALL as usize];
        let mut missing = Vec::new();
        group.bench_function(BenchmarkId::new("published", count), |bencher| {
            let cache = cache();
            let mut file = file(&cache, 1);
            overlap(&mut file, 0, count);
            bencher.iter(|| file.read(0, black_box(&mut out), &mut missing, &mut Vec::new()));
        });
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            let cache = cache();
            let mut file = file(&cache, 1);
            let order = shuffled((WORKING_SET / CALL) as usize);
            for turn in 0..order.len() as u64 {
                overlap(&mut file, turn * CALL, count);
            }
            let mut turn = 0;
            bencher.iter(|| {
                let offset = order[turn] as u64 * CALL;
                file.read(offset, black_box(&mut out), &mut missing, &mut Vec::new());
                turn = (turn + 1) % order.len();
            });
        });
        assert!(missing.is_empty());
    }
    group.finish();
}

/// The cost of a read of an NFS client in this crate: the pieces are lent, and nothing is copied.
pub(crate) fn lent(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lend");
    for size in [4, 32, 64, 1024].map(|kib| kib * KIB as u64) {
        group.throughput(Throughput::Bytes(size));
        group.bench_function(BenchmarkId::from_parameter(size >> 10), |bencher| {
            let cache = cache();
            let mut file = file(&cache, 1);
            fill(&mut file, WORKING_SET);
            let mut offset = 0;
            bencher.iter(|| {
                offset = (offset + size) % WORKING_SET;
                file.lend(black_box(ByteRange::at(offset, size)))
            });
        });
    }
    group.finish();
}
