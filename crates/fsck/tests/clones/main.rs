//! Clones and restored volumes, written by gateways and checked after each step.

#![allow(
    missing_docs,
    clippy::cast_possible_truncation,
    reason = "numbers here are small"
)]

mod cached;
#[path = "../place/cut.rs"]
mod cut;
mod cuts;
mod deferred;
mod fragments;
mod histories;
mod measure;
#[allow(dead_code, reason = "each test uses some of it")]
#[path = "../place/mod.rs"]
mod place;
mod refusals;
mod scrubbed;
mod shared;
mod undone;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_clones::holds::{self, Standing};
use forebay_clones::layers::{self, Sources};
use forebay_clones::restore::{Restore, Restored};
use forebay_clones::{CloneError, detach, make, restore};
use forebay_environment::SystemRandomness;
use forebay_fs::{Compression, Expected, FsConfig, SnapshotError, Takeover, Volume};
use forebay_fsck::{Options, Progress, Report, check};
use forebay_meta::VolumeDescriptor;
use forebay_meta::record::Timestamp;
use forebay_types::{Epoch, Inode};
use forebay_vfs::{FileSystem, SetAttributes};
use place::{Place, WHO, close, create, findings, key_file, noise, write};

const MIB: usize = 1 << 20;

/// Small packs, and a collector that does not rest.
fn eager(config: &mut FsConfig) {
    config.compression = Compression::Off;
    config.pack_bytes = 1 << 20;
    config.background_rate = 1 << 40;
    config.background_requests = 1 << 20;
    config.orphan_grace = Duration::ZERO;
}

type Files = BTreeMap<String, Vec<u8>>;

async fn put(volume: &Volume, files: &mut Files, name: &str, seed: u64, len: usize) {
    let bytes = noise(seed, len);
    let inode = match volume.lookup(&WHO, Inode::ROOT, name.as_bytes()).await {
        Ok(found) => found.inode,
        Err(_) => create(volume, Inode::ROOT, name).await,
    };
    write(volume, inode, 0, &bytes).await;
    files.insert(name.to_owned(), bytes);
}

async fn remove(volume: &Volume, files: &mut Files, name: &str) {
    volume
        .remove(&WHO, Inode::ROOT, name.as_bytes())
        .await
        .unwrap();
    files.remove(name);
}

/// Compares all files of the root directory.
async fn compare<F: FileSystem>(volume: &F, files: &Files) {
    let listed = volume
        .readdir(&WHO, Inode::ROOT, 0, 1000, false)
        .await
        .unwrap();
    let entries = listed.entries.into_iter().skip(2);
    let names: Vec<_> = entries
        .map(|one| String::from_utf8(one.name.to_vec()).unwrap())
        .collect();
    assert_eq!(names.len(), files.len(), "{names:?}");
    for (name, bytes) in files {
        let found = volume
            .lookup(&WHO, Inode::ROOT, name.as_bytes())
            .await
            .unwrap();
        assert_eq!(found.size, bytes.len() as u64, "{name}");
        let mut read = Vec::new();
        while read.len() < bytes.len() {
            let reply = volume
                .read(&WHO, found.inode, read.len() as u64, 1 << 20)
                .await
                .unwrap();
            let before = read.len();
            for piece in reply.data.iter() {
                read.extend_from_slice(piece);
            }
            assert!(read.len() > before, "{name}");
        }
        assert!(read == *bytes, "{name}");
    }
}

/// A place without a volume.
fn empty(expected: &Expected) -> Place {
    Place {
        folder: tempfile::tempdir().unwrap(),
        expected: expected.clone(),
    }
}

async fn opened(place: &Place) -> Volume {
    Box::pin(place.open_with(eager)).await
}

async fn clone(from: &Place, to: &Place, snapshot: &str) -> Result<make::Made, CloneError> {
    let (source, target) = (from.store().await, to.store().await);
    Box::pin(make::make(
        &source,
        &target,
        snapshot,
        &from.expected,
        1_795_000_000,
        &SystemRandomness,
    ))
    .await
}

async fn detached(place: &Place) -> Result<detach::Detached, CloneError> {
    Box::pin(detach::detach(
        &place.store().await,
        &place.expected,
        &|_, _| {},
    ))
    .await
}

async fn checked(place: &Place) -> Report {
    let store = place.store().await;
    let descriptor = VolumeDescriptor::load(&store.store, &store.root)
        .await
        .unwrap();
    let sources = Sources::of(&store, &descriptor).unwrap();
    let whole = layers::over(&store, &descriptor).unwrap();
    let options = Options {
        expected: place.expected.clone(),
        sources,
        read_data: true,
        ..Options::default()
    };
    Box::pin(check(
        whole.store,
        whole.root,
        &options,
        Arc::new(Progress::default()),
    ))
    .await
    .unwrap()
}

async fn is_sound(place: &Place) {
    let report = checked(place).await;
    assert!(report.is_clean(), "{:?}", findings(&report));
}

/// Commits until the bucket has no packs but those of live files and of snapshots.
async fn settled(place: &Place, volume: &Volume) {
    for round in 0.. {
        let mode = Some(0o700 + round % 2);
        let set = SetAttributes {
            mode,
            ..SetAttributes::default()
        };
        volume.setattr(&WHO, Inode::ROOT, &set, None).await.unwrap();
        volume.flush().await.unwrap();
        let status = volume.status();
        let packs = place.packs();
        let bytes: u64 = packs
            .iter()
            .map(|pack| std::fs::metadata(pack).map_or(0, |pack| pack.len()))
            .sum();
        if let Some(space) = &status.collector.space
            && space.stored_bytes + status.held_bytes == bytes
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn standings(place: &Place) -> Vec<Standing> {
    let store = place.store().await;
    let descriptor = VolumeDescriptor::load(&store.store, &store.root)
        .await
        .unwrap();
    let holds = holds::list(&store, descriptor.volume).await.unwrap();
    holds.into_iter().map(|hold| hold.standing).collect()
}

/// A volume with a snapshot `s` of the files that are returned, which all have changed since.
async fn source(expected: &Expected) -> (Place, Files, Files) {
    let place = Place::of(expected.clone()).await;
    let volume = opened(&place).await;
    let mut files = Files::new();
    for number in 0..6 {
        put(
            &volume,
            &mut files,
            &format!("file-{number}"),
            number,
            MIB + 1000,
        )
        .await;
    }
    volume.flush().await.unwrap();
    volume.make_snapshot("s", "a test").await.unwrap();
    let then = files.clone();
    for number in 0..6 {
        match number % 2 {
            0 => remove(&volume, &mut files, &format!("file-{number}")).await,
            _ => {
                put(
                    &volume,
                    &mut files,
                    &format!("file-{number}"),
                    100 + number,
                    MIB + 1000,
                )
                .await
            }
        }
    }
    put(&volume, &mut files, "later", 200, 3 * MIB).await;
    volume.flush().await.unwrap();
    settled(&place, &volume).await;
    close(volume).await;
    (place, then, files)
}

/// Runs a test in a thread with room for its large futures.
fn run<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let thread = std::thread::Builder::new().stack_size(16 << 20);
    let test = thread.spawn(move || runtime.block_on(test())).unwrap();
    if let Err(panic) = test.join() {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn a_clone_reads_what_its_source_has_until_it_is_detached_plain() {
    run(|| clone_and_detach(Expected::NotSealed));
}

#[test]
fn a_clone_reads_what_its_source_has_until_it_is_detached_sealed() {
    run(|| clone_and_detach(key_file(7)));
}

async fn clone_and_detach(expected: Expected) {
    let (place, then, mut files) = source(&expected).await;
    let other = empty(&expected);
    let packs = place.packs();
    clone(&place, &other, "s").await.unwrap();
    assert_eq!(place.packs(), packs);
    assert!(other.packs().is_empty());
    is_sound(&place).await;
    is_sound(&other).await;

    // Both are written.
    let mut cloned = then.clone();
    let volume = opened(&other).await;
    compare(&volume, &cloned).await;
    put(&volume, &mut cloned, "of the clone", 300, 2 * MIB).await;
    put(&volume, &mut cloned, "file-1", 301, MIB + 1000).await;
    remove(&volume, &mut cloned, "file-2").await;
    volume
        .make_snapshot("of the clone", "a test")
        .await
        .unwrap();
    let seen = cloned.clone();
    remove(&volume, &mut cloned, "file-3").await;
    volume.flush().await.unwrap();
    compare(&volume, &cloned).await;
    close(volume).await;
    assert_eq!(place.packs(), packs);
    is_sound(&other).await;

    // The source keeps what the clone needs.
    let volume = opened(&place).await;
    compare(&volume, &files).await;
    remove(&volume, &mut files, "later").await;
    put(&volume, &mut files, "file-1", 400, MIB + 1000).await;
    volume.flush().await.unwrap();
    let refused = volume.delete_snapshot("s").await.unwrap_err();
    assert!(matches!(refused, SnapshotError::Cloned { .. }), "{refused}");
    let at = other.bucket().display().to_string();
    assert!(refused.to_string().contains(&at), "{refused}");
    settled(&place, &volume).await;
    close(volume).await;
    is_sound(&place).await;
    is_sound(&other).await;
    let volume = opened(&other).await;
    compare(&volume, &cloned).await;
    compare(&*volume.open_snapshot("of the clone").await.unwrap(), &seen).await;
    close(volume).await;

    // Detached, it needs the source no more.
    assert_eq!(standings(&place).await, [Standing::Needs]);
    let copied = detached(&other).await.unwrap();
    assert!(copied.objects > 0);
    assert_eq!(standings(&place).await, []);
    is_sound(&other).await;
    let again = detached(&other).await;
    assert!(matches!(again, Err(CloneError::NoClone(_))));
    let volume = opened(&place).await;
    volume.delete_snapshot("s").await.unwrap();
    settled(&place, &volume).await;
    compare(&volume, &files).await;
    close(volume).await;
    is_sound(&place).await;
    std::fs::remove_dir_all(place.bucket()).unwrap();
    let volume = opened(&other).await;
    compare(&volume, &cloned).await;
    compare(&*volume.open_snapshot("of the clone").await.unwrap(), &seen).await;
    volume.delete_snapshot("of the clone").await.unwrap();
    settled(&other, &volume).await;
    compare(&volume, &cloned).await;
    close(volume).await;
    is_sound(&other).await;
}

fn back_to(snapshot: &str, before: &str) -> Restore {
    Restore {
        snapshot: snapshot.into(),
        before: before.into(),
        by: "a test".into(),
        now: Timestamp {
            seconds: 1_795_000_000,
            nanos: 0,
        },
        seen: Epoch(0),
        take_over: false,
    }
}

async fn restored(place: &Place, snapshot: &str, before: &str) -> Result<Restored, CloneError> {
    Box::pin(restore::restore(
        &place.store().await,
        &place.expected,
        &back_to(snapshot, before),
    ))
    .await
}

/// A gateway that does not take the volume from another one.
async fn open(place: &Place) -> Volume {
    let opening = place.open_with(|config| {
        eager(config);
        config.takeover = Takeover::Refuse;
    });
    Box::pin(opening).await
}

#[test]
fn a_volume_goes_back_to_a_snapshot_and_forth_again_and_all_snapshots_stay_plain() {
    run(|| back_and_forth(Expected::NotSealed));
}

#[test]
fn a_volume_goes_back_to_a_snapshot_and_forth_again_and_all_snapshots_stay_sealed() {
    run(|| back_and_forth(key_file(7)));
}

async fn back_and_forth(expected: Expected) {
    let (place, then, files) = source(&expected).await;
    restored(&place, "s", "before").await.unwrap();
    is_sound(&place).await;
    let volume = open(&place).await;
    compare(&volume, &then).await;
    compare(&*volume.open_snapshot("s").await.unwrap(), &then).await;
    compare(&*volume.open_snapshot("before").await.unwrap(), &files).await;
    let mut third = then.clone();
    put(&volume, &mut third, "third", 500, 2 * MIB).await;
    remove(&volume, &mut third, "file-0").await;
    volume.flush().await.unwrap();
    settled(&place, &volume).await;
    compare(&volume, &third).await;
    close(volume).await;
    is_sound(&place).await;

    restored(&place, "before", "between").await.unwrap();
    is_sound(&place).await;
    let volume = open(&place).await;
    compare(&volume, &files).await;
    for (name, expected) in [("s", &then), ("before", &files), ("between", &third)] {
        compare(&*volume.open_snapshot(name).await.unwrap(), expected).await;
    }
    for name in ["before", "s", "between"] {
        volume.delete_snapshot(name).await.unwrap();
        settled(&place, &volume).await;
    }
    compare(&volume, &files).await;
    settled(&place, &volume).await;
    assert_eq!(volume.status().held_bytes, 0);
    close(volume).await;
    is_sound(&place).await;
}

#[test]
fn a_clone_of_a_clone_outlives_the_detachment_of_the_one_between() {
    run(|| async {
        let expected = key_file(7);
        let (place, then, _) = source(&expected).await;
        let (middle, last) = (empty(&expected), empty(&expected));
        clone(&place, &middle, "s").await.unwrap();
        let volume = opened(&middle).await;
        let mut files = then.clone();
        put(&volume, &mut files, "of the middle", 600, 2 * MIB).await;
        remove(&volume, &mut files, "file-0").await;
        volume.make_snapshot("m", "a test").await.unwrap();
        volume.flush().await.unwrap();
        remove(&volume, &mut Files::new(), "of the middle").await;
        close(volume).await;
        clone(&middle, &last, "m").await.unwrap();
        is_sound(&last).await;
        assert_eq!(standings(&place).await, [Standing::Needs, Standing::Needs]);
        detached(&middle).await.unwrap();
        let volume = opened(&place).await;
        let refused = volume.delete_snapshot("s").await;
        assert!(matches!(refused, Err(SnapshotError::Cloned { .. })));
        settled(&place, &volume).await;
        close(volume).await;
        let volume = opened(&last).await;
        compare(&volume, &files).await;
        put(&volume, &mut files, "of the last", 601, MIB).await;
        close(volume).await;
        is_sound(&last).await;
        detached(&last).await.unwrap();
        std::fs::remove_dir_all(place.bucket()).unwrap();
        std::fs::remove_dir_all(middle.bucket()).unwrap();
        let volume = opened(&last).await;
        compare(&volume, &files).await;
        close(volume).await;
        is_sound(&last).await;
    });
}

#[test]
fn what_cannot_be_cloned_is_refused_and_leaves_nothing() {
    run(|| async {
        let (place, ..) = source(&Expected::NotSealed).await;
        let to = empty(&Expected::NotSealed);
        let missing = clone(&place, &to, "no such").await;
        assert!(
            matches!(missing, Err(CloneError::NoSnapshot(_))),
            "{missing:?}"
        );
        let error = clone(&place, &place, "s").await;
        assert!(
            matches!(error, Err(CloneError::NotBeside { .. })),
            "{error:?}"
        );
        std::fs::create_dir_all(to.bucket()).unwrap();
        std::fs::write(to.bucket().join("mine"), "mine").unwrap();
        let taken = clone(&place, &to, "s").await.unwrap_err();
        assert!(taken.to_string().contains("mine"), "{taken}");
        assert_eq!(standings(&place).await, []);
        std::fs::remove_file(to.bucket().join("mine")).unwrap();
        clone(&place, &to, "s").await.unwrap();
        let again = clone(&place, &to, "s").await.unwrap_err();
        assert!(again.to_string().contains("there is a volume"), "{again}");

        // A running gateway is not restored under its clients.
        let volume = opened(&place).await;
        let held = restored(&place, "s", "before").await;
        assert!(matches!(held, Err(CloneError::Held(_))), "{held:?}");
        close(volume).await;
        // A clone whose objects are gone holds its snapshot.
        std::fs::remove_dir_all(to.bucket()).unwrap();
        assert_eq!(standings(&place).await, [Standing::Missing]);
        let volume = opened(&place).await;
        let refused = volume.delete_snapshot("s").await;
        assert!(matches!(refused, Err(SnapshotError::Cloned { .. })));
        close(volume).await;
    });
}
