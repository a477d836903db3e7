//! Orphaned packs: put by a gateway that ended, or was fenced, before it had published them.
//!
//! Packs of an earlier epoch without an account are garbage for good: the gateway that wrote a pack makes its
//! account, in the batch of its checkpoint; a gateway of an earlier epoch cannot commit any more; and blocks that are
//! replayed from its log are uploaded again, under numbers of the new epoch. So a pack of an earlier epoch that has
//! no account in metadata that were read after the bucket was listed never gets one.
//!
//! Such a gateway may have had packs in flight when it was killed or fenced, and they may arrive after the first
//! look. So there is a second look, with the first commit after the grace time, and further ones while found packs
//! are too young.

use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_meta::record::{DeadPack, HeldPack, PackRecord, Record};
use forebay_meta::{Key, KeyRange, StoreError};
use forebay_types::PackId;
use futures_util::StreamExt;
use tokio::time::Instant;

use super::rate::{Rate, Work};
use super::rewrite::Unfinished;
use super::{Collector, PAGE, Step};

/// How many objects one request lists.
const LISTED_AT_ONCE: u64 = 1000;

/// An object below `packs/` that may be garbage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Suspect {
    pack: PackId,
    bytes: u64,
}

/// When to list the packs in the bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Looks {
    /// Now, and again later.
    #[default]
    First,
    /// Not before this time, and again if some are too young then.
    Again(Instant),
    /// Never again: there can be no more orphans.
    Over,
}

impl Looks {
    fn is_due(self, now: Instant) -> bool {
        match self {
            Looks::First => true,
            Looks::Again(due) => due <= now,
            Looks::Over => false,
        }
    }

    /// The state after a look.
    fn next(self, some_are_young: bool, now: Instant, grace: Duration) -> Looks {
        match self == Looks::First || some_are_young {
            true => Looks::Again(now + grace),
            false => Looks::Over,
        }
    }
}

impl Collector {
    /// Looks for orphaned packs, if it is time to, and deletes them.
    pub(super) async fn look_for_orphans(&self) -> Step {
        let looks = *self.looks.lock();
        if !looks.is_due(Instant::now()) {
            return Step::Idle;
        }
        match self.delete_orphans().await {
            Ok(some_are_young) => {
                let next = looks.next(
                    some_are_young,
                    Instant::now(),
                    self.context.config.orphan_grace,
                );
                *self.looks.lock() = next;
                Step::Idle
            }
            Err(why) => Step::Later(why),
        }
    }

    /// Deletes the orphans that are old enough; returns whether some are not.
    async fn delete_orphans(&self) -> Result<bool, String> {
        let rate = Rate::of(&self.context.config);
        // The metadata are read after the list, so that they have everything that was published meanwhile.
        let (mut suspects, young) = self.packs_of_earlier_epochs(&rate).await?;
        self.subtract::<PackRecord>(KeyRange::packs(), &mut suspects)
            .await
            .map_err(|error| error.to_string())?;
        self.subtract::<DeadPack>(KeyRange::dead_packs(), &mut suspects)
            .await
            .map_err(|error| error.to_string())?;
        self.subtract::<HeldPack>(KeyRange::held_packs(), &mut suspects)
            .await
            .map_err(|error| error.to_string())?;
        for suspect in suspects {
            let mut work = Work::default();
            if self.is_orphan(suspect, &mut work).await? {
                let deleted = self.context.packs.delete(suspect.pack).await;
                deleted.map_err(|error| error.to_string())?;
                work.requests += 1;
                self.orphans_deleted.fetch_add(1, Ordering::Relaxed);
                tracing::info!(
                    "pack {} was never published, and is deleted: {} bytes",
                    suspect.pack,
                    suspect.bytes
                );
            }
            rate.rest_after(work).await;
        }
        Ok(young)
    }

    /// The packs of earlier epochs that are older than the grace time, in the order of their numbers, and whether there
    /// are younger ones.
    async fn packs_of_earlier_epochs(&self, rate: &Rate) -> Result<(Vec<Suspect>, bool), String> {
        let own = self.context.progress.state().epoch;
        let now = self.context.environment.clock.now().seconds;
        let (mut suspects, mut young, mut listed) = (Vec::new(), false, 0_u64);
        let mut objects = self.context.packs.list();
        while let Some(object) = objects.next().await {
            let (pack, object) = object.map_err(|error| error.to_string())?;
            listed += 1;
            if listed.is_multiple_of(LISTED_AT_ONCE) {
                let page = Work {
                    bytes: 0,
                    requests: 1,
                };
                rate.rest_after(page).await;
            }
            if pack.epoch() >= own {
                continue;
            }
            let age = now.saturating_sub(object.last_modified.timestamp());
            if Duration::from_secs(age.max(0).unsigned_abs()) < self.context.config.orphan_grace {
                young = true;
            } else {
                suspects.push(Suspect {
                    pack,
                    bytes: object.size,
                });
            }
        }
        suspects.sort_unstable_by_key(|suspect| suspect.pack);
        Ok((suspects, young))
    }

    /// Removes the packs that the metadata know.
    async fn subtract<R: Record>(
        &self,
        range: KeyRange,
        suspects: &mut Vec<Suspect>,
    ) -> Result<(), StoreError> {
        let mut rest = range;
        // Both are in ascending order of numbers.
        let mut kept = Vec::new();
        let mut unseen = std::mem::take(suspects).into_iter().peekable();
        while unseen.peek().is_some() {
            let page = self.context.catalog.records::<R>(&rest, PAGE).await?;
            for (key, _) in &page {
                let (Key::Pack(known) | Key::DeadPack(known) | Key::HeldPack(known)) = key else {
                    continue;
                };
                kept.extend(std::iter::from_fn(|| {
                    unseen.next_if(|suspect| suspect.pack < *known)
                }));
                unseen.next_if(|suspect| suspect.pack == *known);
            }
            match page.last() {
                Some((last, _)) if page.len() == PAGE => rest = rest.after(&last.encode()),
                _ => break,
            }
        }
        kept.extend(unseen);
        *suspects = kept;
        Ok(())
    }

    /// Checks one suspect again: that it has no account, and that no block refers to it, though no block should refer
    /// to a pack without an account.
    async fn is_orphan(&self, suspect: Suspect, work: &mut Work) -> Result<bool, String> {
        let Suspect { pack, bytes } = suspect;
        let blocks = match self.blocks_that_may_refer(pack, bytes, work).await {
            Ok(blocks) => blocks,
            Err(Unfinished::Alone(_, why)) => {
                tracing::warn!(
                    "the metadata do not know pack {pack}, and it stays in the bucket: {why}; run `forebay gc` for details"
                );
                return Ok(false);
            }
            Err(Unfinished::Later(_, why)) => return Err(why),
            Err(Unfinished::Busy) => return Err("the gateway is busy".to_owned()),
        };
        for block in blocks {
            let map = self
                .context
                .catalog
                .block_map(block.inode, block.block)
                .await;
            let map = map.map_err(|error| error.to_string())?;
            let refers = map.is_some_and(|map| map.bytes_by_pack().contains_key(&pack));
            if refers {
                tracing::error!(
                    "inode {} refers to pack {pack}, which has no account; run `forebay fsck`",
                    block.inode
                );
                return Ok(false);
            }
        }
        // A pack goes from one of these records to the next in one batch, from the last one back to the second, and from
        // both back to the first when a restored file refers to it. Looked at in this order, a pack that has one all
        // the time is seen, unless it goes twice meanwhile.
        let catalog = &self.context.catalog;
        let known = async {
            Ok::<_, StoreError>(
                catalog.pack(pack).await?.is_some()
                    || catalog
                        .record::<DeadPack>(&Key::DeadPack(pack))
                        .await?
                        .is_some()
                    || catalog
                        .record::<HeldPack>(&Key::HeldPack(pack))
                        .await?
                        .is_some()
                    || catalog
                        .record::<DeadPack>(&Key::DeadPack(pack))
                        .await?
                        .is_some()
                    || catalog.pack(pack).await?.is_some(),
            )
        };
        let is_known = known.await.map_err(|error| error.to_string())?;
        Ok(!is_known)
    }
}

#[cfg(test)]
mod tests;
