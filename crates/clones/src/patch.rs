//! The records that differ between a snapshot and the state that begins with it.
//!
//! A snapshot has the whole metadata of its moment: also the list of snapshots of then, and which packs were dead or held.
//!
//! | records | in a clone | after a restore |
//! |---|---|---|
//! | snapshots, held packs and their marks | none | those of now |
//! | when held packs were read back | none | none |
//! | dead packs | those of then, for their notes: their objects are not the clone's | those of now, and those of then for their notes |
//! | accounts of packs | those of then | those of then |
//! | a pack with an account then, held now | | is live again, and not held |
//! | a pack with an account now and none then | | dies with the restore: the snapshot of the state before holds it |
//! | a pack that was dead then, with a holder now | | is dead: its frame notes are there again, and a held pack has none. When they are deleted, it is held |
//! | the volume's state: what files and the trash use | that of then | that of then |
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
        // The store takes no empty batch.
        if !self.open.changes().is_empty() {
            self.done.push(self.open);
        }
        self.done
    }

    /// Deletes what the state says of snapshots; its dead packs become ones without objects.
    fn without_past(&mut self, then: &Accounts) {
        for id in then.snapshots.keys() {
            self.change(|batch| batch.delete(&Key::Snapshot(*id)));
        }
        for pack in then.held.keys() {
            self.change(|batch| batch.delete(&Key::HeldPack(*pack)));
            // When it was read back, which is noted of packs that are there.
            self.change(|batch| batch.delete(&Key::Scrub(*pack)));
        }
        for (id, pack) in &then.marks {
            self.change(|batch| batch.delete(&Key::Holding(*id, *pack)));
        }
        // Their notes go when they are reclaimed, whether their objects are there or not.
        for pack in then.dead.keys() {
            let dead = DeadPack::default();
            self.change(|batch| batch.put(&Key::DeadPack(*pack), &dead));
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

    for pack in then.dead.keys() {
        if let Some(HeldPack { life, .. }) = held.remove(pack) {
            dead.insert(*pack, DeadPack { life: Some(life) });
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
        trash: state_then.trash,
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

#[cfg(test)]
mod tests {
    use forebay_meta::Entry;
    use forebay_meta::record::{Record, ScrubRecord, Timestamp, TrashTotals};
    use forebay_types::{Epoch, Lsn};

    use super::*;

    fn state(commit: u64, used: u64) -> VolumeState {
        VolumeState {
            published: Lsn(commit),
            epoch: Epoch(commit),
            gateway: [9; 16],
            next_inode: commit,
            inode_lease: Some(1),
            next_pack: commit,
            used_bytes: used,
            used_inodes: used,
            charged_bytes: Some(used),
            history: History {
                commit: CommitNumber(commit),
                last_snapshot: 2,
                held_bytes: 77,
            },
            trash: TrashTotals {
                bytes: used,
                files: used,
            },
        }
    }

    fn snapshot(commit: u64) -> SnapshotRecord {
        SnapshotRecord {
            is_being_deleted: false,
            commit: CommitNumber(commit),
            lsn: Lsn(0),
            used_bytes: 0,
            used_inodes: 0,
            made: Timestamp {
                seconds: 0,
                nanos: 0,
            },
            name: commit.to_string(),
            made_by: String::new(),
        }
    }

    fn account(born: u64) -> PackRecord {
        PackRecord {
            bytes: 10,
            raw_bytes: 10,
            live_bytes: 10,
            frames: 1,
            born: CommitNumber(born),
        }
    }

    fn life(born: u64, died: u64) -> PackLife {
        PackLife {
            born: CommitNumber(born),
            died: CommitNumber(died),
            bytes: 10,
        }
    }

    /// The records that are left of `then` after the batches.
    fn after(then: &Accounts, batches: Vec<Batch>) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut records = BTreeMap::new();
        let mut put =
            |key: &Key, value: bytes::Bytes| records.insert(key.encode().to_vec(), value.to_vec());
        for (id, record) in &then.snapshots {
            put(&Key::Snapshot(*id), record.encode());
        }
        for (pack, record) in &then.held {
            put(&Key::HeldPack(*pack), record.encode());
        }
        for (id, pack) in &then.marks {
            put(&Key::Holding(*id, *pack), Holding.encode());
        }
        for (pack, record) in &then.dead {
            put(&Key::DeadPack(*pack), record.encode());
        }
        for pack in then.held.keys() {
            put(&Key::Scrub(*pack), ScrubRecord::default().encode());
        }
        for batch in batches {
            for (key, entry) in batch.changes() {
                match entry {
                    Entry::Value(value) => _ = records.insert(key.to_vec(), value.to_vec()),
                    Entry::Deleted => _ = records.remove(&key[..]),
                }
            }
        }
        records
    }

    fn volume(records: &BTreeMap<Vec<u8>, Vec<u8>>) -> VolumeState {
        let key = Key::Volume.encode();
        VolumeState::decode(&key, &records[&key[..]]).unwrap()
    }

    /// The snapshot with commit 5 has packs 1 and 2, and one of before holds pack 3; pack 4 was about to be deleted.
    fn then() -> Accounts {
        let held = HeldPack {
            holder: SnapshotId(1),
            life: life(1, 4),
        };
        Accounts {
            snapshots: [(SnapshotId(1), snapshot(3)), (SnapshotId(2), snapshot(5))].into(),
            packs: [(PackId(1), account(1)), (PackId(2), account(2))].into(),
            dead: [(PackId(4), DeadPack { life: None })].into(),
            held: [(PackId(3), held)].into(),
            marks: [(SnapshotId(1), PackId(3))].into(),
        }
    }

    #[test]
    fn a_clone_has_no_past_and_counts_on() {
        let records = after(&then(), of_clone(state(5, 20), &then()));
        assert_eq!(records.len(), 2);
        assert!(records.contains_key(&Key::DeadPack(PackId(4)).encode()[..]));
        let volume = volume(&records);
        assert_eq!((volume.gateway, volume.epoch), ([0; 16], Epoch(5)));
        assert_eq!(volume.history.commit, CommitNumber(5));
        assert_eq!(volume.history.held_bytes, 0);
    }

    #[test]
    fn a_restore_holds_what_only_the_state_before_has_and_revives_what_the_snapshot_has() {
        let mut now = then();
        now.snapshots.insert(SnapshotId(3), snapshot(9));
        now.dead = [(
            PackId(6),
            DeadPack {
                life: Some(life(6, 7)),
            },
        )]
        .into();
        // Pack 2 died since, and pack 5 is new.
        now.packs = [(PackId(1), account(1)), (PackId(5), account(8))].into();
        let held = HeldPack {
            holder: SnapshotId(2),
            life: life(2, 8),
        };
        now.held.insert(PackId(2), held);
        now.marks.insert((SnapshotId(2), PackId(2)));
        // A file that was restored needed pack 4 again.
        now.packs.insert(PackId(4), account(3));
        let batches = of_restore((state(5, 20), &then()), (state(9, 30), &now)).unwrap();
        let records = after(&then(), batches);
        let held = |pack| {
            let key = Key::HeldPack(PackId(pack)).encode();
            records
                .get(&key[..])
                .map(|value| HeldPack::decode(&key, value).unwrap())
        };
        let by_before = HeldPack {
            holder: SnapshotId(3),
            life: life(8, 10),
        };
        assert_eq!((held(2), held(5)), (None, Some(by_before)));
        assert_eq!(held(3).map(|one| one.holder), Some(SnapshotId(1)));
        let marks: Vec<_> = records
            .keys()
            .filter(|key| key[0] == b'j')
            .cloned()
            .collect();
        let expected = [(1, 3), (3, 5)]
            .map(|(id, pack)| Key::Holding(SnapshotId(id), PackId(pack)).encode().to_vec());
        assert_eq!(marks, expected);
        let is_there = |key: Key| records.contains_key(&key.encode()[..]);
        assert!(!is_there(Key::Scrub(PackId(3))));
        assert!(is_there(Key::DeadPack(PackId(6))));
        // The notes of pack 4 are there again: it is held when they are deleted.
        let key = Key::DeadPack(PackId(4)).encode();
        let dead = DeadPack::decode(&key, &records[&key[..]]).unwrap();
        assert_eq!((held(4), dead.life), (None, Some(life(3, 10))));
        assert!((1..=3).all(|id| is_there(Key::Snapshot(SnapshotId(id)))));
        let volume = volume(&records);
        assert_eq!(
            (volume.used_bytes, volume.next_inode, volume.epoch),
            (20, 9, Epoch(9))
        );
        assert_eq!(volume.trash, state(5, 20).trash);
        assert_eq!(
            (volume.history.commit, volume.history.held_bytes),
            (CommitNumber(10), 20)
        );

        // A pack of the snapshot that nothing knows now.
        now.held.remove(&PackId(2));
        let lost = of_restore((state(5, 20), &then()), (state(9, 30), &now));
        assert_eq!(lost.unwrap_err(), PackId(2));
    }
}
