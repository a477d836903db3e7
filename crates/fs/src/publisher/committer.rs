//! Commits: one atomic metadata batch, with its changes to the accounts of packs and the records of observers.
//!
//! The publisher commits, and engines commit between two of its checkpoints: never two at a time. Errors of the bucket are waited out.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use forebay_environment::{Randomness, backoff, fraction};
use forebay_meta::record::{
    DeadPack, HeldPack, KnownFrame, PART_FRAMES, PackFrames, PackLife, PackRecord, VolumeState,
};
use forebay_meta::{Batch, Catalog, Key, Ready, StoreError};
use forebay_pack::FrameHash;
use forebay_reduction::dedup::{MAX_FRAMES, MIN_SHARED, Sharing};
use forebay_types::balance::taken;
use forebay_types::{CheckpointId, CommitNumber, PackId, bounded_u32};

use super::Halted;
use super::account_updates::AccountUpdates;
use super::observer::{AccountChange, Observer};
use super::progress::Progress;
use super::put_pack::PutPack;
use crate::state::{Signals, Stopped, StoreTrouble};

/// Pauses between two checks for missing objects.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Makes the commits of one volume.
pub(crate) struct Committer {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) sharing: Arc<Sharing>,
    pub(crate) signals: Arc<Signals>,
    pub(crate) trouble: Arc<StoreTrouble>,
    pub(crate) random: Arc<dyn Randomness>,
    /// The gateway's folder, for messages.
    pub(crate) folder: String,
    /// In the order in which they are called.
    pub(crate) observers: Vec<Arc<dyn Observer>>,
}

impl Committer {
    /// Repeats a request to the metadata store until it is answered; `Err` if repeating cannot help.
    pub(crate) async fn insist<T, F>(&self, mut ask: impl FnMut() -> F) -> Result<T, Halted>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let (mut attempt, mut was_gone) = (1, false);
        loop {
            match ask().await {
                Ok(answer) => {
                    self.trouble.store_works();
                    if was_gone {
                        self.trouble.note_found();
                    }
                    return Ok(answer);
                }
                Err(StoreError::Gone(what)) => {
                    was_gone = true;
                    self.wait_for_what_is_gone(&what, attempt).await?;
                }
                Err(StoreError::Transient(why)) => self.wait_for_store(&why, attempt).await?,
                Err(StoreError::Fenced) => {
                    self.signals.stop(Stopped::Fenced);
                    return Err(Halted);
                }
                Err(error @ (StoreError::Corrupt(_) | StoreError::Fatal(_))) => {
                    self.signals.stop(Stopped::Failed(error.to_string()));
                    return Err(Halted);
                }
            }
            attempt += 1;
        }
    }

    /// Pauses until the bucket may work again; `Err` if the volume stops meanwhile.
    pub(crate) async fn wait_for_store(&self, why: &str, attempt: u32) -> Result<(), Halted> {
        self.trouble.store_error(why);
        let mut stopped = self.signals.watch_stopped();
        tokio::select! {
            biased;
            () = tokio::time::sleep(backoff(attempt, &*self.random)) => Ok(()),
            _ = stopped.wait_for(Option::is_some) => Err(Halted),
        }
    }

    /// Pauses before the next check for missing objects; `Err` if the volume stops meanwhile.
    async fn wait_for_what_is_gone(&self, what: &str, attempt: u32) -> Result<(), Halted> {
        if !self.signals.is_serving() {
            // No client is served yet, and the log is unchanged.
            self.signals.stop(Stopped::Failed(self.explain_gone(what)));
            return Err(Halted);
        }
        self.trouble.note_gone(what, || self.explain_gone(what));
        let ceiling = FIRST_PAUSE
            .saturating_mul(1 << attempt.saturating_sub(1).min(8))
            .min(LONGEST_PAUSE);
        let pause = ceiling.mul_f64(0.5 + 0.5 * fraction(&*self.random));
        let mut stopped = self.signals.watch_stopped();
        tokio::select! {
            biased;
            _ = stopped.wait_for(Option::is_some) => Err(Halted),
            () = self.trouble.recheck_wanted() => Ok(()),
            () = tokio::time::sleep(pause) => Ok(()),
        }
    }

    /// Describes missing objects for the operator.
    pub(crate) fn explain_gone(&self, what: &str) -> String {
        explain(what, &self.folder)
    }

    /// Commits a batch together with its changes to the accounts. `closing` is the checkpoint that it publishes, if
    /// it is one, and the signal that its packs are in the bucket.
    pub(crate) async fn commit(
        &self,
        mut batch: Batch,
        mut updates: AccountUpdates,
        mut state: VolumeState,
        closing: Option<(CheckpointId, &Ready)>,
    ) -> Result<(), Halted> {
        let (closing, ready) = closing.unzip();
        let is_counted = state.history.is_counted();
        if is_counted {
            state.history.commit = self.next_commit();
            for (_, record) in &mut updates.opened {
                record.born = state.history.commit;
            }
        }
        let opened = updates.opened.iter().map(|(pack, record)| AccountChange {
            pack: *pack,
            before: None,
            after: Some(*record),
        });
        let mut changes: Vec<AccountChange> = opened.collect();
        let (mut dead, mut revived) = (std::mem::take(&mut updates.released), Vec::new());
        for (pack, record) in &updates.opened {
            batch.put(&Key::Pack(*pack), record);
        }
        let referred = updates.referred();
        let packs: BTreeSet<PackId> = updates
            .displaced
            .keys()
            .chain(referred.keys())
            .copied()
            .collect();
        for pack in packs {
            let lost = updates.displaced.get(&pack).copied().unwrap_or(0);
            let gained = referred.get(&pack).copied().unwrap_or(0);
            let mut record = self.insist(|| self.catalog.pack(pack)).await?;
            let before = record;
            if record.is_none() && gained > 0 {
                record = self.sharing.kept(pack);
                if record.is_none() {
                    // If published, it would be a file without its bytes.
                    let why = format!(
                        "pack {pack} is gone, but {gained} bytes of this checkpoint refer to it"
                    );
                    self.signals.stop(Stopped::Failed(why));
                    return Err(Halted);
                }
                batch.delete(&Key::DeadPack(pack));
                revived.push(pack);
                let held_bytes = &mut state.history.held_bytes;
                self.take_back(pack, &mut batch, held_bytes).await?;
            }
            let Some(mut record) = record else {
                tracing::warn!("pack {pack} loses {lost} bytes but has no account");
                continue;
            };
            record.live_bytes = taken("live bytes of a pack", record.live_bytes + gained, lost);
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
                let life = is_counted.then_some(PackLife {
                    born: record.born,
                    died: state.history.commit,
                    bytes: record.bytes,
                });
                self.sharing.dies(pack, record, closing);
                batch.put(&Key::DeadPack(pack), &DeadPack { life });
                self.progress.note_garbage();
            }
        }
        let state = VolumeState {
            used_bytes: updates.balance(state.used_bytes),
            ..state
        };
        batch.put(&Key::Volume, &state);
        for observer in &self.observers {
            observer.before_commit(&mut batch, &dead);
        }
        let store = self.catalog.store();
        let ready = ready.cloned().unwrap_or_else(Ready::now);
        self.insist(|| store.commit_when(&batch, &ready)).await?;
        self.sharing.committed(&revived);
        self.progress.set_state(state);
        for observer in &self.observers {
            observer.committed(&changes, &dead);
        }
        Ok(())
    }

    /// Takes a pack that becomes live again out of the packs that snapshots hold, if it is one. They still refer to it,
    /// and hold it again when it dies.
    async fn take_back(
        &self,
        pack: PackId,
        batch: &mut Batch,
        held_bytes: &mut u64,
    ) -> Result<(), Halted> {
        let key = Key::HeldPack(pack);
        let held = self
            .insist(|| self.catalog.record::<HeldPack>(&key))
            .await?;
        if let Some(HeldPack { holder, life }) = held {
            batch.delete(&key);
            batch.delete(&Key::Holding(holder, pack));
            *held_bytes = held_bytes.saturating_sub(life.bytes);
        }
        Ok(())
    }

    /// The number of the next commit of a volume that counts them.
    pub(super) fn next_commit(&self) -> CommitNumber {
        self.progress.state().history.commit.next()
    }

    /// Notes in the batch that a pack must be deleted, which no published state has referred to.
    pub(crate) fn discard(
        &self,
        pack: PackId,
        record: PackRecord,
        closing: Option<CheckpointId>,
        batch: &mut Batch,
    ) {
        self.sharing.dies(pack, record, closing);
        batch.put(&Key::DeadPack(pack), &DeadPack::default());
        self.progress.note_garbage();
    }

    /// Notes in a batch the frames of a pack that it publishes.
    pub(crate) fn note_frames(&self, pack: &PutPack, batch: &mut Batch) {
        for (part, frames) in notable(pack).chunks(PART_FRAMES).enumerate() {
            let key = Key::PackFrames(pack.id, bounded_u32(part));
            batch.put(&key, &PackFrames(frames.to_vec()));
        }
    }

    /// Notes that the batch with [these notes](Committer::note_frames) is durable.
    pub(crate) fn noted_frames(&self, pack: &PutPack) {
        let frames = notable(pack);
        if !frames.is_empty() {
            self.sharing.learn(pack.id, &frames);
            let frames = frames.into_iter().filter_map(by_hash).take(MAX_FRAMES);
            self.sharing
                .keep_frames(pack.id, Arc::new(frames.collect()));
        }
    }

    /// Whether an observer has records that should be committed even if nothing else must be.
    pub(super) fn has_records_due(&self) -> bool {
        let mut observers = self.observers.iter();
        observers.any(|observer| observer.has_records_due())
    }

    /// Reports that an attempt to put this pack was never answered.
    pub(crate) fn put_in_doubt(&self, pack: PackId) {
        self.observers
            .iter()
            .for_each(|observer| observer.put_in_doubt(pack));
    }

    /// Reports that the pack was deleted.
    pub(super) fn pack_deleted(&self, pack: PackId) {
        self.observers
            .iter()
            .for_each(|observer| observer.pack_deleted(pack));
    }

    /// Reports that the pack is missing in the bucket, though the metadata need it.
    pub(super) fn pack_missing(&self, pack: PackId) {
        self.observers
            .iter()
            .for_each(|observer| observer.pack_missing(pack));
    }
}

pub(super) fn by_hash(frame: KnownFrame) -> Option<(FrameHash, KnownFrame)> {
    Some((FrameHash(frame.hash?), frame))
}

/// The frames that are worth a note.
fn notable(pack: &PutPack) -> Vec<KnownFrame> {
    let worth = |frame: &&KnownFrame| u64::from(frame.raw_len) >= MIN_SHARED;
    pack.known.iter().filter(worth).copied().collect()
}

/// Describes the missing objects, what the gateway does about them, and what the operator should do.
fn explain(what: &str, folder: &str) -> String {
    format!(
        "{what}: objects of this volume were deleted, or the server came back with another disk. Publishing has stopped, and the log in {folder} keeps the unpublished changes; writes continue until the log is full. Restore the objects (earlier versions of them, or a copy of the bucket), and publishing resumes. If that is not possible, copy the files that clients can still read, stop the gateway, and keep {folder}: `forebay log salvage current --data-dir {folder} --to NEWFOLDER` writes the content of the log as files, and `forebay salvage` the content of the remaining packs"
    )
}
