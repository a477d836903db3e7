//! Each damage is repaired, wherever the repair is cut off, and nothing else is changed.

use std::collections::BTreeSet;

use bytes::Bytes;
use forebay_meta::record::{CookieRecord, Kind, NameRecord, Record, VolumeState};
use forebay_meta::{BlockMap, Key};
use forebay_types::Inode;

use super::cases::CASES;
use super::findings::{found, names};
use super::volume::{Volume, block, name};
use crate::check::Options;
use crate::finding::Finding;

const NEVER: usize = usize::MAX;

/// Findings that only another program, or a copy of the bucket, can repair.
const LEFT: [&str; 6] = [
    "unknown-entry",
    "missing-pack",
    "wrong-pack-length",
    // If its object is not in the bucket either.
    "pack-without-account",
    // If block maps refer to more bytes than it has.
    "bad-pack-account",
    // Snapshots never change.
    "unreadable-snapshot",
];

/// Sums, which are counted last and are findings until then.
const SUMS: [&str; 9] = [
    "wrong-used",
    "wrong-usage",
    "wrong-volume-count",
    "wrong-live-bytes",
    "bad-pack-account",
    // Its unreadable account was removed, to be counted again.
    "pack-without-account",
    // The objects below a directory come before it.
    "wrong-tree",
    // Of packs that a lost snapshot held, or whose record was made again.
    "wrong-holder",
    "wrong-mark",
];

fn left(volume: &Volume) -> BTreeSet<&'static str> {
    names(&found(volume, &Options::default()))
}

fn damaged(number: usize) -> Volume {
    let mut volume = Volume::sound();
    CASES[number].0(&mut volume);
    volume
}

/// The block maps that can be read, with their values.
fn maps(volume: &Volume) -> Vec<(Bytes, Bytes)> {
    let blocks = volume.entries.iter().filter(|(key, _)| key[0] == b'b');
    let readable = blocks.filter(|(key, value)| BlockMap::decode(key, value).is_ok());
    readable
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

#[test]
fn a_sound_volume_is_not_touched() {
    let mut volume = Volume::sound();
    let before = volume.entries.clone();
    let (steps, outcome) = volume.repair(true, 0);
    assert_eq!((steps, outcome.unwrap().steps), (vec![], 0));
    assert_eq!(volume.entries, before);
}

#[test]
fn what_is_found_is_put_right_and_a_second_repair_has_nothing_to_do() {
    for (number, (_, expected)) in CASES.iter().enumerate() {
        let mut volume = damaged(number);
        let (steps, outcome) = volume.repair(true, NEVER);
        let outcome = outcome.unwrap();
        assert_eq!(outcome.steps, steps.len() as u64);
        let left = left(&volume);
        assert_eq!(left, names(&kept(&outcome.after)), "case {number}");
        for name in &left {
            assert!(LEFT.contains(name), "case {number}, {expected:?}: {left:?}");
            assert!(expected.contains(name), "case {number}: {name} is new");
        }
        let before = volume.entries.clone();
        let (again, _) = volume.repair(true, NEVER);
        assert_eq!(again, vec![], "case {number}");
        assert_eq!(volume.entries, before, "case {number}");
    }
}

fn kept(report: &crate::report::Report) -> Vec<Finding> {
    let kinds = report.findings.kinds();
    kinds.flat_map(|(_, _, kept)| kept.to_vec()).collect()
}

#[test]
fn a_repair_that_is_cut_off_anywhere_makes_nothing_worse_and_is_ended_by_the_next() {
    let mut cuts = 0;
    for number in 0..CASES.len() {
        let before = left(&damaged(number));
        let mut whole = damaged(number);
        whole.repair(true, NEVER);
        for batches in 0.. {
            let mut volume = damaged(number);
            let (steps, outcome) = volume.repair(true, batches);
            if outcome.is_some() {
                break;
            }
            cuts += 1;
            let was_told = !steps.is_empty() || batches == 0;
            assert!(was_told, "case {number} after {batches} batches");
            for name in left(&volume) {
                assert!(
                    before.contains(name) || SUMS.contains(&name) || is_orphaned(&before, name),
                    "case {number} after {batches} batches: {name}"
                );
            }
            volume.repair(true, NEVER);
            assert_eq!(left(&volume), left(&whole), "case {number} after {batches}");
        }
    }
    assert!(cuts > CASES.len(), "{cuts}");
}

/// Objects that were made again, or lost their only name to damage, have no name until the next phase.
fn is_orphaned(before: &BTreeSet<&'static str>, name: &str) -> bool {
    let from = [
        "blocks-without-file",
        "names-in-no-directory",
        "damaged-record",
        "bad-root",
        "orphan",
    ];
    name == "orphan" && from.iter().any(|from| before.contains(from))
}

#[test]
fn without_consent_no_readable_byte_is_given_up() {
    for (number, (_, expected)) in CASES.iter().enumerate() {
        if expected.contains(&"block-behind-end") {
            continue;
        }
        let mut volume = damaged(number);
        let before = maps(&volume);
        volume.repair(false, NEVER);
        assert_eq!(maps(&volume), before, "case {number}, {expected:?}");
    }
}

#[test]
fn bytes_that_cannot_be_read_become_zeros_only_if_that_was_agreed_to() {
    let mut volume = Volume::sound();
    volume.entries.insert(block(6, 2).encode(), "x".into());
    let (steps, _) = volume.repair(false, NEVER);
    assert_eq!(steps, []);
    assert_eq!(left(&volume), ["damaged-record"].into());
    let (steps, _) = volume.repair(true, NEVER);
    let what = &steps[0].what;
    assert!(
        what.contains("bytes 8388608 to 12582912 of inode 6 are lost"),
        "{what}"
    );
    assert_eq!(left(&volume), [].into());
}

#[test]
fn what_block_maps_that_cannot_be_read_may_refer_to_is_not_given_up() {
    use super::volume::pack;
    use forebay_meta::record::{DeadPack, PackRecord};
    let (key, dead) = (Key::Pack(pack(1)), Key::DeadPack(pack(1)).encode());
    let account = |volume: &Volume| {
        let value = volume.entries.get(&key.encode())?;
        Some(PackRecord::decode(&key.encode(), value).unwrap())
    };
    let maps = [block(3, 0).encode(), block(6, 0).encode()];
    let unlive = |record: &mut PackRecord| record.live_bytes = 0;

    // No other block map refers to it.
    let faults: [fn(&mut Volume); 2] = [
        |volume| {
            let live = |record: &mut PackRecord| record.live_bytes = 0;
            volume.edit(&Key::Pack(pack(1)), live);
        },
        |volume| {
            let key = Key::Pack(pack(1)).encode();
            volume.entries.insert(key, "x".into());
        },
    ];
    for fault in faults {
        let mut volume = Volume::sound();
        fault(&mut volume);
        for map in &maps {
            volume.entries.insert(map.clone(), "x".into());
        }
        let before = volume.entries.clone();
        let (steps, _) = volume.repair(false, NEVER);
        assert_eq!(steps, []);
        assert_eq!(volume.entries, before);
        // When their loss is accepted, the pack is given up as well.
        volume.repair(true, NEVER);
        assert_eq!(left(&volume), [].into());
        assert!(!volume.entries.contains_key(&key.encode()));
    }

    // Another block map refers to a part of it.
    for is_dead in [false, true] {
        let mut volume = Volume::sound();
        volume.entries.insert(maps[1].clone(), "x".into());
        volume.delete(&key);
        if is_dead {
            volume.put(&Key::DeadPack(pack(1)), &DeadPack::default());
        }
        volume.repair(false, NEVER);
        // As many bytes as that map can refer to, which is more than the pack's own bytes if they are shared.
        assert_eq!(account(&volume).unwrap().live_bytes, 5000 + (4 << 20));
        assert!(!volume.entries.contains_key(&dead));
        volume.repair(true, NEVER);
        assert_eq!(account(&volume).unwrap().live_bytes, 5000);
        assert_eq!(left(&volume), [].into());
    }

    // The readable entry counts as before.
    let mut volume = Volume::sound();
    volume.edit(&key, unlive);
    volume.repair(false, NEVER);
    assert_eq!(account(&volume).unwrap().live_bytes, 9096);
}

#[test]
fn lost_bytes_are_said_with_file_range_and_object() {
    let mut volume = Volume::sound();
    let object = forebay_pack::object_name(super::volume::pack(2));
    volume.objects.remove(&object);
    let (steps, outcome) = volume.repair(true, NEVER);
    assert_eq!(steps, []);
    let lost = outcome.unwrap().lost;
    // The other block in the pack belongs to a removed file.
    let of_file = &lost.kept[0];
    assert_eq!(
        (of_file.inode, of_file.from, of_file.to),
        (Inode(6), 8 << 20, (8 << 20) + 100)
    );
    assert_eq!(of_file.path.as_deref(), Some("/tree/big"));
    assert_eq!(of_file.object, object);
    assert_eq!((lost.count, lost.bytes), (2, 400));
}

#[test]
fn a_lost_name_comes_back_from_its_cookie() {
    let mut volume = Volume::sound();
    let before = volume.entries.clone();
    volume.entries.remove(&name(1, "link").encode());
    volume.own(1, |own| own.entries -= 1);
    volume.repair(false, NEVER);
    assert_eq!(volume.entries, before);
    for key in [name(1, "link"), Key::Cookie(Inode(1), 5)] {
        volume.entries.insert(key.encode(), "x".into());
        volume.repair(false, NEVER);
        assert_eq!(volume.entries, before, "{key:?}");
    }
}

#[test]
fn orphans_go_to_lost_and_found_beside_what_is_there() {
    let mut volume = Volume::sound();
    volume.directory(50, 1, None);
    volume.name(1, "lost+found", 50, Kind::Directory);
    volume.name(50, "4", 3, Kind::Regular);
    volume.inode(3, |record| record.nlink += 1);
    volume.state(|state| state.used_inodes += 1);
    assert_eq!(left(&volume), [].into());
    volume.delete(&name(1, "link"));
    volume.delete(&Key::Cookie(Inode(1), 5));
    volume.own(1, |own| own.entries -= 1);
    volume.repair(false, NEVER);
    assert_eq!(left(&volume), [].into());
    let key = name(50, "4-2").encode();
    let record = NameRecord::decode(&key, &volume.entries[&key]).unwrap();
    assert_eq!((record.inode, record.kind), (Inode(4), Kind::Symlink));

    // A file with that name is left alone.
    let mut volume = Volume::sound();
    volume.name(1, "lost+found", 3, Kind::Regular);
    volume.inode(3, |record| record.nlink += 1);
    volume.delete(&name(1, "link"));
    volume.delete(&Key::Cookie(Inode(1), 5));
    volume.own(1, |own| own.entries -= 1);
    volume.repair(false, NEVER);
    assert_eq!(left(&volume), [].into());
    assert!(
        volume
            .entries
            .contains_key(&name(1, "lost+found-2").encode())
    );
}

#[test]
fn a_directory_whose_record_is_lost_keeps_its_names() {
    let mut volume = Volume::sound();
    volume.delete(&Key::Inode(Inode(2)));
    volume.state(|state| state.used_inodes -= 1);
    volume.repair(false, NEVER);
    assert_eq!(left(&volume), [].into());
    let report = volume.check(&Options::default());
    assert_eq!(report.census.objects, 6, "its own name was there still");
    assert!(volume.entries.contains_key(&name(2, "big").encode()));

    // A cookie that cannot be read stays as well.
    let mut volume = Volume::sound();
    volume
        .entries
        .insert(Key::Inode(Inode(2)).encode(), "x".into());
    let (steps, _) = volume.repair(false, NEVER);
    assert_eq!(left(&volume), [].into());
    assert!(
        steps[0]
            .what
            .contains("created inode 2 again as a directory"),
        "{steps:?}"
    );
    assert!(!volume.entries.contains_key(&name(1, "lost+found").encode()));
}

#[test]
fn records_of_a_later_version_are_left_alone() {
    let mut sound = Volume::sound();
    sound.with_snapshots();
    for key in sound.entries.keys() {
        let mut volume = sound.clone();
        let mut value = volume.entries[key].to_vec();
        value[0] = 9;
        volume.entries.insert(key.clone(), value.clone().into());
        volume.repair(true, NEVER);
        assert_eq!(volume.entries[key], value, "{key:?}");
    }
}

#[test]
fn no_number_is_given_out_twice_after_the_state_was_lost() {
    let mut volume = Volume::sound();
    // A pack of a later epoch that the metadata do not name.
    let unknown = forebay_types::PackId((6 << 40) | 3);
    volume
        .objects
        .insert(forebay_pack::object_name(unknown), vec![0; 10]);
    volume.delete(&Key::Volume);
    // Cut off right after the state was made.
    volume.repair(false, 1);
    let key = Key::Volume.encode();
    let state = VolumeState::decode(&key, &volume.entries[&key]).unwrap();
    assert_eq!(state.next_inode, 8, "7 is a removed file");
    assert_eq!(state.epoch.0, 6 + 4096, "openings may have left no pack");
}

#[test]
fn rubbish_in_any_entry_is_repaired_as_far_as_it_goes() {
    let mut sound = Volume::sound();
    sound.with_snapshots();
    let mut broken = Vec::new();
    for (round, key) in sound.entries.keys().cycle().take(2500).enumerate() {
        let mut volume = sound.clone();
        let mut value = volume.entries[key].to_vec();
        if round % 7 == 0 {
            value.truncate(round % value.len());
        } else {
            let at = (round * 31) % value.len();
            value[at] ^= 1 << (round % 8);
        }
        volume.entries.insert(key.clone(), value.into());
        broken.push(volume);
    }
    for key in sound.entries.keys() {
        let mut volume = sound.clone();
        let value = volume.entries.remove(key).unwrap();
        let mut other = key.to_vec();
        *other.last_mut().unwrap() ^= 0x81;
        volume.entries.insert(other.into(), value);
        broken.push(volume);
        let mut volume = sound.clone();
        volume.entries.remove(key);
        broken.push(volume);
    }
    for (number, mut volume) in broken.into_iter().enumerate() {
        let damaged = found(&volume, &Options::default());
        let (steps, outcome) = volume.repair(true, NEVER);
        let left = kept(&outcome.unwrap().after);
        for finding in &left {
            let may_stay = LEFT.contains(&finding.name())
                || matches!(finding, Finding::DamagedRecord { why, .. } if why.contains("version"))
                || left.iter().any(|other| other.name() == "damaged-record")
                // It is not known whether the account or the object is wrong, so nothing is given up.
                || (finding.name() == "impossible-frame"
                    && left.iter().any(|other| other.name() == "wrong-pack-length"));
            assert!(
                may_stay,
                "{number}: {damaged:#?}\n{steps:#?}\nleft {left:#?}"
            );
        }
        let (again, _) = volume.repair(true, NEVER);
        assert_eq!(again, vec![], "{number}");
    }
}

#[test]
fn a_cookie_stays_with_its_name_when_that_is_made_usable() {
    let mut volume = Volume::sound();
    volume.name(1, "a/b", 3, Kind::Regular);
    volume.inode(3, |record| record.nlink += 1);
    volume.repair(false, NEVER);
    let key = Key::Cookie(Inode(1), 6).encode();
    let record = CookieRecord::decode(&key, &volume.entries[&key]).unwrap();
    assert_eq!(record.name, "a_b");
}
