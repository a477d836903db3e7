//! Dirty bytes in the log alone.
//!
//! ```text
//!               spill                        fill from the log
//!   covered ------------> spilled, not covered ------------> covered
//!                              |  |
//!                 write there  |  | truncate, or its checkpoint is
//!                              v  v published or uploaded
//!                         covered  neither: not known
//! ```
//!
//! A byte that is dirty in several checkpoints has the content of the newest. For each byte, the checkpoints are asked in
//! that order, and the first that has it in its ranges answers: with a record, or, if the byte is stale there, that the
//! byte is clean.

use super::{Block, Closed};
use crate::arrived::Arrived;
use crate::bitmap::RangeBitmap;
use crate::log_map::{LogMap, NO_RECORD};
use crate::piece::{PIECE_SIZE, Piece, Pieces};
use crate::pool::Pool;
use forebay_types::{BLOCK_SIZE, ByteRange, CheckpointId, Lsn, to_usize};
use std::sync::Arc;

/// What a spill has dropped.
#[derive(Debug, Default)]
pub(crate) struct Dropped {
    /// Bytes of buffers.
    pub(crate) bytes: u64,
    /// Some bytes are not known any more: clean ones beside the spilled ones.
    pub(crate) has_lost: bool,
}

/// The dirty ranges of a checkpoint.
struct Version<'a> {
    ranges: &'a RangeBitmap,
    log: &'a LogMap,
    stale: Option<&'a RangeBitmap>,
}

/// What may be dropped of the pieces of the newest state, and of those of each closed checkpoint.
struct Needed {
    /// The covered bytes that are dirty.
    dirty: RangeBitmap,
    /// For the newest state and then for the closed checkpoints, the newest one first: the bytes that memory alone has.
    pinned: Vec<RangeBitmap>,
}

impl Block {
    /// Whether a dirty byte that is in memory may have a record.
    #[inline]
    pub(crate) fn may_spill(&self) -> bool {
        let has_records = !self.dirty.log.is_empty() || self.closed.iter().any(Closed::has_records);
        has_records && self.accounted.spilled_bytes < self.accounted.dirty_bytes
    }

    /// Drops the pieces of which the log has all dirty bytes, in records that begin before `settled`, unless something
    /// outside of the block shares their memory.
    pub(crate) fn spill(&mut self, settled: Lsn) -> Dropped {
        let mut dropped = Dropped::default();
        let has_any = |of: Version<'_>| of.log.before(settled).next().is_some();
        if !self.newest_first().any(has_any) {
            return dropped;
        }
        let needed = self.needed(settled);
        let closed = self.closed.iter().filter_map(|it| it.pieces.as_ref());
        let end = closed.map(Pieces::end).max().unwrap_or(0);
        for index in 0..end.max(self.pieces.end()) {
            self.spill_piece(index, &needed, &mut dropped);
        }
        if dropped.bytes > 0 {
            self.shrink();
        }
        dropped
    }

    /// Drops the memory of one piece: that of the newest state, and others that closed checkpoints have kept.
    fn spill_piece(&mut self, index: usize, needed: &Needed, dropped: &mut Dropped) {
        let range = ByteRange::at(index as u64 * PIECE_SIZE, PIECE_SIZE);
        let all = self.closed.len() + 1;
        for first in 0..all {
            let Some(memory) = self.memory(first, index) else {
                continue;
            };
            let size = memory.size();
            let shares = |owner: &usize| {
                let other = self.memory(*owner, index);
                other.is_some_and(|other| Arc::ptr_eq(memory, other))
            };
            if (0..first).any(|owner| shares(&owner)) {
                // It has to stay.
                continue;
            }
            let owners: Vec<usize> = (first..all).filter(shares).collect();
            let is_safe = |owner: &usize| !needed.pinned[*owner].touches(range);
            if Arc::strong_count(memory) > owners.len() || !owners.iter().all(is_safe) {
                continue;
            }
            dropped.bytes += size;
            for owner in owners {
                self.drop_piece(owner, index, needed, dropped);
            }
        }
    }

    /// The memory of a piece of the newest state (0), or of a closed checkpoint, of which the newest is 1.
    fn memory(&self, owner: usize, index: usize) -> Option<&Arc<Piece>> {
        match owner {
            0 => self.pieces.memory(index),
            _ => {
                let closed = &self.closed[self.closed.len() - owner];
                closed.pieces.as_ref()?.memory(index)
            }
        }
    }

    fn drop_piece(&mut self, owner: usize, index: usize, needed: &Needed, dropped: &mut Dropped) {
        let range = ByteRange::at(index as u64 * PIECE_SIZE, PIECE_SIZE);
        if owner > 0 {
            let at = self.closed.len() - owner;
            return self.closed[at].drop_piece(index, range);
        }
        let covered: u64 = self.coverage.set_ranges(range).map(|it| it.len()).sum();
        let mut spilled = self.spilled.take().unwrap_or_default();
        let before = spilled.len();
        let dirty = needed.dirty.set_ranges(range);
        dirty.for_each(|dirty| spilled.set(dirty));
        dropped.has_lost |= spilled.len() - before < covered;
        self.spilled = (!spilled.is_empty()).then_some(spilled);
        self.coverage.clear(range);
        self.pieces.remove(index);
    }

    fn needed(&self, settled: Lsn) -> Needed {
        let mut rest = self.coverage.clone();
        let (mut dirty, mut pinned) = (RangeBitmap::new(), RangeBitmap::new());
        for of in self.newest_first() {
            let mut own = rest.clone();
            own.intersect(of.ranges);
            rest.subtract(&own);
            if let Some(stale) = of.stale {
                own.subtract(stale);
            }
            dirty.union(&own);
            of.log.before(settled).for_each(|safe| own.clear(safe));
            pinned.union(&own);
        }
        let mut all = vec![pinned];
        for closed in self.closed.iter().rev() {
            let held = closed.held.as_deref().unwrap_or(&closed.ranges);
            let mut pinned = held.clone();
            let safe = closed.log.before(settled);
            safe.for_each(|safe| pinned.clear(safe));
            all.push(pinned);
        }
        Needed { dirty, pinned: all }
    }

    fn shrink(&mut self) {
        self.pieces.shrink();
        self.coverage.shrink();
        self.dirty.log.shrink();
        self.dirty.ranges.shrink();
        if let Some(spilled) = &mut self.spilled {
            spilled.shrink();
        }
        for closed in &mut self.closed {
            closed.log.shrink();
            closed.ranges.shrink();
            closed.pieces.iter_mut().for_each(Pieces::shrink);
        }
    }

    /// The records of the spilled bytes of `range`, ascending.
    pub(crate) fn spilled_in(&self, range: ByteRange) -> Vec<(ByteRange, Lsn)> {
        let mut found = Vec::new();
        let Some(spilled) = &self.spilled else {
            return found;
        };
        let mut rest: Vec<ByteRange> = spilled.set_ranges(range).collect();
        for of in self.newest_first() {
            if rest.is_empty() {
                break;
            }
            let runs = rest.iter();
            let own = runs.flat_map(|run| of.ranges.set_ranges(*run));
            found.extend(own.flat_map(|own| of.log.records(own)));
            let runs = rest.iter();
            rest = runs.flat_map(|run| of.ranges.unset_ranges(*run)).collect();
        }
        debug_assert!(rest.is_empty(), "spilled bytes are dirty");
        found.extend(rest.into_iter().map(|range| (range, NO_RECORD)));
        found.sort_unstable_by_key(|(range, _)| range.start);
        found
    }

    /// The oldest record that a dirty byte refers to.
    pub(crate) fn oldest_record(&self) -> Option<Lsn> {
        let records = self.newest_first().flat_map(|of| of.log.all());
        records.map(|(_, lsn)| lsn).min()
    }

    /// Number of spilled bytes.
    pub(crate) fn spilled_len(&self) -> u64 {
        self.spilled.as_ref().map_or(0, |spilled| spilled.len())
    }

    /// Fills in spilled bytes whose record is `lsn`: `data`, which is a part of `arrived`. Returns their number.
    pub(crate) fn fill_logged(
        &mut self,
        lsn: Lsn,
        at: u64,
        data: &[u8],
        arrived: &Arrived,
        pool: &Arc<Pool>,
    ) -> u64 {
        let range = ByteRange::at(at, data.len() as u64);
        let mut filled = 0;
        for (part, record) in self.spilled_in(range) {
            if record != lsn {
                continue;
            }
            let bytes = &data[to_usize(part.start - at)..to_usize(part.end - at)];
            self.take_over(part.start, bytes, arrived, pool);
            self.forget_spilled(part);
            filled += part.len();
        }
        filled
    }

    /// Whether a byte of `range` is known.
    pub(super) fn knows_any(&self, range: ByteRange) -> bool {
        let spilled = self.spilled.as_ref();
        self.coverage.touches(range) || spilled.is_some_and(|spilled| spilled.touches(range))
    }

    /// The bytes in `range` are not in the log alone any more.
    #[inline]
    pub(super) fn forget_spilled(&mut self, range: ByteRange) {
        if self.spilled.is_some() {
            self.keep_spilled(|spilled| spilled.clear(range));
        }
    }

    /// The part of the newest dirty ranges that is in memory, if it is not all of them.
    pub(super) fn held_of_newest(&self) -> Option<Box<RangeBitmap>> {
        let spilled = self.spilled.as_ref()?;
        if spilled.common_len(&self.dirty.ranges) == 0 {
            return None;
        }
        let mut held = Box::new(self.dirty.ranges.clone());
        held.subtract(spilled);
        Some(held)
    }

    /// Dirty bytes that are in the log alone, counted for each checkpoint.
    pub(super) fn spilled_bytes(&self) -> u64 {
        let common = |ranges: &RangeBitmap| {
            let spilled = self.spilled.as_ref();
            spilled.map_or(0, |spilled| spilled.common_len(ranges))
        };
        let closed = self.closed.iter();
        let of_closed = closed.map(|closed| match (&closed.pieces, &closed.held) {
            (Some(_), None) => 0,
            // The newest state may have got some back since.
            (Some(_), Some(held)) => {
                let covered = |set| self.coverage.common_len(set);
                let in_memory = held.len() + covered(&closed.ranges) - covered(held);
                closed.ranges.len() - in_memory
            }
            // An image has or had them: what counts is whether the newest state needs memory for them.
            (None, _) => common(&closed.ranges),
        });
        common(&self.dirty.ranges) + of_closed.sum::<u64>()
    }

    /// The bytes in `gone` leave the file: closed checkpoints do not have its newest bytes there any more.
    pub(super) fn leave_stale(&mut self, gone: ByteRange) {
        for closed in self.closed.iter_mut().filter(|it| it.has_records()) {
            if closed.ranges.touches(gone) {
                closed.stale.get_or_insert_default().set(gone);
            }
        }
    }

    /// These ranges of a checkpoint have become clean before it is published. Returns whether bytes are not known any
    /// more.
    pub(super) fn forget_uploaded(
        &mut self,
        checkpoint: CheckpointId,
        mut ranges: RangeBitmap,
    ) -> bool {
        let (mut older, mut newer) = (Vec::new(), Vec::new());
        for closed in &mut self.closed {
            match closed.checkpoint < checkpoint {
                true => older.push(closed),
                false => newer.push(&*closed),
            }
        }
        for closed in older.into_iter().filter(|it| it.has_records()) {
            if closed.ranges.common_len(&ranges) > 0 {
                closed.stale.get_or_insert_default().union(&ranges);
            }
        }
        // An older checkpoint may have the same bytes, but not their newest content.
        newer
            .into_iter()
            .for_each(|closed| ranges.subtract(&closed.ranges));
        ranges.subtract(&self.dirty.ranges);
        self.keep_spilled(|spilled| spilled.subtract(&ranges))
    }

    /// Only the checkpoints that are left have spilled bytes. Returns whether bytes are not known any more.
    pub(super) fn forget_published(&mut self) -> bool {
        if self.spilled.is_none() {
            return false;
        }
        let mut left = self.dirty.ranges.clone();
        let closed = self.closed.iter();
        closed.for_each(|closed| left.union(&closed.ranges));
        self.keep_spilled(|spilled| spilled.intersect(&left))
    }

    /// Takes some bytes out of the spilled ones; returns whether there were any.
    fn keep_spilled(&mut self, some: impl FnOnce(&mut RangeBitmap)) -> bool {
        let Some(mut spilled) = self.spilled.take() else {
            return false;
        };
        let before = spilled.len();
        some(&mut spilled);
        let has_lost = spilled.len() < before;
        self.spilled = (!spilled.is_empty()).then_some(spilled);
        has_lost
    }

    /// Whether the parts of its state agree. For debug builds: it takes time.
    pub(crate) fn is_consistent(&self) -> bool {
        let Some(spilled) = &self.spilled else {
            return true;
        };
        let all = ByteRange::new(0, BLOCK_SIZE);
        let records = self.spilled_in(all);
        spilled.common_len(&self.coverage) == 0
            && !spilled.is_empty()
            && records.iter().map(|(range, _)| range.len()).sum::<u64>() == spilled.len()
            && records.iter().all(|(_, lsn)| *lsn != NO_RECORD)
    }

    /// The checkpoints that have dirty ranges, the newest one first.
    fn newest_first(&self) -> impl Iterator<Item = Version<'_>> {
        let newest = Version {
            ranges: &self.dirty.ranges,
            log: &self.dirty.log,
            stale: None,
        };
        let closed = self.closed.iter().rev().map(|closed| Version {
            ranges: &closed.ranges,
            log: &closed.log,
            stale: closed.stale.as_deref(),
        });
        std::iter::once(newest).chain(closed)
    }
}

impl Closed {
    fn has_records(&self) -> bool {
        !self.log.is_empty()
    }

    /// Drops the memory of a piece, all needed bytes of which the log has.
    fn drop_piece(&mut self, index: usize, range: ByteRange) {
        let Some(pieces) = &mut self.pieces else {
            return;
        };
        if pieces.memory(index).is_none() {
            return;
        }
        pieces.remove(index);
        let held = self
            .held
            .get_or_insert_with(|| Box::new(self.ranges.clone()));
        held.clear(range);
        held.shrink();
    }
}
