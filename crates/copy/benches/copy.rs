//! Copies into memory that is in no cache, with ordinary stores and past the caches: `cargo bench -p forebay-copy`.
//!
//! The source was just read, like a record that came from a socket. The destination moves through memory that is
//! larger than any cache, and 32 bytes further each time, so that it begins anywhere in a line, like the records of
//! the log.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const MEMORY_BYTES: usize = 512 << 20;
const STEP: usize = 32;

fn copies(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("copy");
    let mut memory = vec![1; MEMORY_BYTES];
    let source = vec![0x5a; 1 << 20];
    let mut at = 0;
    let mut next = |bytes: usize, copy: fn(&mut [u8], &[u8])| {
        at = if at + bytes + STEP > MEMORY_BYTES {
            STEP
        } else {
            at + STEP
        };
        copy(&mut memory[at..at + bytes], black_box(&source[..bytes]));
        at += bytes;
    };
    for bytes in [512, 4 << 10, 16 << 10, 64 << 10, 1 << 20] {
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(BenchmarkId::new("as always", bytes), |bencher| {
            bencher.iter(|| next(bytes, |to, from| to.copy_from_slice(from)));
        });
        group.bench_function(BenchmarkId::new("past the caches", bytes), |bencher| {
            bencher.iter(|| next(bytes, |to, from| forebay_copy::stream(to, from, |_| ())));
        });
    }
    group.finish();
}

criterion_group!(benches, copies);
criterion_main!(benches);
