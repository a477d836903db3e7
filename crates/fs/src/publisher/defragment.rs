//! Defragmenting: a block whose map has too many extents is assembled and written again in one piece.

use std::collections::HashSet;

use forebay_cache::LoadedImage;
use forebay_meta::record::FrameAddress;
use forebay_pack_store::{FetchError, Fetched};
use forebay_types::{BlockKey, ByteRange, to_usize};

use super::dirty::Rewrite;
use super::{Halted, Publisher};

impl Publisher {
    /// All bytes of a block from its start to the last one that is not a hole: the bucket's bytes, overlaid by the
    /// dirty ones. `None` if the bucket's bytes are damaged: then the dirty ranges are uploaded one by one, and
    /// readers still get errors for the damaged bytes.
    pub(super) async fn whole_block(
        &self,
        key: BlockKey,
        image: &LoadedImage,
        rewrite: &Rewrite,
    ) -> Result<Option<Vec<u8>>, Halted> {
        let live = ByteRange::new(0, rewrite.live);
        let new = image.ranges().map(|range| range.end);
        let len = new.max().unwrap_or(0).max(rewrite.end());
        let mut whole = vec![0; to_usize(len)];
        // Each frame once, though small writes may have cut it into hundreds of extents.
        let mut seen = HashSet::new();
        let extents = rewrite.map.extents().iter();
        let wanted = extents
            .filter(|extent| !extent.range.intersect(live).is_empty())
            .filter(|extent| seen.insert(extent.frame))
            .map(|extent| extent.frame)
            .collect();
        let paste = |address: &FrameAddress, frame: &Fetched| {
            let extents = rewrite.map.extents().iter();
            for extent in extents.filter(|extent| extent.frame == *address) {
                let range = extent.range.intersect(live);
                // A frame has all bytes of its address, or it would not have been opened.
                if let Some(bytes) = frame.part(address, range).filter(|_| !range.is_empty()) {
                    whole[std::ops::Range::<usize>::from(range)].copy_from_slice(bytes);
                }
            }
        };
        if !self.fetch_for_rewrite(key, wanted, paste).await? {
            return Ok(None);
        }
        for range in image.ranges() {
            let mut at = to_usize(range.start);
            for slice in image.slices(range) {
                whole[at..at + slice.len()].copy_from_slice(slice);
                at += slice.len();
            }
        }
        Ok(Some(whole))
    }

    /// Fetches frames of a block until all of them are in memory; false if one of them is damaged.
    async fn fetch_for_rewrite(
        &self,
        block: BlockKey,
        mut wanted: Vec<FrameAddress>,
        mut take: impl FnMut(&FrameAddress, &Fetched),
    ) -> Result<bool, Halted> {
        let mut attempt = 1;
        loop {
            let mut missing = Vec::new();
            let mut trouble = None;
            for waiter in self.context.packs.join_fetches(block, &wanted) {
                for (index, outcome) in waiter
                    .fetch(|bytes| Some(self.context.memory.lease(bytes)))
                    .await
                {
                    match outcome {
                        Ok(frame) => take(&wanted[index], &frame),
                        Err(FetchError::Unavailable(why)) => {
                            missing.push(wanted[index]);
                            trouble = Some(why);
                        }
                        Err(FetchError::Damaged(why)) => {
                            let frame = &wanted[index];
                            self.context.damages.report(block, frame, &why);
                            tracing::error!(
                                "inode {}, bytes from {} on, cannot be defragmented: {why}",
                                block.inode,
                                block.block.start()
                            );
                            return Ok(false);
                        }
                    }
                }
            }
            let Some(why) = trouble else { return Ok(true) };
            self.committer.wait_for_store(&why, attempt).await?;
            wanted = missing;
            attempt += 1;
        }
    }
}
