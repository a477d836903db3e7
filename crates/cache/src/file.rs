//! All blocks of one file.

mod checkpoints;
mod spill;

use crate::arrived::Arrived;
use crate::block::{Block, Footprint};
use crate::fetch::{FetchToken, Lost};
use crate::piece::PIECE_SIZE;
use crate::{Cache, RangeBitmap};
use forebay_types::{BlockIndex, BlockKey, ByteRange, CheckpointId, Inode, Lsn, Pieces, to_usize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use spill::Spilled;

/// The block buffers of one file. Its owner keeps it under the file's own lock.
///
/// Nothing here fails or waits. Dropping it drops everything in it, dirty or not.
#[derive(Debug)]
pub struct FileBlocks {
    inode: Inode,
    cache: Arc<Cache>,
    blocks: BTreeMap<BlockIndex, Box<Block>>,
    /// Which blocks are dirty in which unpublished checkpoint.
    dirty_in: BTreeMap<CheckpointId, BTreeSet<BlockIndex>>,
    dirty_bytes: u64,
    lost: Lost,
}

/// The result of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The block is evicted, and freed this many bytes. Memory that it has [taken over](FileBlocks::take_over) counts
    /// as its pieces, but is freed with the last piece that shares that memory.
    Evicted(u64),
    /// It was used since it was queued, and that use queues it again.
    Touched,
    /// It is dirty, and is queued when it is published; or an image holds its memory, and it is queued again as if
    /// just used.
    Busy,
    /// There is no such block.
    Absent,
}

/// A block in memory, as [`FileBlocks::in_memory`] finds it.
#[derive(Clone, Debug)]
pub struct InMemory {
    /// The block.
    pub block: BlockIndex,
    /// Number of its covered bytes.
    pub covered_bytes: u64,
    /// Number of its bytes that are in the log alone.
    pub spilled_bytes: u64,
    /// The ranges, within the block, that are covered or spilled, and dirty in some checkpoint.
    pub unpublished: RangeBitmap,
}

impl FileBlocks {
    /// No blocks. Costs no heap memory.
    pub fn new(inode: Inode, cache: Arc<Cache>) -> FileBlocks {
        FileBlocks {
            inode,
            // Fetches for an earlier value of this inode are out of date.
            lost: Lost::all_before(cache.tick()),
            cache,
            blocks: BTreeMap::new(),
            dirty_in: BTreeMap::new(),
            dirty_bytes: 0,
        }
    }

    /// Copies `data` to `offset`. The bytes are covered and dirty for `open`, the checkpoint that is open now. If an
    /// older one has dirty bytes in a block that this touches, that checkpoint is considered closed, and keeps its
    /// bytes as they were.
    ///
    /// `open` must not go back while dirty bytes of a newer one are here; if it does, the bytes belong to the newer
    /// one.
    ///
    /// `record` is the position of the record in the log that has these bytes; `None` if the log does not have them. It
    /// must lie in `open` as well: once a checkpoint is published, the log need not have its records any more.
    ///
    /// Returns the last block that became completely dirty in `open` by this call.
    pub fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        open: CheckpointId,
        record: Option<Lsn>,
    ) -> Option<BlockIndex> {
        let tick = self.cache.tick();
        let record = record.filter(|_| self.cache.may_note_records());
        let mut data = data;
        let mut filled = None;
        for (index, within) in BlockIndex::split(ByteRange::at(offset, data.len() as u64)) {
            let (part, rest) = data.split_at(to_usize(within.len()));
            data = rest;
            let (became_dirty, is_filled) = self.change(index, |block, cache| {
                let was_whole = block.is_whole_in(open);
                let became_dirty = block.write(within.start, part, open, record, tick, &cache.pool);
                (became_dirty, !was_whole && block.is_whole_in(open))
            });
            if let Some(checkpoint) = became_dirty {
                self.dirty_in.entry(checkpoint).or_default().insert(index);
            }
            if is_filled {
                filled = Some(index);
            }
        }
        filled
    }

    /// Makes covered and clean bytes of `range` dirty for `open`, unchanged, so that they are uploaded once more. For
    /// bytes whose copy in the bucket is damaged. Returns their number.
    pub fn upload_again(&mut self, range: ByteRange, open: CheckpointId) -> u64 {
        let tick = self.cache.tick();
        let mut bytes = 0;
        for (index, within) in BlockIndex::split(range) {
            let again = |block: &mut Block| block.upload_again(within, open, tick);
            let Some((clean, became_dirty)) = self.change_if_there(index, again) else {
                continue;
            };
            bytes += clean;
            if let Some(checkpoint) = became_dirty {
                self.dirty_in.entry(checkpoint).or_default().insert(index);
            }
        }
        bytes
    }

    /// Copies the covered bytes from `offset` on to `out`: the newest ones, dirty or clean. The bytes of `out` for other
    /// ranges of the file are left unchanged. Ranges that are in the log alone are pushed to `spilled` with the record
    /// that has them; all others to `missing`. Both ascend, and adjacent ranges are merged.
    pub fn read(
        &mut self,
        offset: u64,
        out: &mut [u8],
        missing: &mut Vec<ByteRange>,
        spilled: &mut Vec<(ByteRange, Lsn)>,
    ) {
        let tick = self.cache.tick();
        let own_spilled = spilled.len();
        let mut logged = |range: ByteRange, lsn| match spilled.get_mut(own_spilled..) {
            Some([.., (last, of)]) if last.end == range.start && *of == lsn => last.end = range.end,
            _ => spilled.push((range, lsn)),
        };
        let own = missing.len();
        let mut miss = |range: ByteRange| match missing.get_mut(own..) {
            Some([.., last]) if last.end == range.start => last.end = range.end,
            _ => missing.push(range),
        };
        let mut out = out;
        for (index, within) in BlockIndex::split(ByteRange::at(offset, out.len() as u64)) {
            let (part, rest) = out.split_at_mut(to_usize(within.len()));
            out = rest;
            let start = index.start();
            let absolute = |range: ByteRange| ByteRange::at(start + range.start, range.len());
            match self.blocks.get_mut(&index) {
                Some(block) => {
                    block.last_use = tick;
                    let miss = |range| miss(absolute(range));
                    block.read(within.start, part, miss, |range, lsn| {
                        logged(absolute(range), lsn);
                    });
                }
                None => miss(absolute(within)),
            }
        }
    }

    /// The newest bytes of `range`, in order. `None`, without counting as a use of the blocks, if one of them is not
    /// covered.
    ///
    /// The bytes do not change, whatever is written meanwhile. Most of them are not copied: they share memory with
    /// the blocks, which counts as allocated, and keeps the blocks from being evicted until the bytes are dropped.
    /// That is at most twice as much memory as there are bytes.
    pub fn lend(&mut self, range: ByteRange) -> Option<Pieces> {
        if !self.is_covered(range) {
            return None;
        }
        let tick = self.cache.tick();
        let mut lent = Pieces::with_capacity((range.len() / PIECE_SIZE) as usize + 2);
        for (index, within) in BlockIndex::split(range) {
            if let Some(block) = self.blocks.get_mut(&index) {
                block.last_use = tick;
                block.lend(within).for_each(|stretch| lent.push(stretch));
            }
        }
        Some(lent)
    }

    /// Whether every byte of the range is covered.
    pub fn is_covered(&self, range: ByteRange) -> bool {
        BlockIndex::split(range).all(|(index, within)| {
            let block = self.blocks.get(&index);
            block.is_some_and(|block| block.is_covered(within))
        })
    }

    /// Whether every byte of the range is covered, or in the log alone: none of it has to be fetched from the bucket.
    pub fn is_known(&self, range: ByteRange) -> bool {
        BlockIndex::split(range).all(|(index, within)| {
            let block = self.blocks.get(&index);
            block.is_some_and(|block| block.is_known(within))
        })
    }

    /// The parts of `range` that are not [known](Self::is_known), ascending, pushed to `missing`. Unlike
    /// [`read`](Self::read), this does not count as a use of the blocks.
    pub fn unknown(&self, range: ByteRange, missing: &mut Vec<ByteRange>) {
        for (index, within) in BlockIndex::split(range) {
            let start = index.start();
            let absolute = |range: ByteRange| ByteRange::at(start + range.start, range.len());
            match self.blocks.get(&index) {
                Some(block) => missing.extend(block.unknown(within).map(absolute)),
                None => missing.push(absolute(within)),
            }
        }
    }

    /// Fills in bytes of the bucket, only where nothing is [known](Self::is_known); never makes anything dirty. Bytes that were
    /// fetched without the file's lock must not be filled in unless [`is_current`](Self::is_current) returns true.
    pub fn fill(&mut self, offset: u64, data: &[u8]) {
        self.fill_with(offset, data, None);
    }

    /// Like [`fill`](Self::fill), without a copy where that pays: pieces that lie in the arrived memory for half of
    /// their length or more share that memory, which counts as allocated as long as one of them does.
    pub fn take_over(&mut self, offset: u64, arrived: &Arrived) {
        self.fill_with(offset, arrived.bytes(), Some(arrived));
    }

    fn fill_with(&mut self, offset: u64, data: &[u8], arrived: Option<&Arrived>) {
        let tick = self.cache.tick();
        let mut data = data;
        for (index, within) in BlockIndex::split(ByteRange::at(offset, data.len() as u64)) {
            let (part, rest) = data.split_at(to_usize(within.len()));
            data = rest;
            self.change(index, |block, cache| {
                block.last_use = tick;
                block.fill(within.start, part, arrived, &cache.pool);
            });
        }
    }

    /// Must be taken under the file's lock when a fetch of missing bytes is planned.
    ///
    /// While the fetch is under way, the file may be written, published and evicted, or truncated and extended again.
    /// The fetched bytes are then older than the file, and no coverage is left to keep them out.
    pub fn fetch_token(&self) -> FetchToken {
        FetchToken::at(self.cache.now())
    }

    /// Whether bytes of `range` that were fetched since the token was taken may still be served, and filled in where
    /// nothing is covered. False after a truncate of the file, after an eviction of a block of the range that had been
    /// written to, and after bytes of such a block that were in the log alone became clean, or clean ones beside them
    /// were dropped; plan the fetch again then.
    pub fn is_current(&self, token: FetchToken, range: ByteRange) -> bool {
        self.lost.nothing_since(token, range)
    }

    /// Drops everything at and behind `size` that is known or dirty in `open`. Bytes that are dirty there in an
    /// older checkpoint are kept for its image, and are no longer readable.
    pub fn truncate(&mut self, size: u64, open: CheckpointId) {
        let tick = self.cache.tick();
        self.lost.everything(tick);
        let first = BlockIndex::of(size);
        let indices: Vec<BlockIndex> = self
            .blocks
            .range(first..)
            .map(|(index, _)| *index)
            .collect();
        for index in indices {
            let from = size.saturating_sub(index.start());
            let cleaned = self.change_if_there(index, |block| block.truncate(from, open, tick));
            let dirty = cleaned
                .flatten()
                .and_then(|checkpoint| self.dirty_in.get_mut(&checkpoint));
            if let Some(dirty) = dirty {
                dirty.remove(&index);
            }
        }
    }

    /// Drops all of a deleted file except the bytes that a checkpoint older than `open` still has to upload.
    pub fn clear(&mut self, open: CheckpointId) {
        self.truncate(0, open);
    }

    /// Evicts a block if it is clean, nothing else holds its memory, and it was not used since it was queued. For the
    /// block that [`Cache::coldest`] returned, or any other.
    pub fn evict(&mut self, block: BlockIndex) -> Eviction {
        let key = self.key(block);
        let Some(found) = self.blocks.get_mut(&block) else {
            return Eviction::Absent;
        };
        let queued = found.queued.take();
        if let Some(tick) = queued {
            self.cache.order.remove(tick, key);
        }
        let touched = queued.is_some_and(|tick| tick < found.last_use);
        let refused = if found.is_dirty() {
            Eviction::Busy
        } else if found.is_held() {
            found.last_use = self.cache.tick();
            Eviction::Busy
        } else if touched {
            Eviction::Touched
        } else {
            let bytes = found.allocated_bytes();
            if found.was_written {
                self.lost.block(block, self.cache.tick());
            }
            self.remove(block);
            self.cache.evicted(bytes);
            return Eviction::Evicted(bytes);
        };
        found.queue_if_clean(key, &self.cache);
        refused
    }

    /// Dirty bytes of this file, counted like [`Cache::dirty_bytes`].
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes
    }

    /// Memory of the newest state of all blocks: pieces and overhead, in bytes. Walks over all
    /// pieces.
    pub fn allocated_bytes(&self) -> u64 {
        self.blocks
            .values()
            .map(|block| block.allocated_bytes())
            .sum()
    }

    /// The blocks from `from` on, ascending, at most `limit`. Does not count as a use of them.
    pub fn in_memory(&self, from: BlockIndex, limit: usize) -> Vec<InMemory> {
        let blocks = self.blocks.range(from..).take(limit);
        let seen = blocks.map(|(index, block)| InMemory {
            block: *index,
            covered_bytes: block.covered_bytes(),
            spilled_bytes: block.spilled_len(),
            unpublished: block.unpublished(),
        });
        seen.collect()
    }

    /// Whether there is no block: nothing to read, to upload or to evict.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    fn key(&self, block: BlockIndex) -> BlockKey {
        BlockKey {
            inode: self.inode,
            block,
        }
    }

    /// Changes a block, which is created if needed, and updates everything that depends on it.
    fn change<R>(&mut self, index: BlockIndex, change: impl FnOnce(&mut Block, &Cache) -> R) -> R {
        let key = self.key(index);
        let block = self.blocks.entry(index).or_default();
        let result = change(block, &self.cache);
        settle(block, key, &self.cache, &mut self.dirty_bytes);
        result
    }

    /// Changes a block if it exists, and updates everything that depends on it.
    fn change_if_there<R>(
        &mut self,
        index: BlockIndex,
        change: impl FnOnce(&mut Block) -> R,
    ) -> Option<R> {
        let key = self.key(index);
        let block = self.blocks.get_mut(&index)?;
        let result = change(block);
        settle(block, key, &self.cache, &mut self.dirty_bytes);
        if block.is_vacant() {
            self.remove(index);
        }
        Some(result)
    }

    fn remove(&mut self, index: BlockIndex) {
        let key = self.key(index);
        if let Some(block) = self.blocks.remove(&index) {
            if let Some(tick) = block.queued {
                self.cache.order.remove(tick, key);
            }
            if let Some(tick) = block.queued_dirty {
                self.cache.dirty_order.remove(tick, key);
            }
            let nothing = Footprint::default();
            replace_account(block.accounted, nothing, &self.cache, &mut self.dirty_bytes);
        }
    }
}

impl Drop for FileBlocks {
    fn drop(&mut self) {
        while let Some((index, _)) = self.blocks.first_key_value() {
            self.remove(*index);
        }
    }
}

/// Updates the accounts and the order of use after a change of a block.
fn settle(block: &mut Block, key: BlockKey, cache: &Cache, dirty_bytes: &mut u64) {
    let after = block.footprint();
    let before = std::mem::replace(&mut block.accounted, after);
    replace_account(before, after, cache, dirty_bytes);
    block.queue_if_clean(key, cache);
    block.queue_if_dirty(key, cache);
    debug_assert!(block.is_consistent());
}

fn replace_account(before: Footprint, after: Footprint, cache: &Cache, dirty_bytes: &mut u64) {
    *dirty_bytes = *dirty_bytes + after.dirty_bytes - before.dirty_bytes;
    cache.account(before, after);
}
