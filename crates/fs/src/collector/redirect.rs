//! The publisher's part of rewriting: maps are redirected to the copies.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use forebay_meta::record::{BlockMap, Referrer, VolumeState};
use forebay_meta::{Batch, Key};
use forebay_types::{BlockKey, PackId};

use super::Collector;
use super::rewrite::{Redirected, Rewritten};
use crate::publisher::{AccountUpdates, Committer, Halted};

impl Collector {
    /// Redirects maps that still refer to the copied frames to the copies, in one batch with
    /// the accounts.
    pub(super) async fn redirect(
        &self,
        committer: &Committer,
        rewritten: Rewritten,
    ) -> Result<(), Halted> {
        let Rewritten {
            pack,
            moves,
            rewrites,
            done,
        } = rewritten;
        let mut batch = Batch::new();
        let mut updates = AccountUpdates::default();
        let mut refused = BTreeSet::new();
        let mut redirected = Redirected::default();
        for moving in &moves {
            let BlockKey { inode, block } = moving.block;
            let map = committer
                .insist(|| committer.catalog.block_map(inode, block))
                .await?;
            let map: BlockMap = map.unwrap_or_default();
            match moving.apply(&map) {
                Ok(Some(moved)) => {
                    redirected.blocks += 1;
                    redirected.bytes += moved.bytes;
                    batch.put(&Key::Block(moving.block), &moved.map);
                    updates.displace(moved.displaced);
                    updates.add(pack.id, moved.bytes);
                    if moving.to.iter().any(|frame| frame.origin.is_some()) {
                        batch.put(&Key::Referrer(pack.id, moving.block), &Referrer);
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!("inode {inode}, block {}: {error}", block.0);
                    refused.extend(moving.from.iter().map(|extent| extent.frame.pack));
                }
            }
        }
        let packs = moves.iter().flat_map(|moving| &moving.from);
        let packs: BTreeSet<PackId> = packs.map(|extent| extent.frame.pack).collect();
        let is_used = updates.open(pack.id, pack.record);
        match is_used {
            true => committer.note_frames(&pack, &mut batch),
            false => committer.discard(pack.id, pack.record, None, &mut batch),
        }
        let state = VolumeState {
            next_pack: committer.progress.next_pack(),
            ..committer.progress.state()
        };
        committer.commit(batch, updates, state, None).await?;
        if is_used {
            committer.noted_frames(&pack);
        }
        if rewrites {
            let mut survey = self.survey.lock();
            for pack in &refused {
                survey.leave_alone(*pack);
            }
            drop(survey);
            let rewritten = packs.difference(&refused).count() as u64;
            self.rewritten.fetch_add(rewritten, Ordering::Relaxed);
        }
        // While the volume stops, the receiver may be dropped.
        let _ = done.send(redirected);
        Ok(())
    }
}
