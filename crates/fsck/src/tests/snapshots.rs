//! Tests of snapshots, and of dead packs that they hold.

use forebay_meta::Key;
use forebay_meta::record::{
    DeadPack, HeldPack, History, Holding, PackLife, PackRecord, Record, ScrubRecord,
    SnapshotRecord, Timestamp, VolumeState,
};
use forebay_pack::object_name;
use forebay_types::{CommitNumber, PackId, SnapshotId};

use super::findings::{found, names, options};
use super::volume::{Volume, block, pack};
use crate::check::Options;

const NEVER: usize = usize::MAX;

/// The frames of the packs 4, 5 and 6: inode, block, bytes.
const HELD: [[(u64, u64, u64); 2]; 3] = [
    [(3, 0, 300), (9, 0, 10)],
    [(3, 0, 200), (6, 0, 500)],
    [(9, 0, 60), (9, 1, 70)],
];

pub(super) fn snapshot(id: u64) -> Key {
    Key::Snapshot(SnapshotId(id))
}

pub(super) fn held(n: u64) -> Key {
    Key::HeldPack(pack(n))
}

pub(super) fn mark(id: u64, n: u64) -> Key {
    Key::Holding(SnapshotId(id), pack(n))
}

pub(super) fn life(born: u64, died: u64, bytes: u64) -> PackLife {
    PackLife {
        born: CommitNumber(born),
        died: CommitNumber(died),
        bytes,
    }
}

impl Volume {
    /// Adds snapshots, and packs that they hold:
    ///
    /// ```text
    /// snapshot 1   commit 3                       holds pack 4, from before all snapshots to commit 4
    /// snapshot 2   commit 5, being deleted        holds pack 6, of commits 4 to 7
    /// snapshot 4   commit 8                       holds pack 5, of commits 2 to 9
    /// ```
    ///
    /// Pack 7 is dead, and of commits 2 to 3: no snapshot refers to it. The last commit is 9; snapshot 3 was deleted.
    pub(super) fn with_snapshots(&mut self) {
        for (id, commit, is_being_deleted) in [(1, 3, false), (2, 5, true), (4, 8, false)] {
            let record = SnapshotRecord {
                is_being_deleted,
                commit: CommitNumber(commit),
                lsn: forebay_types::Lsn(commit),
                used_bytes: 1,
                used_inodes: 1,
                made: Timestamp::default(),
                // That of one that is being deleted is free.
                name: ["daily", "weekly"][usize::from(id == 1)].to_owned(),
                made_by: "root".to_owned(),
            };
            self.put(&snapshot(id), &record);
        }
        for (n, id, (born, died)) in [(4, 1, (0, 4)), (5, 4, (2, 9)), (6, 2, (4, 7))] {
            let holder = SnapshotId(id);
            self.pack(n, &HELD[n as usize - 4]);
            self.delete(&Key::Pack(pack(n)));
            let life = life(born, died, self.len(n));
            self.put(&held(n), &HeldPack { holder, life });
            self.put(&mark(id, n), &Holding);
        }
        self.put(&Key::Scrub(pack(5)), &ScrubRecord::default());
        let dead = DeadPack {
            life: Some(life(2, 3, 70)),
        };
        self.put(&Key::DeadPack(pack(7)), &dead);
        self.edit::<PackRecord>(&Key::Pack(pack(1)), |record| record.born = CommitNumber(4));
        let held_bytes = self.held_bytes();
        self.state(|state| {
            state.history = History {
                commit: CommitNumber(9),
                last_snapshot: 4,
                held_bytes,
            };
        });
    }

    /// Bytes of a pack in the bucket.
    pub(super) fn len(&self, n: u64) -> u64 {
        self.objects[&object_name(pack(n))].len() as u64
    }

    fn held_bytes(&self) -> u64 {
        (4..7).map(|n| self.len(n)).sum()
    }

    pub(super) fn held(&mut self, n: u64, change: impl FnOnce(&mut HeldPack)) {
        self.edit(&held(n), change);
    }

    /// A pack that is held, and has an account too, as block maps refer to it.
    pub(super) fn hold_a_live_pack(&mut self) {
        self.with_snapshots();
        let bytes = self.objects[&object_name(pack(1))].len() as u64;
        let record = HeldPack {
            holder: SnapshotId(4),
            life: life(2, 9, bytes),
        };
        self.put(&held(1), &record);
        self.put(&mark(4, 1), &Holding);
        self.state(|state| state.history.held_bytes += bytes);
    }

    fn record<R: Record>(&self, key: &Key) -> Option<R> {
        let key = key.encode();
        let value = self.entries.get(&key)?;
        Some(R::decode(&key, value).unwrap())
    }

    fn has(&self, key: &Key) -> bool {
        self.entries.contains_key(&key.encode())
    }

    fn spoil(&mut self, key: &Key) {
        self.entries.insert(key.encode(), "x".into());
    }
}

fn volume() -> Volume {
    let mut volume = Volume::sound();
    volume.with_snapshots();
    volume
}

#[track_caller]
fn is_sound(volume: &Volume) {
    let found = found(volume, &Options::default());
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn snapshots_and_the_packs_that_they_hold_are_counted_and_are_no_findings() {
    let volume = volume();
    let report = volume.check(&options());
    assert!(report.is_clean(), "{:#?}", report.findings);
    let census = report.census;
    assert_eq!(census.snapshots, 3);
    let held_bytes = volume.held_bytes();
    assert_eq!(
        (census.held_packs.count, census.held_packs.bytes),
        (3, held_bytes)
    );
    assert_eq!((census.packs.count, census.dead_packs), (2, 2));
    assert_eq!(
        (
            census.unreferenced_packs.count,
            census.packs_under_way.count
        ),
        (0, 0)
    );
}

#[test]
fn a_held_pack_that_a_gateway_has_given_up_since_is_no_finding() {
    let mut volume = volume();
    let mut newest = volume.clone();
    newest.delete(&held(4));
    newest.delete(&mark(1, 4));
    volume.newest = Some(newest.entries);
    volume.objects.remove(&object_name(pack(4)));
    is_sound(&volume);
    // An account whose pack is held since is no reason for its absence.
    let mut newest = volume.clone();
    newest.delete(&Key::Pack(pack(1)));
    let life = life(4, 10, 1);
    let holder = SnapshotId(4);
    newest.put(&held(1), &HeldPack { holder, life });
    volume.newest = Some(newest.entries);
    volume.objects.remove(&object_name(pack(1)));
    let found = names(&found(&volume, &Options::default()));
    assert!(found.contains("missing-pack"), "{found:?}");
}

#[test]
fn a_pack_without_references_dies_with_its_life() {
    for is_counted in [true, false] {
        let mut volume = Volume::sound();
        if is_counted {
            volume.with_snapshots();
        }
        // The only block map that refers to the pack, of a removed file among others.
        for key in [block(6, 2), block(7, 1)] {
            volume.delete(&key);
        }
        volume.repair(false, NEVER);
        is_sound(&volume);
        assert!(!volume.has(&Key::Pack(pack(2))));
        let dead: DeadPack = volume.record(&Key::DeadPack(pack(2))).unwrap();
        let bytes = volume.objects[&object_name(pack(2))].len() as u64;
        // Its account was opened before all snapshots, and it dies with the commit after the last.
        assert_eq!(dead.life, is_counted.then(|| life(0, 10, bytes)));
        let state: VolumeState = volume.record(&Key::Volume).unwrap();
        assert_eq!(state.history.commit.0, if is_counted { 9 } else { 0 });
    }
}

#[test]
fn a_pack_whose_account_is_lost_with_all_references_is_kept_for_snapshots() {
    let mut volume = volume();
    for key in [block(3, 0), block(6, 0), Key::Pack(pack(1))] {
        volume.spoil(&key);
    }
    volume.repair(true, NEVER);
    is_sound(&volume);
    let dead: DeadPack = volume.record(&Key::DeadPack(pack(1))).unwrap();
    let bytes = volume.objects[&object_name(pack(1))].len() as u64;
    assert_eq!(dead.life, Some(life(0, 10, bytes)));
}

#[test]
fn an_account_that_is_made_again_is_as_old_as_can_be() {
    let born = |volume: &Volume| {
        let account: PackRecord = volume.record(&Key::Pack(pack(1))).unwrap();
        account.born.0
    };
    let mut volume = volume();
    volume.delete(&Key::Pack(pack(1)));
    let mut held = volume.clone();
    let mut dead = volume.clone();
    volume.repair(false, NEVER);
    is_sound(&volume);
    assert_eq!(born(&volume), 0);
    // A note on the dead pack has its birth.
    let bytes = volume.objects[&object_name(pack(1))].len() as u64;
    let life = life(4, 9, bytes);
    let holder = SnapshotId(4);
    held.put(&super::snapshots::held(1), &HeldPack { holder, life });
    held.put(&mark(4, 1), &Holding);
    dead.put(&Key::DeadPack(pack(1)), &DeadPack { life: Some(life) });
    for mut volume in [held, dead] {
        volume.repair(false, NEVER);
        is_sound(&volume);
        assert_eq!(born(&volume), 4);
        assert!(!volume.has(&mark(4, 1)));
    }
    // Of an account and a note on the held pack, the earlier birth counts.
    let mut volume = Volume::sound();
    volume.hold_a_live_pack();
    volume.repair(false, NEVER);
    is_sound(&volume);
    assert_eq!(born(&volume), 2);
}

#[test]
fn packs_of_a_lost_snapshot_are_passed_on() {
    let mut volume = volume();
    volume.spoil(&snapshot(4));
    let before = volume.entries.clone();
    let (steps, _) = volume.repair(false, NEVER);
    // Not without consent, and no pack gets another holder.
    assert_eq!((steps, &volume.entries), (vec![], &before));
    volume.repair(true, NEVER);
    is_sound(&volume);
    // Snapshot 2 refers to it as well, and is being deleted.
    let passed: HeldPack = volume.record(&held(5)).unwrap();
    assert_eq!(passed.holder, SnapshotId(1));
    assert!(volume.has(&mark(1, 5)) && !volume.has(&mark(4, 5)));

    // If no other refers to them they are dead.
    volume.spoil(&snapshot(1));
    volume.repair(true, NEVER);
    is_sound(&volume);
    for n in [4, 5] {
        let dead: DeadPack = volume.record(&Key::DeadPack(pack(n))).unwrap();
        assert!(dead.life.is_some());
        assert!(!volume.has(&held(n)) && !volume.has(&mark(1, n)));
    }
    let state: VolumeState = volume.record(&Key::Volume).unwrap();
    assert_eq!(state.history.held_bytes, volume.len(6));
    assert_eq!(state.history.last_snapshot, 4);
}

#[test]
fn a_held_pack_whose_record_is_lost_is_held_for_as_long_as_can_be() {
    let mut damaged = volume();
    damaged.spoil(&held(4));
    let mut gone = volume();
    gone.delete(&held(4));
    for mut volume in [damaged, gone] {
        volume.repair(false, NEVER);
        is_sound(&volume);
        // The newest snapshot refers to it, as far as is known.
        let again: HeldPack = volume.record(&held(4)).unwrap();
        assert_eq!(
            (again.holder.0, again.life),
            (4, life(0, 10, volume.len(4)))
        );
        assert!(volume.has(&mark(4, 4)) && !volume.has(&mark(1, 4)));
    }

    // While a snapshot is unreadable, it is not known which one refers to it.
    let mut volume = volume();
    volume.spoil(&held(4));
    volume.spoil(&snapshot(1));
    let before = volume.entries.clone();
    volume.repair(false, NEVER);
    assert_eq!(volume.entries, before);
    volume.repair(true, NEVER);
    is_sound(&volume);

    // Nothing holds a pack that is not in the bucket.
    let mut volume = super::snapshots::volume();
    volume.spoil(&held(4));
    volume.objects.remove(&object_name(pack(4)));
    let before = volume.entries.clone();
    volume.repair(false, NEVER);
    assert_eq!(volume.entries, before);
    volume.repair(true, NEVER);
    is_sound(&volume);
    assert!(!volume.has(&held(4)) && !volume.has(&mark(1, 4)));
}

#[test]
fn a_dead_pack_whose_record_is_lost_is_kept_for_snapshots() {
    let mut volume = volume();
    volume.objects.insert(object_name(pack(7)), vec![0; 70]);
    volume.spoil(&Key::DeadPack(pack(7)));
    volume.repair(false, NEVER);
    is_sound(&volume);
    let dead: DeadPack = volume.record(&Key::DeadPack(pack(7))).unwrap();
    assert_eq!(dead.life, Some(life(0, 10, 70)));
}

#[test]
fn a_history_that_was_lost_is_beyond_all_records_that_are_left() {
    let mut volume = volume();
    // Of the last commit, and held by a snapshot that is lost.
    volume.spoil(&snapshot(4));
    volume.delete(&Key::Volume);
    volume.repair(true, NEVER);
    is_sound(&volume);
    let state: VolumeState = volume.record(&Key::Volume).unwrap();
    assert_eq!(state.history.commit, CommitNumber(9));
    assert!(state.history.last_snapshot > 4 + 1000, "{state:?}");
    assert_eq!(state.history.held_bytes, volume.held_bytes());

    // A volume without snapshots has none.
    let mut volume = Volume::sound();
    volume.delete(&Key::Volume);
    volume.repair(true, NEVER);
    let state: VolumeState = volume.record(&Key::Volume).unwrap();
    assert_eq!(state.history, History::default());
}

#[test]
fn a_state_without_a_lease_gets_one_with_its_history() {
    let mut volume = volume();
    volume.state(|state| {
        state.inode_lease = None;
        state.charged_bytes = None;
    });
    volume.repair(false, NEVER);
    is_sound(&volume);
    let state: VolumeState = volume.record(&Key::Volume).unwrap();
    // The last commit that left a trace in the records is that of snapshot 4.
    assert_eq!(
        (state.history.commit, state.history.last_snapshot),
        (CommitNumber(8), 4)
    );
    assert_eq!(state.history.held_bytes, volume.held_bytes());
}

#[test]
fn the_later_snapshot_of_one_name_gets_its_number_and_no_name_is_too_long() {
    let name = |volume: &Volume, id| {
        let record: SnapshotRecord = volume.record(&snapshot(id)).unwrap();
        record.name
    };
    let named = |volume: &mut Volume, id, name: String| {
        volume.edit::<SnapshotRecord>(&snapshot(id), |record| record.name = name);
    };
    let mut volume = volume();
    named(&mut volume, 4, "weekly".into());
    volume.repair(false, NEVER);
    is_sound(&volume);
    assert_eq!(
        (name(&volume, 1), name(&volume, 4)),
        ("weekly".into(), "weekly-4".into())
    );

    // The end of the name makes room, also where that cuts a letter, and the new name may be taken.
    let long = "ä".repeat(64);
    let cut = format!("{}-4", "ä".repeat(63));
    named(&mut volume, 1, long.clone());
    named(&mut volume, 4, long);
    named(&mut volume, 2, cut);
    volume.repair(false, NEVER);
    is_sound(&volume);
    assert_eq!(name(&volume, 4), format!("{}-4-4", "ä".repeat(62)));
}

#[test]
fn what_refers_to_no_pack_is_told_of_each_range_once() {
    let mut volume = volume();
    volume.put(&Key::Holding(SnapshotId(1), PackId(3)), &Holding);
    volume.put(&Key::Holding(SnapshotId(1), PackId(9 << 40)), &Holding);
    for memory in [8, 1 << 20] {
        let found = found(
            &volume,
            &Options {
                memory,
                ..options()
            },
        );
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
