//! Healing: a damaged frame of which a good copy is at hand goes to the bucket anew.
//!
//! A copy may be in memory, as clean bytes of a block buffer, or in the disk cache. What of it files need is marked as
//! dirty, as it is, and then goes the way of all that is dirty: into a pack of the next checkpoint, whose block map
//! refers to the new frame. Nothing of that is in the log: content and attributes of the file stay, and after a crash
//! the damage is found again. What the log still has, the bucket gets from there in any case.

use std::sync::Arc;
use std::time::Duration;

use forebay_meta::FrameAddress;
use forebay_pack::object_name;
use forebay_types::{BLOCK_SIZE, BlockKey, ByteRange};
use forebay_vfs::{ClientId, Error, Result};

use crate::core::Core;
use crate::damage::{DamageState, DamagedFrame, Place};
use crate::fetch::Fetched;
use crate::node::Node;
use crate::quota::DisplayPath;
use crate::read::FetchPlan;

/// Frames that are healed before the list is looked at again.
const AT_ONCE: usize = 64;
/// How often healing plans again because the file changed under it, before it comes back later.
const ROUNDS: usize = 16;
/// How long it waits when the bucket does not answer, or the file changes all the time.
const COME_BACK: Duration = Duration::from_secs(1);
/// Least time between two searches for paths, each of which may read all names of the volume.
const BETWEEN_SEARCHES: Duration = Duration::from_secs(10);

/// What of a block a damaged frame should hold.
struct Needed {
    /// One of the places that the frame has in the block: it may be shared within it.
    address: FrameAddress,
    /// Ranges of the file, and how the map names the frame there.
    ranges: Vec<(ByteRange, FrameAddress)>,
}

impl Core {
    /// Notes that a frame of a block is damaged, and says so if that is news. What can be done about it is done in the
    /// background.
    pub(crate) fn frame_is_damaged(&self, block: BlockKey, address: &FrameAddress, why: &str) {
        let range = address.raw_range();
        let place = Place {
            pack: address.pack,
            offset: address.offset,
            block,
        };
        if self.damages.note(place, range, why) {
            let begins = block.block.start();
            tracing::error!(
                "inode {}, bytes {} to {}, cannot be read: {why}; the rest of the file still can",
                block.inode,
                begins + range.start,
                begins + range.end,
            );
        }
    }

    /// Does what can be done about damaged frames, for as long as the volume runs.
    pub(crate) async fn heal_forever(self: Arc<Core>) {
        let mut searched: Option<tokio::time::Instant> = None;
        loop {
            let found = self.damages.found(AT_ONCE);
            if !found.is_empty() {
                for place in &found {
                    self.settle(place).await;
                }
                continue;
            }
            let nameless = self.damages.nameless();
            if nameless.is_empty() {
                self.damages.changed().await;
                continue;
            }
            let next = searched.map(|last| last + BETWEEN_SEARCHES);
            if let Some(next) = next.filter(|next| *next > tokio::time::Instant::now()) {
                tokio::select! {
                    biased;
                    () = tokio::time::sleep_until(next) => {}
                    () = self.damages.changed() => {}
                }
                continue;
            }
            self.name_files(&nameless).await;
            searched = Some(tokio::time::Instant::now());
        }
    }

    /// Heals a frame as far as that can be done, and notes what came of it.
    async fn settle(&self, place: &Place) {
        let state = match self.heal(place).await {
            Ok(state) => state,
            Err(Error::Delay) => return tokio::time::sleep(COME_BACK).await,
            // Its metadata cannot be read.
            Err(_) => DamageState::Lost,
        };
        let what = match state {
            DamageState::Healed => "what is damaged was still at hand, and is uploaded anew",
            DamageState::Unused => "no file needs what is damaged any more",
            _ => "",
        };
        if !what.is_empty() {
            let Place {
                pack,
                offset,
                block,
            } = place;
            tracing::info!(
                "{}, byte {offset}, of inode {}: {what}",
                object_name(*pack),
                block.inode
            );
        }
        self.damages.settle(place, state);
    }

    async fn heal(&self, place: &Place) -> Result<DamageState> {
        let node = match self.node(place.block.inode).await {
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
            let kept = self.packs.kept_on_disk(place.block, &needed.address).await;
            let bytes = needed.ranges.iter().map(|(range, _)| range.len()).sum();
            let admission = self.admit(ClientId::default(), bytes).await?;
            let healed = self.upload_again(&node, place.block, &plan, &needed, kept.as_deref());
            drop(admission);
            if let Some(state) = healed {
                return Ok(state);
            }
        }
        Err(Error::Delay)
    }

    /// What the block's map refers to of the frame; none if nothing.
    async fn needed(&self, node: &Node, place: &Place, plan: &FetchPlan) -> Result<Option<Needed>> {
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

    /// Marks what is at hand as dirty; none if the file has changed since the plan was made.
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
            state.blocks.uncovered(*range, &mut missing);
            all += range.len();
        }
        let lost: u64 = missing.iter().map(|range| range.len()).sum();
        if lost == all {
            return Some(DamageState::Lost);
        }
        let first = {
            let open = self.gate.read();
            let first = open.touch(node, &mut state);
            for (range, _) in &needed.ranges {
                state.blocks.upload_again(*range, open.id);
            }
            first
        };
        drop(state);
        if first {
            self.checkpoints.wake();
        }
        Some(match lost {
            0 => DamageState::Healed,
            lost_bytes => DamageState::PartlyHealed { lost_bytes },
        })
    }

    /// Finds a path for each of these files, and says what they have lost.
    async fn name_files(&self, inodes: &[forebay_types::Inode]) {
        let paths = match self.paths_of(inodes).await {
            Ok(paths) => paths,
            // They stay nameless, and are looked for again.
            Err(Error::Delay) => return,
            Err(_) => Default::default(),
        };
        for inode in inodes {
            let path = paths.get(inode).map(Vec::as_slice);
            for frame in self.damages.name(*inode, path) {
                tell(&frame);
            }
        }
    }
}

/// Says what a file has lost.
fn tell(frame: &DamagedFrame) {
    let DamagedFrame {
        inode,
        from,
        to,
        why,
        ..
    } = frame;
    let file = match &frame.path {
        Some(path) => format!("{} (inode {inode})", DisplayPath(path.clone())),
        None => format!("inode {inode}, which has no name,"),
    };
    let lost = match frame.state {
        DamageState::PartlyHealed { lost_bytes } => format!("{lost_bytes} bytes of it are"),
        _ => "they are".to_owned(),
    };
    tracing::error!(
        "{file}: bytes {from} to {to} are damaged in the bucket: {why}. {lost} nowhere else \
         here: put a good copy of that object back, or write these bytes anew"
    );
}

/// The block as a range of its file.
fn whole(block: BlockKey) -> ByteRange {
    ByteRange::at(block.block.start(), BLOCK_SIZE)
}
