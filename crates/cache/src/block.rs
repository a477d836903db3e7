//! One block buffer: pieces, coverage, and what is dirty for which checkpoint.

use crate::arrived::Arrived;
use crate::bitmap::RangeBitmap;
use crate::piece::Pieces;
use crate::pool::Pool;
use crate::snapshot::Snapshot;
use crate::{BlockVersion, Cache};
use forebay_types::{BLOCK_SIZE, BlockIndex, BlockKey, ByteRange, CheckpointId, Lent};
use std::sync::Arc;

/// What a block costs beside its heap memory that is counted: itself, its entry in the file's map
/// and its place in the order of use.
const BASE_BYTES: u64 = size_of::<Block>() as u64 + 128;

/// The state of one block. Offsets are within the block.
#[derive(Debug, Default)]
pub(crate) struct Block {
    pieces: Pieces,
    coverage: RangeBitmap,
    dirty: Dirty,
    /// Checkpoints that closed before `dirty` began and are not published, ascending.
    closed: Vec<Closed>,
    /// Tick of the last read or write.
    pub(crate) last_use: u64,
    /// The tick under which it waits in the order of use.
    pub(crate) queued: Option<u64>,
    /// Whether anything in it did not come from the bucket by a fill.
    pub(crate) was_written: bool,
    /// What the accounts have of it.
    pub(crate) accounted: Footprint,
}

/// The newest dirty ranges.
#[derive(Debug, Default)]
struct Dirty {
    /// Whose they are. Means nothing while there are none.
    checkpoint: Option<CheckpointId>,
    version: BlockVersion,
    ranges: RangeBitmap,
    /// A snapshot of exactly this version was taken.
    handed_over: bool,
}

/// The dirty ranges of a checkpoint that a newer one has written to this block after.
#[derive(Debug)]
struct Closed {
    checkpoint: CheckpointId,
    version: BlockVersion,
    ranges: RangeBitmap,
    /// The bytes as of its close; none once a snapshot has them.
    pieces: Option<Pieces>,
}

/// What a block adds to the accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footprint {
    /// Memory beside the buffers of its pieces.
    pub(crate) overhead_bytes: u64,
    /// Dirty bytes; those of each checkpoint count.
    pub(crate) dirty_bytes: u64,
}

impl Block {
    pub(crate) fn footprint(&self) -> Footprint {
        let mut overhead = BASE_BYTES
            + self.pieces.heap_bytes()
            + self.coverage.heap_bytes()
            + self.dirty.ranges.heap_bytes()
            + (self.closed.capacity() * size_of::<Closed>()) as u64;
        let mut dirty = self.dirty.ranges.len();
        for closed in &self.closed {
            overhead += closed.ranges.heap_bytes();
            overhead += closed.pieces.as_ref().map_or(0, Pieces::heap_bytes);
            dirty += closed.ranges.len();
        }
        Footprint {
            overhead_bytes: overhead,
            dirty_bytes: dirty,
        }
    }

    /// Memory of its newest state: pieces and overhead.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.pieces.buffer_bytes() + self.footprint().overhead_bytes
    }

    /// Whether an unpublished checkpoint has bytes in it.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.ranges.is_empty() || !self.closed.is_empty()
    }

    /// Whether nothing is left that anybody could ask for.
    pub(crate) fn is_vacant(&self) -> bool {
        self.coverage.is_empty() && !self.is_dirty()
    }

    /// Whether a snapshot shares its memory.
    pub(crate) fn is_held(&self) -> bool {
        self.pieces.is_shared()
    }

    /// Lets it wait for eviction if it may go and does not wait already.
    pub(crate) fn queue_if_clean(&mut self, key: BlockKey, cache: &Cache) {
        if self.queued.is_none() && !self.is_dirty() && !self.coverage.is_empty() {
            self.queued = Some(self.last_use);
            cache.order.insert(self.last_use, key);
        }
    }

    /// Puts newer bytes in; they are dirty for `open`. Returns the checkpoint in which the block
    /// became dirty by this, if it did.
    pub(crate) fn write(
        &mut self,
        at: u64,
        data: &[u8],
        open: CheckpointId,
        tick: u64,
        pool: &Arc<Pool>,
    ) -> Option<CheckpointId> {
        self.close_before(open);
        let began = self.dirty.ranges.is_empty();
        if began {
            self.dirty.checkpoint = Some(open);
        }
        self.put(at, data, pool);
        self.dirty.ranges.set(ByteRange::at(at, data.len() as u64));
        self.dirty.version = BlockVersion(tick);
        self.dirty.handed_over = false;
        self.last_use = tick;
        self.was_written = true;
        self.dirty.checkpoint.filter(|_| began)
    }

    /// Makes covered bytes of `range` that are clean dirty for `open`, as they are. Gives how many these are, and the
    /// checkpoint in which the block became dirty by this, if it did.
    pub(crate) fn upload_again(
        &mut self,
        range: ByteRange,
        open: CheckpointId,
        tick: u64,
    ) -> (u64, Option<CheckpointId>) {
        let mut clean = RangeBitmap::new();
        self.coverage
            .set_ranges(range)
            .for_each(|covered| clean.set(covered));
        clean.subtract(&self.dirty.ranges);
        for closed in &self.closed {
            clean.subtract(&closed.ranges);
        }
        if clean.is_empty() {
            return (0, None);
        }
        self.close_before(open);
        let began = self.dirty.ranges.is_empty();
        if began {
            self.dirty.checkpoint = Some(open);
        }
        self.dirty.ranges.union(&clean);
        self.dirty.version = BlockVersion(tick);
        self.dirty.handed_over = false;
        // Once it is in the bucket again and evicted, a fetch of its former place is out of date.
        self.was_written = true;
        (clean.len(), self.dirty.checkpoint.filter(|_| began))
    }

    /// Puts clean bytes in where none are: `data`, which is a part of what has arrived if that is given.
    pub(crate) fn fill(
        &mut self,
        at: u64,
        data: &[u8],
        arrived: Option<&Arrived>,
        pool: &Arc<Pool>,
    ) {
        let mut rest = ByteRange::at(at, data.len() as u64);
        while let Some(gap) = self.first_gap(rest) {
            let part = &data[(gap.start - at) as usize..(gap.end - at) as usize];
            match arrived {
                None => self.put(gap.start, part, pool),
                Some(arrived) => {
                    let streaming = self.is_covered_before(gap.start);
                    self.pieces
                        .take_over(gap.start, part, arrived, streaming, pool);
                    self.coverage.set(gap);
                }
            }
            rest.start = gap.end;
        }
    }

    fn first_gap(&self, within: ByteRange) -> Option<ByteRange> {
        self.coverage.unset_ranges(within).next()
    }

    fn put(&mut self, at: u64, data: &[u8], pool: &Arc<Pool>) {
        let streaming = self.is_covered_before(at);
        self.pieces.write(at, data, streaming, pool);
        self.coverage.set(ByteRange::at(at, data.len() as u64));
    }

    fn is_covered_before(&self, at: u64) -> bool {
        let before = ByteRange::new(at.saturating_sub(1), at);
        at > 0 && self.coverage.contains(before)
    }

    /// Copies what is covered of the bytes from `at` on, and reports the ranges that are not.
    pub(crate) fn read(&self, at: u64, out: &mut [u8], mut missing: impl FnMut(ByteRange)) {
        let range = ByteRange::at(at, out.len() as u64);
        if self.coverage.contains(range) {
            return self.copy(range, out);
        }
        for known in self.coverage.set_ranges(range) {
            let part = (known.start - at) as usize..(known.end - at) as usize;
            self.copy(known, &mut out[part]);
        }
        self.coverage.unset_ranges(range).for_each(&mut missing);
    }

    /// The bytes of `range`, all of which must be covered, without a copy where that pays.
    pub(crate) fn lend(&self, range: ByteRange) -> impl Iterator<Item = Lent> {
        self.pieces.lend(range)
    }

    fn copy(&self, range: ByteRange, out: &mut [u8]) {
        let mut out = out;
        for slice in self.pieces.slices(range) {
            let (target, rest) = out.split_at_mut(slice.len());
            target.copy_from_slice(slice);
            out = rest;
        }
    }

    pub(crate) fn uncovered(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        self.coverage.unset_ranges(range)
    }

    pub(crate) fn is_covered(&self, range: ByteRange) -> bool {
        self.coverage.contains(range)
    }

    /// Forgets everything from `from` on, in the name of `open`: closed checkpoints keep theirs. Returns the
    /// checkpoint in which the block is no longer dirty by this, if there is one.
    pub(crate) fn truncate(
        &mut self,
        from: u64,
        open: CheckpointId,
        tick: u64,
    ) -> Option<CheckpointId> {
        let gone = ByteRange::new(from, BLOCK_SIZE);
        self.coverage.set_ranges(gone).next()?;
        self.close_before(open);
        let was_dirty = !self.dirty.ranges.is_empty();
        self.coverage.clear(gone);
        self.dirty.ranges.clear(gone);
        self.dirty.version = BlockVersion(tick);
        self.dirty.handed_over = false;
        self.pieces.drop_uncovered(from, &self.coverage);
        let was = self.dirty.checkpoint.filter(|_| was_dirty);
        was.filter(|_| self.dirty.ranges.is_empty())
    }

    /// The state of this checkpoint's dirty ranges, if it has any.
    pub(crate) fn version(&self, checkpoint: CheckpointId) -> Option<BlockVersion> {
        if self.dirty.is_of(checkpoint) {
            return Some(self.dirty.version);
        }
        let mut closed = self.closed.iter();
        let found = closed.find(|closed| closed.checkpoint == checkpoint)?;
        Some(found.version)
    }

    /// Hands the dirty bytes of a checkpoint over; nothing if it has none here, or if they were
    /// handed over before and a newer checkpoint has written since.
    pub(crate) fn snapshot(
        &mut self,
        block: BlockIndex,
        checkpoint: CheckpointId,
    ) -> Option<Snapshot> {
        let (version, ranges, pieces) = if self.dirty.is_of(checkpoint) {
            self.dirty.handed_over = true;
            let ranges = &self.dirty.ranges;
            (self.dirty.version, ranges, self.pieces.share(ranges))
        } else {
            let mut closed = self.closed.iter_mut();
            let found = closed.find(|closed| closed.checkpoint == checkpoint)?;
            (found.version, &found.ranges, found.pieces.take()?)
        };
        Some(Snapshot {
            block,
            checkpoint,
            version,
            ranges: ranges.clone(),
            pieces,
        })
    }

    /// Takes back what [`snapshot`](Self::snapshot) handed over, unless it is out of date.
    pub(crate) fn put_back(&mut self, snapshot: Snapshot) {
        if self.version(snapshot.checkpoint) != Some(snapshot.version) {
            return;
        }
        if self.dirty.is_of(snapshot.checkpoint) {
            self.dirty.handed_over = false;
        }
        for closed in &mut self.closed {
            if closed.checkpoint == snapshot.checkpoint {
                closed.pieces = Some(snapshot.pieces);
                return;
            }
        }
    }

    /// Whether a whole block is dirty in this checkpoint, the newest one that changed it.
    pub(crate) fn is_whole_in(&self, checkpoint: CheckpointId) -> bool {
        self.dirty.is_of(checkpoint) && self.dirty.ranges.len() == BLOCK_SIZE
    }

    /// These dirty ranges of this checkpoint are in the bucket: clean. False, and nothing changes, if they are
    /// not what they were.
    pub(crate) fn uploaded(&mut self, checkpoint: CheckpointId, version: BlockVersion) -> bool {
        if self.version(checkpoint) != Some(version) {
            return false;
        }
        if self.dirty.is_of(checkpoint) {
            self.dirty = Dirty::default();
        } else {
            self.closed.retain(|closed| closed.checkpoint != checkpoint);
        }
        true
    }

    /// Everything up to this checkpoint is in the bucket: clean.
    pub(crate) fn published(&mut self, checkpoint: CheckpointId) {
        if self.dirty.checkpoint.is_some_and(|own| own <= checkpoint) {
            self.dirty = Dirty::default();
        }
        self.closed.retain(|closed| closed.checkpoint > checkpoint);
        if self.closed.is_empty() {
            self.closed = Vec::new();
        }
    }

    /// Puts the dirty ranges of an older checkpoint aside, with their bytes unless they were handed
    /// over already. From here on they change no more.
    fn close_before(&mut self, open: CheckpointId) {
        let Some(checkpoint) = self.dirty.checkpoint.filter(|own| *own < open) else {
            return;
        };
        let dirty = std::mem::take(&mut self.dirty);
        self.dirty.checkpoint = Some(open);
        if dirty.ranges.is_empty() {
            return;
        }
        let pieces = (!dirty.handed_over).then(|| self.pieces.share(&dirty.ranges));
        self.closed.push(Closed {
            checkpoint,
            version: dirty.version,
            ranges: dirty.ranges,
            pieces,
        });
    }
}

impl Dirty {
    fn is_of(&self, checkpoint: CheckpointId) -> bool {
        self.checkpoint == Some(checkpoint) && !self.ranges.is_empty()
    }
}
