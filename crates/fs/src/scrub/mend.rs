//! Damage in packs that snapshots refer to.
//!
//! Block maps of snapshots never change, so a damaged frame of theirs is healed in its place: if the disk cache has the
//! bytes of all damaged frames as the bucket had them, the same pack is put again. Every byte of it is verified before.
//!
//! The snapshots may be deleted meanwhile, and the pack with them. A pack that was put back and that no record names
//! is deleted again. If the gateway ends in between it is an orphan, which the next one deletes.

use bytes::{Bytes, BytesMut};
use forebay_meta::FrameAddress;
use forebay_pack::{PackIndex, object_name, open_index};
use forebay_types::to_usize;

use super::known::Known;
use super::plan::{Piece, RateLimit};
use super::verify::{Damaged, check};
use super::{Broken, Scrub};
use crate::damages::{BlockFrame, DamageState};

impl Scrub {
    /// Deals with the damaged frames of a pack. Returns whether they are whole again.
    pub(super) async fn settle(
        &self,
        known: &Known,
        index: &PackIndex,
        damaged: &[Damaged],
        rate: &mut RateLimit,
    ) -> Result<bool, Broken> {
        if damaged.is_empty() {
            return Ok(true);
        }
        let damages = &self.context.damages;
        let snapshots = self.context.snapshots.referring(&known.life);
        let object = object_name(known.pack);
        if !snapshots.is_empty() && self.mend(known, index, damaged, rate).await? {
            tracing::info!(
                "{object} is healed: its {} damaged frames were still in the disk cache, and the pack was put again",
                damaged.len()
            );
            self.note(known, damaged, DamageState::Healed, &snapshots);
            return Ok(true);
        }
        if known.frames.is_none() {
            tracing::error!(
                "{object}, which only snapshots need, has {} damaged frames, and no copy of them is here: files in {} \
                 cannot be read as a whole; `forebay fsck --read-data` names them. Put a good copy of the object back",
                damaged.len(),
                names(&snapshots)
            );
            self.note(known, damaged, DamageState::Lost, &snapshots);
            return Ok(false);
        }
        for Damaged {
            block,
            address,
            why,
        } in damaged
        {
            damages.report(*block, address, why);
            damages.refer(&BlockFrame::of(*block, address), &snapshots);
        }
        Ok(false)
    }

    fn note(&self, known: &Known, damaged: &[Damaged], state: DamageState, snapshots: &[String]) {
        for one in damaged {
            let place = BlockFrame::of(one.block, &one.address);
            let place = (place, one.address.raw_range());
            let (damages, is_held) = (&self.context.damages, known.frames.is_none());
            damages.note_settled(place, (&one.why, state), snapshots, is_held);
        }
    }

    /// Reports a held pack that is missing, or whose index cannot be used.
    pub(super) fn report_blind(&self, known: &Known, why: &str) {
        let snapshots = self.context.snapshots.referring(&known.life);
        self.context.damages.note_blind(known.pack);
        tracing::error!(
            "{}, which only snapshots need: {why}; files in {} cannot be read as a whole. \
             `forebay fsck --read-data` names them. Put a good copy of the object back",
            object_name(known.pack),
            names(&snapshots)
        );
    }

    /// Puts a pack again with the copies that tiers have of its damaged frames, if they have all. Returns whether it is
    /// whole now.
    async fn mend(
        &self,
        known: &Known,
        index: &PackIndex,
        damaged: &[Damaged],
        rate: &mut RateLimit,
    ) -> Result<bool, Broken> {
        let (pack, len) = (known.pack, known.life.bytes);
        let packs = &self.context.packs;
        let mut copies: Vec<(&FrameAddress, Bytes)> = Vec::with_capacity(damaged.len());
        for one in damaged {
            match packs.stored_in_tiers(one.block, &one.address).await {
                Some(copy) => copies.push((&one.address, copy)),
                None => return Ok(false),
            }
        }
        // The next round tries it again.
        let Some(_lease) = self.context.memory.lease_spare(2 * len).await else {
            return Ok(false);
        };
        self.reserve(len, rate).await;
        let Ok(bytes) = self.piece(pack, 0..len).await? else {
            return Ok(false);
        };
        let mut bytes = BytesMut::from(&bytes[..]);
        for (address, copy) in copies {
            let from = address.offset as usize;
            match bytes.get_mut(from..from + copy.len()) {
                Some(place) => place.copy_from_slice(&copy),
                None => return Ok(false),
            }
        }
        let bytes = bytes.freeze();
        if !self.is_whole(known, index, bytes.clone()).await? || !self.has_record(pack).await? {
            return Ok(false);
        }
        let put = packs.put(pack, bytes).await;
        if !self.has_record(pack).await? {
            // The snapshots were deleted, and the pack perhaps before it was put again.
            if let Err(error) = packs.delete(pack).await {
                tracing::warn!("pack {pack} cannot be deleted: {error}; the next start does");
            }
            return Ok(false);
        }
        if let Err(error) = put {
            tracing::warn!("pack {pack} cannot be put again: {error}");
            return Ok(false);
        }
        for one in damaged {
            if self.check_alone(one.block, &one.address).await?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether these bytes are the whole pack as it was written.
    async fn is_whole(
        &self,
        known: &Known,
        index: &PackIndex,
        bytes: Bytes,
    ) -> Result<bool, Broken> {
        let keys = self.context.packs.keys().clone();
        let (pack, entries) = (known.pack, index.entries.clone());
        let compute = &self.context.environment.compute;
        let verified = compute
            .run_in_background(move || {
                let end = entries
                    .last()
                    .map_or(0, |last| last.frame.stored_range().end);
                let frames = bytes.slice(..to_usize(end).min(bytes.len()));
                let tail = bytes.slice(to_usize(end).min(bytes.len())..);
                let range = 0..end;
                let piece = Piece { range, entries };
                let checked = check(&frames, pack, &piece, &keys);
                checked.header && checked.damaged.is_empty() && open_index(&tail, &keys).is_ok()
            })
            .await;
        verified.map_err(|error| Broken(error.to_string()))
    }
}

/// Most snapshots that a message names.
const NAMED: usize = 5;

fn names(snapshots: &[String]) -> String {
    let named: Vec<String> = snapshots
        .iter()
        .take(NAMED)
        .map(|name| format!("{name:?}"))
        .collect();
    let more = snapshots.len().saturating_sub(NAMED);
    match (named.len(), more) {
        (0, _) => "a snapshot that is being deleted".to_owned(),
        (_, 0) => format!("the snapshots {}", named.join(", ")),
        (_, more) => format!("the snapshots {} and {more} more", named.join(", ")),
    }
}
