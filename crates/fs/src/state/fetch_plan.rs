//! Where the bytes of a file lie in the bucket, at one moment.

use forebay_cache::FetchToken;
use forebay_meta::record::{BlockMap, TruncatedBlocks};
use forebay_types::{BlockIndex, ByteRange};

use super::node::NodeState;

/// Where to fetch the missing bytes of a file, and the conditions under which they are valid. Made under the file's
/// lock.
pub(crate) struct FetchPlan {
    pub(crate) token: FetchToken,
    /// The published block maps are valid below this.
    pub(crate) published_end: u64,
    /// The blocks whose published maps are not valid.
    pub(crate) truncated: TruncatedBlocks,
    /// The blocks that were uploaded eagerly: the published block maps are not valid for them.
    pub(crate) early: Vec<(BlockIndex, BlockMap)>,
    /// Whether bytes that come are kept in memory, if there is room.
    pub(crate) keeps: bool,
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
            keeps: true,
        }
    }

    /// The same, and bytes that come are not kept. Where memory is full, the first ones leave it again when the next need room. If
    /// their block has bytes in the log alone, that ends the plan, and with the next plan it would be the same.
    pub(crate) fn keeping_nothing(self) -> FetchPlan {
        FetchPlan {
            keeps: false,
            ..self
        }
    }
}

/// Splits ranges of a file, in ascending order, by block; the results count from the start of their block.
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
