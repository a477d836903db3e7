//! Reclaiming: deletes the block maps of removed files and [truncated blocks](super::truncated), and packs to which
//! nothing refers any more. The scrub's records are committed with it, or alone if there are enough of them.
//!
//! A pack to which a snapshot refers is not deleted: a record says which one holds it, and the
//! [deletion](crate::snapshots) of that snapshot finds it there.
//!
//! The batch that makes something garbage also notes it as garbage, so a crash loses no note. A pack is deleted only
//! when the metadata that no longer refer to it are durable in the bucket, and [beside publications](super::deletions).

use std::collections::BTreeSet;

use forebay_meta::record::{DeadPack, Garbage, HeldPack, Holding};
use forebay_meta::{Batch, Key, KeyRange};
use forebay_types::{BlockIndex, BlockKey, PackId};

use super::account_updates::AccountUpdates;
use super::{Halted, Publisher};

/// How many removed files one step looks at.
const FILES: usize = 256;
/// How many dead packs one step looks at, and has deleted beside the next publications.
const PACKS: usize = 64;
/// How many notes on the frames of packs one step deletes.
const NOTES: usize = 4096;

impl Publisher {
    /// One bounded step of reclaiming; notes when there is nothing left to do.
    pub(crate) async fn reclaim(&self) -> Result<(), Halted> {
        self.progress.begin_reclaiming();
        let mut batch = Batch::new();
        let mut updates = AccountUpdates::default();
        let (mut budget, mut collected) = (self.context.config.maps_at_once, Vec::new());
        let mut more = self
            .collect_truncated(&mut budget, &mut batch, &mut updates, &mut collected)
            .await?;
        more |= self
            .collect_files(&mut budget, &mut batch, &mut updates)
            .await?;
        let mut state = self.progress.state();
        let held_bytes = &mut state.history.held_bytes;
        more |= self.delete_packs(&mut batch, held_bytes).await?;
        if !batch.is_empty() || self.committer.has_records_due() {
            self.committer.commit(batch, updates, state, None).await?;
            self.collected(collected);
        }
        if more {
            self.progress.note_garbage();
        }
        Ok(())
    }

    /// Deletes block maps of removed files, `budget` at most. Returns whether some remain.
    async fn collect_files(
        &self,
        budget: &mut usize,
        batch: &mut Batch,
        updates: &mut AccountUpdates,
    ) -> Result<bool, Halted> {
        let range = KeyRange::garbage();
        let files = self
            .committer
            .insist(|| self.context.catalog.records::<Garbage>(&range, FILES))
            .await?;
        let mut more = files.len() == FILES;
        for (key, garbage) in files {
            let Key::Garbage(inode) = key else { continue };
            if *budget == 0 {
                return Ok(true);
            }
            let first = garbage.first_block;
            let maps = self
                .committer
                .insist(|| self.context.catalog.block_maps(inode, first, *budget))
                .await?;
            let all = maps.len() < *budget;
            *budget -= maps.len();
            let next = maps
                .last()
                .map_or(first, |(block, _)| BlockIndex(block.0 + 1));
            for (block, map) in maps {
                updates.displace(map.bytes_by_pack());
                batch.delete(&Key::Block(BlockKey { inode, block }));
            }
            if all {
                batch.delete(&key);
            } else {
                batch.put(
                    &key,
                    &Garbage {
                        first_block: next,
                        ..garbage
                    },
                );
                more = true;
            }
        }
        Ok(more)
    }

    /// Orders the deletion of packs that the durable metadata no longer refer to, deletes the notes on those that are gone
    /// from the bucket, and notes those that a snapshot holds, whose bytes it adds to `held_bytes`. Returns whether some
    /// remain, beside those that wait for the bucket.
    async fn delete_packs(&self, batch: &mut Batch, held_bytes: &mut u64) -> Result<bool, Halted> {
        let range = KeyRange::dead_packs();
        let packs = self
            .committer
            .insist(|| self.context.catalog.records::<DeadPack>(&range, PACKS))
            .await?;
        // If all of them wait for a publication or for the bucket, so do the packs behind them.
        let is_full = packs.len() == PACKS;
        let mut more = false;
        let mut notes = NOTES;
        let mut dead = BTreeSet::new();
        for (key, DeadPack { life }) in packs {
            let Key::DeadPack(pack) = key else { continue };
            if self.deletions.is_under_way(pack) {
                continue;
            }
            if self.deletions.is_deleted(pack) {
                more |= is_full;
                if self.delete_notes(pack, &mut notes, batch).await? {
                    batch.delete(&key);
                    self.deletions.forget(pack);
                } else {
                    more = true;
                }
                continue;
            }
            if !self.context.sharing.try_forget(pack) {
                // The next publication may refer to it again; otherwise it is deleted after that.
                self.progress.note_undeleted();
                continue;
            }
            // Only this task publishes and deletes snapshots.
            if let Some(life) = life
                && let Some(holder) = self.context.snapshots.holder(&life)
            {
                more |= is_full;
                if self.delete_notes(pack, &mut notes, batch).await? {
                    batch.delete(&key);
                    batch.put(&Key::HeldPack(pack), &HeldPack { holder, life });
                    batch.put(&Key::Holding(holder, pack), &Holding);
                    *held_bytes += life.bytes;
                } else {
                    more = true;
                }
                continue;
            }
            // After a crash, a released snapshot would hold the pack again until its deletion goes on. So it is noted first that
            // none holds the pack, whose object may be gone then.
            if life.is_some_and(|life| self.context.snapshots.is_seen_by_released(&life)) {
                batch.put(&key, &DeadPack { life: None });
                more = true;
                continue;
            }
            dead.insert(pack);
        }
        let last = self.progress.last();
        if !dead.is_empty() && self.deletions.may_order(last) {
            self.deletions.order(dead, last);
        }
        Ok(more)
    }

    /// Deletes the notes on the frames of a pack and on the blocks that share them, `budget` notes at most. Returns
    /// whether none remain.
    async fn delete_notes(
        &self,
        pack: PackId,
        budget: &mut usize,
        batch: &mut Batch,
    ) -> Result<bool, Halted> {
        if !self.has_frame_notes().await? {
            return Ok(true);
        }
        for range in [KeyRange::pack_frames(pack), KeyRange::referrers(pack)] {
            if *budget == 0 {
                return Ok(false);
            }
            let asked = *budget;
            let notes = self
                .committer
                .insist(|| self.context.catalog.scan(&range, asked))
                .await?;
            *budget -= notes.len();
            for (key, _) in &notes {
                batch.delete_encoded(key.clone());
            }
        }
        Ok(*budget > 0)
    }
}
