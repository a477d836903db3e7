//! Snapshots that are opened from the bucket alone.

use std::time::Duration;

use forebay_fs::{Expected, Volume};
use forebay_meta::record::SnapshotRecord;
use forebay_meta::{Batch, Catalog, Key, KeyRange, MetaStore, Overlay, SlateSettings, SlateStore};
use forebay_types::{CommitNumber, Inode, SnapshotId};
use forebay_vfs::{Error, FileSystem, NewNode, SetAttributes};
use forebay_view::{Published, SnapshotAway, View, ViewError};

#[path = "../../fsck/tests/place/mod.rs"]
#[allow(dead_code, reason = "each test uses some of it")]
mod place;
use place::{Place, WHO, close, create, key_file, noise, write};

/// Makes a snapshot, and waits until the bucket has it.
async fn snapshot(volume: &Volume, name: &str) {
    volume.make_snapshot(name, "a test").await.unwrap();
    volume.flush().await.unwrap();
    while !volume
        .snapshots()
        .await
        .unwrap()
        .iter()
        .any(|one| one.name == name && one.is_published)
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn open(place: &Place, wanted: &str) -> Result<View, ViewError> {
    View::open_snapshot(&place.store().await, &place.expected, wanted).await
}

async fn content(view: &View, name: &str) -> Vec<u8> {
    let file = view
        .lookup(&WHO, Inode::ROOT, name.as_bytes())
        .await
        .unwrap();
    let read = view.read(&WHO, file.inode, 0, 1 << 20).await.unwrap();
    read.data.iter().flat_map(|part| part.to_vec()).collect()
}

/// A volume with two snapshots, and a change after each.
async fn with_two(expected: Expected) -> (Place, Volume) {
    let place = Place::of(expected).await;
    let volume = place.open().await;
    let file = create(&volume, Inode::ROOT, "file").await;
    write(&volume, file, 0, &noise(1, 70_000)).await;
    snapshot(&volume, "one").await;
    write(&volume, file, 0, &noise(2, 70_000)).await;
    // A name that is the number of another one.
    snapshot(&volume, "1").await;
    write(&volume, file, 0, &noise(3, 70_000)).await;
    volume.flush().await.unwrap();
    (place, volume)
}

async fn are_read_beside_and_without_a_gateway(expected: Expected) {
    let (place, volume) = with_two(expected).await;
    let mut gateway = Some(volume);
    for _ in 0..2 {
        let before = gateway.is_none().then(|| place.objects());
        for (wanted, seed) in [("one", 1), ("1", 2), ("2", 2)] {
            let view = open(&place, wanted).await.unwrap();
            assert_eq!(
                content(&view, "file").await,
                noise(seed, 70_000),
                "{wanted}"
            );
            let made = view
                .make(
                    &WHO,
                    Inode::ROOT,
                    b"new",
                    NewNode::Fifo,
                    &SetAttributes::default(),
                )
                .await;
            assert_eq!(made.map(drop), Err(Error::ReadOnly));
        }
        let store = place.store().await;
        let published = Published::open(&store, &place.expected).await.unwrap();
        let newest = published.view(published.newest().clone());
        assert_eq!(content(&newest, "file").await, noise(3, 70_000));
        let holds = published.holds().await.unwrap();
        let names: Vec<&str> = holds.iter().map(|(_, record, _)| &*record.name).collect();
        assert_eq!(names, ["one", "1"]);
        if let Some(before) = before {
            assert!(place.objects() == before, "something was written");
        }
        if let Some(volume) = gateway.take() {
            close(volume).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_are_read_beside_a_gateway_and_without_one() {
    are_read_beside_and_without_a_gateway(Expected::NotSealed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_of_a_sealed_volume_are_read_with_its_keys() {
    are_read_beside_and_without_a_gateway(key_file(1)).await;
}

async fn away(place: &Place, wanted: &str) -> SnapshotAway {
    match open(place, wanted).await {
        Err(ViewError::Snapshot(away)) => away,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it is there"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_cannot_be_read_is_refused_with_the_reason() {
    let (place, volume) = with_two(Expected::NotSealed).await;
    close(volume).await;
    let name = || "x".to_owned();
    assert_eq!(away(&place, "x").await, SnapshotAway::NotFound(name()));
    assert_eq!(
        away(&place, "3").await,
        SnapshotAway::NotFound("3".to_owned())
    );

    let store = place.store().await;
    let (bucket, path) = (
        store.store.clone(),
        store.path(forebay_environment::META_PREFIX),
    );
    let meta = SlateStore::open(bucket, path, SlateSettings::default())
        .await
        .unwrap();
    let meta: std::sync::Arc<dyn MetaStore> = std::sync::Arc::new(meta);
    let catalog = Catalog::new(std::sync::Arc::new(Overlay::new()), meta.clone());
    let last = catalog
        .volume_state()
        .await
        .unwrap()
        .unwrap()
        .history
        .commit;
    let found = catalog
        .records::<SnapshotRecord>(&KeyRange::snapshots(), 1)
        .await
        .unwrap();
    let record = SnapshotRecord {
        name: name(),
        ..found[0].1.clone()
    };
    let put = async |commit, is_being_deleted| {
        let record = SnapshotRecord {
            commit,
            is_being_deleted,
            ..record.clone()
        };
        let mut batch = Batch::new();
        batch.put(&Key::Snapshot(SnapshotId(3)), &record);
        meta.commit(&batch).await.unwrap();
    };
    put(last, false).await;
    assert_eq!(away(&place, "x").await, SnapshotAway::NotPublished(name()));
    assert_eq!(away(&place, "3").await, SnapshotAway::NotPublished(name()));
    put(CommitNumber(last.0 - 1), false).await;
    assert_eq!(away(&place, "x").await, SnapshotAway::Gone(name()));
    put(last, true).await;
    assert_eq!(away(&place, "x").await, SnapshotAway::BeingDeleted(name()));
    meta.close().await.unwrap();
}
