//! Snapshots of volumes that gateways have written, and damage to what only they have.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

use std::time::Duration;

use forebay_fs::{Compression, Dedup, Expected, FsConfig, Volume};
use forebay_fsck::{Finding, Options, Report};
use forebay_types::Inode;
use forebay_vfs::FileSystem;

#[allow(dead_code, reason = "each test uses some of it")]
mod place;
use place::{Place, WHO, close, create, findings, key_file, make_directory, noise, write};

const MIB: usize = 1 << 20;
/// Length of the largest frame.
const FRAME: usize = 256 << 10;

/// Small packs, and a collector that does not rest.
fn eager(config: &mut FsConfig) {
    config.compression = Compression::Off;
    config.dedup = Dedup::Full;
    config.pack_bytes = MIB as u64;
    config.background_rate = 1 << 40;
    config.background_requests = 1 << 20;
    config.orphan_grace = Duration::ZERO;
}

async fn snapshot(volume: &Volume, name: &str) {
    volume.make_snapshot(name, "a test").await.unwrap();
    volume.flush().await.unwrap();
}

#[track_caller]
fn assert_clean(report: &Report, when: &str) {
    assert!(report.is_clean(), "{when}: {:#?}", findings(report));
}

/// The files and snapshots of damaged frames that no file has any more.
fn damaged(report: &Report) -> Vec<(String, Vec<String>)> {
    let of = findings(report).into_iter().filter_map(|one| match one {
        Finding::DamagedFrameOfSnapshot {
            path, snapshots, ..
        } => Some((path.clone().unwrap_or_default(), snapshots.clone())),
        _ => None,
    });
    let mut of: Vec<_> = of.collect();
    of.sort();
    of.dedup();
    of
}

/// Each pack is damaged by itself, and what a check says is compared with what the snapshots have in it.
async fn what_snapshots_have_is_read(expected: Expected) {
    let place = Place::of(expected).await;
    let volume = Box::pin(place.open_with(eager)).await;
    let root = Inode::ROOT;
    let dir = make_directory(&volume, root, "dir").await;
    // Most of the metadata is in one table that all snapshots have.
    for number in 0..1500 {
        create(
            &volume,
            dir,
            &format!("a file with a long name {number:04}"),
        )
        .await;
    }
    let file = create(&volume, dir, "file").await;
    write(&volume, file, 0, &noise(1, 2 * MIB)).await;
    snapshot(&volume, "first").await;
    write(&volume, file, 0, &noise(2, MIB)).await;
    // Shares the frames of another file.
    let twin = create(&volume, root, "twin").await;
    write(&volume, twin, 0, &noise(2, MIB)).await;
    snapshot(&volume, "second").await;
    snapshot(&volume, "third").await;
    assert_clean(&place.check().await, "all is live");
    volume
        .rename(&WHO, (dir, b"file"), (root, b"moved"))
        .await
        .unwrap();
    write(&volume, file, 0, &noise(3, 2 * MIB)).await;
    volume.remove(&WHO, root, b"twin").await.unwrap();
    volume.flush().await.unwrap();
    // What is dead is held with the next steps.
    for number in 0..3 {
        create(&volume, root, &format!("more {number}")).await;
        volume.flush().await.unwrap();
    }
    close(volume).await;

    let report = place.check().await;
    assert_clean(&report, "held");
    assert_eq!(report.census.held_packs.count, 2, "{:?}", report.census);
    // All of the newest state, of the first snapshot, and what the second one has twice.
    assert_eq!(report.census.frames_read.count, 8 + 8 + 2 * 4);
    let held: Vec<_> = report.held_by.iter().map(|one| one.held_bytes).collect();
    assert!(0 < held[0] && held[0] < held[1], "{held:?}");
    assert_eq!(
        (held[1], held[2]),
        (report.census.held_packs.bytes, held[1])
    );
    assert!(report.held_by.iter().all(|one| one.unique_bytes == 0));
    let quick = Options {
        expected: place.expected.clone(),
        ..Options::default()
    };

    let mut all = Vec::new();
    for pack in place.packs() {
        let good = std::fs::read(&pack).unwrap();
        for frame in [0, 5] {
            let mut bytes = good.clone();
            let at = 40 + frame * (128 + FRAME) + 128 + 1000;
            let Some(byte) = bytes.get_mut(at) else {
                continue;
            };
            *byte ^= 1;
            std::fs::write(&pack, &bytes).unwrap();
            let report = place.check().await;
            let found = damaged(&report);
            if found.is_empty() {
                let names: Vec<_> = findings(&report).iter().map(|one| one.name()).collect();
                assert_eq!(names, ["damaged-frame"]);
            }
            assert_eq!(report.findings.count(), found.len().max(1) as u64);
            all.push(found);
        }
        std::fs::remove_file(&pack).unwrap();
        let report = place.try_check(&quick).await.unwrap();
        let missing = findings(&report);
        let [Finding::MissingPack { snapshots, .. }] = missing[..] else {
            panic!("{missing:#?}");
        };
        assert_eq!(snapshots.is_empty(), all.last().unwrap().is_empty());
        std::fs::write(&pack, &good).unwrap();
    }
    let of = |path: &str, names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned());
        (path.to_owned(), names.collect::<Vec<_>>())
    };
    let second = ["second", "third"];
    let mut expected = [
        vec![of("/dir/file", &["first"])],
        vec![of("/dir/file", &["first", "second", "third"])],
        vec![of("/dir/file", &second), of("/twin", &second)],
        Vec::new(),
        Vec::new(),
    ];
    all.sort();
    expected.sort();
    assert_eq!(all, expected);

    // A repair has nothing to do, and a snapshot that is deleted takes its packs along.
    let volume = Box::pin(place.open_with(eager)).await;
    volume.start_scrub(Duration::ZERO).unwrap();
    while volume.scrub_status().await.unwrap().running.is_some() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    volume.flush().await.unwrap();
    assert_clean(&place.check().await, "scrubbed");
    volume.delete_snapshot("second").await.unwrap();
    volume.flush().await.unwrap();
    assert_clean(&place.check().await, "one is deleted");
    volume.delete_snapshot("first").await.unwrap();
    volume.delete_snapshot("third").await.unwrap();
    for number in 3..6 {
        create(&volume, root, &format!("more {number}")).await;
        volume.flush().await.unwrap();
        assert_clean(&place.check().await, "all are being deleted");
    }
    close(volume).await;
    let report = place.check().await;
    assert_clean(&report, "all are deleted");
    assert_eq!(report.census.held_packs.count, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_snapshots_have_is_read_and_reported_with_their_names() {
    Box::pin(what_snapshots_have_is_read(Expected::NotSealed)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_snapshots_of_a_sealed_volume_have_is_read() {
    Box::pin(what_snapshots_have_is_read(key_file(1))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_that_are_deleted_during_a_check_are_no_findings() {
    let place = Place::new().await;
    let volume = Box::pin(place.open_with(eager)).await;
    let file = create(&volume, Inode::ROOT, "file").await;
    for round in 0..12 {
        write(&volume, file, 0, &noise(round, MIB)).await;
        snapshot(&volume, &format!("s{round}")).await;
    }
    let mut deleted = 0;
    while deleted < 12 {
        let name = format!("s{deleted}");
        let (report, ()) = tokio::join!(place.check(), async {
            volume.delete_snapshot(&name).await.unwrap();
            volume.flush().await.unwrap();
        });
        assert_clean(&report, &name);
        deleted += 1;
    }
    close(volume).await;
    assert_clean(&place.check().await, "all are deleted");
}
