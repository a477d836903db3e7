//! Bytes of a file that leave memory while the log has them, and come back from there.

use super::{FileBlocks, settle};
use crate::arrived::Arrived;
use forebay_types::{BlockIndex, ByteRange, CheckpointId, Lsn, to_usize};

/// The result of a spill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spilled {
    /// It freed this many bytes, with what the log maps need subtracted. Memory that was
    /// [taken over](FileBlocks::take_over) counts as its pieces, but is freed with the last piece that shares it.
    Freed(u64),
    /// The block was used since it was queued, and that use queues it again.
    Touched,
    /// Nothing can leave memory now: the records are not settled, or some bytes of each piece have none, or an image or
    /// a reader holds the memory. The block is queued again as if just used.
    Busy,
    /// There is no such block, or nothing of it that is dirty and in memory has a record.
    Absent,
}

impl FileBlocks {
    /// Drops the memory of dirty bytes of a block that the log has as well, and of clean bytes beside them, piece by
    /// piece, if the block was not used since it was queued. For the block that
    /// [`Cache::coldest_dirty`](crate::Cache::coldest_dirty) returned, or any other.
    ///
    /// A record that begins before `settled` must be safe as a whole: it is on stable storage, and nothing is written
    /// to its pages any more. So `settled` is the beginning of a record, or the end of the log. Only such records count.
    ///
    /// The dropped bytes stay dirty, and [`read`](Self::read) says which records have them.
    pub fn spill(&mut self, block: BlockIndex, settled: Lsn) -> Spilled {
        let key = self.key(block);
        let Some(found) = self.blocks.get_mut(&block) else {
            return Spilled::Absent;
        };
        let queued = found.queued_dirty.take();
        if let Some(tick) = queued {
            self.cache.dirty_order.remove(tick, key);
        }
        if !found.may_spill() {
            return Spilled::Absent;
        }
        if queued.is_some_and(|tick| tick < found.last_use) {
            found.queue_if_dirty(key, &self.cache);
            return Spilled::Touched;
        }
        let before = found.accounted.overhead_bytes;
        let dropped = found.spill(settled);
        if dropped.bytes == 0 {
            found.queue_dirty(self.cache.tick(), key, &self.cache);
            return Spilled::Busy;
        }
        if dropped.has_lost {
            self.lost.block(block, self.cache.tick());
        }
        settle(found, key, &self.cache, &mut self.dirty_bytes);
        let after = found.accounted.overhead_bytes;
        Spilled::Freed((before + dropped.bytes).saturating_sub(after))
    }

    /// Puts a block back at the end of the order of dirty blocks, once, if `uploading` has dirty ranges in it: that
    /// checkpoint is uploaded now, and would have to read them from the log. Returns whether it was put back; otherwise
    /// it can be [spilled](Self::spill).
    pub fn spare(&mut self, block: BlockIndex, uploading: CheckpointId) -> bool {
        let key = self.key(block);
        let Some(found) = self.blocks.get_mut(&block) else {
            return false;
        };
        if found.spared || found.version(uploading).is_none() || !found.may_spill() {
            return false;
        }
        found.spared = true;
        if let Some(tick) = found.queued_dirty.take() {
            self.cache.dirty_order.remove(tick, key);
        }
        found.queue_dirty(self.cache.tick(), key, &self.cache);
        true
    }

    /// The oldest record that a dirty byte refers to.
    pub fn oldest_record(&self) -> Option<Lsn> {
        let blocks = self.blocks.values();
        blocks.filter_map(|block| block.oldest_record()).min()
    }

    /// Fills in bytes that were read from the record `lsn`: those of `data`, which the record has at `offset`, that are
    /// in the log alone, and whose newest content is that of this record. Other bytes do not change. Returns the number
    /// of bytes that were filled in.
    ///
    /// This needs no [fetch token](Self::fetch_token): a record never changes, and the block knows its newest ones. The
    /// memory of `data` is used as in [`take_over`](Self::take_over).
    pub fn fill_logged(&mut self, lsn: Lsn, offset: u64, data: &Arrived) -> u64 {
        let tick = self.cache.tick();
        let mut bytes = data.bytes();
        let mut filled = 0;
        for (index, within) in BlockIndex::split(ByteRange::at(offset, bytes.len() as u64)) {
            let (part, rest) = bytes.split_at(to_usize(within.len()));
            bytes = rest;
            let key = self.key(index);
            let Some(block) = self.blocks.get_mut(&index) else {
                continue;
            };
            let came = block.fill_logged(lsn, within.start, part, data, &self.cache.pool);
            if came > 0 {
                block.last_use = tick;
                settle(block, key, &self.cache, &mut self.dirty_bytes);
            }
            filled += came;
        }
        filled
    }
}
