//! Volumes written by gateways, checked while these run and afterwards, and damage to their objects.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_fs::{Expected, LimitChange, Volume};
use forebay_fsck::{CheckError, Finding, GarbageOptions, Options, Progress, Report};
use forebay_types::Inode;
use forebay_vfs::{Error, FileSystem, NewNode, Result, SetAttributes};

#[allow(dead_code, reason = "each test uses some of it")]
mod place;
use place::{
    Dice, Place, WHO, close, create, files, findings, key_file, make_directory, noise, try_create,
    try_make, try_write,
};

#[track_caller]
fn assert_clean(report: &Report, when: &str) {
    assert!(report.is_clean(), "{when}: {:#?}", findings(report));
}

/// Writes `len` bytes that no codec compresses.
async fn write(volume: &Volume, inode: Inode, offset: u64, len: usize) -> Result<()> {
    try_write(volume, inode, offset, &noise(len as u64, len)).await
}

async fn truncate(volume: &Volume, inode: Inode, size: u64) -> Result<()> {
    let set = SetAttributes {
        size: Some(size),
        ..SetAttributes::default()
    };
    volume.setattr(&WHO, inode, &set, None).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_fits_together_after_each_thing_that_a_gateway_does() {
    let place = Place::new().await;
    assert_clean(&place.check().await, "formatted");
    let volume = place.open().await;
    let root = Inode::ROOT;
    let dir = make_directory(&volume, root, "dir").await;
    let inner = make_directory(&volume, dir, "inner").await;
    let file = create(&volume, root, "file").await;
    let holes = create(&volume, inner, "holes").await;
    try_make(&volume, inner, "link", NewNode::Symlink(b"to/where"))
        .await
        .unwrap();
    try_make(&volume, dir, "fifo", NewNode::Fifo).await.unwrap();
    write(&volume, file, 0, 9 << 20).await.unwrap();
    write(&volume, holes, 5000, 100).await.unwrap();
    write(&volume, holes, 40 << 20, 70_000).await.unwrap();
    assert_clean(&place.check().await, "nothing is published yet");
    volume.flush().await.unwrap();
    let report = place.check().await;
    assert_clean(&report, "published");
    assert!(report.pinned);
    assert_eq!(report.census.objects, 7);
    assert_eq!(report.census.block_maps.bytes, (9 << 20) + 70_100);

    volume.link(&WHO, file, dir, b"hard").await.unwrap();
    volume
        .rename(&WHO, (dir, b"inner"), (root, b"moved"))
        .await
        .unwrap();
    // Its parent has a larger number from now on.
    let late = make_directory(&volume, root, "late").await;
    volume
        .rename(&WHO, (root, b"moved"), (late, b"inner"))
        .await
        .unwrap();
    truncate(&volume, file, 4_500_001).await.unwrap();
    truncate(&volume, file, 20 << 20).await.unwrap();
    write(&volume, file, 100, 3).await.unwrap();
    volume.flush().await.unwrap();
    assert_clean(&place.check().await, "links, renames, truncations");

    volume.remove(&WHO, root, b"file").await.unwrap();
    volume.flush().await.unwrap();
    assert_clean(&place.check().await, "one name of two is gone");
    volume.remove(&WHO, dir, b"hard").await.unwrap();
    volume.remove(&WHO, inner, b"holes").await.unwrap();
    // Also an object that was never published.
    let brief = create(&volume, dir, "brief").await;
    write(&volume, brief, 0, 5000).await.unwrap();
    volume.remove(&WHO, dir, b"brief").await.unwrap();
    volume.flush().await.unwrap();
    assert_clean(&place.check().await, "removed");
    for round in 0..3 {
        create(&volume, dir, &format!("more-{round}")).await;
        volume.flush().await.unwrap();
        assert_clean(&place.check().await, "collected");
    }
    close(volume).await;
    let report = place.check().await;
    assert_clean(&report, "stopped");
    assert_eq!(
        (report.census.garbage, report.census.block_maps.count),
        (0, 0)
    );

    let volume = place.open().await;
    assert_clean(&place.check().await, "opened again");
    close(volume).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quotas_fit_together_while_they_are_spread_and_when_they_go() {
    let place = Place::new().await;
    let volume = place.open().await;
    let home = make_directory(&volume, Inode::ROOT, "home").await;
    let ann = make_directory(&volume, home, "ann").await;
    for n in 0..80 {
        let file = create(&volume, ann, &format!("file-{n}")).await;
        write(&volume, file, 0, 1000 + n).await.unwrap();
    }
    // Counts in the inner tree, whatever becomes of its names.
    let both = create(&volume, Inode::ROOT, "both").await;
    volume.link(&WHO, both, ann, b"both").await.unwrap();
    volume.flush().await.unwrap();
    let limit = LimitChange::To(1 << 30);
    for path in [&b"/home"[..], b"/home/ann"] {
        volume
            .set_quota(path, limit, LimitChange::Keep)
            .await
            .unwrap();
        volume.flush().await.unwrap();
        assert_clean(&place.check().await, "a quota was set");
    }
    for path in [&b"/home"[..], b"/home/ann"] {
        let mut counting = true;
        while counting {
            counting = volume.quota(path).await.unwrap().counting;
            volume.flush().await.unwrap();
            assert_clean(&place.check().await, "it spreads");
        }
    }
    write(&volume, both, 0, 100_000).await.unwrap();
    volume.flush().await.unwrap();
    assert_clean(&place.check().await, "spread");
    volume.remove_quota(b"/home").await.unwrap();
    for _ in 0..20 {
        volume.flush().await.unwrap();
        assert_clean(&place.check().await, "it leaves");
    }
    volume.remove_quota(b"/home/ann").await.unwrap();
    while !volume.quotas().await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    volume.flush().await.unwrap();
    assert_clean(&place.check().await, "gone");
    close(volume).await;
}

/// One random operation of a client. Refusals of the volume are ignored.
async fn act(volume: &Volume, dice: &mut Dice, directories: &mut Vec<Inode>) -> Result<()> {
    let directory = |dice: &mut Dice| {
        let at = dice.below(directories.len() as u64) as usize;
        directories[at]
    };
    let (one, other) = (directory(dice), directory(dice));
    let name = |dice: &mut Dice| format!("name-{}", dice.below(12));
    let (old, new) = (name(dice), name(dice));
    match dice.below(14) {
        0 | 1 => {
            let made = try_make(volume, one, &new, NewNode::Directory).await?;
            directories.push(made);
        }
        2..=4 => {
            let file = try_create(volume, one, &new).await?;
            write(
                volume,
                file,
                dice.below(9 << 20),
                dice.below(300_000) as usize + 1,
            )
            .await?;
        }
        5..=7 => {
            let file = volume.lookup(&WHO, one, old.as_bytes()).await?.inode;
            write(
                volume,
                file,
                dice.below(9 << 20),
                dice.below(100_000) as usize + 1,
            )
            .await?;
        }
        8 => {
            let file = volume.lookup(&WHO, one, old.as_bytes()).await?.inode;
            truncate(volume, file, dice.below(9 << 20)).await?;
        }
        9 => drop(volume.remove(&WHO, one, old.as_bytes()).await?),
        10 => drop(volume.rmdir(&WHO, one, old.as_bytes()).await?),
        11 => {
            let (from, to) = ((one, old.as_bytes()), (other, new.as_bytes()));
            volume.rename(&WHO, from, to).await?;
        }
        12 => {
            let file = volume.lookup(&WHO, one, old.as_bytes()).await?.inode;
            volume.link(&WHO, file, other, new.as_bytes()).await?;
        }
        _ => {
            let file = volume.lookup(&WHO, one, old.as_bytes()).await?.inode;
            for page in 0..dice.below(200) {
                write(volume, file, page * 8192, 4096).await?;
            }
        }
    }
    Ok(())
}

/// Small packs are uploaded eagerly, and checkpoints and merges of metadata come every few operations.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_fits_together_after_whatever_clients_do() {
    for seed in [0x1234_5678_9abc, 0xfeed_beef_cafe] {
        let place = Place::new().await;
        let mut dice = Dice(seed);
        for life in 0..3 {
            let volume = place
                .open_with(|config| {
                    config.pack_bytes = 4 << 20;
                    config.early_bytes = 4 << 20;
                })
                .await;
            let mut directories = vec![Inode::ROOT];
            for step in 0..150 {
                match act(&volume, &mut dice, &mut directories).await {
                    Err(Error::Stale) if directories.len() > 20 => {
                        directories.truncate(3);
                    }
                    _ => {}
                }
                if step % 4 == 0 {
                    volume.flush().await.unwrap();
                }
                if step % 25 == 0 {
                    let report = place.check().await;
                    assert_clean(&report, &format!("seed {seed:x}, life {life}, step {step}"));
                }
            }
            // In one of the lives not everything is published: the log has the rest.
            let time_limit = if life == 1 { 0 } else { 60 };
            volume.close(Duration::from_secs(time_limit)).await;
            drop(volume);
            assert_clean(&place.check().await, "after a life");
        }
    }
}

/// Snapshots hold packs, which are passed on from one to another and given up as snapshots are deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_fits_together_while_snapshots_are_made_and_deleted() {
    let place = Place::new().await;
    let (mut held, mut kept) = (0, Vec::new());
    for life in 0..2 {
        let volume = place.open().await;
        let file = match life {
            0 => create(&volume, Inode::ROOT, "file").await,
            _ => {
                volume
                    .lookup(&WHO, Inode::ROOT, b"file")
                    .await
                    .unwrap()
                    .inode
            }
        };
        for round in 0..8 {
            let name = format!("snapshot-{life}-{round}");
            // All packs of the round before are dead, and those of some rounds are of one snapshot only.
            write(&volume, file, 0, 20_000 + round).await.unwrap();
            volume.flush().await.unwrap();
            if round % 3 != 1 {
                volume.make_snapshot(&name, "test").await.unwrap();
                volume.flush().await.unwrap();
                kept.push(name);
            }
            if round % 3 == 2 {
                let oldest = kept.remove(0);
                volume.delete_snapshot(&oldest).await.unwrap();
            }
            let report = place.check().await;
            assert_clean(&report, &format!("life {life}, round {round}"));
            held = held.max(report.census.held_packs.count);
        }
        close(volume).await;
        assert_clean(&place.check().await, "after a life");
    }
    assert!(held > 2, "{held} packs were held");
    let volume = place.open().await;
    for name in kept {
        volume.delete_snapshot(&name).await.unwrap();
        assert_clean(&place.check().await, "a deletion has begun");
    }
    while !volume.snapshots().await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    close(volume).await;
    let report = place.check().await;
    assert_clean(&report, "all are deleted");
    let census = report.census;
    assert_eq!((census.snapshots, census.held_packs.count), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_beside_a_gateway_that_publishes_sees_one_moment() {
    let place = Place::new().await;
    let volume = place.open().await;
    let file = create(&volume, Inode::ROOT, "file").await;
    let busy = {
        let volume = volume.clone();
        tokio::spawn(async move {
            let mut n = 0_usize;
            loop {
                // In each round the pack before loses its last byte, and is deleted.
                write(&volume, file, 0, 200_000).await.unwrap();
                let name = format!("name-{}", n % 50);
                if try_create(&volume, Inode::ROOT, &name).await.is_err() {
                    volume
                        .remove(&WHO, Inode::ROOT, name.as_bytes())
                        .await
                        .unwrap();
                }
                volume.flush().await.unwrap();
                n += 1;
            }
        })
    };
    for _ in 0..25 {
        assert_clean(&place.check().await, "beside a gateway");
        let unpinned = Options {
            pin: false,
            ..Options::default()
        };
        let report = place.try_check(&unpinned).await.unwrap();
        assert_clean(&report, "beside a gateway, without a note");
        assert!(!report.pinned);
    }
    assert!(!busy.is_finished(), "the gateway was not disturbed");
    busy.abort();
    let _ = busy.await;
    close(volume).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_in_the_bucket_is_named_with_file_range_and_object() {
    let place = Place::new().await;
    let volume = place.open().await;
    let dir = make_directory(&volume, Inode::ROOT, "dir").await;
    let lost = create(&volume, dir, "lost").await;
    write(&volume, lost, 0, 600_000).await.unwrap();
    volume.flush().await.unwrap();
    let before = place.packs();
    let other = create(&volume, dir, "other").await;
    write(&volume, other, 0, 1000).await.unwrap();
    close(volume).await;
    assert_clean(&place.check().await, "stopped");
    let [pack] = &before[..] else {
        panic!("{before:?}")
    };
    let sound = std::fs::read(pack).unwrap();

    // One bit in the second frame, of 256 KiB each.
    let mut bytes = sound.clone();
    bytes[300_000] ^= 4;
    std::fs::write(pack, &bytes).unwrap();
    let report = place.check().await;
    let found = findings(&report);
    let [
        Finding::DamagedFrame {
            inode,
            from,
            to,
            object,
            ..
        },
    ] = found[..]
    else {
        panic!("{found:#?}")
    };
    assert_eq!(report.paths[inode], "/dir/lost");
    assert!(
        *from < 300_000 && 300_000 < *to && *to - *from < 600_000,
        "{from} to {to}"
    );
    assert!(pack.ends_with(object), "{object}");
    let quick = place.try_check(&Options::default()).await.unwrap();
    assert_clean(&quick, "data are not read");

    std::fs::write(pack, &sound[..500_000]).unwrap();
    let report = place.check().await;
    let names: Vec<_> = report.findings.kinds().map(|(name, _, _)| name).collect();
    assert_eq!(names, ["damaged-frame", "wrong-pack-length"]);
    let quick = place.try_check(&Options::default()).await.unwrap();
    assert!(!quick.is_clean());

    std::fs::remove_file(pack).unwrap();
    let report = place.check().await;
    let names: Vec<_> = report.findings.kinds().map(|(name, _, _)| name).collect();
    assert_eq!(names, ["damaged-frame", "missing-pack"]);

    std::fs::write(pack, &sound).unwrap();
    assert_clean(&place.check().await, "put back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_checked_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let empty = Place {
        folder,
        expected: Expected::NotSealed,
    };
    let error = empty.try_check(&Options::default()).await.unwrap_err();
    assert!(matches!(error, CheckError::Volume(_)), "{error}");

    let place = Place::new().await;
    let volume = place.open().await;
    create(&volume, Inode::ROOT, "file").await;
    close(volume).await;
    let tables = files(&place.bucket().join("meta/compacted"));
    for table in tables {
        let mut bytes = std::fs::read(&table).unwrap();
        bytes.iter_mut().step_by(16).for_each(|byte| *byte ^= 1);
        std::fs::write(&table, bytes).unwrap();
    }
    let error = place.try_check(&Options::default()).await.unwrap_err();
    assert!(matches!(error, CheckError::Metadata(_)), "{error}");
    assert!(error.to_string().contains("undamaged copy"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_is_deleted_beside_gateways_that_take_over_from_one_another() {
    for expected in [Expected::NotSealed, key_file(1)] {
        delete_garbage_beside_gateways(Place::of(expected).await).await;
    }
}

async fn delete_garbage_beside_gateways(place: Place) {
    let garbage = async |delete| {
        let store = place.store().await;
        let options = GarbageOptions {
            expected: place.expected.clone(),
            delete,
            grace: Duration::ZERO,
            now: i64::MAX,
            rewrite_below: 50,
            pin: true,
        };
        let progress = Arc::new(Progress::default());
        forebay_fsck::garbage(store.store, store.root, &options, progress)
            .await
            .unwrap()
    };
    let mut former: Option<(Volume, Inode)> = None;
    let mut deleted = 0;
    for round in 0..4 {
        let local = place.folder.path().join(format!("local-{round}"));
        let volume = place.open_with(|config| {
            config.data_dir = local;
            // Sequential writes are uploaded eagerly, without waiting for a pause, and nothing publishes them.
            config.early_bytes = 1 << 20;
            config.busy_time = Duration::ZERO;
            config.pack_bytes = 4 << 20;
            config.orphan_grace = Duration::from_secs(3600);
        });
        let volume = volume.await;
        if let Some((former, file)) = &former {
            // This gateway does not know yet that another has taken over; its objects arrive late.
            write(former, *file, 8 << 20, 4 << 20).await.unwrap();
        }
        let name = format!("file-{round}");
        let file = create(&volume, Inode::ROOT, &name).await;
        let writing = async {
            write(&volume, file, 0, 4 << 20).await.unwrap();
            volume.flush().await.unwrap();
            write(&volume, file, 4 << 20, 4 << 20).await.unwrap();
        };
        let (_, found) = tokio::join!(writing, garbage(true));
        deleted += found.deleted.count;
        assert!(
            found.is_clean() && found.without_account.count == 0,
            "{found:?}"
        );
        former = Some((volume, file));
    }
    let (volume, _) = former.unwrap();
    close(volume).await;
    // A write to the disk that a former gateway has begun ends after it.
    let began = Instant::now();
    loop {
        deleted += garbage(true).await.deleted.count;
        if garbage(false).await.orphans.count == 0 {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "more arrives");
    }
    assert!(deleted > 0, "there was nothing to try");
    let report = place.check().await;
    assert_clean(&report, "after all");
    assert_eq!(report.census.objects, 5);
    assert_eq!(report.census.unreferenced_packs.count, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealed_volume_is_checked_with_its_keys_and_every_changed_byte_of_its_packs_is_found() {
    let place = Place::of(key_file(1)).await;
    let volume = place.open().await;
    let file = create(&volume, Inode::ROOT, "file").await;
    write(&volume, file, 0, 3000).await.unwrap();
    volume.flush().await.unwrap();
    assert_clean(&place.check().await, "beside a gateway");
    close(volume).await;
    assert_clean(&place.check().await, "after it");

    for expected in [Expected::NotSealed, key_file(2)] {
        let options = Options {
            expected,
            ..Options::default()
        };
        let refused = place.try_check(&options).await;
        assert!(matches!(refused, Err(CheckError::Volume(_))), "{refused:?}");
    }

    let [pack] = &place.packs()[..] else {
        panic!("one pack: {:?}", place.packs());
    };
    let sound = std::fs::read(pack).unwrap();
    for at in (0..sound.len()).step_by(13) {
        let mut damaged = sound.clone();
        damaged[at] ^= 1;
        std::fs::write(pack, damaged).unwrap();
        assert!(
            !place.check().await.is_clean(),
            "byte {at} of {}",
            sound.len()
        );
    }
    std::fs::write(pack, sound).unwrap();
    assert_clean(&place.check().await, "in the end");
}
