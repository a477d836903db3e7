//! Eager upload: which blocks may be uploaded before their checkpoint closes, and where their bytes lie until they
//! are published.
//!
//! A writer that goes through a file in order does not come back to a full block. Such a block is uploaded at once,
//! while its checkpoint is still open, and is clean from then on: a stream takes only as much memory as its writer is
//! ahead of the bucket. Nothing in the bucket refers to the block yet. Until the checkpoint is published, the block
//! maps here take precedence over the published ones, and after a crash the bytes are still in the log.

use std::collections::{BTreeMap, BTreeSet};

use forebay_meta::record::BlockMap;
use forebay_types::{BLOCK_SIZE, BlockIndex, ByteRange, CheckpointId};

/// The pattern of the writes to one file. It has no clock and does no I/O.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteStream {
    /// Start of the bytes that were written in a row.
    start: u64,
    /// Their end.
    end: u64,
}

/// Which blocks of a file may be uploaded after a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MayUpload {
    Nothing,
    /// The block that the write has filled.
    Filled,
    /// Every full block in this range: with this write the writes are a stream.
    All(ByteRange),
}

impl WriteStream {
    /// Notes a write. Returns which blocks may be uploaded, once the bytes written in a row span at least `enough`.
    /// Clients send writes in parallel, and they arrive in any order: a write that begins less than a block from the
    /// end of the writes before it continues them.
    pub(crate) fn goes_on(&mut self, written: ByteRange, enough: u64) -> MayUpload {
        if written.start.abs_diff(self.end) > BLOCK_SIZE {
            *self = WriteStream::default();
        }
        let before = self.end - self.start;
        if before == 0 {
            self.start = written.start;
        }
        self.start = self.start.min(written.start);
        self.end = self.end.max(written.end);
        match self.end - self.start >= enough {
            false => MayUpload::Nothing,
            true if before >= enough && before > 0 => MayUpload::Filled,
            true => MayUpload::All(ByteRange::new(self.start, self.end)),
        }
    }
}

/// Block maps of the blocks that were uploaded before their checkpoint was published.
#[derive(Debug, Default)]
pub(crate) struct EarlyMaps {
    by_checkpoint: BTreeMap<CheckpointId, BTreeMap<BlockIndex, BlockMap>>,
}

impl EarlyMaps {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_checkpoint.is_empty()
    }

    /// Whether the block was uploaded in this checkpoint.
    pub(crate) fn has(&self, checkpoint: CheckpointId, block: BlockIndex) -> bool {
        self.of(checkpoint, block).is_some()
    }

    /// The map of the block that was uploaded in this checkpoint.
    pub(crate) fn of(&self, checkpoint: CheckpointId, block: BlockIndex) -> Option<&BlockMap> {
        self.by_checkpoint.get(&checkpoint)?.get(&block)
    }

    /// The maps of all blocks that were uploaded in this checkpoint.
    pub(crate) fn all_of(
        &self,
        checkpoint: CheckpointId,
    ) -> impl Iterator<Item = (BlockIndex, &BlockMap)> {
        let maps = self.by_checkpoint.get(&checkpoint).into_iter().flatten();
        maps.map(|(block, map)| (*block, map))
    }

    /// The newest map of the block, and its checkpoint.
    pub(crate) fn newest(&self, block: BlockIndex) -> Option<(CheckpointId, &BlockMap)> {
        let mut newest_first = self.by_checkpoint.iter().rev();
        newest_first.find_map(|(checkpoint, maps)| Some((*checkpoint, maps.get(&block)?)))
    }

    /// The blocks from `from` on that were uploaded in any checkpoint, ascending, at most `limit`.
    pub(crate) fn blocks(&self, from: BlockIndex, limit: usize) -> Vec<BlockIndex> {
        let maps = self.by_checkpoint.values();
        let of_each = maps.flat_map(|maps| maps.range(from..).take(limit));
        let blocks: BTreeSet<BlockIndex> = of_each.map(|(block, _)| *block).collect();
        blocks.into_iter().take(limit).collect()
    }

    /// Notes that the whole block was uploaded in this checkpoint, and lies where `map` says.
    pub(crate) fn insert(&mut self, checkpoint: CheckpointId, block: BlockIndex, map: BlockMap) {
        let maps = self.by_checkpoint.entry(checkpoint).or_default();
        maps.insert(block, map);
    }

    /// Cuts the file off at `size` in this checkpoint. Maps of an older one are kept for its publication.
    pub(crate) fn cut(&mut self, size: u64, open: CheckpointId) {
        let Some(maps) = self.by_checkpoint.get_mut(&open) else {
            return;
        };
        let first = BlockIndex::of(size);
        let mut behind = maps.split_off(&first);
        if let Some(mut map) = behind.remove(&first) {
            map.truncate(size.saturating_sub(first.start()));
            if !map.is_empty() {
                maps.insert(first, map);
            }
        }
        if maps.is_empty() {
            self.by_checkpoint.remove(&open);
        }
    }

    /// Forgets the maps of this checkpoint and those before it: the published block maps hold them now.
    pub(crate) fn published(&mut self, checkpoint: CheckpointId) {
        self.by_checkpoint.retain(|own, _| *own > checkpoint);
    }

    /// Bytes of all blocks in these maps.
    pub(crate) fn bytes(&self) -> u64 {
        let maps = self.by_checkpoint.values().flat_map(BTreeMap::values);
        maps.map(BlockMap::mapped_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use forebay_meta::FrameAddress;
    use forebay_types::PackId;

    use super::*;

    const ENOUGH: u64 = 2 * BLOCK_SIZE;
    const MIB: u64 = 1 << 20;

    #[test]
    fn writes_in_order_are_recognised_and_jumps_are_not() {
        let mut stream = WriteStream::default();
        let mut write = |i: u64| stream.goes_on(ByteRange::at(i * MIB, MIB), ENOUGH);
        let most = ENOUGH / MIB - 1;
        assert!((0..most).all(|i| write(i) == MayUpload::Nothing));
        assert_eq!(write(most), MayUpload::All(ByteRange::new(0, ENOUGH)));
        assert!((most + 1..100).all(|i| write(i) == MayUpload::Filled));
        assert_eq!(write(1 << 20), MayUpload::Nothing);
        let mut jump = |i: u64| write((i * 7919 % 1000) * 8);
        assert!((0..1000).all(|i| jump(i) == MayUpload::Nothing));
    }

    #[test]
    fn writes_that_arrive_out_of_order_keep_the_stream_and_its_beginning() {
        let mut stream = WriteStream::default();
        // Pairs arrive swapped, from the middle of the file on.
        let mut write = |i: u64| stream.goes_on(ByteRange::at((64 + (i ^ 1)) * MIB, MIB), ENOUGH);
        // The second-last write of the required length comes first.
        let most = ENOUGH / MIB - 2;
        assert!((0..most).all(|i| write(i) == MayUpload::Nothing));
        let begun = ByteRange::at(64 * MIB, ENOUGH);
        assert_eq!(write(most), MayUpload::All(begun));
        assert!((most + 1..64).all(|i| write(i) == MayUpload::Filled));
    }

    #[test]
    fn with_nothing_to_wait_for_the_first_write_is_a_stream() {
        let mut stream = WriteStream::default();
        let first = ByteRange::at(5, MIB);
        assert_eq!(stream.goes_on(first, 0), MayUpload::All(first));
        assert_eq!(
            stream.goes_on(ByteRange::at(5 + MIB, 1), 0),
            MayUpload::Filled
        );
    }

    fn map(pack: u64) -> BlockMap {
        let mut map = BlockMap::new();
        let frame = FrameAddress {
            pack: PackId(pack),
            offset: 28,
            stored_len: BLOCK_SIZE as u32,
            raw_len: BLOCK_SIZE as u32,
            raw_start: 0,
            crc32: 1,
            origin: None,
        };
        map.insert(ByteRange::new(0, BLOCK_SIZE), frame).unwrap();
        map
    }

    #[test]
    fn a_cut_takes_from_its_own_checkpoint_and_publication_takes_what_is_older() {
        let (one, two) = (CheckpointId(1), CheckpointId(2));
        let mut early = EarlyMaps::default();
        for block in 0..4 {
            early.insert(one, BlockIndex(block), map(block));
            early.insert(two, BlockIndex(block), map(10 + block));
        }
        early.cut(2 * BLOCK_SIZE + 5, two);
        let left = |early: &EarlyMaps, checkpoint| {
            let all = early.all_of(checkpoint);
            all.map(|(_, map)| map.mapped_bytes()).collect::<Vec<_>>()
        };
        assert_eq!(left(&early, one), [BLOCK_SIZE; 4]);
        assert_eq!(left(&early, two), [BLOCK_SIZE, BLOCK_SIZE, 5]);
        assert_eq!(early.bytes(), 6 * BLOCK_SIZE + 5);
        assert_eq!(early.newest(BlockIndex(1)), Some((two, &map(11))));
        assert_eq!(early.newest(BlockIndex(3)), Some((one, &map(3))));
        early.published(one);
        assert_eq!(early.newest(BlockIndex(3)), None);
        early.cut(0, two);
        assert!(early.is_empty());
    }
}
