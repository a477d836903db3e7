//! Each kind of finding is made by putting one thing out of place, and nothing else is found then but what
//! follows from it.

use std::collections::BTreeSet;
use std::path::Path;

use bytes::Bytes;
use forebay_meta::record::{
    CookieRecord, Garbage, Kind, NameRecord, PackRecord, QuotaRecord, ScrubRecord, Spread,
    UsageRecord,
};
use forebay_meta::{BlockMap, Key};
use forebay_pack::object_name;
use forebay_types::{BlockIndex, Inode};

use super::volume::{Volume, block, name, pack};
use crate::check::Options;
use crate::finding::Finding;

/// What is put out of place, and which kinds of findings that makes.
pub(super) type Case = (fn(&mut Volume), &'static [&'static str]);

pub(super) fn options() -> Options {
    Options {
        read_data: true,
        ..Options::default()
    }
}

pub(super) fn found(volume: &Volume, options: &Options) -> Vec<Finding> {
    let report = volume.check(options);
    let kinds = report.findings.kinds();
    kinds.flat_map(|(_, _, kept)| kept.to_vec()).collect()
}

pub(super) fn names(findings: &[Finding]) -> BTreeSet<&'static str> {
    findings.iter().map(Finding::name).collect()
}

/// One extent of a block map that lies in another place.
fn moved(volume: &mut Volume, offset: impl FnOnce(u32) -> u32) {
    volume.edit::<BlockMap>(&block(6, 2), |map| {
        let mut extent = map.extents()[0];
        extent.frame.offset = offset(extent.frame.offset);
        *map = BlockMap::new();
        map.insert(extent.range, extent.frame).unwrap();
    });
}

pub(super) const CASES: &[Case] = &[
    (
        |v| drop(v.entries.insert(Key::Inode(Inode(4)).encode(), "x".into())),
        &["damaged-record"],
    ),
    (
        |v| drop(v.entries.insert(Bytes::from_static(b"i\0"), "x".into())),
        &["damaged-record"],
    ),
    (
        |v| drop(v.entries.insert(name(1, "link").encode(), "x".into())),
        &["damaged-record", "orphan"],
    ),
    (
        |v| drop(v.entries.insert(block(6, 2).encode(), "x".into())),
        &["damaged-record"],
    ),
    (
        |v| drop(v.entries.insert(Key::Pack(pack(1)).encode(), "x".into())),
        &["damaged-record"],
    ),
    (
        |v| drop(v.entries.insert(Key::Quota(Inode(2)).encode(), "x".into())),
        &["damaged-record"],
    ),
    (
        |v| {
            drop(
                v.entries
                    .insert(Bytes::from_static(b"!of later"), "x".into()),
            )
        },
        &["unknown-entry"],
    ),
    (|v| v.delete(&Key::Volume), &["no-volume-state"]),
    (
        |v| drop(v.entries.insert(Key::Volume.encode(), "x".into())),
        &["damaged-record", "no-volume-state"],
    ),
    (
        |v| v.state(|state| state.used_bytes += 1),
        &["wrong-volume-count"],
    ),
    (
        |v| v.state(|state| state.used_inodes -= 1),
        &["wrong-volume-count"],
    ),
    (
        |v| v.state(|state| state.charged_bytes = Some(0)),
        &["wrong-volume-count"],
    ),
    (|v| v.state(|state| state.charged_bytes = None), &[]),
    (
        |v| v.state(|state| state.next_inode = 7),
        &["next-inode-too-low"],
    ),
    (|v| v.state(|state| state.next_inode = 8), &[]),
    (
        |v| {
            v.state(|state| {
                state.epoch.0 = 1;
                state.next_pack = pack(3).0;
            });
        },
        &["next-pack-too-low"],
    ),
    (|v| v.own(1, |own| own.parent = Inode(2)), &["bad-root"]),
    (
        |v| {
            v.delete(&Key::Inode(Inode(1)));
            v.state(|state| state.used_inodes -= 1);
        },
        &["bad-root", "names-in-no-directory"],
    ),
    (
        |v| {
            v.name(2, "root", 1, Kind::Directory);
        },
        &["bad-root", "wrong-tree"],
    ),
    (
        |v| {
            v.delete(&name(1, "link"));
            v.delete(&Key::Cookie(Inode(1), 5));
            v.own(1, |own| own.entries -= 1);
        },
        &["orphan"],
    ),
    (
        |v| v.inode(3, |record| record.nlink = 1),
        &["wrong-link-count"],
    ),
    (
        |v| v.inode(2, |record| record.nlink = 2),
        &["wrong-link-count"],
    ),
    (
        |v| v.inode(1, |record| record.nlink = 4),
        &["wrong-link-count"],
    ),
    (
        |v| v.inode(3, |record| record.mode = 0o10_0644),
        &["bad-attributes"],
    ),
    (
        |v| v.inode(4, |record| record.size = 9),
        &["bad-attributes"],
    ),
    (
        |v| v.inode(4, |record| record.used = 9),
        &["bad-attributes"],
    ),
    (|v| v.own(2, |own| own.entries = 4), &["wrong-entry-count"]),
    (
        |v| v.own(2, |own| own.next_cookie = 5),
        &["next-cookie-too-low"],
    ),
    (
        |v| v.own(5, |own| own.next_cookie = 0),
        &["next-cookie-too-low"],
    ),
    (|v| v.own(5, |own| own.parent = Inode(1)), &["wrong-parent"]),
    (|v| v.name(2, "again", 5, Kind::Directory), &["many-names"]),
    (
        |v| {
            // Two directories in each other, each with all that it needs but a way from the root.
            v.directory(8, 9, None);
            v.directory(9, 8, None);
            v.name(8, "a", 9, Kind::Directory);
            v.name(9, "b", 8, Kind::Directory);
            v.state(|state| state.used_inodes += 2);
        },
        &["loop"],
    ),
    (
        |v| {
            v.directory(8, 8, None);
            v.name(8, "self", 8, Kind::Directory);
            v.state(|state| state.used_inodes += 1);
        },
        &["loop"],
    ),
    (
        |v| {
            v.delete(&Key::Inode(Inode(4)));
            v.state(|state| state.used_inodes -= 1);
        },
        &["name-without-object"],
    ),
    (
        |v| {
            // Both of the name's records say so.
            v.edit::<NameRecord>(&name(1, "link"), |record| record.kind = Kind::Regular);
            v.edit::<CookieRecord>(&Key::Cookie(Inode(1), 5), |record| {
                record.kind = Kind::Regular;
            });
        },
        &["wrong-kind"],
    ),
    (
        |v| {
            let record = CookieRecord {
                inode: Inode(3),
                kind: Kind::Regular,
                name: "x".into(),
            };
            v.put(&Key::Cookie(Inode(50), 3), &record);
        },
        &["names-in-no-directory"],
    ),
    (
        |v| {
            v.name(1, "a/b", 3, Kind::Regular);
            v.inode(3, |record| record.nlink += 1);
        },
        &["bad-name"],
    ),
    (
        |v| {
            v.name(1, "..", 3, Kind::Regular);
            v.inode(3, |record| record.nlink += 1);
        },
        &["bad-name"],
    ),
    (
        |v| v.delete(&Key::Cookie(Inode(1), 4)),
        &["name-without-cookie"],
    ),
    (
        |v| {
            let record = CookieRecord {
                inode: Inode(3),
                kind: Kind::Regular,
                name: "ghost".into(),
            };
            v.put(&Key::Cookie(Inode(1), 6), &record);
            v.own(1, |own| own.next_cookie = 7);
        },
        &["cookie-without-name"],
    ),
    (
        |v| {
            v.edit::<CookieRecord>(&Key::Cookie(Inode(1), 4), |record| {
                record.inode = Inode(6);
            });
        },
        &["name-and-cookie-differ"],
    ),
    (
        |v| {
            v.edit::<CookieRecord>(&Key::Cookie(Inode(1), 4), |record| {
                record.kind = Kind::Fifo;
            });
        },
        &["name-and-cookie-differ"],
    ),
    (
        |v| {
            v.edit::<CookieRecord>(&Key::Cookie(Inode(1), 4), |record| {
                record.name = "elif".into();
            });
        },
        &["cookie-without-name", "name-and-cookie-differ"],
    ),
    (|v| v.delete(&Key::Garbage(Inode(7))), &["stray-blocks"]),
    (
        |v| v.inode(3, |record| record.size = 4999),
        // Quotas count no more of a file than its size; here both are rounded up to the same.
        &["block-behind-end"],
    ),
    // Cut off and removed within one checkpoint: its maps are as they were, and are collected whole.
    (
        |v| v.edit::<Garbage>(&Key::Garbage(Inode(7)), |record| record.size = 4 << 20),
        &[],
    ),
    (|v| moved(v, |_| 20), &["damaged-frame", "impossible-frame"]),
    (
        |v| moved(v, |offset| offset + 460),
        &["damaged-frame", "impossible-frame"],
    ),
    (
        |v| {
            v.inode(6, |record| record.used += 1);
        },
        // Both are rounded up to the same.
        &["wrong-used"],
    ),
    (
        |v| {
            let garbage = Garbage {
                size: 6000,
                first_block: BlockIndex(0),
            };
            v.put(&Key::Garbage(Inode(3)), &garbage);
        },
        &["garbage-of-living"],
    ),
    (
        |v| {
            v.edit::<Garbage>(&Key::Garbage(Inode(7)), |record| {
                record.first_block = BlockIndex(2);
            });
        },
        &["collected-block"],
    ),
    (
        |v| v.put(&Key::Scrub(pack(9)), &ScrubRecord::default()),
        &["check-of-no-pack"],
    ),
    (
        |v| {
            drop(
                v.entries
                    .insert(Key::Scrub(pack(2)).encode(), vec![1, 2].into()),
            )
        },
        &["damaged-record"],
    ),
    (|v| v.delete(&Key::Pack(pack(1))), &["pack-without-account"]),
    (
        |v| v.edit::<PackRecord>(&Key::Pack(pack(1)), |record| record.live_bytes -= 1),
        &["wrong-live-bytes"],
    ),
    (
        |v| v.put(&Key::DeadPack(pack(1)), &forebay_meta::record::DeadPack),
        &["dead-pack-in-use"],
    ),
    (
        |v| {
            v.delete(&Key::Pack(pack(1)));
            v.put(&Key::DeadPack(pack(1)), &forebay_meta::record::DeadPack);
        },
        &["dead-pack-in-use"],
    ),
    (
        |v| v.edit::<PackRecord>(&Key::Pack(pack(1)), |record| record.raw_bytes = 9095),
        &["bad-pack-account", "damaged-pack"],
    ),
    (
        |v| drop(v.objects.remove(&object_name(pack(1)))),
        &["damaged-frame", "missing-pack"],
    ),
    (
        |v| {
            let pack = v.objects.get_mut(&object_name(pack(2))).unwrap();
            // The frame of the removed file and all that follows.
            pack.truncate(40 + 128 + 100);
        },
        &["damaged-frame", "wrong-pack-length"],
    ),
    (
        |v| {
            let quota = QuotaRecord {
                limit_bytes: 1,
                limit_files: 1,
                spread: Spread::Done,
            };
            v.put(&Key::Quota(Inode(6)), &quota);
        },
        &["quota-of-no-directory"],
    ),
    (
        |v| v.edit::<UsageRecord>(&Key::Usage(Inode(2)), |record| record.bytes = 512),
        &["wrong-usage"],
    ),
    (|v| v.delete(&Key::Usage(Inode(2))), &["wrong-usage"]),
    (|v| v.delete(&Key::Quota(Inode(2))), &["tree-without-quota"]),
    (
        |v| {
            v.inode(5, |record| record.tree = None);
            v.edit::<UsageRecord>(&Key::Usage(Inode(2)), |record| record.files = 2);
        },
        &["wrong-tree"],
    ),
    (
        |v| {
            v.inode(5, |record| record.tree = None);
            v.edit::<UsageRecord>(&Key::Usage(Inode(2)), |record| record.files = 2);
            v.edit::<QuotaRecord>(&Key::Quota(Inode(2)), |record| {
                record.spread = Spread::Leaving;
            });
        },
        // It is being counted out.
        &[],
    ),
    (
        |v| v.objects.get_mut(&object_name(pack(1))).unwrap()[40 + 128 + 77] ^= 1,
        &["damaged-frame"],
    ),
    (
        |v| v.objects.get_mut(&object_name(pack(1))).unwrap()[3] ^= 1,
        &["damaged-pack"],
    ),
    (
        |v| {
            *v.objects
                .get_mut(&object_name(pack(1)))
                .unwrap()
                .last_mut()
                .unwrap() ^= 1
        },
        &["damaged-pack"],
    ),
    (Volume::notes_on_a_pack_that_is_not_there, &["stray-note"]),
    (Volume::impossible_note, &["impossible-note"]),
    (Volume::share_without_a_note, &["missing-sharers"]),
    (Volume::share, &[]),
];

#[test]
fn a_sound_volume_has_no_findings() {
    let report = Volume::sound().check(&options());
    assert!(report.is_clean(), "{:#?}", report.findings);
    let census = report.census;
    assert_eq!(
        (census.objects, census.directories, census.names),
        (6, 3, 6)
    );
    assert_eq!((census.garbage, census.dead_packs), (1, 1));
    assert_eq!((census.packs.count, census.frames_read.count), (2, 4));
    assert_eq!(
        (census.block_maps.count, census.block_maps.bytes),
        (4, 9496)
    );
    assert_eq!(census.passes, 1);
}

#[test]
fn each_thing_out_of_place_is_found_and_nothing_else() {
    let mut wrong = Vec::new();
    for (number, (damage, expected)) in CASES.iter().enumerate() {
        let mut volume = Volume::sound();
        damage(&mut volume);
        let found = found(&volume, &options());
        let expected: BTreeSet<_> = expected.iter().copied().collect();
        if names(&found) != expected {
            wrong.push((number, expected, found));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn what_needs_several_passes_is_found_as_in_one() {
    let little = Options {
        memory: 8,
        ..options()
    };
    let report = Volume::sound().check(&little);
    assert!(report.is_clean(), "{:#?}", report.findings);
    // One for each object and removed file, and one for each pack but the first.
    assert_eq!(report.census.passes, 7 + 2);
    assert_eq!(report.census.names, 6);
    for (number, (damage, _)) in CASES.iter().enumerate() {
        let mut volume = Volume::sound();
        damage(&mut volume);
        let sorted = |options| {
            let found = found(&volume, options);
            let mut found: Vec<_> = found.iter().map(|one| format!("{one:?}")).collect();
            found.sort();
            found
        };
        assert_eq!(sorted(&little), sorted(&options()), "case {number}");
    }
}

/// The first word of each row of a table, if it is the name of a kind.
fn documented() -> BTreeSet<String> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/fsck.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let (_, docs) = docs.split_once("\n## Findings\n").unwrap();
    let rows = docs.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = rows.filter_map(|row| row.split('`').next());
    names.map(str::to_owned).collect()
}

#[test]
fn every_kind_of_finding_has_a_case_and_is_documented() {
    let made: BTreeSet<String> = CASES
        .iter()
        .flat_map(|(_, names)| names.iter().map(|name| (*name).to_owned()))
        // The metadata here are no objects: tests/tampering.rs has them damaged.
        .chain(["damaged-metadata".to_owned()])
        .collect();
    assert_eq!(made, documented());
}

#[test]
fn findings_have_their_names_in_json_too() {
    for (damage, _) in CASES {
        let mut volume = Volume::sound();
        damage(&mut volume);
        for finding in found(&volume, &options()) {
            let json = serde_json::to_value(&finding).unwrap();
            assert_eq!(json["finding"], finding.name(), "{json}");
        }
    }
}

#[test]
fn findings_name_the_path_of_what_they_are_about() {
    let mut volume = Volume::sound();
    volume.objects.get_mut(&object_name(pack(2))).unwrap()[40 + 128 + 7] ^= 1;
    let report = volume.check(&options());
    assert_eq!(report.paths[&Inode(6)], "/tree/big");
    let (_, _, kept) = report.findings.kinds().next().unwrap();
    let Finding::DamagedFrame { from, to, .. } = &kept[0] else {
        panic!("{kept:?}");
    };
    assert_eq!((*from, *to), (8 << 20, (8 << 20) + 100));
}

#[test]
fn what_a_gateway_has_deleted_since_is_no_finding() {
    let mut volume = Volume::sound();
    let mut newest = volume.clone();
    newest.delete(&Key::Pack(pack(1)));
    volume.newest = Some(newest.entries);
    volume.objects.remove(&object_name(pack(1)));
    assert_eq!(found(&volume, &options()), []);
}

#[test]
fn packs_that_nothing_knows_are_counted_by_who_may_have_left_them() {
    let mut volume = Volume::sound();
    for (number, bytes) in [(pack(77).0, 10), (2 << 40, 20), ((3 << 40) + 5, 30)] {
        let name = object_name(forebay_types::PackId(number));
        volume.objects.insert(name, vec![0; bytes]);
    }
    volume.objects.insert("packs/readme".into(), vec![0; 5]);
    let report = volume.check(&options());
    assert!(report.is_clean(), "{:#?}", report.findings);
    let census = report.census;
    assert_eq!(
        (
            census.unreferenced_packs.count,
            census.unreferenced_packs.bytes
        ),
        (1, 10)
    );
    assert_eq!(
        (census.packs_under_way.count, census.packs_under_way.bytes),
        (2, 50)
    );
    assert_eq!(
        (census.foreign_objects.count, census.foreign_objects.bytes),
        (1, 5)
    );
}

#[test]
fn without_reading_data_no_frame_is_looked_at() {
    let mut volume = Volume::sound();
    volume.objects.get_mut(&object_name(pack(1))).unwrap()[40 + 128 + 77] ^= 1;
    assert!(volume.check(&Options::default()).is_clean());
}

#[test]
fn all_are_counted_and_some_are_kept() {
    let mut volume = Volume::sound();
    for inode in [3, 4, 6] {
        volume.inode(inode, |record| record.nlink += 5);
    }
    let report = volume.check(&Options {
        keep: 2,
        ..Options::default()
    });
    let kinds: Vec<_> = report.findings.kinds().collect();
    let [("wrong-link-count", 3, kept)] = kinds[..] else {
        panic!("{kinds:?}");
    };
    assert_eq!(kept.len(), 2);
}

/// Turned over bits and cut off values never panic, whatever they make of the volume.
#[test]
fn rubbish_in_any_entry_is_survived() {
    let sound = Volume::sound();
    let little = Options {
        memory: 600,
        ..options()
    };
    for (round, key) in sound.entries.keys().cycle().take(600).enumerate() {
        let mut volume = sound.clone();
        let mut value = volume.entries[key].to_vec();
        if round % 7 == 0 {
            value.truncate(round % value.len());
        } else {
            let at = (round * 31) % value.len();
            value[at] ^= 1 << (round % 8);
        }
        volume.entries.insert(key.clone(), value.into());
        volume.check(&little);
    }
    for key in sound.entries.keys() {
        let mut volume = sound.clone();
        let value = volume.entries.remove(key).unwrap();
        let mut other = key.to_vec();
        *other.last_mut().unwrap() ^= 0x81;
        volume.entries.insert(other.into(), value);
        volume.check(&little);
    }
}
