//! Distinguishes a fetch that is still valid from one that is out of date.

use forebay_types::{BlockIndex, ByteRange};
use std::collections::BTreeMap;

/// The moment at which a fetch of missing bytes was planned: see
/// [`FileBlocks::fetch_token`](crate::FileBlocks::fetch_token).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchToken(u64);

impl FetchToken {
    pub(crate) fn at(tick: u64) -> FetchToken {
        FetchToken(tick)
    }
}

/// When coverage was lost on which a fetch under way may rely.
#[derive(Debug)]
pub(crate) struct Lost {
    /// Tick of the last loss that may concern any block.
    anywhere: u64,
    /// Ticks of evictions of blocks that had been written to here.
    blocks: BTreeMap<BlockIndex, u64>,
}

impl Lost {
    /// Above this number, a loss concerns all blocks: fetches are short, and so is the time for which a loss is kept.
    const MAX_BLOCKS: usize = 64;

    pub(crate) fn all_before(tick: u64) -> Lost {
        Lost {
            anywhere: tick,
            blocks: BTreeMap::new(),
        }
    }

    pub(crate) fn everything(&mut self, tick: u64) {
        self.anywhere = tick;
        self.blocks.clear();
    }

    pub(crate) fn block(&mut self, block: BlockIndex, tick: u64) {
        if self.blocks.len() == Self::MAX_BLOCKS {
            self.everything(tick);
        } else {
            self.blocks.insert(block, tick);
        }
    }

    /// Whether no coverage of the range was lost since the token was taken.
    pub(crate) fn nothing_since(&self, token: FetchToken, range: ByteRange) -> bool {
        let since = |lost: &u64| *lost > token.0;
        let block_lost = |(block, _)| self.blocks.get(&block).is_some_and(since);
        self.anywhere <= token.0 && !BlockIndex::split(range).any(block_lost)
    }
}
