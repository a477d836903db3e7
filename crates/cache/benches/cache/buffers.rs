//! The pool of buffers.

use crate::files::{KIB, MIB, OPEN, cache, file};
use criterion::{BenchmarkId, Criterion, Throughput};
use forebay_cache::{Cache, measuring};
use std::hint::black_box;

/// A buffer of so many KiB taken from the pool and put back, where one waits.
pub(crate) fn get_and_put(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("buffer");
    let cache = cache();
    for size in measuring::BUFFER_SIZES {
        group.bench_function(BenchmarkId::new("get and put", size / KIB), |bencher| {
            bencher.iter(|| drop(black_box(measuring::take_buffer(&cache, size))));
        });
    }
    group.finish();
}

/// A file is written in calls of 32 KiB, and let go of. With the pool off its memory goes back to the
/// allocator each time, and comes from there. A budget of nothing keeps no idle buffer, which is all that
/// turns the pool off.
pub(crate) fn pool_on_and_off(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("file written and dropped");
    group.sample_size(20);
    let call = vec![7; 32 * KIB];
    for bytes in [MIB / 32, MIB, 16 * MIB, 128 * MIB] {
        group.throughput(Throughput::Bytes(bytes));
        for (name, limit_bytes) in [("pool on", 1 << 30), ("pool off", 0)] {
            group.bench_function(BenchmarkId::new(name, bytes >> 10), |bencher| {
                let cache = Cache::new(limit_bytes);
                bencher.iter(|| {
                    let mut file = file(&cache, 1);
                    for offset in (0..bytes).step_by(call.len()) {
                        file.write(offset, black_box(&call), OPEN);
                    }
                });
                assert_eq!(cache.pooled_bytes() > 0, limit_bytes > 0);
            });
        }
    }
    group.finish();
}
