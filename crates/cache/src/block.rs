//! One block buffer: pieces, coverage, and what is dirty for which checkpoint.

mod footprint;
mod spill;

use crate::arrived::Arrived;
use crate::bitmap::RangeBitmap;
use crate::image::BlockImage;
use crate::log_map::LogMap;
use crate::piece::Pieces;
use crate::pool::Pool;
use crate::{BlockVersion, Cache};
use forebay_types::{
    BLOCK_SIZE, BlockIndex, BlockKey, ByteRange, CheckpointId, Lent, Lsn, to_usize,
};
use std::sync::Arc;

pub(crate) use footprint::Footprint;

/// The state of one block. Offsets are within the block.
#[derive(Debug, Default)]
pub(crate) struct Block {
    pieces: Pieces,
    coverage: RangeBitmap,
    /// The bytes of the newest state that are dirty, and in the log alone. None of them is covered, and each has a log
    /// extent in the newest checkpoint that has it.
    spilled: Option<Box<RangeBitmap>>,
    dirty: Dirty,
    /// Checkpoints older than `dirty` that are closed and not published, ascending.
    closed: Vec<Closed>,
    /// Tick of the last read or write.
    pub(crate) last_use: u64,
    /// The tick under which it is queued for eviction.
    pub(crate) queued: Option<u64>,
    /// The tick under which it is queued for spilling.
    pub(crate) queued_dirty: Option<u64>,
    /// It was put back in that queue for the upload that it waits for.
    pub(crate) spared: bool,
    /// Whether any of its bytes came from a write rather than from a fill.
    pub(crate) was_written: bool,
    /// Its part of the accounts.
    pub(crate) accounted: Footprint,
}

/// The newest dirty ranges.
#[derive(Debug, Default)]
struct Dirty {
    /// Their checkpoint. Meaningless while there are no dirty ranges.
    checkpoint: Option<CheckpointId>,
    version: BlockVersion,
    ranges: RangeBitmap,
    /// The records that have bytes of these ranges.
    log: LogMap,
    /// An image of exactly this version was taken.
    handed_over: bool,
}

/// The dirty ranges of a checkpoint that is closed for this block, because a newer one has written to it.
#[derive(Debug)]
struct Closed {
    checkpoint: CheckpointId,
    version: BlockVersion,
    ranges: RangeBitmap,
    /// The records that have bytes of these ranges.
    log: LogMap,
    /// The bytes at its close; none once an image has them.
    pieces: Option<Pieces>,
    /// The part of `ranges` that `pieces` has, if it is not all of it. The log has the rest.
    held: Option<Box<RangeBitmap>>,
    /// Bytes that were changed since by something that is not dirty any more, or that left the file. Kept only for
    /// ranges with log extents: others stay in memory anyway.
    stale: Option<Box<RangeBitmap>>,
}

impl Block {
    /// Whether an unpublished checkpoint has dirty bytes in it.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.ranges.is_empty() || !self.closed.is_empty()
    }

    /// Whether nothing is left that could be read or uploaded.
    pub(crate) fn is_vacant(&self) -> bool {
        self.coverage.is_empty() && !self.is_dirty()
    }

    /// Whether an image shares its memory.
    pub(crate) fn is_held(&self) -> bool {
        self.pieces.is_shared()
    }

    /// Queues it for spilling if some of it may be, and it is not yet queued. For a block whose account is up to date.
    #[inline]
    pub(crate) fn queue_if_dirty(&mut self, key: BlockKey, cache: &Cache) {
        if self.queued_dirty.is_none() && self.may_spill() {
            self.queue_dirty(self.last_use, key, cache);
        }
    }

    /// Queues it for spilling as if it was used at `tick`.
    pub(crate) fn queue_dirty(&mut self, tick: u64, key: BlockKey, cache: &Cache) {
        self.queued_dirty = Some(tick);
        cache.dirty_order.insert(tick, key);
    }

    /// Queues it for eviction if it is clean and not yet queued.
    pub(crate) fn queue_if_clean(&mut self, key: BlockKey, cache: &Cache) {
        if self.queued.is_none() && !self.is_dirty() && !self.coverage.is_empty() {
            self.queued = Some(self.last_use);
            cache.order.insert(self.last_use, key);
        }
    }

    /// Writes newer bytes, which are dirty for `open`, and which `record` has. Returns the checkpoint in which this made
    /// the block dirty, if it was not dirty there before.
    pub(crate) fn write(
        &mut self,
        at: u64,
        data: &[u8],
        open: CheckpointId,
        record: Option<Lsn>,
        tick: u64,
        pool: &Arc<Pool>,
    ) -> Option<CheckpointId> {
        self.close_before(open);
        let began = self.dirty.ranges.is_empty();
        if began {
            self.dirty.checkpoint = Some(open);
        }
        self.put(at, data, pool);
        let range = ByteRange::at(at, data.len() as u64);
        self.forget_spilled(range);
        self.dirty.ranges.set(range);
        self.dirty.log.note(range, record);
        self.dirty.version = BlockVersion(tick);
        self.dirty.handed_over = false;
        self.last_use = tick;
        self.was_written = true;
        self.dirty.checkpoint.filter(|_| began)
    }

    /// Makes covered, clean bytes of `range` dirty for `open`, unchanged. Returns their number, and the checkpoint in
    /// which this made the block dirty, if it was not dirty there before.
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
        // No record of this checkpoint has them.
        clean.ranges().for_each(|range| self.dirty.log.carve(range));
        self.dirty.version = BlockVersion(tick);
        self.dirty.handed_over = false;
        // Once these bytes are in the bucket again and evicted, a fetch from their old place is out of date.
        self.was_written = true;
        (clean.len(), self.dirty.checkpoint.filter(|_| began))
    }

    /// Fills in clean bytes where none are known: `data`, which is a part of `arrived` if that is given.
    pub(crate) fn fill(
        &mut self,
        at: u64,
        data: &[u8],
        arrived: Option<&Arrived>,
        pool: &Arc<Pool>,
    ) {
        let mut rest = ByteRange::at(at, data.len() as u64);
        while let Some(gap) = self.first_gap(rest) {
            let part = &data[to_usize(gap.start - at)..to_usize(gap.end - at)];
            match arrived {
                None => self.put(gap.start, part, pool),
                Some(arrived) => self.take_over(gap.start, part, arrived, pool),
            }
            rest.start = gap.end;
        }
    }

    fn first_gap(&self, within: ByteRange) -> Option<ByteRange> {
        match &self.spilled {
            None => self.coverage.unset_ranges(within).next(),
            Some(_) => self.unknown(within).next(),
        }
    }

    fn take_over(&mut self, at: u64, part: &[u8], arrived: &Arrived, pool: &Arc<Pool>) {
        let streaming = self.is_covered_before(at);
        self.pieces.take_over(at, part, arrived, streaming, pool);
        self.coverage.set(ByteRange::at(at, part.len() as u64));
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

    /// Copies the covered bytes from `at` on, and reports the ranges that are not known, and those in the log alone.
    pub(crate) fn read(
        &self,
        at: u64,
        out: &mut [u8],
        mut missing: impl FnMut(ByteRange),
        mut spilled: impl FnMut(ByteRange, Lsn),
    ) {
        let range = ByteRange::at(at, out.len() as u64);
        if self.coverage.contains(range) {
            return self.copy(range, out);
        }
        for known in self.coverage.set_ranges(range) {
            let part = to_usize(known.start - at)..to_usize(known.end - at);
            self.copy(known, &mut out[part]);
        }
        self.unknown(range).for_each(&mut missing);
        for (range, lsn) in self.spilled_in(range) {
            spilled(range, lsn);
        }
    }

    /// Lends the bytes of `range`, all of which must be covered, without a copy where that pays.
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

    /// The parts of `range` that are neither covered nor spilled.
    pub(crate) fn unknown(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        let uncovered = self.coverage.unset_ranges(range);
        uncovered.flat_map(|gap| {
            let spilled = self.spilled.as_deref();
            let all = spilled.is_none().then_some(gap);
            let parts = spilled.map(|spilled| spilled.unset_ranges(gap));
            all.into_iter().chain(parts.into_iter().flatten())
        })
    }

    pub(crate) fn is_known(&self, range: ByteRange) -> bool {
        self.coverage.contains(range) || self.unknown(range).next().is_none()
    }

    pub(crate) fn is_covered(&self, range: ByteRange) -> bool {
        self.coverage.contains(range)
    }

    /// Number of covered bytes.
    pub(crate) fn covered_bytes(&self) -> u64 {
        self.coverage.len()
    }

    /// The known ranges that an unpublished checkpoint still has to upload.
    pub(crate) fn unpublished(&self) -> RangeBitmap {
        let mut ranges = self.dirty.ranges.clone();
        for closed in &self.closed {
            ranges.union(&closed.ranges);
        }
        // A truncate leaves ranges of closed checkpoints behind that are no part of the file any more.
        let mut cut = ranges.clone();
        cut.subtract(&self.coverage);
        if let Some(spilled) = &self.spilled {
            cut.subtract(spilled);
        }
        ranges.subtract(&cut);
        ranges
    }

    /// Drops everything from `from` on, for `open`: closed checkpoints keep their bytes. Returns the checkpoint in
    /// which this made the block clean, if there is one.
    pub(crate) fn truncate(
        &mut self,
        from: u64,
        open: CheckpointId,
        tick: u64,
    ) -> Option<CheckpointId> {
        let gone = ByteRange::new(from, BLOCK_SIZE);
        if !self.knows_any(gone) {
            return None;
        }
        self.close_before(open);
        let was_dirty = !self.dirty.ranges.is_empty();
        self.coverage.clear(gone);
        self.forget_spilled(gone);
        self.leave_stale(gone);
        self.dirty.ranges.clear(gone);
        self.dirty.log.carve(gone);
        self.dirty.version = BlockVersion(tick);
        self.dirty.handed_over = false;
        self.pieces.drop_uncovered(from, &self.coverage);
        let was = self.dirty.checkpoint.filter(|_| was_dirty);
        was.filter(|_| self.dirty.ranges.is_empty())
    }

    /// The version of this checkpoint's dirty ranges, if it has any.
    pub(crate) fn version(&self, checkpoint: CheckpointId) -> Option<BlockVersion> {
        if self.dirty.is_of(checkpoint) {
            return Some(self.dirty.version);
        }
        let mut closed = self.closed.iter();
        let found = closed.find(|closed| closed.checkpoint == checkpoint)?;
        Some(found.version)
    }

    /// Hands over the dirty bytes of a checkpoint; none if it has none here, or if they were handed over before and a
    /// newer checkpoint has written since.
    pub(crate) fn image(
        &mut self,
        block: BlockIndex,
        checkpoint: CheckpointId,
    ) -> Option<BlockImage> {
        let (version, ranges, log, pieces, held) = if self.dirty.is_of(checkpoint) {
            self.dirty.handed_over = true;
            let held = self.held_of_newest();
            let Dirty {
                version,
                ranges,
                log,
                ..
            } = &self.dirty;
            let pieces = self.pieces.share(held.as_deref().unwrap_or(ranges));
            (*version, ranges, log, pieces, held)
        } else {
            let mut closed = self.closed.iter_mut();
            let found = closed.find(|closed| closed.checkpoint == checkpoint)?;
            let (pieces, held) = (found.pieces.take()?, found.held.take());
            (found.version, &found.ranges, &found.log, pieces, held)
        };
        let logged = held.map_or_else(LogMap::default, |held| {
            let mut rest = ranges.clone();
            rest.subtract(&held);
            log.cut_out(rest.ranges())
        });
        Some(BlockImage {
            block,
            checkpoint,
            version,
            ranges: ranges.clone(),
            pieces,
            logged,
        })
    }

    /// Takes back the bytes of a [`image`](Self::image), unless it is out of date.
    pub(crate) fn put_back(&mut self, image: BlockImage) {
        if self.version(image.checkpoint) != Some(image.version) {
            return;
        }
        if self.dirty.is_of(image.checkpoint) {
            self.dirty.handed_over = false;
        }
        for closed in &mut self.closed {
            if closed.checkpoint == image.checkpoint {
                closed.held = image.held();
                closed.pieces = Some(image.pieces);
                return;
            }
        }
    }

    /// Whether the whole block is dirty in this checkpoint, and no newer one has changed it.
    pub(crate) fn is_whole_in(&self, checkpoint: CheckpointId) -> bool {
        self.dirty.is_of(checkpoint) && self.dirty.ranges.len() == BLOCK_SIZE
    }

    /// Marks this checkpoint's dirty ranges as uploaded: clean. Returns `None`, and changes nothing, if they are no
    /// longer of this version; otherwise whether bytes are not known any more.
    pub(crate) fn uploaded(
        &mut self,
        checkpoint: CheckpointId,
        version: BlockVersion,
    ) -> Option<bool> {
        if self.version(checkpoint) != Some(version) {
            return None;
        }
        let ranges = if self.dirty.is_of(checkpoint) {
            std::mem::take(&mut self.dirty).ranges
        } else {
            let of = |closed: &Closed| closed.checkpoint == checkpoint;
            let at = self.closed.iter().position(of)?;
            self.closed.remove(at).ranges
        };
        self.spared = false;
        Some(self.forget_uploaded(checkpoint, ranges))
    }

    /// Marks everything up to this checkpoint as published: clean. Returns whether bytes are not known any more.
    pub(crate) fn published(&mut self, checkpoint: CheckpointId) -> bool {
        if self.dirty.checkpoint.is_some_and(|own| own <= checkpoint) {
            self.dirty = Dirty::default();
        }
        self.closed.retain(|closed| closed.checkpoint > checkpoint);
        if self.closed.is_empty() {
            self.closed = Vec::new();
        }
        self.spared = false;
        self.forget_published()
    }

    /// Closes the dirty ranges of an older checkpoint, with their bytes unless those were handed over already. They
    /// do not change from here on.
    fn close_before(&mut self, open: CheckpointId) {
        let Some(checkpoint) = self.dirty.checkpoint.filter(|own| *own < open) else {
            return;
        };
        let held = self.held_of_newest();
        let dirty = std::mem::take(&mut self.dirty);
        self.dirty.checkpoint = Some(open);
        if dirty.ranges.is_empty() {
            return;
        }
        let kept = held.as_deref().unwrap_or(&dirty.ranges);
        let pieces = (!dirty.handed_over).then(|| self.pieces.share(kept));
        self.closed.push(Closed {
            checkpoint,
            version: dirty.version,
            ranges: dirty.ranges,
            log: dirty.log,
            held: held.filter(|_| pieces.is_some()),
            pieces,
            stale: None,
        });
    }
}

impl Dirty {
    fn is_of(&self, checkpoint: CheckpointId) -> bool {
        self.checkpoint == Some(checkpoint) && !self.ranges.is_empty()
    }
}
