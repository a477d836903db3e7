//! The dirty blocks of a closed checkpoint, taken over file by file and pack by pack.

use std::collections::VecDeque;
use std::sync::Arc;

use forebay_cache::BlockImage;
use forebay_meta::record::{BlockMap, Extent, MAX_EXTENTS};
use forebay_types::{BLOCK_SIZE, BlockIndex, BlockKey, ByteRange, CheckpointId};

use super::{Halted, Publisher, pack_plan};
use crate::state::{Closed, Node};

/// How many extents a block may get by small writes before it is defragmented.
const FRAGMENTS: usize = MAX_EXTENTS / 4;

/// A block of a checkpoint that is being uploaded.
pub(super) struct DirtyBlock {
    pub(super) key: BlockKey,
    /// The file.
    pub(super) node: Arc<Node>,
    pub(super) image: BlockImage,
    /// Set if the block map has too many extents to take the dirty ranges one by one: then the whole block up to its
    /// end is written again in one piece.
    pub(super) rewrite: Option<Rewrite>,
}

pub(super) struct Rewrite {
    pub(super) map: BlockMap,
    /// Bytes of the old map below this offset are valid.
    pub(super) live: u64,
}

impl Rewrite {
    /// The end of the last valid byte of the old map; 0 if there is none.
    pub(super) fn end(&self) -> u64 {
        // Only the last extent may reach beyond the valid range; one that lies behind it has no valid bytes.
        let begins_before = |extent: &&Extent| extent.range.start < self.live;
        let last = self.map.extents().iter().rev().find(begins_before);
        last.map_or(0, |extent| extent.range.end.min(self.live))
    }
}

impl DirtyBlock {
    pub(super) fn bytes(&self) -> u64 {
        match self.rewrite {
            Some(_) => BLOCK_SIZE,
            None => self.image.dirty_bytes(),
        }
    }

    /// Bytes of the image that have to be loaded from the log, into memory of its own.
    fn logged(&self) -> u64 {
        self.image.logged().map(|(range, _)| range.len()).sum()
    }

    /// The largest number of frames of this block.
    fn frames(&self) -> usize {
        match self.rewrite {
            Some(_) => pack_plan::frames(ByteRange::new(0, BLOCK_SIZE)).count(),
            None => self.image.ranges().flat_map(pack_plan::frames).count(),
        }
    }
}

/// The most bytes of memory that the upload of a pack of these blocks takes: the pack, blocks that are defragmented, which are
/// assembled first, and what comes from the log.
pub(super) fn memory(group: &[DirtyBlock]) -> u64 {
    let frames = group.iter().map(DirtyBlock::frames).sum();
    let raw_bytes = group.iter().map(DirtyBlock::bytes).sum();
    let rewritten = group.iter().filter(|block| block.rewrite.is_some()).count();
    let logged: u64 = group.iter().map(DirtyBlock::logged).sum();
    pack_plan::pack_memory(frames, raw_bytes) + rewritten as u64 * BLOCK_SIZE + logged
}

/// The dirty blocks of a closed checkpoint that have not been taken over yet.
pub(super) struct DirtyBlocks {
    of: CheckpointId,
    nodes: std::vec::IntoIter<Arc<Node>>,
    /// Blocks of the last file that was looked at. Their images are taken one by one: memory that an image holds cannot be
    /// spilled.
    blocks: VecDeque<(Arc<Node>, BlockIndex)>,
}

impl DirtyBlocks {
    pub(super) fn of(closed: &Closed) -> DirtyBlocks {
        DirtyBlocks {
            of: closed.id,
            nodes: closed.nodes.clone().into_iter(),
            blocks: VecDeque::new(),
        }
    }

    /// Whether no files and blocks are left. If false, the remaining files may still have no dirty blocks.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.nodes.len() == 0
    }

    /// The next block; `None` if none is left. A file that the checkpoint removed has none.
    fn next(&mut self) -> Option<(Arc<Node>, BlockIndex)> {
        loop {
            if let Some(next) = self.blocks.pop_front() {
                return Some(next);
            }
            let node = self.nodes.next()?;
            let state = node.lock();
            if !state.as_of(self.of).removed {
                let indices = state.blocks.dirty_blocks(self.of).into_iter();
                let blocks = indices.map(|index| (node.clone(), index));
                self.blocks.extend(blocks);
            }
        }
    }
}

impl Publisher {
    /// Takes over the next blocks: as many as fill a pack of this many bytes, so that small files share a pack with
    /// their neighbours and no block is ever split over two packs. Fewer are the last ones; `None` if none are left.
    pub(super) async fn next_group(
        &self,
        dirty: &mut DirtyBlocks,
        pack_bytes: u64,
    ) -> Result<Option<Vec<DirtyBlock>>, Halted> {
        let mut group = Vec::new();
        let mut filled = 0;
        while filled < pack_bytes
            && let Some((node, index)) = dirty.next()
        {
            if let Some(block) = self.dirty_block(node, index, dirty.of).await? {
                filled += block.bytes();
                group.push(block);
            }
        }
        Ok((!group.is_empty()).then_some(group))
    }

    /// Takes over the dirty ranges of a block; `None` if there are none any more.
    async fn dirty_block(
        &self,
        node: Arc<Node>,
        index: BlockIndex,
        of: CheckpointId,
    ) -> Result<Option<DirtyBlock>, Halted> {
        let (image, early, then) = {
            let mut state = node.lock();
            let Some(image) = state.blocks.image(index, of) else {
                return Ok(None);
            };
            (image, state.early.of(of, index).cloned(), state.as_of(of))
        };
        let key = BlockKey {
            inode: node.inode,
            block: index,
        };
        let floor = then.floor.unwrap_or(u64::MAX);
        // The map of an eager upload was truncated already.
        let (map, floor) = match early {
            Some(map) => (Some(map), u64::MAX),
            None if then.published && !then.record.truncated.contains(key.block) => {
                let map = self
                    .committer
                    .insist(|| self.context.catalog.block_map(key.inode, key.block));
                (map.await?, floor)
            }
            None => (None, floor),
        };
        let rewrite = needs_rewrite(key, &image, map.unwrap_or_default(), floor);
        Ok(Some(DirtyBlock {
            key,
            node,
            image,
            rewrite,
        }))
    }
}

/// Whether the block must be defragmented, given its map and the offset from which the map is not valid.
fn needs_rewrite(key: BlockKey, image: &BlockImage, map: BlockMap, floor: u64) -> Option<Rewrite> {
    let ranges = image.ranges().take(FRAGMENTS + 1).count();
    // Each range may cut an extent in two and adds one, or more if it is longer than a frame.
    if map.extents().len() + 2 * ranges <= FRAGMENTS {
        return None;
    }
    let live = floor.saturating_sub(key.block.start()).min(BLOCK_SIZE);
    Some(Rewrite { map, live })
}
