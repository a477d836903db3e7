//! Healing of files, called by the healer: marks the available bytes of a damaged frame as dirty.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use forebay_meta::FrameAddress;
use forebay_pack_store::Fetched;
use forebay_types::{BLOCK_SIZE, BlockKey, ByteRange, Inode};
use forebay_vfs::{ClientId, Error, Result};

use super::Files;
use crate::damages::{BlockFrame, DamageState};
use crate::healer;
use crate::state::{FetchPlan, Node};

/// How often healing plans again because the file changed meanwhile, before it gives up for now.
const ROUNDS: usize = 16;

/// The part of a block that a damaged frame should hold.
struct Needed {
    /// One of the frame's addresses in the block: it may be shared within it.
    address: FrameAddress,
    /// Ranges of the file, each with the address that the map has for the frame there.
    ranges: Vec<(ByteRange, FrameAddress)>,
}

#[async_trait]
impl healer::Context for Files {
    async fn heal(&self, place: &BlockFrame) -> Result<DamageState> {
        self.heal_frame(place).await
    }

    async fn paths_of(&self, inodes: &[Inode]) -> Result<BTreeMap<Inode, Vec<u8>>> {
        Files::paths_of(self, inodes).await
    }
}

impl Files {
    /// Heals a frame as far as possible now.
    async fn heal_frame(&self, place: &BlockFrame) -> Result<DamageState> {
        let node = match self.state.node(place.block.inode).await {
            Err(Error::Stale) => return Ok(DamageState::Unused),
            node => node?,
        };
        for _ in 0..ROUNDS {
            let plan = {
                let state = node.lock();
                if state.removed {
                    return Ok(DamageState::Unused);
                }
                FetchPlan::new(&state, &[whole(place.block)])
            };
            let Some(needed) = self.needed(&node, place, &plan).await? else {
                return Ok(DamageState::Unused);
            };
            let kept = self.packs.kept_in_tiers(place.block, &needed.address).await;
            let bytes = needed.ranges.iter().map(|(range, _)| range.len()).sum();
            let admission = self.state.memory.admit(ClientId::default(), bytes).await?;
            let healed = self.upload_again(&node, place.block, &plan, &needed, kept.as_deref());
            drop(admission);
            if let Some(state) = healed {
                return Ok(state);
            }
        }
        Err(Error::Delay)
    }

    /// Whether the file refers to this frame.
    pub(super) async fn refers_to(&self, node: &Node, place: &BlockFrame) -> Result<bool> {
        let plan = FetchPlan::new(&node.lock(), &[whole(place.block)]);
        Ok(self.needed(node, place, &plan).await?.is_some())
    }

    /// The ranges of the frame to which the block's map refers; `None` if there are none.
    async fn needed(
        &self,
        node: &Node,
        place: &BlockFrame,
        plan: &FetchPlan,
    ) -> Result<Option<Needed>> {
        let block = place.block.block;
        let Some(map) = self.bucket_map(node, block, plan).await? else {
            return Ok(None);
        };
        let extents = map.extents().iter();
        let mut extents = extents
            .filter(|extent| extent.frame.pack == place.pack && extent.frame.offset == place.offset)
            .peekable();
        let Some(address) = extents.peek().map(|extent| extent.frame) else {
            return Ok(None);
        };
        let in_file = |range: ByteRange| ByteRange::at(block.start() + range.start, range.len());
        Ok(Some(Needed {
            address,
            ranges: extents
                .map(|extent| (in_file(extent.range), extent.frame))
                .collect(),
        }))
    }

    /// Marks the available bytes as dirty; `None` if the file has changed since the plan was made.
    fn upload_again(
        &self,
        node: &Arc<Node>,
        block: BlockKey,
        plan: &FetchPlan,
        needed: &Needed,
        kept: Option<&Fetched>,
    ) -> Option<DamageState> {
        let mut state = node.lock();
        if !state.blocks.is_current(plan.token, whole(block)) {
            return None;
        }
        if state.removed {
            return Some(DamageState::Unused);
        }
        let begins = block.block.start();
        let (mut missing, mut all) = (Vec::new(), 0);
        for (range, address) in &needed.ranges {
            let within = ByteRange::at(range.start - begins, range.len());
            if let Some(bytes) = kept.and_then(|frame| frame.part(address, within)) {
                state.blocks.fill(range.start, bytes);
            }
            state.blocks.unknown(*range, &mut missing);
            all += range.len();
        }
        let lost: u64 = missing.iter().map(|range| range.len()).sum();
        if lost == all {
            return Some(DamageState::Lost);
        }
        let first = {
            let open = self.state.checkpoint_lock.read();
            let first = open.begin_change(node, &mut state);
            for (range, _) in &needed.ranges {
                state.blocks.upload_again(*range, open.id);
            }
            first
        };
        drop(state);
        if first {
            self.state.signals.wake_publisher();
        }
        Some(match lost {
            0 => DamageState::Healed,
            lost_bytes => DamageState::PartlyHealed { lost_bytes },
        })
    }
}

/// The block as a range of its file.
fn whole(block: BlockKey) -> ByteRange {
    ByteRange::at(block.block.start(), BLOCK_SIZE)
}
