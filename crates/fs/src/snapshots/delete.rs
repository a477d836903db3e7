//! The steps of a deletion.

use async_trait::async_trait;
use forebay_clones::holds;
use forebay_meta::record::{DeadPack, HeldPack, Holding, SnapshotRecord};
use forebay_meta::{Batch, Key, KeyRange, StoreError};
use forebay_types::{PackId, SnapshotId};
use tokio::time::Instant;

use super::{Freed, Snapshots};
use crate::publisher::{AccountUpdates, BetweenCheckpoints, Committer, Halted, kept_name};
use crate::state::Listed;

/// How many held packs one step passes on.
const PACKS: usize = 512;

impl Snapshots {
    /// The next snapshot to delete: one whose deletion has begun, or the first that is ordered.
    fn next(&self) -> Option<(SnapshotId, Listed)> {
        let ordered = self.ordered.lock().first().copied();
        let deferred = self.deferred.waiting(Instant::now());
        self.context.list.next_to_delete(ordered, &deferred)
    }

    /// Notes in the bucket that the deletion has begun.
    async fn begin(
        &self,
        committer: &Committer,
        id: SnapshotId,
        record: SnapshotRecord,
    ) -> Result<(), Halted> {
        let record = SnapshotRecord {
            is_being_deleted: true,
            ..record
        };
        let mut batch = Batch::new();
        batch.put(&Key::Snapshot(id), &record);
        let updates = AccountUpdates::default();
        self.commit(committer, (batch, updates), 0).await?;
        self.context.list.set_published(id, record);
        self.ordered.lock().remove(&id);
        self.opened.close(id);
        Ok(())
    }

    /// Passes some of its packs on, or ends the deletion if there are none.
    async fn pass_on(
        &self,
        committer: &Committer,
        id: SnapshotId,
        record: &SnapshotRecord,
    ) -> Result<(), Halted> {
        let catalog = &self.context.catalog;
        let range = KeyRange::holdings(id);
        let packs = committer
            .insist(|| catalog.records::<Holding>(&range, PACKS))
            .await?;
        let (mut batch, mut updates) = (Batch::new(), AccountUpdates::default());
        let (mut freed, mut freed_packs) = (0, 0);
        for (key, Holding) in &packs {
            let Key::Holding(_, pack) = key else { continue };
            batch.delete(key);
            if let Some(bytes) = self.pass_pack(committer, *pack, &mut batch).await? {
                freed += bytes;
                freed_packs += 1;
                updates.release(*pack);
            }
        }
        let is_last = packs.len() < PACKS;
        if is_last {
            batch.delete(&Key::Snapshot(id));
        }
        self.commit(committer, (batch, updates), freed).await?;
        if freed > 0 {
            self.context.progress.tidy();
        }
        let all = self.add_freed(id, freed_packs, freed);
        if is_last {
            self.context.list.remove(id);
            tracing::info!(
                "snapshot {:?} of {} is deleted: {} packs with {} bytes that only it held are free",
                record.name,
                record.made_by,
                all.packs,
                all.bytes
            );
        }
        Ok(())
    }

    /// Adds to what the deletion of a snapshot has freed. Returns the sum.
    fn add_freed(&self, snapshot: SnapshotId, packs: u64, bytes: u64) -> Freed {
        let mut freed = self.freed.lock();
        let before = freed.filter(|freed| freed.snapshot == snapshot);
        let (before_packs, before_bytes) = before.map_or((0, 0), |one| (one.packs, one.bytes));
        *freed.insert(Freed {
            snapshot,
            packs: before_packs + packs,
            bytes: before_bytes + bytes,
        })
    }

    /// Passes a held pack on to the next snapshot that refers to it. If there is none, the pack is dead: returns its
    /// bytes then.
    async fn pass_pack(
        &self,
        committer: &Committer,
        pack: PackId,
        batch: &mut Batch,
    ) -> Result<Option<u64>, Halted> {
        let catalog = &self.context.catalog;
        let key = Key::HeldPack(pack);
        let held = committer
            .insist(|| catalog.record::<HeldPack>(&key))
            .await?;
        let Some(HeldPack { life, .. }) = held else {
            tracing::warn!(
                "pack {pack} is marked as held by a snapshot, and has no record of that"
            );
            return Ok(None);
        };
        if let Some(holder) = self.context.list.holder(&life) {
            batch.put(&key, &HeldPack { holder, life });
            batch.put(&Key::Holding(holder, pack), &Holding);
            return Ok(None);
        }
        batch.delete(&key);
        batch.delete(&Key::Scrub(pack));
        // No snapshot refers to it, whatever is known of their deletions after a crash.
        batch.put(&Key::DeadPack(pack), &DeadPack { life: None });
        Ok(Some(life.bytes))
    }

    /// Whether a clone needs a snapshot. Its record says that it is being deleted: none that is made from now on does.
    async fn is_held(&self, committer: &Committer, id: SnapshotId) -> Result<bool, Halted> {
        let (store, volume) = (&self.context.store, self.context.volume);
        let ask = || async {
            let holders = holds::holders(store, volume, id).await;
            holders.map_err(|error| StoreError::Transient(error.to_string()))
        };
        Ok(!committer.insist(ask).await?.is_empty())
    }

    /// Commits a batch after which snapshots hold `freed` bytes less.
    async fn commit(
        &self,
        committer: &Committer,
        (batch, updates): (Batch, AccountUpdates),
        freed: u64,
    ) -> Result<(), Halted> {
        let mut state = self.context.progress.state();
        let held = &mut state.history.held_bytes;
        *held = held.saturating_sub(freed);
        committer.commit(batch, updates, state, None).await
    }
}

#[async_trait]
impl BetweenCheckpoints for Snapshots {
    fn has_work(&self) -> bool {
        self.next().is_some()
    }

    async fn step(&self, committer: &Committer) -> Result<(), Halted> {
        let Some((id, listed)) = self.next() else {
            self.ordered.lock().clear();
            return Ok(());
        };
        let Listed {
            record,
            is_released,
            ..
        } = listed;
        if !record.is_being_deleted {
            self.begin(committer, id, record).await?;
        } else if !is_released {
            if self.is_held(committer, id).await? {
                if self.deferred.defer(id, Instant::now()) {
                    tracing::warn!(
                        "snapshot {:?} is being deleted, and a clone was made of it meanwhile: it stays until the clone does not need it",
                        record.name
                    );
                }
                return Ok(());
            }
            self.deferred.goes_on(id);
            let (store, name) = (self.context.catalog.store(), kept_name(id));
            committer.insist(|| store.release(&name)).await?;
            self.context.list.set_released(id);
        } else {
            self.pass_on(committer, id, &record).await?;
        }
        self.steps.send_modify(|steps| *steps += 1);
        Ok(())
    }

    fn over(&self) {}

    fn next_at(&self) -> Option<Instant> {
        self.deferred.next()
    }
}
