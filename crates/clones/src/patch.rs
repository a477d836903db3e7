//! The records that differ between a snapshot and the state that begins with it.
//!
//! A snapshot has the whole metadata of its moment: also the list of snapshots of then, and which packs were dead or held.
//!
//! | records | in a clone | after a restore |
//! |---|---|---|
//! | snapshots, held packs and their marks | none | those of now |
//! | dead packs | none: their objects are not the clone's | those of now |
//! | accounts of packs | those of then | those of then |
//! | a pack with an account then, held now | | is live again, and not held |
//! | a pack with an account now and none then | | dies with the restore: the snapshot of the state before holds it |
//! | the volume's state: what files use | that of then | that of then |
//! | epoch, numbers that come next, published LSN, commits | those of then | those of now |
//! | all else: objects, names, blocks, garbage, quotas, notes | those of then | those of then |

use std::collections::{BTreeMap, BTreeSet};

use forebay_meta::record::{
    DeadPack, HeldPack, History, Holding, PackLife, PackRecord, SnapshotRecord, VolumeState, holder,
};
use forebay_meta::{Batch, Key};
use forebay_types::{CommitNumber, PackId, SnapshotId};

/// Changes of one batch: it is written as one table.
const CHANGES: usize = 100_000;

/// What a state says of snapshots and packs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accounts {
    pub(crate) snapshots: BTreeMap<SnapshotId, SnapshotRecord>,
    pub(crate) packs: BTreeMap<PackId, PackRecord>,
    pub(crate) dead: BTreeMap<PackId, DeadPack>,
    pub(crate) held: BTreeMap<PackId, HeldPack>,
    pub(crate) marks: BTreeSet<(SnapshotId, PackId)>,
}

/// Batches of some size.
#[derive(Default)]
struct Batches {
    done: Vec<Batch>,
    open: Batch,
}

impl Batches {
    fn change(&mut self, change: impl FnOnce(&mut Batch)) {
        change(&mut self.open);
        if self.open.changes().len() >= CHANGES {
            self.done.push(std::mem::take(&mut self.open));
        }
    }

    fn finish(mut self) -> Vec<Batch> {
        self.done.push(self.open);
        self.done
    }

    /// Deletes what the state says of snapshots, and of dead packs.
    fn without_past(&mut self, then: &Accounts) {
        for id in then.snapshots.keys() {
            self.change(|batch| batch.delete(&Key::Snapshot(*id)));
        }
        for pack in then.held.keys() {
            self.change(|batch| batch.delete(&Key::HeldPack(*pack)));
        }
        for (id, pack) in &then.marks {
            self.change(|batch| batch.delete(&Key::Holding(*id, *pack)));
        }
        for pack in then.dead.keys() {
            self.change(|batch| batch.delete(&Key::DeadPack(*pack)));
        }
    }
}

/// The beginning of a clone. No gateway has it: a log of the source does not continue it.
pub(crate) fn of_clone(state: VolumeState, then: &Accounts) -> Vec<Batch> {
    let mut batches = Batches::default();
    batches.without_past(then);
    let state = VolumeState {
        gateway: [0; 16],
        history: History {
            held_bytes: 0,
            // Packs were born in commits up to this one.
            ..state.history
        },
        ..state
    };
    batches.change(|batch| batch.put(&Key::Volume, &state));
    batches.finish()
}

/// The state after a restore: that of `then`, with the past of `now`.
///
/// # Errors
/// A pack of then that has no account now.
pub(crate) fn of_restore(
    (state_then, then): (VolumeState, &Accounts),
    (state_now, now): (VolumeState, &Accounts),
) -> Result<Vec<Batch>, PackId> {
    let is_known = |pack: &&PackId| {
        now.packs.contains_key(pack) || now.held.contains_key(pack) || now.dead.contains_key(pack)
    };
    if let Some(pack) = then.packs.keys().find(|pack| !is_known(pack)) {
        return Err(*pack);
    }
    let commit = CommitNumber(state_now.history.commit.0.saturating_add(1));
    let live = now
        .snapshots
        .iter()
        .filter(|(_, one)| !one.is_being_deleted);
    let live: Vec<_> = live.map(|(id, one)| (*id, one.commit)).collect();

    let is_live_again = |pack: &PackId| then.packs.contains_key(pack);
    let mut held: BTreeMap<PackId, HeldPack> = now.held.clone();
    let mut dead = now.dead.clone();
    held.retain(|pack, _| !is_live_again(pack));
    dead.retain(|pack, _| !is_live_again(pack));
    for (pack, account) in now.packs.iter().filter(|(pack, _)| !is_live_again(pack)) {
        let life = PackLife {
            born: account.born,
            died: commit,
            bytes: account.bytes,
        };
        match holder(&life, live.iter().copied()) {
            Some(holder) => _ = held.insert(*pack, HeldPack { holder, life }),
            None => _ = dead.insert(*pack, DeadPack { life: Some(life) }),
        }
    }

    let mut batches = Batches::default();
    batches.without_past(then);
    for (id, record) in &now.snapshots {
        batches.change(|batch| batch.put(&Key::Snapshot(*id), record));
    }
    for (pack, record) in &held {
        batches.change(|batch| batch.put(&Key::HeldPack(*pack), record));
        batches.change(|batch| batch.put(&Key::Holding(record.holder, *pack), &Holding));
    }
    for (pack, record) in &dead {
        batches.change(|batch| batch.put(&Key::DeadPack(*pack), record));
    }
    let state = VolumeState {
        used_bytes: state_then.used_bytes,
        used_inodes: state_then.used_inodes,
        charged_bytes: state_then.charged_bytes,
        history: History {
            commit,
            last_snapshot: state_now.history.last_snapshot,
            held_bytes: held.values().map(|one| one.life.bytes).sum(),
        },
        ..state_now
    };
    batches.change(|batch| batch.put(&Key::Volume, &state));
    Ok(batches.finish())
}
