//! The pool of buffers.
//!
//! Results of November 2026 on two processors of an AMD EPYC, in processor time:
//!
//! * Taking a buffer and returning it costs 36 ns (on an Intel Xeon 52, and 40 since a thread keeps a reference to
//!   the pool for the next one). For a file that is written and dropped, the pool saves nothing at 32 KiB, a tenth at
//!   1 MiB, up to a third at 16 MiB, and 3 to 7 % at 128 MiB, where it waits for memory: the program's allocator
//!   recycles nearly as well.
//! * Huge pages pay, and are used without a request here: the allocator advises its arenas. Without them
//!   (`prctl(PR_SET_THP_DISABLE)`, the two in turns) writes of 4 KiB at random places of 512 MiB take 1.25 to 1.29
//!   times as long, those of 32 KiB 1.21 to 1.25 times, reads 1.00 to 1.20 times; 128 MiB written sequentially take
//!   1.13 to 1.23 times as long, with 24,600 page faults the first time instead of 86. Huge pages of the pool's own
//!   would add nothing to that.

use crate::files::{KIB, MIB, OPEN, cache, file};
use criterion::{BenchmarkId, Criterion, Throughput};
use forebay_cache::{Cache, measuring};
use std::hint::black_box;

/// A buffer of each size is taken from the pool and returned, when one is idle.
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

/// A file is written in calls of 32 KiB, and dropped. Without the pool its memory goes back to the allocator each
/// time, and comes from there. A budget of zero keeps no idle buffer, which is how the pool is switched off.
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
                        file.write(offset, black_box(&call), OPEN, None);
                    }
                });
                assert_eq!(cache.pooled_bytes() > 0, limit_bytes > 0);
            });
        }
    }
    group.finish();
}
