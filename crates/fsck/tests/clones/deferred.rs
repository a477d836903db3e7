//! A clone that is made while its snapshot is being deleted.

use forebay_object::faults::{Faults, FaultyStore};
use forebay_object::{RetrySettings, Store};
use object_store::path::Path;

use super::cut::Cut;
use super::cuts::{BESIDE, clone_beside, detach_beside, gateway_of, has};
use super::*;

/// The bucket of a place, with these faults.
async fn faulty(place: &Place, faults: &Arc<Faults>) -> Store {
    let whole = Cut::after(usize::MAX).store(place, "bucket").await;
    let store = FaultyStore::new(whole.store, faults.clone());
    let url = "memory://faulty".to_owned();
    let retry = RetrySettings::default();
    Store::new(Arc::new(store), Path::from("bucket"), url, retry)
}

/// The deletion has begun when the clone is made, and the bucket does not have that yet: both go through.
async fn made_while_it_is_deleted(expected: Expected) {
    let place = Place::of(expected).await;
    let faults = Arc::new(Faults::default());
    let volume = gateway_of(&place, &faulty(&place, &faults).await).await;
    let mut files = Files::new();
    put(&volume, &mut files, "goes", 1, 2 * MIB).await;
    put(&volume, &mut files, "stays", 2, 2 * MIB).await;
    volume.flush().await.unwrap();
    volume.make_snapshot("s", "a test").await.unwrap();
    volume.flush().await.unwrap();
    let then = files.clone();
    remove(&volume, &mut files, "goes").await;
    settled(&place, &volume).await;
    let held = volume.status().held_bytes;

    let cut = Cut::after(usize::MAX);
    loop {
        faults.manifest_puts.close();
        let (deleted, made) = tokio::join!(volume.delete_snapshot("s"), async {
            while faults.manifest_puts.held() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let made = clone_beside(&place, &cut).await;
            faults.manifest_puts.open();
            made
        });
        made.unwrap();
        match deleted {
            Ok(()) => break,
            // What was held was a merge of tables: the clone came before the deletion.
            Err(SnapshotError::Cloned { .. }) => {
                std::fs::remove_dir_all(place.folder.path().join(BESIDE)).unwrap();
                std::fs::remove_dir_all(place.bucket().join("clones")).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
    // The name is free, and what the clone needs stays, also what dies only now.
    assert!(volume.snapshots().await.unwrap().is_empty());
    remove(&volume, &mut files, "stays").await;
    put(&volume, &mut files, "later", 3, MIB).await;
    settled(&place, &volume).await;
    assert!(volume.status().held_bytes > held + MIB as u64 / 2);
    compare(&volume, &files).await;
    has(&place, BESIDE, &then).await;
    close(volume).await;
    is_sound(&place).await;

    // Also by the next gateway. It ends the deletion when the clone is a volume of its own.
    let volume = gateway_of(&place, &faulty(&place, &faults).await).await;
    settled(&place, &volume).await;
    has(&place, BESIDE, &then).await;
    assert_eq!(volume.status().snapshots, 1);
    detach_beside(&place, &cut).await.unwrap();
    while volume.status().snapshots > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    settled(&place, &volume).await;
    assert_eq!(volume.status().held_bytes, 0);
    compare(&volume, &files).await;
    close(volume).await;
    is_sound(&place).await;
    has(&place, BESIDE, &then).await;
}

#[test]
fn a_clone_that_is_made_while_its_snapshot_is_deleted_loses_nothing_plain() {
    run(|| made_while_it_is_deleted(Expected::NotSealed));
}

#[test]
fn a_clone_that_is_made_while_its_snapshot_is_deleted_loses_nothing_sealed() {
    run(|| made_while_it_is_deleted(key_file(7)));
}
