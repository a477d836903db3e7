//! Truncated files: the block maps behind the new end are deleted in bounded steps.
//!
//! A publication deletes some maps itself, so that most truncations leave nothing behind. If a file has more, it only
//! notes in the record of the file that the maps of all blocks behind its end are not valid; a later write to such a
//! block removes the block from that note. Steps of [reclaiming](super::reclaim) delete the maps, each in a batch of
//! its own.

use std::collections::BTreeMap;

use forebay_meta::record::{BlockMap, Truncated, TruncatedBlocks};
use forebay_meta::{Batch, InodeRecord, Key, KeyRange};
use forebay_types::{BlockIndex, BlockKey, Inode};

use super::account_updates::AccountUpdates;
use super::{Halted, Publisher};
use crate::state::ClosedNode;

/// How many truncated files one step looks at.
const FILES: usize = 256;
/// How many block maps are read at a time to count their bytes.
const MAPS_PER_SCAN: usize = 1024;

/// A file whose truncated blocks a step has collected, and those that are left.
pub(super) struct Collected {
    inode: Inode,
    left: TruncatedBlocks,
}

/// The block maps of a file that a publication changes.
#[derive(Default)]
pub(super) struct ChangedMaps {
    /// The maps as they will be.
    pub(super) maps: BTreeMap<BlockIndex, BlockMap>,
    /// The blocks whose maps are not valid.
    pub(super) truncated: TruncatedBlocks,
    /// Bytes that no longer count.
    pub(super) lost: u64,
}

impl Publisher {
    /// Removes the bytes behind `floor` from a file's published block maps. Shortens or deletes some maps, `budget`
    /// at most, but always the one in which the end lies; if more lie behind it, notes their blocks as truncated.
    pub(super) async fn cut_maps(
        &self,
        inode: Inode,
        then: &ClosedNode,
        floor: u64,
        changed: &mut ChangedMaps,
        (updates, budget): (&mut AccountUpdates, &mut usize),
    ) -> Result<(), Halted> {
        let first = BlockIndex::of(floor);
        let at_once = (*budget).max(1);
        let found = self
            .committer
            .insist(|| self.context.catalog.block_maps(inode, first, at_once))
            .await?;
        let are_all = found.len() < at_once;
        for (block, mut map) in found {
            if !are_all && block.start() >= floor {
                break;
            }
            // Bytes that are not valid have been subtracted from the file already.
            if changed.truncated.contains(block) {
                continue;
            }
            *budget = budget.saturating_sub(1);
            let displaced = map.truncate(floor.saturating_sub(block.start()));
            changed.lost += updates.displace(displaced);
            changed.maps.insert(block, map);
        }
        if !are_all {
            let behind = BlockIndex(first.0 + u64::from(first.start() < floor));
            changed.lost += self.bytes_from(inode, then, behind).await?;
            changed.truncated.add_from(behind);
        }
        Ok(())
    }

    /// The valid bytes of a file's published block maps from `from` on.
    async fn bytes_from(
        &self,
        inode: Inode,
        then: &ClosedNode,
        from: BlockIndex,
    ) -> Result<u64, Halted> {
        let used = then.record.used;
        if from == BlockIndex(0) {
            return Ok(used);
        }
        if then.record.truncated.contains_from(from) {
            return Ok(0);
        }
        let published = self
            .committer
            .insist(|| self.context.catalog.inode(inode))
            .await?;
        if published.is_some_and(|record| record.size == record.used && record.used == used) {
            // The file has no holes.
            return Ok(used.saturating_sub(from.start()));
        }
        let (mut bytes, mut next) = (0, from);
        loop {
            let found = self
                .committer
                .insist(|| self.context.catalog.block_maps(inode, next, MAPS_PER_SCAN))
                .await?;
            let is_last = found.len() < MAPS_PER_SCAN;
            for (block, map) in found {
                next = BlockIndex(block.0 + 1);
                if !then.record.truncated.contains(block) {
                    bytes += map.mapped_bytes();
                }
            }
            if is_last {
                return Ok(bytes);
            }
        }
    }

    /// The map of a block before a publication adds to it: its valid part.
    pub(super) async fn map_before(
        &self,
        key: BlockKey,
        truncated: &mut TruncatedBlocks,
        updates: &mut AccountUpdates,
    ) -> Result<BlockMap, Halted> {
        let published = self
            .committer
            .insist(|| self.context.catalog.block_map(key.inode, key.block));
        let map = published.await?.unwrap_or_default();
        if truncated.remove(key.block) {
            updates.displace(map.bytes_by_pack());
            return Ok(BlockMap::new());
        }
        Ok(map)
    }

    /// Notes in a batch that truncated blocks of a file must be collected, or that there are none.
    pub(super) fn note_truncated(
        &self,
        inode: Inode,
        before: &TruncatedBlocks,
        after: &TruncatedBlocks,
        batch: &mut Batch,
    ) {
        if !after.is_empty() {
            batch.put(&Key::Truncated(inode), &Truncated);
            self.progress.note_garbage();
        } else if !before.is_empty() {
            batch.delete(&Key::Truncated(inode));
        }
    }

    /// Deletes block maps of truncated blocks, `budget` at most. Returns whether some remain.
    pub(super) async fn collect_truncated(
        &self,
        budget: &mut usize,
        batch: &mut Batch,
        updates: &mut AccountUpdates,
        collected: &mut Vec<Collected>,
    ) -> Result<bool, Halted> {
        let range = KeyRange::truncated();
        let files = self
            .committer
            .insist(|| self.context.catalog.records::<Truncated>(&range, FILES))
            .await?;
        let mut more = files.len() == FILES;
        for (key, Truncated) in files {
            let Key::Truncated(inode) = key else { continue };
            if *budget == 0 {
                return Ok(true);
            }
            let record = self
                .committer
                .insist(|| self.context.catalog.inode(inode))
                .await?;
            let Some(record) = record.filter(|record| !record.truncated.is_empty()) else {
                batch.delete(&key);
                continue;
            };
            let mut left = record.truncated.clone();
            while let Some(blocks) = left.first().filter(|_| *budget > 0) {
                let range = KeyRange::blocks_in(inode, &blocks);
                let maps = self
                    .committer
                    .insist(|| self.context.catalog.records::<BlockMap>(&range, *budget))
                    .await?;
                let before = match maps.last() {
                    Some((Key::Block(last), _)) if maps.len() == *budget => {
                        BlockIndex(last.block.0 + 1)
                    }
                    _ => blocks.end,
                };
                for (key, map) in &maps {
                    updates.displace(map.bytes_by_pack());
                    batch.delete(key);
                }
                // A range without maps costs a scan too.
                *budget = budget.saturating_sub(maps.len().max(1));
                left.collected(before);
            }
            more |= !left.is_empty();
            if left.is_empty() {
                batch.delete(&key);
            }
            let record = InodeRecord {
                truncated: left.clone(),
                ..record
            };
            batch.put(&Key::Inode(inode), &record);
            collected.push(Collected { inode, left });
        }
        Ok(more)
    }

    /// Notes that the bucket has the changes that [`collect_truncated`](Publisher::collect_truncated) put into a
    /// batch.
    pub(super) fn collected(&self, collected: Vec<Collected>) {
        for Collected { inode, left } in collected {
            self.context.source.truncated_collected(inode, left);
        }
    }
}
