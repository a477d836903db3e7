//! Publishing: one atomic metadata batch makes a closed checkpoint the state of the bucket.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use forebay_meta::record::{
    BlockMap, DeadPack, Displaced, Extent, FrameAddress, Garbage, Kind, PackRecord, Referrer,
    TruncatedBlocks, VolumeState,
};
use forebay_meta::{Batch, InodeRecord, Key, Ready};
use forebay_types::{BlockIndex, BlockKey, CheckpointId, PackId};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Halted;
use super::close::Closed;
use super::collector::AccountChange;
use super::truncated::ChangedMaps;
use super::upload::Uploaded;
use crate::core::{Core, Stopped};
use crate::node::{ClosedNode, Node};
use crate::numbers;
use crate::quota::{Ledger, Share};

/// What a batch adds to and takes from the accounts of packs and of the volume.
#[derive(Default)]
pub(super) struct Account {
    /// What published packs lose.
    displaced: Displaced,
    /// Bytes of each pack that something refers to from now on.
    added: BTreeMap<PackId, u64>,
    /// The accounts of new packs.
    opened: Vec<(PackId, PackRecord)>,
}

impl Account {
    /// Something refers to so many bytes of a pack, which is new or shared.
    pub(super) fn add(&mut self, pack: PackId, bytes: u64) {
        *self.added.entry(pack).or_default() += bytes;
    }

    /// Opens the account of a new pack, with the bytes that something refers to after all. If there are none, there is no
    /// account, and this says so: the pack is to be deleted.
    pub(super) fn open(&mut self, pack: PackId, record: PackRecord) -> bool {
        let live_bytes = self.added.get(&pack).copied().unwrap_or(0);
        if live_bytes > 0 {
            let record = PackRecord {
                live_bytes,
                ..record
            };
            self.opened.push((pack, record));
        }
        live_bytes > 0
    }

    /// Bytes that something refers to from now on in packs that were published before.
    fn referred(&self) -> BTreeMap<PackId, u64> {
        let mut referred = self.added.clone();
        referred.retain(|_, gained| *gained > 0);
        for (pack, _) in &self.opened {
            referred.remove(pack);
        }
        referred
    }

    pub(super) fn displace(&mut self, displaced: Displaced) -> u64 {
        let mut bytes = 0;
        for (pack, lost) in displaced {
            bytes += lost;
            let mut rest = lost;
            if let Some(added) = self.added.get_mut(&pack) {
                // It had left early, and was written anew in the same checkpoint. What a shared pack loses and gains
                // cancels as well.
                rest = lost.saturating_sub(*added);
                *added -= lost - rest;
            }
            if rest > 0 {
                *self.displaced.entry(pack).or_default() += rest;
            }
        }
        bytes
    }

    /// The volume's bytes after this.
    pub(super) fn balance(&self, before: u64) -> u64 {
        let added: u64 = self.added.values().sum();
        (before + added).saturating_sub(self.displaced.values().sum())
    }
}

impl Core {
    /// Makes the closed checkpoint the state of the volume, as soon as its packs are in the bucket.
    pub(crate) async fn publish(
        self: &Arc<Self>,
        closed: Closed,
        mut uploaded: Uploaded,
    ) -> Result<(), Halted> {
        let mut batch = closed.names.to_batch();
        let mut account = Account::default();
        let mut ledger = Ledger::default();
        let mut outcomes = HashMap::new();
        // Of all truncated files together.
        let mut budget = self.config.maps_at_once;
        for node in &closed.nodes {
            let (then, early, before) = {
                let state = node.lock();
                let early = state.early.all_of(closed.id);
                let early = early.map(|(block, map)| (block, map.clone()));
                let early: Vec<(BlockIndex, BlockMap)> = early.collect();
                (state.as_of(closed.id), early, state.share())
            };
            let frames = uploaded.frames.remove(&node.inode).unwrap_or_default();
            let record = self
                .publish_node(
                    node,
                    then,
                    early,
                    frames,
                    (&mut batch, &mut account, &mut budget),
                )
                .await?;
            let share = record.as_ref().map(Share::of);
            ledger.replace(before, share);
            let outcome = record.map(|record| (record.used, record.truncated));
            let (used, truncated) = outcome.unwrap_or_default();
            outcomes.insert(node.inode, (used, truncated, share));
        }
        for pack in &uploaded.packs {
            match account.open(pack.id, pack.record) {
                true => self.note_frames(pack, &mut batch),
                false => self.discard(pack.id, pack.record, Some(closed.id), &mut batch),
            }
        }
        let state = VolumeState {
            published: closed.end,
            next_inode: closed.next_inode,
            inode_lease: Some(numbers::LEASE),
            next_pack: self.checkpoints.next_pack(),
            ..self.checkpoints.state()
        };
        let state = self.accounts.enter(&ledger, &mut batch, state);
        self.commit_account(batch, account, state, Some((closed.id, &uploaded.ready)))
            .await?;
        // Before anything is given up that the bucket may not have after all.
        self.prove_checkpoint().await?;

        self.numbers.published(closed.next_inode);
        for pack in &uploaded.packs {
            self.noted_frames(pack);
        }
        self.sharing.published(closed.id);
        self.accounts.entered(&ledger);
        for node in &closed.nodes {
            let outcome = outcomes.remove(&node.inode);
            let (used, truncated, share) = outcome.unwrap_or_default();
            node.lock().publish(closed.id, used, truncated, share);
        }
        self.checkpoints.last.store(closed.id.0, Ordering::Release);
        self.catalog.overlay().discard_closed();
        if self.checkpoints.undeleted.swap(false, Ordering::AcqRel) {
            self.checkpoints.garbage.store(true, Ordering::Release);
        }
        drop(closed.nodes);
        self.checkpoints.closed_bytes.store(0, Ordering::Relaxed);
        *self.checkpoints.closed.lock() = None;
        self.checkpoints.published.send_replace(closed.end);
        self.recycle(closed.end);
        self.memory_freed();
        Ok(())
    }

    /// Commits a batch together with what it does to the accounts. `closing` is the checkpoint that it publishes, if it
    /// is one, and when its packs are there.
    pub(super) async fn commit_account(
        &self,
        mut batch: Batch,
        account: Account,
        state: VolumeState,
        closing: Option<(CheckpointId, &Ready)>,
    ) -> Result<(), Halted> {
        let (closing, ready) = closing.unzip();
        let opened = account.opened.iter().map(|(pack, record)| AccountChange {
            pack: *pack,
            before: None,
            after: Some(*record),
        });
        let mut changes: Vec<AccountChange> = opened.collect();
        let (mut dead, mut revived) = (BTreeSet::new(), Vec::new());
        for (pack, record) in &account.opened {
            batch.put(&Key::Pack(*pack), record);
        }
        let referred = account.referred();
        let packs: BTreeSet<PackId> = account
            .displaced
            .keys()
            .chain(referred.keys())
            .copied()
            .collect();
        for pack in packs {
            let lost = account.displaced.get(&pack).copied().unwrap_or(0);
            let gained = referred.get(&pack).copied().unwrap_or(0);
            let mut record = self.insist(|| self.catalog.pack(pack)).await?;
            let before = record;
            if record.is_none() && gained > 0 {
                record = self.sharing.kept(pack);
                if record.is_none() {
                    // Published, it would be a file without its bytes.
                    let why = format!("pack {pack} has gone that {gained} bytes were found in");
                    self.stop(Stopped::Failed(why));
                    return Err(Halted);
                }
                batch.delete(&Key::DeadPack(pack));
                revived.push(pack);
            }
            let Some(mut record) = record else {
                tracing::warn!("pack {pack} loses {lost} bytes but has no account");
                continue;
            };
            record.live_bytes = (record.live_bytes + gained).saturating_sub(lost);
            changes.push(AccountChange {
                pack,
                before,
                after: (record.live_bytes > 0).then_some(record),
            });
            if record.live_bytes > 0 {
                batch.put(&Key::Pack(pack), &record);
            } else {
                batch.delete(&Key::Pack(pack));
                batch.delete(&Key::Scrub(pack));
                dead.insert(pack);
                self.discard(pack, record, closing, &mut batch);
            }
        }
        let state = VolumeState {
            used_bytes: account.balance(state.used_bytes),
            ..state
        };
        batch.put(&Key::Volume, &state);
        let checks = self.scrubs.enter(&mut batch, &dead);
        let store = self.catalog.store();
        let ready = ready.cloned().unwrap_or_else(Ready::now);
        self.insist(|| store.commit_when(&batch, &ready)).await?;
        self.sharing.committed(&revived);
        *self.checkpoints.state.lock() = state;
        self.checkpoints.collector.committed(&changes);
        self.checkpoints.proof.committed(&changes);
        self.scrubs.entered(&checks, &dead);
        Ok(())
    }

    /// Notes in the batch that a pack is to be deleted.
    pub(super) fn discard(
        &self,
        pack: PackId,
        record: PackRecord,
        closing: Option<CheckpointId>,
        batch: &mut Batch,
    ) {
        self.sharing.dies(pack, record, closing);
        batch.put(&Key::DeadPack(pack), &DeadPack);
        self.checkpoints.garbage.store(true, Ordering::Release);
    }

    /// Adds what a checkpoint did to one object; gives its record as the bucket then has it, and none if
    /// it is gone.
    async fn publish_node(
        &self,
        node: &Node,
        then: ClosedNode,
        early: Vec<(BlockIndex, BlockMap)>,
        frames: Vec<(BlockKey, FrameAddress)>,
        (batch, account, budget): (&mut Batch, &mut Account, &mut usize),
    ) -> Result<Option<InodeRecord>, Halted> {
        let inode = node.inode;
        if then.removed {
            if then.published {
                batch.delete(&Key::Inode(inode));
                let truncated = &then.record.truncated;
                // Its maps go with all others of the file.
                self.note_truncated(inode, truncated, &TruncatedBlocks::default(), batch);
                let has_maps = then.record.used > 0 || !truncated.is_empty();
                if then.record.kind() == Kind::Regular && has_maps {
                    let garbage = Garbage {
                        size: then.record.size,
                        first_block: BlockIndex(0),
                    };
                    batch.put(&Key::Garbage(inode), &garbage);
                    self.checkpoints.garbage.store(true, Ordering::Release);
                }
            }
            return Ok(None);
        }
        let mut changed = ChangedMaps {
            truncated: then.record.truncated.clone(),
            ..ChangedMaps::default()
        };
        if let Some(floor) = then.floor.filter(|_| then.published) {
            self.cut_maps(inode, &then, floor, &mut changed, (account, budget))
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
        // What has left early came before what was dirty at the close.
        for (block, Extent { range, frame }) in early.chain(uploaded) {
            let map = match maps.entry(block) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let map = if then.published {
                        let key = BlockKey { inode, block };
                        self.map_before(key, &mut truncated, account).await?
                    } else {
                        BlockMap::new()
                    };
                    entry.insert(map)
                }
            };
            let displaced = map.insert(range, frame).map_err(|error| {
                self.stop(Stopped::Failed(format!("inode {inode}: {error}")));
                Halted
            })?;
            lost += account.displace(displaced);
            account.add(frame.pack, range.len());
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
        }
        let used = (then.record.used + added).saturating_sub(lost);
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
