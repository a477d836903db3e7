//! Tests of what snapshots refer to: packs that are kept for them, and frames that only they have.

use forebay_meta::record::{DeadPack, HeldPack, PackRecord, Record};
use forebay_meta::{BlockMap, Key};
use forebay_pack::{FrameRef, object_name};
use forebay_types::{CommitNumber, SnapshotId};

use super::findings::{found, names, options};
use super::snapshots::{held, life, mark, snapshot};
use super::volume::{Volume, address, block, pack};
use crate::check::Options;
use crate::finding::Finding;

impl Volume {
    /// Adds [snapshots](Volume::with_snapshots) with their states:
    ///
    /// ```text
    ///                 snapshot 1 "weekly"    snapshot 4 "daily"    now
    /// /file           pack 4                 pack 5                pack 1
    /// /tree/big, 0    pack 5                 pack 5                pack 1
    /// ```
    ///
    /// All else is as it is now.
    pub(super) fn with_past(&mut self) {
        self.with_snapshots();
        let (file, big) = (block(3, 0), block(6, 0));
        let state = |now: &Volume, maps: [(&Key, FrameRef); 2]| {
            let mut then = now.clone();
            for (key, frame) in maps {
                let mut map = BlockMap::new();
                map.insert(frame.range(), address(&frame)).unwrap();
                then.put(key, &map);
            }
            then.entries
        };
        let [four, five] = [4, 5].map(|n| self.frames(n));
        let daily = state(self, [(&file, five[0]), (&big, five[1])]);
        let weekly = state(self, [(&file, four[0]), (&big, five[1])]);
        self.past = Some([(1, weekly), (4, daily)].into());
    }

    /// The frames of a pack, by its index.
    fn frames(&self, n: u64) -> Vec<FrameRef> {
        let bytes = self.objects[&object_name(pack(n))].clone();
        let index = forebay_pack::open_index(&bytes, &super::volume::keys()).unwrap();
        index.entries.iter().map(|entry| entry.frame).collect()
    }

    /// Changes a byte of a frame.
    pub(super) fn damage(&mut self, n: u64, frame: usize) {
        let at = self.frames(n)[frame].offset as usize + 128 + 7;
        self.objects.get_mut(&object_name(pack(n))).unwrap()[at] ^= 1;
    }

    /// Gives the pack 5 another life.
    pub(super) fn lived(&mut self, born: u64, died: u64) {
        let bytes = self.len(5);
        self.held(5, |record| record.life = life(born, died, bytes));
    }

    fn edit_past(&mut self, id: u64, change: impl FnOnce(&mut Volume)) {
        let past = self.past.as_mut().unwrap();
        let mut then = Volume {
            entries: past[&id].clone(),
            ..Volume::default()
        };
        change(&mut then);
        past.insert(id, then.entries);
    }
}

fn volume() -> Volume {
    let mut volume = Volume::sound();
    volume.with_past();
    volume
}

#[test]
fn each_frame_of_snapshots_is_read_once_and_is_no_finding() {
    let volume = volume();
    for memory in [8, 1 << 20] {
        let options = Options {
            memory,
            ..options()
        };
        let report = volume.check(&options);
        assert!(report.is_clean(), "{:#?}", report.findings);
        // 4 that files need now, both of pack 5, and one of pack 4.
        assert_eq!(report.census.frames_read.count, 4 + 2 + 1);
    }
    assert_eq!(found(&volume, &Options::default()), []);
}

#[test]
fn a_damaged_frame_is_reported_once_with_its_snapshots_and_the_path_there() {
    let mut volume = volume();
    volume.damage(5, 1);
    // The path is that of then.
    let [then, now] = [(1, "big"), (4, "old")];
    for (id, name) in [then, now] {
        let from = super::volume::name(2, "big");
        let to = super::volume::name(2, name);
        volume.edit_past(id, |then| {
            let key = from.encode();
            let record = then.entries.remove(&key).unwrap();
            then.entries.insert(to.encode(), record);
        });
    }
    let found = found(&volume, &options());
    let [
        Finding::DamagedFrameOfSnapshot {
            snapshots,
            inode,
            path,
            from,
            to,
            ..
        },
    ] = &found[..]
    else {
        panic!("{found:#?}");
    };
    assert_eq!(snapshots, &["weekly", "daily"]);
    assert_eq!((inode.0, *from, *to), (6, 0, 500));
    assert_eq!(path.as_deref(), Some("/tree/old"));
    let text = found[0].to_string();
    assert!(
        text.contains("in snapshots \"weekly\" and \"daily\""),
        "{text}"
    );
}

#[test]
fn a_damaged_frame_that_a_file_has_names_the_snapshots_that_have_it_too() {
    let mut volume = volume();
    volume.damage(2, 0);
    volume.damage(1, 0);
    let found = found(&volume, &options());
    let snapshots: Vec<_> = found
        .iter()
        .map(|one| match one {
            Finding::DamagedFrame {
                inode, snapshots, ..
            } => (inode.0, snapshots.len()),
            other => panic!("{other:?}"),
        })
        .collect();
    // No snapshot refers to pack 1.
    assert_eq!(snapshots, [(3, 0), (6, 2)]);
}

#[test]
fn a_missing_held_pack_names_the_snapshots_and_their_files() {
    let mut volume = volume();
    volume.objects.remove(&object_name(pack(5)));
    let quick = found(&volume, &Options::default());
    let [Finding::MissingPack { snapshots, .. }] = &quick[..] else {
        panic!("{quick:#?}");
    };
    assert_eq!(snapshots, &["weekly", "daily"]);
    let all = found(&volume, &options());
    let of: Vec<_> = all
        .iter()
        .filter_map(|one| match one {
            Finding::DamagedFrameOfSnapshot {
                snapshots, path, ..
            } => Some((path.as_deref().unwrap(), snapshots.len())),
            _ => None,
        })
        .collect();
    assert_eq!(of, [("/file", 1), ("/tree/big", 2)]);
    assert_eq!(all.len(), 3, "{all:#?}");
}

#[test]
fn what_a_snapshot_refers_to_is_kept_for_it() {
    let kinds = |volume: &Volume| names(&found(volume, &Options::default()));
    let why = |volume: &Volume| {
        let found = found(volume, &Options::default());
        let mut why = found.into_iter().filter_map(|one| match one {
            Finding::PackNotHeld {
                name, pack, why, ..
            } => Some((name, pack.0 & 0xff, why)),
            _ => None,
        });
        let one = why.next().unwrap();
        assert_eq!(why.next(), None);
        one
    };
    // Born after the oldest that refers to it, or dead before the newest.
    let mut late = volume();
    late.lived(4, 9);
    let (name, n, text) = why(&late);
    assert_eq!((name.as_str(), n), ("weekly", 5));
    assert!(text.contains("born after"), "{text}");
    let mut early = volume();
    early.lived(2, 8);
    let (name, _, text) = why(&early);
    assert_eq!(name, "daily");
    assert!(text.contains("died before"), "{text}");
    // Without a record, and about to be deleted.
    let mut gone = volume();
    gone.delete(&held(5));
    gone.delete(&mark(4, 5));
    let (_, _, text) = why(&gone);
    assert!(text.contains("no record"), "{text}");
    gone.put(&Key::DeadPack(pack(5)), &DeadPack::default());
    let (name, _, _) = why(&gone);
    assert_eq!(name, "daily");
    // A pack that died lately, and will be held.
    let dead = DeadPack {
        life: Some(life(2, 9, gone.len(5))),
    };
    gone.put(&Key::DeadPack(pack(5)), &dead);
    assert!(!kinds(&gone).contains("pack-not-held"));
    // One with an account, which is younger than the snapshot.
    let mut young = volume();
    young.edit_past(1, |then| {
        let map = young_map();
        then.put(&block(3, 0), &map(&late));
    });
    let (name, n, _) = why(&young);
    assert_eq!((name.as_str(), n), ("weekly", 1));
}

#[test]
fn what_a_snapshot_refers_to_is_kept_for_it_after_a_repair() {
    let sound = volume();
    let bytes = sound.len(5);
    let holds = |volume: &Volume| {
        let key = held(5).encode();
        let record = HeldPack::decode(&key, &volume.entries[&key]).unwrap();
        assert!(volume.entries.contains_key(&mark(4, 5).encode()));
        (record.holder.0, record.life)
    };
    let repaired = |mut volume: Volume| {
        assert!(names(&found(&volume, &Options::default())).contains("pack-not-held"));
        let (steps, _) = volume.repair(false, usize::MAX);
        assert!(steps.iter().any(|step| step.finding == "pack-not-held"));
        assert_eq!(found(&volume, &options()), [], "{steps:#?}");
        volume
    };
    // No longer than it has to be.
    for (born, died, is) in [
        (4, 9, (3, 9)),
        (2, 8, (2, 9)),
        (5, 7, (3, 9)),
        (3, 4, (3, 9)),
    ] {
        let mut volume = sound.clone();
        volume.lived(born, died);
        let volume = repaired(volume);
        assert_eq!(holds(&volume), (4, life(is.0, is.1, bytes)));
    }
    // Without a record, or about to be deleted.
    let mut gone = sound.clone();
    gone.delete(&held(5));
    gone.delete(&mark(4, 5));
    assert_eq!(holds(&repaired(gone.clone())), (4, life(0, 10, bytes)));
    let dead = |life| {
        let mut volume = gone.clone();
        volume.put(&Key::DeadPack(pack(5)), &DeadPack { life });
        volume
    };
    let is_dead = |volume: &Volume| {
        let key = Key::DeadPack(pack(5)).encode();
        volume.entries.contains_key(&key)
    };
    for (before, after) in [
        (None, life(0, 10, bytes)),
        (Some(life(2, 4, bytes)), life(2, 9, bytes)),
    ] {
        let volume = repaired(dead(before));
        assert_eq!(holds(&volume), (4, after));
        assert!(!is_dead(&volume));
    }
    // No step on the way gives it up.
    for batches in 0.. {
        let mut volume = sound.clone();
        volume.lived(5, 7);
        let (_, outcome) = volume.repair(false, batches);
        assert!(!is_dead(&volume), "{batches}");
        if outcome.is_some() {
            break;
        }
    }
    // Deleted already: it is not held, and stays a finding.
    let mut deleted = dead(None);
    deleted.objects.remove(&object_name(pack(5)));
    deleted.repair(true, usize::MAX);
    assert!(is_dead(&deleted));
    assert!(names(&found(&deleted, &Options::default())).contains("pack-not-held"));
    // One with an account is as old as the snapshot.
    let mut young = sound.clone();
    young.edit_past(1, |then| then.put(&block(3, 0), &young_map()(&sound)));
    let young = repaired(young);
    let key = Key::Pack(pack(1)).encode();
    let account = PackRecord::decode(&key, &young.entries[&key]).unwrap();
    assert_eq!(account.born, CommitNumber(3));
}

/// A map that refers to pack 1.
fn young_map() -> impl Fn(&Volume) -> BlockMap {
    |volume| {
        let frame = volume.frames(1)[0];
        let mut map = BlockMap::new();
        map.insert(frame.range(), address(&frame)).unwrap();
        map
    }
}

#[test]
fn a_snapshot_that_cannot_be_read_is_reported_and_the_others_are_checked() {
    let mut volume = volume();
    volume.damage(4, 0);
    let gone = |volume: &mut Volume, id| drop(volume.past.as_mut().unwrap().remove(&id));
    gone(&mut volume, 4);
    let expected = ["damaged-frame-of-snapshot", "unreadable-snapshot"];
    assert_eq!(names(&found(&volume, &options())), expected.into());

    // The state of the last commit is about to be kept.
    let mut fresh = volume.clone();
    fresh.state(|state| state.history.commit = CommitNumber(8));
    assert!(!names(&found(&fresh, &options())).contains("unreadable-snapshot"));

    // It was deleted meanwhile.
    let mut newest = volume.clone();
    newest.delete(&snapshot(4));
    volume.newest = Some(newest.entries);
    assert!(!names(&found(&volume, &options())).contains("unreadable-snapshot"));

    // A map that cannot be read.
    let mut volume = super::past::volume();
    volume.edit_past(4, |then| {
        drop(then.entries.insert(block(3, 0).encode(), "x".into()))
    });
    let unread = found(&volume, &options());
    let [Finding::UnreadableSnapshot { name, why, .. }] = &unread[..] else {
        panic!("{unread:#?}");
    };
    assert_eq!(name, "daily");
    assert!(why.contains("entry b:"), "{why}");
}

#[test]
fn frames_of_a_snapshot_that_is_deleted_meanwhile_are_no_findings() {
    let mut volume = volume();
    volume.damage(4, 0);
    let mut newest = volume.clone();
    newest.delete(&snapshot(1));
    newest.held(4, |record| {
        *record = HeldPack {
            holder: SnapshotId(4),
            ..*record
        }
    });
    volume.newest = Some(newest.entries);
    assert_eq!(found(&volume, &options()), []);
}

#[test]
fn a_frame_that_comes_back_after_a_restore_is_one_finding() {
    let mut volume = volume();
    // Snapshot 4 does not have what snapshot 1 has, and files have it again.
    let map = BlockMap::decode(
        &block(3, 0).encode(),
        &volume.past.as_ref().unwrap()[&1][&block(3, 0).encode()],
    )
    .unwrap();
    let old: BlockMap = {
        let key = block(3, 0).encode();
        BlockMap::decode(&key, &volume.entries[&key]).unwrap()
    };
    volume.put(&block(3, 0), &map);
    volume.edit_past(4, |then| then.put(&block(3, 0), &old));
    volume.damage(4, 0);
    let found = found(&volume, &options());
    let damaged: Vec<_> = found
        .iter()
        .filter(|one| one.name().starts_with("damaged-frame"))
        .collect();
    let [Finding::DamagedFrame { snapshots, .. }] = damaged[..] else {
        panic!("{damaged:#?}");
    };
    assert_eq!(snapshots, &["weekly"]);
}

#[test]
fn what_older_snapshots_still_have_is_reported_after_the_newest_was_deleted() {
    let mut volume = volume();
    volume.damage(5, 0);
    volume.damage(5, 1);
    let mut newest = volume.clone();
    newest.delete(&snapshot(4));
    volume.newest = Some(newest.entries);
    let found = found(&volume, &options());
    // Only "daily" had the first frame.
    let [
        Finding::DamagedFrameOfSnapshot {
            snapshots,
            path,
            inode,
            ..
        },
    ] = &found[..]
    else {
        panic!("{found:#?}");
    };
    assert_eq!((snapshots.len(), snapshots[0].as_str()), (1, "weekly"));
    assert_eq!((inode.0, path.as_deref()), (6, Some("/tree/big")));
}

#[test]
fn many_frames_of_one_block_are_found_in_the_snapshots_that_have_them() {
    let mut volume = volume();
    // The block of "weekly" has frames of three packs, that of "daily" of two.
    let [four, five, six] = [4, 5, 6].map(|n| volume.frames(n)[0]);
    for (id, frames) in [(1, &[four, five, six][..]), (4, &[five, six][..])] {
        let mut map = BlockMap::new();
        for (at, frame) in frames.iter().enumerate() {
            let mut part = address(frame);
            part.raw_start = 1000 * at as u32;
            map.insert(part.raw_range(), part).unwrap();
        }
        volume.edit_past(id, |then| then.put(&block(3, 0), &map));
    }
    for n in [4, 5, 6] {
        volume.objects.remove(&object_name(pack(n)));
    }
    let found = found(&volume, &options());
    let mut of: Vec<_> = found
        .iter()
        .filter_map(|one| match one {
            Finding::DamagedFrameOfSnapshot {
                snapshots,
                pack,
                inode,
                ..
            } if inode.0 == 3 => Some((pack.0 & 0xff, snapshots.join(" "))),
            _ => None,
        })
        .collect();
    of.sort();
    let both = "weekly daily".to_owned();
    assert_eq!(of, [(4, "weekly".to_owned()), (5, both.clone()), (6, both)]);
}

#[test]
fn large_block_maps_of_snapshots_are_compared_a_few_at_a_time() {
    let mut volume = volume();
    let small: usize = volume.pages().iter().map(|(maps, _)| maps).sum();
    let mut map = BlockMap::new();
    let frame = volume.frames(4)[0];
    for at in 0..4096 {
        let mut part = address(&frame);
        (part.raw_start, part.raw_len) = (1024 * at, 512);
        map.insert(part.raw_range(), part).unwrap();
    }
    let len = map.encode().len();
    assert!(len > 30_000, "{len}");
    volume.edit_past(1, |then| {
        for at in 0..200 {
            then.put(&block(100, at), &map);
        }
    });
    let pages = volume.pages();
    // Once where they begin, and once at the end.
    let maps: usize = pages.iter().map(|(maps, _)| maps).sum();
    assert_eq!(maps, small + 400);
    for (_, bytes) in pages {
        assert!(bytes < (4 << 20) + 2 * len, "{bytes}");
    }
}
