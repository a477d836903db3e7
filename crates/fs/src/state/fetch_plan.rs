//! Where the bytes of a file lie in the bucket, at one moment.

use forebay_cache::FetchToken;
use forebay_meta::record::{BlockMap, TruncatedBlocks};
use forebay_types::{BlockIndex, ByteRange};

use super::node::NodeState;

/// Where to fetch what is missing of a file, and under which conditions it counts. Made under the file's lock.
pub(crate) struct FetchPlan {
    pub(crate) token: FetchToken,
    /// Where the published block maps stop to count.
    pub(crate) published_end: u64,
    /// The blocks whose published maps do not count.
    pub(crate) truncated: TruncatedBlocks,
    /// The blocks that have left early: the published block maps do not count for them.
    pub(crate) early: Vec<(BlockIndex, BlockMap)>,
}

impl FetchPlan {
    pub(crate) fn new(state: &NodeState, missing: &[ByteRange]) -> FetchPlan {
        let mut early = Vec::new();
        if !state.early.is_empty() {
            let parts = missing.iter().flat_map(|range| BlockIndex::split(*range));
            let mut last = None;
            for (block, _) in parts {
                if last.replace(block) != Some(block)
                    && let Some(map) = state.early_map(block)
                {
                    early.push((block, map));
                }
            }
        }
        FetchPlan {
            token: state.blocks.fetch_token(),
            published_end: state.published_end(),
            truncated: state.record.truncated.clone(),
            early,
        }
    }
}

/// Ranges of a file, which rise, by the blocks that they lie in; there counted from the block's start.
pub(crate) fn by_block(ranges: &[ByteRange]) -> Vec<(BlockIndex, Vec<ByteRange>)> {
    let mut blocks: Vec<(BlockIndex, Vec<ByteRange>)> = Vec::new();
    for (block, within) in ranges.iter().flat_map(|range| BlockIndex::split(*range)) {
        match blocks.last_mut() {
            Some((last, gaps)) if *last == block => gaps.push(within),
            _ => blocks.push((block, vec![within])),
        }
    }
    blocks
}
