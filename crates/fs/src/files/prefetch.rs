//! Reading ahead of sequential readers: the fetches. What to fetch is decided by `state::read_streams`.

use std::sync::Arc;

use forebay_cache::FileBlocks;
use forebay_types::{BlockIndex, ByteRange, Inode};

use super::Files;
use crate::state::{FetchPlan, Node, Stream, steps};

/// Block maps that are looked up with one scan.
const MAPS_AT_ONCE: usize = 128;

/// Extents of block maps after which no more are looked up ahead: those of a file that was written in small pieces would
/// push everything else out of the memory for metadata.
const EXTENTS_AHEAD: usize = 8192;

impl Files {
    /// Fetches what is missing of a range of a file, of which `blocks` are here, into the cache in the background, in its order, for
    /// a reader who is so far in the file's stream. What is not his turn yet when he comes there he fetches himself.
    pub(crate) fn prefetch(
        self: &Arc<Self>,
        node: &Arc<Node>,
        blocks: &FileBlocks,
        range: ByteRange,
        stream: &Stream,
    ) {
        let (number, step) = (stream.number(), stream.step());
        let missing = steps(range, step).filter(|range| !blocks.is_covered(*range));
        for range in missing {
            let Some(place) = self.packs.prefetch_place() else {
                return;
            };
            let (core, node) = (self.clone(), node.clone());
            tokio::spawn(async move {
                // It waits here: the semaphore is fair, so blocks come in the order in which they were asked for.
                let turn = core.packs.prefetch_turn().await;
                drop(place);
                core.prefetch_range(&node, range, number).await;
                drop(turn);
            });
        }
    }

    /// Has the metadata of these blocks at hand when they are asked for, unless enough others are at that.
    pub(crate) fn look_up_ahead(self: &Arc<Self>, inode: Inode, from: BlockIndex, blocks: usize) {
        let Some(place) = self.packs.look_up_place() else {
            return;
        };
        let core = self.clone();
        tokio::spawn(async move {
            let (mut from, end) = (from, from.0 + blocks as u64);
            let mut extents = 0;
            while from.0 < end && extents < EXTENTS_AHEAD {
                let count = MAPS_AT_ONCE.min((end - from.0) as usize);
                // A failure here is the reader's to report, when it comes that far.
                let maps = core.state.catalog.block_maps(inode, from, count).await;
                let Ok(maps) = maps else { break };
                extents += maps
                    .iter()
                    .map(|(_, map)| map.extents().len())
                    .sum::<usize>();
                match maps.last() {
                    Some((last, _)) if maps.len() == count => from = BlockIndex(last.0 + 1),
                    _ => break,
                }
            }
            drop(place);
        });
    }

    async fn prefetch_range(&self, node: &Arc<Node>, range: ByteRange, stream: u64) {
        let (plan, missing) = {
            let Ok(state) = node.lock_live() else { return };
            let wanted = state.reads.still_wants(range, stream);
            let mut missing = Vec::new();
            state.blocks.uncovered(range, &mut missing);
            // All from the first to the last: that is one GET.
            let (Some(first), Some(last)) = (missing.first(), missing.last()) else {
                return;
            };
            if !wanted || !state.is_in_bucket() {
                return;
            }
            let missing = [ByteRange::new(first.start, last.end)];
            (FetchPlan::new(&state, &missing), missing)
        };
        // A failure here is the reader's to report, when it comes that far.
        let _ = self.fetch_missing(node, &missing, &plan, None).await;
    }
}
