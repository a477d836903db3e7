//! Clones, their detachment and the return to a snapshot, of volumes that store equal content once.

use forebay_fs::Dedup;

use super::*;

async fn sharing(place: &Place) -> Volume {
    let volume = Box::pin(place.open_with(|config| {
        eager(config);
        config.dedup = Dedup::Full;
    }))
    .await;
    // What earlier lives noted is known.
    while volume.status().dedup.unwrap().is_learning {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    volume
}

fn saved(volume: &Volume) -> u64 {
    volume.status().dedup.unwrap().saved_bytes
}

/// A volume of files of which each two are equal, with a snapshot `s` of them. Since then one pair has lost one
/// file, another one both, and of a third one file has other content.
async fn pairs(expected: &Expected) -> (Place, Files, Files) {
    let place = Place::of(expected.clone()).await;
    let volume = sharing(&place).await;
    let mut files = Files::new();
    for round in ["a", "b"] {
        for number in 0..4 {
            put(
                &volume,
                &mut files,
                &format!("{round}-{number}"),
                number,
                MIB,
            )
            .await;
        }
        volume.flush().await.unwrap();
    }
    assert_eq!(saved(&volume), 4 * MIB as u64);
    volume.make_snapshot("s", "a test").await.unwrap();
    let then = files.clone();
    remove(&volume, &mut files, "a-0").await;
    remove(&volume, &mut files, "a-1").await;
    remove(&volume, &mut files, "b-1").await;
    put(&volume, &mut files, "a-2", 102, MIB).await;
    volume.flush().await.unwrap();
    settled(&place, &volume).await;
    close(volume).await;
    is_sound(&place).await;
    (place, then, files)
}

#[test]
fn a_clone_shares_content_that_lies_at_its_source_and_has_it_when_it_is_detached_plain() {
    run(|| clone_and_detach(Expected::NotSealed));
}

#[test]
fn a_clone_shares_content_that_lies_at_its_source_and_has_it_when_it_is_detached_sealed() {
    run(|| clone_and_detach(key_file(7)));
}

async fn clone_and_detach(expected: Expected) {
    let (place, then, mut files) = pairs(&expected).await;
    let other = empty(&expected);
    clone(&place, &other, "s").await.unwrap();
    is_sound(&other).await;

    // The clone gets content once more that it has at its source alone, and loses the files that brought it.
    let mut cloned = then.clone();
    let volume = sharing(&other).await;
    compare(&volume, &cloned).await;
    for number in 0..4 {
        put(&volume, &mut cloned, &format!("c-{number}"), number, MIB).await;
    }
    volume.flush().await.unwrap();
    assert_eq!(saved(&volume), 4 * MIB as u64);
    assert!(other.packs().is_empty(), "{:?}", other.packs());
    volume.make_snapshot("t", "a test").await.unwrap();
    let seen = cloned.clone();
    for name in ["a-0", "b-0", "a-1", "b-1", "b-2"] {
        remove(&volume, &mut cloned, name).await;
    }
    put(&volume, &mut cloned, "of the clone", 300, MIB).await;
    put(&volume, &mut cloned, "of the clone, too", 300, MIB).await;
    volume.flush().await.unwrap();
    compare(&volume, &cloned).await;
    close(volume).await;
    is_sound(&other).await;

    // The source loses everything that it can lose.
    let volume = sharing(&place).await;
    compare(&volume, &files).await;
    for name in files.clone().into_keys() {
        remove(&volume, &mut files, &name).await;
    }
    volume.flush().await.unwrap();
    settled(&place, &volume).await;
    close(volume).await;
    is_sound(&place).await;
    is_sound(&other).await;

    detached(&other).await.unwrap();
    is_sound(&other).await;
    std::fs::remove_dir_all(place.bucket()).unwrap();
    let volume = sharing(&other).await;
    compare(&volume, &cloned).await;
    compare(&*volume.open_snapshot("t").await.unwrap(), &seen).await;
    // Equal content goes on to be stored once, and is gone with its last file.
    put(&volume, &mut cloned, "again", 0, MIB).await;
    volume.flush().await.unwrap();
    assert_eq!(saved(&volume), MIB as u64);
    volume.delete_snapshot("t").await.unwrap();
    settled(&other, &volume).await;
    compare(&volume, &cloned).await;
    for name in cloned.clone().into_keys() {
        remove(&volume, &mut cloned, &name).await;
    }
    volume.flush().await.unwrap();
    settled(&other, &volume).await;
    while !other.packs().is_empty() {
        settled(&other, &volume).await;
    }
    close(volume).await;
    is_sound(&other).await;
}

#[test]
fn a_volume_with_shared_content_goes_back_to_a_snapshot_and_forth_again_plain() {
    run(|| back_and_forth(Expected::NotSealed));
}

#[test]
fn a_volume_with_shared_content_goes_back_to_a_snapshot_and_forth_again_sealed() {
    run(|| back_and_forth(key_file(7)));
}

async fn back_and_forth(expected: Expected) {
    let (place, then, files) = pairs(&expected).await;
    restored(&place, "s", "before").await.unwrap();
    is_sound(&place).await;
    let volume = sharing(&place).await;
    compare(&volume, &then).await;
    let mut third = then.clone();
    // Content that the state before alone has; and the last reference to what the snapshot has.
    put(&volume, &mut third, "new", 102, MIB).await;
    put(&volume, &mut third, "again", 1, MIB).await;
    for name in ["a-1", "b-1", "a-3", "b-3"] {
        remove(&volume, &mut third, name).await;
    }
    volume.flush().await.unwrap();
    settled(&place, &volume).await;
    compare(&volume, &third).await;
    compare(&*volume.open_snapshot("before").await.unwrap(), &files).await;
    close(volume).await;
    is_sound(&place).await;

    restored(&place, "before", "between").await.unwrap();
    is_sound(&place).await;
    let volume = sharing(&place).await;
    compare(&volume, &files).await;
    for (name, expected) in [("s", &then), ("before", &files), ("between", &third)] {
        compare(&*volume.open_snapshot(name).await.unwrap(), expected).await;
    }
    for name in ["before", "s", "between"] {
        volume.delete_snapshot(name).await.unwrap();
        settled(&place, &volume).await;
        compare(&volume, &files).await;
    }
    settled(&place, &volume).await;
    assert_eq!(volume.status().held_bytes, 0);
    close(volume).await;
    is_sound(&place).await;
}
