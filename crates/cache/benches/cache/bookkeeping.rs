//! Queries of the read path, the uploader and the evictor.

use crate::files::{KIB, MIB, OPEN, cache, file, fill, refilled, shuffled};
use criterion::{BatchSize, BenchmarkId, Criterion};
use forebay_cache::{Cache, Eviction, FileBlocks};
use forebay_types::{BLOCK_SIZE, BlockIndex, ByteRange, CheckpointId};
use std::hint::black_box;

const CALL: u64 = 32 << 10;

/// Whether 32 KiB are covered. `published`: of a completely cached file, 4 KiB further each time; `aligned` and
/// `ragged`: the same 32 KiB each time; `scattered`: in any of 256 blocks, each with a middle part that begins and
/// ends within a granule.
pub(crate) fn covered(criterion: &mut Criterion) {
    let cache = cache();
    let mut whole = file(&cache, 1);
    fill(&mut whole, 64 * MIB);
    whole.write(64 * MIB + 5, &vec![1; 100 * KIB], OPEN, None);
    let mut group = criterion.benchmark_group("covered 32 KiB");
    group.bench_function("published", |bencher| {
        let mut offset = 0;
        bencher.iter(|| {
            let range = ByteRange::at(offset, CALL);
            assert!(whole.is_covered(black_box(range)));
            offset = (offset + 4096) % (64 * MIB - CALL);
        });
    });
    for (name, start) in [("aligned", 64 << 10), ("ragged", 64 * MIB + 5)] {
        let range = ByteRange::at(start, CALL);
        group.bench_function(name, |bencher| {
            bencher.iter(|| assert!(whole.is_covered(black_box(range))));
        });
    }
    group.bench_function("scattered", |bencher| {
        let mut sparse = file(&cache, 2);
        let middle = |block: u64| block * BLOCK_SIZE + 1_000_000 + block * 1_001;
        for block in 0..256 {
            sparse.write(middle(block), &vec![1; MIB as usize], OPEN, None);
        }
        // The ends of the range lie in full granules, in the first one or in the last one.
        let range = |turn: usize| {
            let room = MIB - CALL;
            let at = [0, 4_099, room / 2 + 1, room][turn / 256];
            ByteRange::at(middle(turn as u64 % 256) + at, CALL)
        };
        let ranges: Vec<_> = shuffled(4 * 256).into_iter().map(range).collect();
        let mut turn = 0;
        bencher.iter(|| {
            assert!(sparse.is_covered(black_box(ranges[turn])));
            turn = (turn + 1) % ranges.len();
        });
    });
    group.finish();
}

/// The dirty blocks. Published: of one file, 64 MiB apart, queried again and again; honest: of sixteen files in turn,
/// each with a thousand clean blocks as well, that were published and written again since the last query.
pub(crate) fn dirty_blocks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("dirty blocks");
    let data = vec![1; CALL as usize];
    for count in [1, 10, 100] {
        group.bench_function(BenchmarkId::new("published", count), |bencher| {
            let cache = cache();
            let mut file = file(&cache, 1);
            for place in 0..count {
                file.write(place * 64 * MIB, &data, OPEN, None);
            }
            bencher.iter(|| {
                let blocks = file.dirty_blocks(black_box(OPEN));
                assert_eq!(blocks.len() as u64, count);
            });
        });
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            let cache = cache();
            let mut files: Vec<_> = (0..16).map(|inode| file(&cache, inode)).collect();
            for file in &mut files {
                for block in 0..1000 {
                    file.write(block * BLOCK_SIZE, &[1; 4 * KIB], OPEN, None);
                }
            }
            let order = shuffled(1000);
            let rewrite = |files: &mut Vec<FileBlocks>| {
                for file in files {
                    file.published(OPEN);
                    for block in &order[..count as usize] {
                        file.write(*block as u64 * BLOCK_SIZE, &[1; 4 * KIB], OPEN, None);
                    }
                }
            };
            refilled(bencher, &mut files, 16, rewrite, |files, turn| {
                let blocks = files[turn].dirty_blocks(black_box(OPEN));
                assert_eq!(blocks.len() as u64, count);
            });
        });
    }
    group.finish();
}

/// Marks uploaded blocks. Published: of a hundred files with one block each, which are all clean after the first
/// round; honest: each was written again before. `blocks` is of one file.
pub(crate) fn uploaded(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("mark uploaded");
    let rewrite = |files: &mut Vec<FileBlocks>| {
        for file in files {
            file.write(0, &[1; KIB], OPEN, None);
        }
    };
    group.bench_function("published", |bencher| {
        let cache = cache();
        let mut files: Vec<_> = (0..100).map(|inode| file(&cache, inode)).collect();
        rewrite(&mut files);
        let mut turn = 0;
        bencher.iter(|| {
            files[turn].published(black_box(OPEN));
            turn = (turn + 1) % files.len();
        });
    });
    group.bench_function("rewritten", |bencher| {
        let cache = cache();
        let mut files: Vec<_> = (0..100).map(|inode| file(&cache, inode)).collect();
        refilled(bencher, &mut files, 100, rewrite, |files, turn| {
            files[turn].published(black_box(OPEN));
        });
    });
    for count in [1, 100] {
        group.bench_function(BenchmarkId::new("blocks", count), |bencher| {
            let cache = cache();
            let written = || {
                let mut file = file(&cache, 1);
                for block in 0..count {
                    file.write(block * BLOCK_SIZE, &[1; 4 * KIB], OPEN, None);
                }
                file
            };
            let publish = |file: &mut FileBlocks| file.published(OPEN);
            bencher.iter_batched_ref(written, publish, BatchSize::SmallInput);
        });
    }
    group.finish();
}

pub(crate) fn images(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("uploader");
    let cache = cache();
    let whole = vec![1; BLOCK_SIZE as usize];
    group.bench_function("image of a whole block", |bencher| {
        let mut file = file(&cache, 1);
        file.write(0, &whole, OPEN, None);
        bencher.iter(|| file.image(BlockIndex(0), OPEN));
    });
    group.bench_function("first write to a held piece", |bencher| {
        let mut file = file(&cache, 1);
        let mut open = OPEN;
        file.write(0, &whole, open, None);
        bencher.iter(|| {
            let image = file.image(BlockIndex(0), open);
            open = open.next();
            file.write(0, &[2; 4 * KIB], open, None);
            drop(image);
            file.published(CheckpointId(open.0 - 1));
        });
    });
    group.finish();
}

/// `lru`: evicts 1 MiB of a thousand clean files of 32 KiB, the least recently used first. Published: again and
/// again, so that soon there are none; honest: there always are some. The others evict the only block, of this many
/// KiB.
pub(crate) fn evict(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("evict");
    let data = vec![1; CALL as usize];
    let mut filled = |files: &mut Vec<FileBlocks>| {
        for file in files.iter_mut().filter(|file| file.is_empty()) {
            file.fill(0, &data);
        }
    };
    group.bench_function("published lru", |bencher| {
        let cache = cache();
        let mut files: Vec<_> = (0..1000).map(|inode| file(&cache, inode)).collect();
        filled(&mut files);
        bencher.iter(|| evict_bytes(&cache, &mut files, black_box(MIB)));
    });
    group.bench_function("lru", |bencher| {
        let cache = cache();
        let mut files: Vec<_> = (0..1000).map(|inode| file(&cache, inode)).collect();
        refilled(bencher, &mut files, 16, &mut filled, |files, _| {
            assert!(evict_bytes(&cache, files, black_box(MIB)) >= MIB);
        });
    });
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

/// Evicts like an evictor; returns the number of bytes.
fn evict_bytes(cache: &Cache, files: &mut [FileBlocks], bytes: u64) -> u64 {
    let mut gone = 0;
    while gone < bytes {
        let Some(coldest) = cache.coldest() else {
            break;
        };
        if let Eviction::Evicted(bytes) = files[coldest.inode.0 as usize].evict(coldest.block) {
            gone += bytes;
        }
    }
    gone
}
