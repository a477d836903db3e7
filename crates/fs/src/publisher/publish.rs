//! Publishing: one atomic metadata batch makes a closed checkpoint the state of the bucket.

use std::collections::HashMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use forebay_meta::record::{
    BlockMap, Extent, FrameAddress, Garbage, Kind, Referrer, TruncatedBlocks, VolumeState,
};
use forebay_meta::{Batch, InodeRecord, Key};
use forebay_quota::{Ledger, PublishedUsage};
use forebay_types::balance::taken;
use forebay_types::{BlockIndex, BlockKey};

use super::account_updates::AccountUpdates;
use super::truncated::ChangedMaps;
use super::upload::Uploaded;
use super::{Halted, Publisher};
use crate::damages::BlockFrame;
use crate::state::{Closed, ClosedNode, LEASE, Node, Stopped};

impl Publisher {
    /// Makes the closed checkpoint the published state of the volume, as soon as its packs are in the bucket.
    pub(crate) async fn publish(
        self: &Arc<Self>,
        closed: Closed,
        mut uploaded: Uploaded,
    ) -> Result<(), Halted> {
        let mut batch = closed.names.to_batch();
        let mut updates = AccountUpdates::default();
        let mut ledger = Ledger::default();
        let mut outcomes = HashMap::new();
        // The budget of all truncated files together.
        let mut budget = self.context.config.maps_at_once;
        for node in &closed.nodes {
            let (then, early, before) = {
                let state = node.lock();
                let early = state.early.all_of(closed.id);
                let early = early.map(|(block, map)| (block, map.clone()));
                let early: Vec<(BlockIndex, BlockMap)> = early.collect();
                (state.as_of(closed.id), early, state.published_usage())
            };
            let frames = uploaded.frames.remove(&node.inode).unwrap_or_default();
            let record = self
                .publish_node(
                    node,
                    then,
                    early,
                    frames,
                    (&mut batch, &mut updates, &mut budget),
                )
                .await?;
            let usage = record.as_ref().map(PublishedUsage::of);
            ledger.replace(before, usage);
            let outcome = record.map(|record| (record.used, record.truncated));
            let (used, truncated) = outcome.unwrap_or_default();
            outcomes.insert(node.inode, (used, truncated, usage));
        }
        for pack in &uploaded.packs {
            match updates.open(pack.id, pack.record) {
                true => self.committer.note_frames(pack, &mut batch),
                false => self
                    .committer
                    .discard(pack.id, pack.record, Some(closed.id), &mut batch),
            }
        }
        let state = VolumeState {
            published: closed.end,
            next_inode: closed.next_inode,
            inode_lease: Some(LEASE),
            next_pack: self.progress.next_pack(),
            ..self.progress.state()
        };
        let mut state = self.context.accounts.enter(&ledger, &mut batch, state);
        let snapshot = closed.snapshot.as_ref().map(|(id, record)| {
            let used_bytes = updates.balance(state.used_bytes);
            self.enter_snapshot(*id, record, used_bytes, &mut state, &mut batch)
        });
        self.committer
            .commit(batch, updates, state, Some((closed.id, &uploaded.ready)))
            .await?;
        // Before anything is dropped that the bucket may not have after all.
        self.prove_checkpoint().await?;
        if let Some((id, record)) = snapshot {
            self.keep_snapshot(id, record).await?;
        }

        for pack in &uploaded.packs {
            self.committer.noted_frames(pack);
        }
        self.context.sharing.published(closed.id);
        self.context.accounts.entered(&ledger);
        for node in &closed.nodes {
            let outcome = outcomes.remove(&node.inode);
            let (used, truncated, usage) = outcome.unwrap_or_default();
            node.lock().publish(closed.id, used, truncated, usage);
        }
        // The healer finds them in the block maps from now on.
        for lost in uploaded.packs.iter().flat_map(|pack| &pack.lost) {
            let place = BlockFrame::of(lost.block, &lost.address);
            let range = lost.address.raw_range();
            self.context.damages.note_unwritten(place, range, &lost.why);
        }
        self.progress.checkpoint_published(closed.id);
        self.context.catalog.overlay().discard_oldest();
        self.progress.retry_undeleted();
        drop(closed.nodes);
        self.context.source.published(closed.next_inode);
        let now = self.context.environment.clock.now();
        self.progress.publications().published(now, closed.end);
        self.progress.published_up_to(closed.end);
        self.context
            .source
            .recycle(closed.end, &self.progress.state());
        self.context.signals.memory_freed();
        Ok(())
    }

    /// Adds a checkpoint's changes of one object to the batch; returns its record as it will be published, or `None`
    /// if it was removed.
    async fn publish_node(
        &self,
        node: &Node,
        then: ClosedNode,
        early: Vec<(BlockIndex, BlockMap)>,
        frames: Vec<(BlockKey, FrameAddress)>,
        (batch, updates, budget): (&mut Batch, &mut AccountUpdates, &mut usize),
    ) -> Result<Option<InodeRecord>, Halted> {
        let inode = node.inode;
        if then.removed {
            if then.published {
                batch.delete(&Key::Inode(inode));
                let truncated = &then.record.truncated;
                // Its maps are deleted with all others of the file.
                self.note_truncated(inode, truncated, &TruncatedBlocks::default(), batch);
                let has_maps = then.record.used > 0 || !truncated.is_empty();
                if then.record.kind() == Kind::Regular && has_maps {
                    let garbage = Garbage {
                        size: then.record.size,
                        first_block: BlockIndex(0),
                    };
                    batch.put(&Key::Garbage(inode), &garbage);
                    self.progress.note_garbage();
                }
            }
            return Ok(None);
        }
        let mut changed = ChangedMaps {
            truncated: then.record.truncated.clone(),
            ..ChangedMaps::default()
        };
        if let Some(floor) = then.floor.filter(|_| then.published) {
            self.cut_maps(inode, &then, floor, &mut changed, (updates, budget))
                .await?;
        }
        let ChangedMaps {
            mut maps,
            mut truncated,
            mut lost,
        } = changed;
        let early = early.into_iter().flat_map(|(block, map)| {
            let extents = map.extents().to_vec();
            extents.into_iter().map(move |extent| (block, extent))
        });
        let uploaded = frames.into_iter().map(|(key, frame)| {
            let range = frame.raw_range();
            (key.block, Extent { range, frame })
        });
        let mut added = 0;
        // Eager uploads precede the blocks that were dirty when the checkpoint closed.
        for (block, Extent { range, frame }) in early.chain(uploaded) {
            let map = match maps.entry(block) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let map = if then.published {
                        let key = BlockKey { inode, block };
                        self.map_before(key, &mut truncated, updates).await?
                    } else {
                        BlockMap::new()
                    };
                    entry.insert(map)
                }
            };
            let displaced = map.insert(range, frame).map_err(|error| {
                self.context
                    .signals
                    .stop(Stopped::Failed(format!("inode {inode}: {error}")));
                Halted
            })?;
            lost += updates.displace(displaced);
            updates.add(frame.pack, range.len());
            added += range.len();
            if frame.origin.is_some() {
                let key = Key::Referrer(frame.pack, BlockKey { inode, block });
                batch.put(&key, &Referrer);
            }
        }
        for (block, map) in maps {
            let key = Key::Block(BlockKey { inode, block });
            if map.is_empty() {
                batch.delete(&key);
            } else {
                batch.put(&key, &map);
            }
            self.context
                .fragments
                .published(BlockKey { inode, block }, &map);
        }
        let used = taken("bytes of a file", then.record.used + added, lost);
        self.note_truncated(inode, &then.record.truncated, &truncated, batch);
        let record = InodeRecord {
            used,
            truncated,
            ..then.record
        };
        batch.put(&Key::Inode(inode), &record);
        Ok(Some(record))
    }
}
