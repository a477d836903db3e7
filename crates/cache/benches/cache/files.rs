//! The files of all benchmarks: in a cache, and larger than the processor's caches where that matters.

use criterion::Bencher;
use forebay_cache::{Cache, FileBlocks};
use forebay_types::{CheckpointId, Inode};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) const KIB: usize = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;

/// Several times the last-level cache of most machines.
pub(crate) const WORKING_SET: u64 = 256 * MIB;

/// The checkpoint that is open where nothing is published.
pub(crate) const OPEN: CheckpointId = CheckpointId(1);

pub(crate) fn cache() -> Arc<Cache> {
    Cache::new(4 << 30)
}

pub(crate) fn file(cache: &Arc<Cache>, inode: u64) -> FileBlocks {
    FileBlocks::new(Inode(inode), Arc::clone(cache))
}

/// A file that is rewritten completely again and again, and published after each time.
pub(crate) struct Rewritten {
    pub(crate) file: FileBlocks,
    pub(crate) open: CheckpointId,
}

impl Rewritten {
    /// A file whose first `bytes` are cached and published.
    pub(crate) fn new(cache: &Arc<Cache>, inode: u64, bytes: u64) -> Rewritten {
        let mut rewritten = Rewritten {
            file: file(cache, inode),
            open: OPEN,
        };
        fill(&mut rewritten.file, bytes);
        rewritten.publish();
        rewritten
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        self.file.write(offset, data, self.open, None);
    }

    /// Makes the next checkpoint the open one: the one before is uploaded and published.
    pub(crate) fn publish(&mut self) {
        for block in self.file.dirty_blocks(self.open) {
            drop(self.file.image(block, self.open));
        }
        self.file.published(self.open);
        self.open = self.open.next();
    }
}

/// Writes the first `bytes` of a file.
pub(crate) fn fill(file: &mut FileBlocks, bytes: u64) {
    let data = vec![7; MIB.min(bytes) as usize];
    for offset in (0..bytes).step_by(data.len()) {
        let left = (bytes - offset) as usize;
        file.write(offset, &data[..data.len().min(left)], OPEN, None);
    }
}

/// Measures `run`, which uses up one of the values in `ready` that `refill` makes. Refilling is not measured.
pub(crate) fn refilled<S>(
    bencher: &mut Bencher,
    state: &mut S,
    ready: u64,
    mut refill: impl FnMut(&mut S),
    mut run: impl FnMut(&mut S, usize),
) {
    bencher.iter_custom(|count| {
        let mut taken = Duration::ZERO;
        let mut left = count;
        while left > 0 {
            let now = left.min(ready);
            refill(state);
            let start = Instant::now();
            for turn in 0..now {
                run(state, turn as usize);
            }
            taken += start.elapsed();
            left -= now;
        }
        taken
    });
}

/// The numbers below `count` in an order that no prefetcher predicts, the same at each start.
pub(crate) fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for at in (1..count).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.swap(at, (state % (at as u64 + 1)) as usize);
    }
    order
}
