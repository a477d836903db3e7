//! Blocks whose bytes lie in many places of the bucket are copied into one: random writes leave them so, and each cold read
//! of them would need many GETs.
//!
//! It is the copy that rewrites packs, with other extents: those of a block that gain by it. Not copied are
//!
//! * frames of packs that other blocks share, and of packs that lie at the source of a clone: they would take space twice;
//! * blocks of which snapshots hold more than half: the bucket would keep these bytes a second time.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_meta::KeyRange;
use forebay_meta::record::{BlockMap, Extent, PackLife, PackRecord, Referrer};
use forebay_pack_store::Gaps;
use forebay_types::{BLOCK_SIZE, BlockKey, CommitNumber, PackId};

use super::moves::Move;
use super::rate::Work;
use super::rewrite::{FRAMES_ON_THEIR_WAY, MOST_FAILURES, Unfinished, Wanted};
use super::{Collector, Step};
use crate::fragments::{Group, gets};
use crate::publisher::PutPack;

/// What becomes of the bytes that a block has in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// They may move.
    Free,
    /// The same, but a snapshot refers to them.
    Held,
    /// They stay.
    Fixed,
}

impl Collector {
    /// Copies the fragmented blocks that are due, as many as fill a pack.
    pub(super) async fn defragment(self: &Arc<Self>) -> Step {
        let mut group = self.context.fragments.next_group(self.copy_bytes());
        if group.blocks.is_empty() {
            return Step::Idle;
        }
        let mut work = Work::default();
        let (copied, failed) = match self.copy_together(&group, &mut work).await {
            Ok(copied) => (copied, None),
            Err(Unfinished::Busy) => return Step::Busy,
            Err(Unfinished::Later(pack, why)) => {
                // A failure says nothing about the blocks while other requests fail as well.
                if self.context.trouble.current().is_some()
                    || self.failures.fetch_add(1, Ordering::Relaxed) < MOST_FAILURES
                {
                    return Step::Later(why);
                }
                (None, Some((pack, why)))
            }
            Err(Unfinished::Alone(pack, why)) => (None, Some((Some(pack), why))),
        };
        if let Some((pack, why)) = failed {
            tracing::warn!("fragmented blocks stay as they are: {why}");
            // The others of the group are copied without these.
            if let Some(pack) = pack {
                match self.blocks_in(&group, pack).await {
                    Ok(blocks) => group.blocks = blocks,
                    Err(error) => return Step::Later(error.to_string()),
                }
            }
        }
        if let Some(copied) = copied {
            let Some(redirected) = self.redirected(copied, false, &mut work).await else {
                return Step::Waits;
            };
            self.defragmented_blocks
                .fetch_add(redirected.blocks, Ordering::Relaxed);
            self.defragmented_bytes
                .fetch_add(redirected.bytes, Ordering::Relaxed);
        }
        self.failures.store(0, Ordering::Relaxed);
        for (block, as_of) in group.blocks {
            self.context.fragments.rest(block, as_of);
        }
        Step::Worked(work)
    }

    /// The blocks of a group that refer to a pack, or that are gone.
    async fn blocks_in(
        &self,
        group: &Group,
        pack: PackId,
    ) -> Result<Vec<(BlockKey, u64)>, forebay_meta::StoreError> {
        let mut blocks = Vec::new();
        for (block, as_of) in &group.blocks {
            let map = self.map_of(*block).await?;
            let refers = |map: BlockMap| map.extents().iter().any(|own| own.frame.pack == pack);
            if map.is_none_or(refers) {
                blocks.push((*block, *as_of));
            }
        }
        Ok(blocks)
    }

    async fn map_of(&self, block: BlockKey) -> Result<Option<BlockMap>, forebay_meta::StoreError> {
        let catalog = &self.context.catalog;
        catalog.block_map(block.inode, block.block).await
    }

    /// The new pack, once it is in the bucket; `None` if none of these blocks gains by a copy.
    async fn copy_together(
        self: &Arc<Self>,
        group: &Group,
        work: &mut Work,
    ) -> Result<Option<(PutPack, Vec<Move>)>, Unfinished> {
        // As for rewriting: leased before any request, for the bytes, for the pack, and for the bytes in flight.
        let most = group.bytes.min(self.copy_bytes().max(BLOCK_SIZE));
        let memory = 2 * most + FRAMES_ON_THEIR_WAY;
        let lease = self.context.memory.lease_spare(memory).await;
        let lease = lease.ok_or(Unfinished::Busy)?;
        let wanted = self.fragments_of(group, most).await?;
        if wanted.is_empty() {
            return Ok(None);
        }
        let copied = self.copy_blocks(wanted, Gaps::Limited, work).await?;
        self.put_copy(copied, lease, work).await.map(Some)
    }

    /// The bytes of these blocks that move, up to `most`.
    async fn fragments_of(&self, group: &Group, most: u64) -> Result<Vec<Wanted>, Unfinished> {
        let (mut wanted, mut room) = (Vec::new(), most);
        let mut places = HashMap::new();
        for (block, _) in &group.blocks {
            let Some(map) = self.map_of(*block).await? else {
                continue;
            };
            let extents = self.movable(&map, &mut places).await?;
            let bytes: u64 = extents.iter().map(|extent| extent.range.len()).sum();
            // A block may have more bytes than it had when the group was made.
            if bytes > 0 && bytes <= room {
                room -= bytes;
                wanted.push(Wanted {
                    block: *block,
                    extents,
                });
            }
        }
        Ok(wanted)
    }

    /// The extents of a block that should move; none if a reader would not need fewer GETs afterwards, or if most of the block
    /// would be kept a second time.
    async fn movable(
        &self,
        map: &BlockMap,
        places: &mut HashMap<PackId, Place>,
    ) -> Result<Vec<Extent>, Unfinished> {
        let (mut moving, mut staying, mut held) = (Vec::new(), Vec::new(), 0);
        for extent in map.extents() {
            let pack = extent.frame.pack;
            let place = match places.get(&pack) {
                Some(place) => *place,
                None => {
                    let place = self.place(pack).await?;
                    places.insert(pack, place);
                    place
                }
            };
            if place == Place::Fixed || extent.frame.origin.is_some() {
                staying.push(*extent);
                continue;
            }
            if place == Place::Held {
                held += extent.range.len();
            }
            moving.push(*extent);
        }
        let after = gets(staying.iter()) + 1;
        let gains = after < gets(map.extents().iter());
        Ok(match gains && 2 * held <= map.mapped_bytes() {
            true => moving,
            false => Vec::new(),
        })
    }

    async fn place(&self, pack: PackId) -> Result<Place, Unfinished> {
        let catalog = &self.context.catalog;
        if self.context.sources.have(pack) {
            return Ok(Place::Fixed);
        }
        let Some(PackRecord { born, bytes, .. }) = catalog.pack(pack).await? else {
            return Ok(Place::Fixed);
        };
        let referrers = KeyRange::referrers(pack);
        let referrers = catalog.records::<Referrer>(&referrers, 1).await?;
        if !referrers.is_empty() {
            return Ok(Place::Fixed);
        }
        // If it died now.
        let life = PackLife {
            born,
            died: CommitNumber(u64::MAX),
            bytes,
        };
        Ok(match self.context.snapshots.holder(&life) {
            Some(_) => Place::Held,
            None => Place::Free,
        })
    }
}
