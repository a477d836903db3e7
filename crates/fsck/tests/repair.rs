//! A volume that a gateway has written is damaged, repaired, and served again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_fs::Volume;
use forebay_fsck::{
    CheckError, Options, Progress, RepairError, RepairOptions, Repaired, Step, repair,
};
use forebay_meta::record::{Garbage, InodeRecord, NameRecord, PackRecord, VolumeState};
use forebay_meta::volume::keys::VolumeKeys;
use forebay_meta::{
    Batch, Key, KeyRange, MetaStore, Record, SlateSettings, SlateStore, VolumeDescriptor,
};
use forebay_salvage::logs::{Claim, ClaimError};
use forebay_types::{BlockIndex, BlockKey, Epoch, Inode};
use forebay_vfs::{CreateMode, FileSystem, SetAttributes};

#[allow(dead_code, reason = "each test uses some of it")]
mod place;
use place::{Place, WHO, close, create, findings, key_file, make_directory, noise, write};

/// Opens the metadata, changes them, and closes them.
async fn meddle(place: &Place, change: impl AsyncFnOnce(&SlateStore) -> Batch) {
    let store = place.store().await;
    let path = store.path("meta");
    let (bucket, root) = (&store.store, &store.root);
    let descriptor = VolumeDescriptor::load(bucket, root).await.unwrap();
    let keys = VolumeKeys::load(bucket, root, &descriptor, &place.expected, 0).await;
    let sealing = keys.unwrap().sealing();
    let settings = SlateSettings::default();
    let meta = SlateStore::open_with(store.store.clone(), path, settings, sealing, |store| store);
    let meta = meta.await.unwrap();
    let batch = change(&meta).await;
    meta.commit(&batch).await.unwrap();
    meta.close().await.unwrap();
}

async fn entries(place: &Place) -> BTreeMap<Bytes, Bytes> {
    let store = place.store().await;
    let path = store.path("meta");
    let meta = SlateStore::open(store.store.clone(), path, SlateSettings::default());
    let meta = meta.await.unwrap();
    let found = meta.scan(&KeyRange::all(), usize::MAX >> 8).await.unwrap();
    meta.close().await.unwrap();
    found.into_iter().collect()
}

async fn edit<R: Record>(
    meta: &SlateStore,
    batch: &mut Batch,
    key: &Key,
    change: impl FnOnce(&mut R),
) {
    let encoded = key.encode();
    let value = meta.get(&encoded).await.unwrap().unwrap();
    let mut record = R::decode(&encoded, &value).unwrap();
    change(&mut record);
    batch.put(key, &record);
}

/// Sets a wrong link count on a file.
async fn miscount(place: &Place, file: Inode) {
    meddle(place, async |meta| {
        let mut batch = Batch::new();
        edit::<InodeRecord>(meta, &mut batch, &Key::Inode(file), |record| {
            record.nlink = 7
        })
        .await;
        batch
    })
    .await;
}

fn options(dry_run: bool) -> RepairOptions {
    RepairOptions {
        check: Options {
            read_data: true,
            ..Options::default()
        },
        dry_run,
        accept_loss: false,
        now: Duration::from_secs(1_800_000_000),
        seen: Epoch(0),
    }
}

async fn run(place: &Place, dry_run: bool) -> (Vec<Step>, Repaired) {
    let store = place.store().await;
    let mut options = options(dry_run);
    options.check.expected = place.expected.clone();
    let mut steps = Vec::new();
    let progress = Arc::new(Progress::default());
    let repaired = repair(store.store, store.root, &options, progress, &mut steps).await;
    (steps, repaired.unwrap())
}

async fn read(volume: &Volume, inode: Inode, len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let reply = volume
            .read(&WHO, inode, bytes.len() as u64, 1 << 20)
            .await
            .unwrap();
        let before = bytes.len();
        reply
            .data
            .iter()
            .for_each(|piece| bytes.extend_from_slice(piece));
        assert!(bytes.len() > before, "it ends at {before}");
    }
    bytes
}

async fn find(volume: &Volume, path: &str) -> Option<Inode> {
    let mut at = Inode::ROOT;
    for name in path.split('/') {
        at = volume.lookup(&WHO, at, name.as_bytes()).await.ok()?.inode;
    }
    Some(at)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_volume_is_repaired_and_served_again() {
    let place = Place::new().await;
    let volume = place.open().await;
    let dir = make_directory(&volume, Inode::ROOT, "dir").await;
    let inner = make_directory(&volume, dir, "inner").await;
    let lost = create(&volume, dir, "lost").await;
    let kept = create(&volume, inner, "kept").await;
    let (lost_data, kept_data) = (noise(1, 700_000), noise(2, 5 << 20));
    write(&volume, lost, 0, &lost_data).await;
    write(&volume, kept, 0, &kept_data).await;
    for n in 0..50 {
        let file = create(&volume, inner, &format!("small-{n}")).await;
        write(&volume, file, 0, &noise(n, 300)).await;
    }
    close(volume).await;

    meddle(&place, async |meta| {
        let mut batch = Batch::new();
        // Half of an unlink, and a name of a missing object.
        let key = Key::Name(dir, "lost".into());
        let record = meta.get(&key.encode()).await.unwrap().unwrap();
        let record = NameRecord::decode(&key.encode(), &record).unwrap();
        batch.delete(&key);
        batch.delete(&Key::Cookie(dir, record.cookie));
        batch.put(
            &Key::Name(dir, "nothing".into()),
            &NameRecord {
                inode: Inode(9999),
                ..record
            },
        );
        // A directory that cannot be read.
        batch.put_encoded(
            Key::Inode(inner).encode(),
            Bytes::from_static(b"\x80rubbish"),
        );
        // The next gateway would collect it.
        let garbage = Garbage {
            size: 5 << 20,
            first_block: BlockIndex(0),
        };
        batch.put(&Key::Garbage(kept), &garbage);
        edit::<VolumeState>(meta, &mut batch, &Key::Volume, |state| {
            state.used_bytes = 1;
            state.used_inodes = 1;
            state.next_inode = 4;
        })
        .await;
        let packs = meta.scan(&KeyRange::packs(), 1).await.unwrap();
        let key = Key::decode(&packs[0].0).unwrap();
        edit::<PackRecord>(meta, &mut batch, &key, |pack| pack.live_bytes = 1).await;
        batch
    })
    .await;

    let before = entries(&place).await;
    let (planned, plan) = run(&place, true).await;
    assert!(plan.after.is_clean(), "{:#?}", findings(&plan.after));
    assert_eq!(entries(&place).await, before, "a plan changes nothing");
    assert!(planned.len() >= 8, "{planned:#?}");

    let (steps, repaired) = run(&place, false).await;
    assert!(
        repaired.after.is_clean(),
        "{:#?}",
        findings(&repaired.after)
    );
    assert_eq!(steps, planned, "what was planned is what was done");
    let report = place.check().await;
    assert!(report.is_clean(), "{:#?}", findings(&report));

    let repaired = entries(&place).await;
    let (again, _) = run(&place, false).await;
    assert_eq!(again, []);
    assert_eq!(entries(&place).await, repaired, "nothing was to do");

    let volume = place.open().await;
    assert_eq!(find(&volume, "dir/inner/kept").await, Some(kept));
    assert!(read(&volume, kept, kept_data.len()).await == kept_data);
    let found = find(&volume, &format!("lost+found/{lost}")).await;
    assert_eq!(found, Some(lost));
    assert!(read(&volume, lost, lost_data.len()).await == lost_data);
    assert_eq!(find(&volume, "dir/nothing").await, None);
    for n in 0..50 {
        let file = find(&volume, &format!("dir/inner/small-{n}"))
            .await
            .unwrap();
        assert_eq!(read(&volume, file, 300).await, noise(n, 300));
    }
    let new = create(&volume, dir, "new").await;
    assert!(new.0 > lost.0 + 60, "{new:?} was given out before");
    write(&volume, new, 0, b"it goes on").await;
    close(volume).await;
    let report = place.check().await;
    assert!(report.is_clean(), "{:#?}", findings(&report));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealed_volume_is_repaired_with_its_keys_and_stays_sealed() {
    let place = Place::of(key_file(1)).await;
    let volume = place.open().await;
    let file = create(&volume, Inode::ROOT, "file").await;
    write(&volume, file, 0, &noise(1, 300)).await;
    close(volume).await;
    miscount(&place, file).await;
    let (planned, left) = run(&place, true).await;
    assert_eq!((planned.len(), left.after.is_clean()), (1, true));
    let (steps, repaired) = run(&place, false).await;
    assert_eq!(steps, planned);
    assert!(repaired.after.is_clean() && place.check().await.is_clean());
    let volume = place.open().await;
    assert_eq!(read(&volume, file, 300).await, noise(1, 300));
    close(volume).await;

    let store = place.store().await;
    let (progress, mut steps) = (Arc::new(Progress::default()), Vec::new());
    let without = options(false);
    let refused = repair(store.store, store.root, &without, progress, &mut steps).await;
    assert!(
        matches!(refused, Err(RepairError::Check(CheckError::Volume(_)))),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_without_findings_is_not_even_fenced() {
    let place = Place::new().await;
    let volume = place.open().await;
    create(&volume, Inode::ROOT, "file").await;
    volume.flush().await.unwrap();
    let (steps, repaired) = run(&place, false).await;
    assert_eq!((steps, repaired.steps), (vec![], 0));
    create(&volume, Inode::ROOT, "more").await;
    volume.flush().await.unwrap();
    close(volume).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_was_put_back_is_not_repaired_until_it_looks_new() {
    let place = Place::new().await;
    let volume = place.open().await;
    let file = create(&volume, Inode::ROOT, "file").await;
    close(volume).await;
    let earlier = place.copied();
    close(place.open().await).await;
    let data_dir = place.folder.path().join("local");
    let claim = Claim::of(&data_dir, &place.store().await, false).await;
    let seen = claim.unwrap().seen();

    miscount(&earlier, file).await;
    let before = earlier.objects();
    for dry_run in [true, false, false] {
        let store = earlier.store().await;
        let options = RepairOptions {
            seen,
            ..options(dry_run)
        };
        let (mut steps, progress) = (Vec::new(), Arc::new(Progress::default()));
        let repaired = repair(store.store, store.root, &options, progress, &mut steps).await;
        let refused = repaired.unwrap_err();
        assert!(
            matches!(refused, RepairError::PutBack { found, seen: of } if found < of && of == seen),
            "{refused}"
        );
        assert!(steps.is_empty(), "{steps:?}");
        // The latest state is to be put back, and changes over this one would be served in its place.
        assert_eq!(earlier.objects(), before);
    }
    // An operator who wants this state has a folder that has seen no other.
    let (steps, after) = run(&earlier, false).await;
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert!(after.after.is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_from_before_a_repair_is_never_replayed() {
    let place = Place::new().await;
    let volume = place.open().await;
    let file = create(&volume, Inode::ROOT, "file").await;
    volume.flush().await.unwrap();
    let late = create(&volume, Inode::ROOT, "not-published").await;
    // As if the gateway was killed now: closing it would publish.
    let place = place.copied();
    close(volume).await;

    let store = place.store().await;
    let data_dir = place.folder.path().join("local");
    let refused = Claim::of(&data_dir, &store, false).await.unwrap_err();
    assert!(
        matches!(refused, ClaimError::Unpublished { .. }),
        "{refused}"
    );
    drop(Claim::of(&data_dir, &store, true).await.unwrap());

    miscount(&place, file).await;
    let (steps, _) = run(&place, false).await;
    assert_eq!(steps.len(), 1, "{steps:?}");

    let volume = place.open().await;
    assert_eq!(find(&volume, "file").await, Some(file));
    assert_eq!(find(&volume, "not-published").await, None);
    let new = create(&volume, Inode::ROOT, "new").await;
    assert!(new > late, "{new:?} was given out before");
    let running = Claim::of(&data_dir, &store, true).await.unwrap_err();
    assert!(matches!(running, ClaimError::Running { .. }), "{running}");
    close(volume).await;
    let report = place.check().await;
    assert!(report.is_clean(), "{:#?}", findings(&report));
    drop(Claim::of(&data_dir, &store, false).await.unwrap());
    let folder = forebay_salvage::logs::Logs::open(&data_dir).unwrap();
    let kept = folder
        .list()
        .into_iter()
        .any(|log| log.label.to_string().starts_with("epoch-"));
    assert!(kept, "it can be salvaged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_serves_the_volume_is_fenced() {
    let place = Place::new().await;
    let volume = place.open().await;
    let file = create(&volume, Inode::ROOT, "file").await;
    write(&volume, file, 0, b"bytes").await;
    close(volume).await;
    meddle(&place, async |_| {
        let mut batch = Batch::new();
        let key = BlockKey {
            inode: Inode(77),
            block: BlockIndex(0),
        };
        batch.put(&Key::Block(key), &forebay_meta::BlockMap::new());
        batch
    })
    .await;
    // The gateway has no reason to read that block map.
    let volume = place.open().await;
    let (steps, repaired) = run(&place, false).await;
    assert!(repaired.after.is_clean(), "{steps:?}");
    // The change may reach its log, but never the bucket.
    let mode = CreateMode::Guarded(SetAttributes::default());
    let _ = volume.create(&WHO, Inode::ROOT, b"late", &mode).await;
    assert!(volume.flush().await.is_err());
    volume.close(Duration::ZERO).await;
    let report = place.check().await;
    assert!(report.is_clean(), "{:#?}", findings(&report));
}
