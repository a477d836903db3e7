//! What checkpoints have to upload of a file.

use super::FileBlocks;
use crate::block::Block;
use crate::{BlockImage, BlockVersion};
use forebay_types::{BlockIndex, ByteRange, CheckpointId};

impl FileBlocks {
    /// The blocks in which this checkpoint, open or closed, has dirty ranges; ascending.
    pub fn dirty_blocks(&self, checkpoint: CheckpointId) -> Vec<BlockIndex> {
        let dirty = self.dirty_in.get(&checkpoint);
        dirty.map_or_else(Vec::new, |dirty| dirty.iter().copied().collect())
    }

    /// Identifies the state of this checkpoint's dirty ranges in the block; none if it has none. Changes with each
    /// write to the block, with each [`upload_again`](Self::upload_again) of some of it, and with each truncate that
    /// drops bytes of it while the checkpoint is open, and with nothing else. An early upload is still valid if this
    /// equals the [`BlockImage::version`] of its image.
    pub fn version(&self, block: BlockIndex, checkpoint: CheckpointId) -> Option<BlockVersion> {
        self.blocks.get(&block)?.version(checkpoint)
    }

    /// Hands over the dirty ranges of a checkpoint in this block, with their current bytes, or those at the close of
    /// the checkpoint.
    ///
    /// The caller is responsible for these bytes until they are in the bucket: it keeps the image to try again, or
    /// passes it to [`put_back`](Self::put_back). None if the checkpoint has no dirty range here, or if they were
    /// handed over before and a newer checkpoint has changed the block since.
    pub fn image(&mut self, block: BlockIndex, checkpoint: CheckpointId) -> Option<BlockImage> {
        self.change_if_there(block, |found| found.image(block, checkpoint))?
    }

    /// Takes back an image that was not uploaded, so that another one can be taken. An image that is out of date
    /// or published is dropped.
    pub fn put_back(&mut self, image: BlockImage) {
        self.change_if_there(image.block(), |block| block.put_back(image));
    }

    /// Whether every byte of the block is dirty in this checkpoint, and no newer one has changed it.
    pub fn is_whole_in(&self, block: BlockIndex, checkpoint: CheckpointId) -> bool {
        let block = self.blocks.get(&block);
        block.is_some_and(|block| block.is_whole_in(checkpoint))
    }

    /// The blocks in the range for which [`is_whole_in`](Self::is_whole_in) is true.
    pub fn whole_in(
        &self,
        range: ByteRange,
        checkpoint: CheckpointId,
    ) -> impl Iterator<Item = BlockIndex> {
        let touched = BlockIndex::split(range).map(|(block, _)| block);
        touched.filter(move |block| self.is_whole_in(*block, checkpoint))
    }

    /// Marks the dirty ranges of this checkpoint in the block as uploaded, although the checkpoint is not published:
    /// they are clean from now on, and a caller that evicts them must know where they lie in the bucket. `version` is
    /// the [`version`](Self::version) at the time of the image. Returns false, and changes nothing, if it has
    /// changed.
    pub fn uploaded(
        &mut self,
        block: BlockIndex,
        checkpoint: CheckpointId,
        version: BlockVersion,
    ) -> bool {
        let uploaded = |found: &mut Block| found.uploaded(checkpoint, version);
        let Some(has_lost) = self.change_if_there(block, uploaded).flatten() else {
            return false;
        };
        if has_lost {
            self.lost.block(block, self.cache.tick());
        }
        if let Some(dirty) = self.dirty_in.get_mut(&checkpoint) {
            dirty.remove(&block);
        }
        true
    }

    /// Marks everything up to and including this checkpoint as published: its ranges are clean. Blocks without dirty
    /// ranges of other checkpoints may be evicted from now on.
    pub fn published(&mut self, checkpoint: CheckpointId) {
        while let Some(first) = self.dirty_in.first_entry() {
            if *first.key() > checkpoint {
                break;
            }
            for index in first.remove() {
                let published = |block: &mut Block| block.published(checkpoint);
                if self.change_if_there(index, published) == Some(true) {
                    // Until now its records kept out what fetches under way bring.
                    self.lost.block(index, self.cache.tick());
                }
            }
        }
    }
}
