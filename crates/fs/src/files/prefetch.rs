//! Reading ahead of sequential readers: the fetches. `state::read_streams` decides what to fetch.

use std::sync::Arc;

use forebay_cache::FileBlocks;
use forebay_meta::record::{Kind, NameRecord};
use forebay_object::{Cause, caused};
use forebay_types::{BlockIndex, ByteRange, Inode, to_usize};

use super::Files;
use crate::state::{FetchPlan, Node, Stream, steps};

/// How many block maps are looked up with one scan.
const MAPS_AT_ONCE: usize = 128;

/// After this many extents of block maps no more are looked up ahead: the maps of a file that was written in small
/// pieces would push everything else out of the metadata cache.
const EXTENTS_AHEAD: usize = 8192;

impl Files {
    /// Fetches the missing bytes of a range of a file into the cache in the background, in ascending order, for a
    /// reader at this position of its stream; `blocks` are those in memory. If the reader reaches a range before its
    /// turn, the reader fetches it itself.
    pub(crate) fn prefetch(
        self: &Arc<Self>,
        node: &Arc<Node>,
        blocks: &FileBlocks,
        range: ByteRange,
        stream: &Stream,
    ) {
        let (number, step) = (stream.number(), stream.step());
        let missing = steps(range, step).filter(|range| !blocks.is_known(*range));
        for range in missing {
            let Some(slot) = self.packs.prefetch_slot() else {
                return;
            };
            let (files, node) = (self.clone(), node.clone());
            tokio::spawn(async move {
                // It waits here: the semaphore is fair, so blocks come in the order in which they were requested.
                let permit = files.packs.prefetch_permit().await;
                drop(slot);
                let ahead = files.prefetch_range(&node, range, number);
                caused(Cause::Prefetch, ahead).await;
                drop(permit);
            });
        }
    }

    /// Loads the block maps of these blocks before they are needed, unless enough other look-ups are in progress.
    pub(crate) fn look_up_ahead(self: &Arc<Self>, inode: Inode, from: BlockIndex, blocks: usize) {
        let Some(permit) = self.packs.look_up_permit() else {
            return;
        };
        let files = self.clone();
        tokio::spawn(async move {
            let (mut from, end) = (from, from.0 + blocks as u64);
            let mut extents = 0;
            while from.0 < end && extents < EXTENTS_AHEAD {
                let count = MAPS_AT_ONCE.min(to_usize(end - from.0));
                // The reader reports a failure when it reaches these blocks.
                let maps = files.state.catalog.block_maps(inode, from, count).await;
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
            drop(permit);
        });
    }

    /// Loads the map of a file's first block beside its attributes, which are not in memory, unless enough other look-ups are in
    /// progress. A client that looks a file up mostly reads it next; the map then takes no round trip of its own.
    pub(crate) fn look_up_first_block(self: &Arc<Self>, name: &NameRecord) {
        if name.kind != Kind::Regular {
            return;
        }
        let Some(permit) = self.packs.look_up_permit() else {
            return;
        };
        let (files, inode) = (self.clone(), name.inode);
        tokio::spawn(async move {
            // A reader reports a failure.
            let _ = files.state.catalog.block_map(inode, BlockIndex(0)).await;
            drop(permit);
        });
    }

    async fn prefetch_range(&self, node: &Arc<Node>, range: ByteRange, stream: u64) {
        let (plan, missing) = {
            // Files in the trash are read as well.
            let state = node.lock();
            if state.removed {
                return;
            }
            let wanted = state.reads.still_wants(range, stream);
            let mut missing = Vec::new();
            state.blocks.unknown(range, &mut missing);
            // All bytes from the first to the last: that is one GET.
            let (Some(first), Some(last)) = (missing.first(), missing.last()) else {
                return;
            };
            if !wanted || !state.is_in_bucket() {
                return;
            }
            let missing = [ByteRange::new(first.start, last.end)];
            (FetchPlan::new(&state, &missing), missing)
        };
        // The reader reports a failure when it reaches these blocks.
        let _ = self.fetch_missing(node, &missing, &plan, None).await;
    }
}
