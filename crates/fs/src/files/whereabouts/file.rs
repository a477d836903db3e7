//! The bytes of one file.

use std::sync::Arc;

use forebay_cache::{InMemory, RangeBitmap};
use forebay_meta::record::{BlockMap, Extent, InodeRecord, TruncatedBlocks};
use forebay_types::{BLOCK_SIZE, BlockIndex, ByteRange, Inode};

use super::walk::Walk;
use crate::state::{Node, NodeState};

/// How many blocks are looked at under one lock of their file, and with one scan.
const STEP: usize = 64;

/// The unpublished bytes of a file, and those in memory.
#[derive(Default)]
pub(super) struct Local {
    /// Bytes in memory.
    pub(super) covered: u64,
    /// Bytes that have to be uploaded.
    pub(super) dirty: u64,
    /// Bytes in packs that are not published.
    pub(super) uploaded: u64,
}

/// The bytes of a node that are in memory or not published.
pub(super) async fn local(node: &Node) -> Local {
    let mut sums = Local::default();
    let mut from = BlockIndex(0);
    loop {
        let blocks = node.lock().blocks.in_memory(from, STEP);
        for block in &blocks {
            sums.covered += block.covered_bytes;
            sums.dirty += block.unpublished.len();
        }
        match blocks.last() {
            Some(last) if blocks.len() == STEP => from = BlockIndex(last.block.0 + 1),
            _ => break,
        }
        tokio::task::yield_now().await;
    }
    let mut from = BlockIndex(0);
    loop {
        let (last, count) = {
            let state = node.lock();
            let blocks = state.early.blocks(from, STEP);
            for block in &blocks {
                let map = state.early_map(*block).unwrap_or_default();
                let dirty = dirty_of(&state, *block);
                let ranges = map.extents().iter().map(|extent| extent.range);
                sums.uploaded += ranges.map(|range| clean_bytes(&dirty, range)).sum::<u64>();
            }
            (blocks.last().copied(), blocks.len())
        };
        match last {
            Some(last) if count == STEP => from = BlockIndex(last.0 + 1),
            _ => break,
        }
        tokio::task::yield_now().await;
    }
    sums
}

fn dirty_of(state: &NodeState, block: BlockIndex) -> RangeBitmap {
    let found = state.blocks.in_memory(block, 1);
    let found = found.into_iter().find(|found| found.block == block);
    found.map_or_else(RangeBitmap::new, |InMemory { unpublished, .. }| unpublished)
}

/// Bytes of `range` that are not dirty.
fn clean_bytes(dirty: &RangeBitmap, range: ByteRange) -> u64 {
    dirty.unset_ranges(range).map(|clean| clean.len()).sum()
}

/// What of the published block maps of a file still holds.
struct Validity {
    truncated: TruncatedBlocks,
    /// They hold below this.
    end: u64,
}

impl Walk<'_> {
    /// Adds the published bytes of a file. Returns false if its block maps cannot be read.
    pub(super) async fn add_published(
        &mut self,
        inode: Inode,
        node: Option<&Arc<Node>>,
        record: &InodeRecord,
    ) -> bool {
        let mut from = BlockIndex(0);
        loop {
            let scan = self.files.state.catalog.block_maps(inode, from, STEP);
            let Some(maps) = self.reading.read(scan).await else {
                return false;
            };
            let (last, count) = (maps.last().map(|(block, _)| *block), maps.len());
            for (block, map) in maps {
                self.add_map(block, map, node, record);
            }
            match last {
                Some(last) if count == STEP => from = BlockIndex(last.0 + 1),
                _ => return true,
            }
            tokio::task::yield_now().await;
        }
    }

    fn add_map(
        &mut self,
        block: BlockIndex,
        mut map: BlockMap,
        node: Option<&Arc<Node>>,
        record: &InodeRecord,
    ) {
        let mut dirty = RangeBitmap::new();
        let mut valid = Validity {
            truncated: record.truncated.clone(),
            end: record.size,
        };
        if let Some(node) = node {
            let state = node.lock();
            if state.early_map(block).is_some() {
                return;
            }
            valid = Validity {
                truncated: state.record.truncated.clone(),
                end: state.published_end().min(state.record.size),
            };
            dirty = dirty_of(&state, block);
        }
        if valid.truncated.contains(block) || valid.end <= block.start() {
            return;
        }
        if valid.end < block.start() + BLOCK_SIZE {
            map.truncate(valid.end - block.start());
        }
        for Extent { range, frame } in map.extents() {
            let bytes = clean_bytes(&dirty, *range);
            if bytes == 0 {
                continue;
            }
            let report = &mut self.report;
            report.published_bytes += bytes;
            let raw = u64::from(frame.raw_len).max(1);
            report.stored_bytes += (bytes * u64::from(frame.stored_len)).div_ceil(raw);
            if frame.origin.is_some() {
                report.shared_bytes += bytes;
            }
            if self.files.packs.is_on_disk(frame) {
                report.disk_cache_bytes += bytes;
            }
            self.packs.insert(frame.pack);
        }
    }
}
