//! Files that are written from end to end.

use crate::files::{KIB, MIB, OPEN, cache, file, fill};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};

/// Published: a new file is written in calls of 32 KiB, into memory that was never used before.
/// Honest: one file is read in calls of 1 MiB and written to another one, which is new each time; buffers are
/// recycled, as in a full cache.
pub(crate) fn file_copy(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("file copy");
    group.sample_size(20);
    for mebibytes in [1, 10, 100] {
        let bytes = mebibytes * MIB;
        group.throughput(Throughput::Bytes(bytes));
        group.bench_function(BenchmarkId::new("published", mebibytes), |bencher| {
            let cache = cache();
            let call = vec![1; 32 * KIB];
            let new = || {
                cache.trim();
                file(&cache, 1)
            };
            bencher.iter_batched_ref(
                new,
                |file| {
                    for offset in (0..bytes).step_by(call.len()) {
                        file.write(offset, &call, OPEN, None);
                    }
                },
                BatchSize::PerIteration,
            );
        });
        group.bench_function(BenchmarkId::from_parameter(mebibytes), |bencher| {
            let cache = cache();
            let mut source = file(&cache, 1);
            fill(&mut source, bytes);
            let mut call = vec![1; MIB as usize];
            let mut missing = Vec::new();
            bencher.iter(|| {
                let mut target = file(&cache, 2);
                for offset in (0..bytes).step_by(call.len()) {
                    source.read(offset, &mut call, &mut missing, &mut Vec::new());
                    target.write(offset, &call, OPEN, None);
                }
            });
        });
    }
    group.finish();
}
