//! Damage in packs that snapshots refer to.
//!
//! Block maps of snapshots never change, so a damaged frame of theirs is healed in its place: if the disk cache has the
//! bytes of all damaged frames as the bucket had them, the same pack is put again. Every byte of it is verified before. The
//! header follows from the number of the pack, so that a damaged one is healed without any copy.
//!
//! The snapshots may be deleted meanwhile, and the pack with them. A pack that was put back and that no record names
//! is deleted again. One that is dead, and not known to be deleted, may not be: a restored file may need it again. So before
//! the PUT the pack is noted as one that [may come back](crate::collector::LatePacks), and it is still so if it was dead after the
//! PUT, or the PUT had no clear answer: after its deletion, the collector looks for it once more.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use forebay_meta::FrameAddress;
use forebay_pack::index::header_of;
use forebay_pack::{PackIndex, object_name, open_index};
use forebay_types::{PackId, to_usize};

use super::known::Known;
use super::plan::{Piece, RateLimit};
use super::verify::{Damaged, Found, check};
use super::{Broken, Scrub};
use crate::damages::{BlockFrame, DamageState};

/// How long the scrub waits for the memory in which a pack is put together.
const PATIENCE: Duration = Duration::from_secs(60);

/// What became of a damaged pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mended {
    /// It was put again, and is whole.
    Whole,
    /// No tier has a copy of one of its damaged frames.
    NoCopy,
    /// It was not put again for another reason, or is not whole even so.
    NotNow,
}

impl Scrub {
    /// Deals with the damage in a pack. Returns whether it is whole again; `None` if the pack was deleted meanwhile.
    pub(super) async fn settle(
        &self,
        known: &Known,
        index: &PackIndex,
        found: &Found,
        rate: &mut RateLimit,
    ) -> Result<Option<bool>, Broken> {
        let damaged = &found.frames[..];
        if damaged.is_empty() && !found.header {
            return Ok(Some(true));
        }
        let damages = &self.context.damages;
        let snapshots = self.context.snapshots.referring(&known.life);
        let object = object_name(known.pack);
        // A held pack that no snapshot in the list refers to is one of a snapshot that is being deleted. A clone may need it.
        let mended = match snapshots.is_empty() && known.frames.is_some() {
            true => Mended::NotNow,
            false => self.mend(known, index, damaged, rate).await?,
        };
        if mended == Mended::Whole {
            let header = match found.header {
                true => ", its header is written again,",
                false => ",",
            };
            tracing::info!(
                "{object} is healed: its {} damaged frames were still in the disk cache{header} and the pack was put again",
                damaged.len()
            );
            self.note(known, damaged, DamageState::Healed, &snapshots);
            return Ok(Some(true));
        }
        if found.header {
            tracing::error!(
                "the header of {object} is damaged: files do not need it, but a salvage without the metadata does"
            );
        }
        // That took a while: the pack may have died, or be deleted.
        let Some(known) = self.known(known.pack).await? else {
            return Ok(None);
        };
        let snapshots = self.context.snapshots.referring(&known.life);
        if damaged.is_empty() {
            return Ok(Some(false));
        }
        if known.frames.is_none() {
            let why = match mended {
                Mended::NoCopy => "not all of them have a copy here",
                Mended::Whole | Mended::NotNow => "they could not be healed now",
            };
            tracing::error!(
                "{object}, which only snapshots need, has {} damaged frames, and {why}: files in {} \
                 cannot be read as a whole; `forebay fsck --read-data` names them. Put a good copy of the object back",
                damaged.len(),
                names(&snapshots)
            );
            self.note(&known, damaged, DamageState::Lost, &snapshots);
            return Ok(Some(false));
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
        Ok(Some(false))
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

    /// Puts a pack again with the copies that tiers have of its damaged frames, if they have all.
    async fn mend(
        &self,
        known: &Known,
        index: &PackIndex,
        damaged: &[Damaged],
        rate: &mut RateLimit,
    ) -> Result<Mended, Broken> {
        let (pack, len) = (known.pack, known.life.bytes);
        let packs = &self.context.packs;
        // A large pack may never fit; the next round tries it again.
        let lease = tokio::time::timeout(PATIENCE, self.lease_patiently(2 * len)).await;
        self.board.waits_for(None);
        let Ok(_lease) = lease else {
            return Ok(Mended::NotNow);
        };
        let mut copies: Vec<(&FrameAddress, Bytes)> = Vec::with_capacity(damaged.len());
        for one in damaged {
            match packs.stored_in_tiers(one.block, &one.address).await {
                Some(copy) => copies.push((&one.address, copy)),
                None => return Ok(Mended::NoCopy),
            }
        }
        self.reserve(len, rate).await;
        let Ok(bytes) = self.piece(pack, 0..len).await? else {
            return Ok(Mended::NotNow);
        };
        let mut bytes = BytesMut::from(&bytes[..]);
        let header = Bytes::copy_from_slice(&header_of(packs.keys(), pack));
        let frames = copies
            .into_iter()
            .map(|(address, copy)| (address.offset as usize, copy));
        for (from, part) in std::iter::once((0, header)).chain(frames) {
            match bytes.get_mut(from..from + part.len()) {
                Some(place) => place.copy_from_slice(&part),
                None => return Ok(Mended::NotNow),
            }
        }
        let bytes = bytes.freeze();
        if !self.is_whole(known, index, bytes.clone()).await? || !self.put(pack, bytes).await? {
            return Ok(Mended::NotNow);
        }
        for one in damaged {
            if self.check_alone(one.block, &one.address).await?.is_some() {
                return Ok(Mended::NotNow);
            }
        }
        Ok(Mended::Whole)
    }

    /// Puts a pack again, unless it is dead or is deleted meanwhile. Returns whether the bucket has it.
    async fn put(&self, pack: PackId, bytes: Bytes) -> Result<bool, Broken> {
        let (packs, late) = (&self.context.packs, &self.context.late);
        // From here on, the collector looks for the pack once more after a deletion.
        let is_noted = late.may_come_again(pack);
        let settle = || {
            if is_noted {
                late.is_settled(pack);
            }
        };
        // A dead one may be deleted already. This one is not: it dies first.
        if self.known(pack).await?.is_none() {
            settle();
            return Ok(false);
        }
        let put = packs.put(pack, bytes).await;
        if !self.has_record(pack).await? {
            // The snapshots were deleted, and the pack perhaps before it was put again.
            if let Err(error) = packs.delete(pack).await {
                tracing::warn!(
                    "pack {pack} cannot be deleted: {error}; the collector does that later"
                );
            }
            return Ok(false);
        }
        match put {
            Ok(is_doubtful) => {
                // If it is deleted from now on, that deletes what was put.
                if !is_doubtful && self.known(pack).await?.is_some() {
                    settle();
                }
                Ok(true)
            }
            Err(error) => {
                tracing::warn!("pack {pack} cannot be put again: {error}");
                Ok(false)
            }
        }
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
