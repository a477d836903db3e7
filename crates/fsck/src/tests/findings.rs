//! Each damage is found, and no findings come but those that follow from it.

use std::collections::BTreeSet;
use std::path::Path;

use forebay_meta::Key;
use forebay_pack::object_name;
use forebay_types::Inode;

use super::cases::CASES;
use super::volume::{Volume, pack};
use crate::check::Options;
use crate::finding::Finding;

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
        // Metadata and note are no objects here: tests/tampering.rs damages them.
        .chain(["damaged-metadata", "damaged-holder"].map(str::to_owned))
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
fn unknown_packs_are_counted_by_their_possible_origin() {
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

/// Flipped bits and cut values never panic, whatever volume they make.
#[test]
fn rubbish_in_any_entry_is_survived() {
    let mut sound = Volume::sound();
    sound.with_snapshots();
    let little = Options {
        memory: 600,
        ..options()
    };
    for (round, key) in sound.entries.keys().cycle().take(1000).enumerate() {
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
