//! Clones, detachments and restores that are cut off before each of their changes.

use forebay_object::Store;

use super::cut::Cut;
use super::*;

/// The clone in the folder beside the bucket of a place.
pub(crate) const BESIDE: &str = "clone";

/// A gateway on one of the places of a folder, with a folder of its own.
async fn gateway(place: &Place, root: &str) -> Volume {
    gateway_of(place, &Cut::after(usize::MAX).store(place, root).await).await
}

/// A gateway with a folder of its own.
pub(crate) async fn gateway_of(place: &Place, store: &Store) -> Volume {
    let local = tempfile::tempdir().unwrap();
    let mut config = FsConfig::new(local.keep());
    config.expected = place.expected.clone();
    config.takeover = Takeover::Allow;
    config.checkpoint_interval = Duration::from_secs(3600);
    eager(&mut config);
    Box::pin(Volume::open(store, config)).await.unwrap()
}

pub(crate) async fn has(place: &Place, root: &str, files: &Files) {
    let volume = gateway(place, root).await;
    compare(&volume, files).await;
    close(volume).await;
}

pub(crate) async fn clone_beside(place: &Place, cut: &Cut) -> Result<make::Made, CloneError> {
    let (source, to) = (
        cut.store(place, "bucket").await,
        cut.store(place, BESIDE).await,
    );
    Box::pin(make::make(
        &source,
        &to,
        "s",
        &place.expected,
        1_795_000_000,
        &SystemRandomness,
    ))
    .await
}

pub(crate) async fn detach_beside(
    place: &Place,
    cut: &Cut,
) -> Result<detach::Detached, CloneError> {
    let clone = cut.store(place, BESIDE).await;
    Box::pin(detach::detach(&clone, &place.expected, &|_, _| {})).await
}

#[test]
fn a_clone_that_is_cut_off_before_any_of_its_changes_is_none_and_is_made_again() {
    run(|| async {
        let (whole, then, files) = source(&key_file(7)).await;
        for changes in 0.. {
            let place = whole.copied();
            let cut = Cut::after(changes);
            let done = cut.run(clone_beside(&place, &cut)).await;
            if let Some(done) = done {
                done.unwrap();
                assert!(changes > 5, "{changes}");
                break;
            }
            let there = place.folder.path().join(BESIDE).join("forebay.volume");
            assert!(!there.exists(), "after {changes} changes");
            is_sound(&place).await;
            let volume = opened(&place).await;
            compare(&volume, &files).await;
            close(volume).await;
            clone_beside(&place, &Cut::after(usize::MAX)).await.unwrap();
            has(&place, BESIDE, &then).await;
            has(&place, "bucket", &files).await;
        }
    });
}

#[test]
fn a_detachment_that_is_cut_off_before_any_of_its_changes_loses_nothing_and_goes_on() {
    run(|| async {
        let (whole, then, _) = source(&Expected::NotSealed).await;
        clone_beside(&whole, &Cut::after(usize::MAX)).await.unwrap();
        for changes in 0.. {
            let place = whole.copied();
            let cut = Cut::after(changes);
            let done = cut.run(detach_beside(&place, &cut)).await;
            let is_done = done.is_some();
            if let Some(done) = done {
                assert!(done.unwrap().objects > 5);
            } else {
                has(&place, BESIDE, &then).await;
                match detach_beside(&place, &Cut::after(usize::MAX)).await {
                    Ok(_) | Err(CloneError::NoClone(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            let volume = gateway(&place, "bucket").await;
            volume.delete_snapshot("s").await.unwrap();
            close(volume).await;
            std::fs::remove_dir_all(place.bucket()).unwrap();
            has(&place, BESIDE, &then).await;
            if is_done {
                break;
            }
        }
    });
}

#[test]
fn a_restore_that_is_cut_off_before_any_of_its_changes_leaves_the_volume_as_it_was() {
    run(|| async {
        let (whole, then, files) = source(&key_file(7)).await;
        for changes in 0.. {
            let place = whole.copied();
            let cut = Cut::after(changes);
            let store = cut.store(&place, "bucket").await;
            let back = back_to("s", "before");
            let done = cut
                .run(Box::pin(restore::restore(&store, &place.expected, &back)))
                .await;
            let is_done = done.is_some();
            if let Some(done) = done {
                done.unwrap();
                assert!(changes > 5, "{changes}");
            }
            is_sound(&place).await;
            if !is_done {
                let volume = open(&place).await;
                // The removal of what is left beside the metadata comes after the last step.
                let is_restored = volume.lookup(&WHO, Inode::ROOT, b"later").await.is_err();
                compare(&volume, if is_restored { &then } else { &files }).await;
                compare(&*volume.open_snapshot("s").await.unwrap(), &then).await;
                close(volume).await;
                restored(&place, "s", "again").await.unwrap();
            }
            let volume = open(&place).await;
            compare(&volume, &then).await;
            close(volume).await;
            is_sound(&place).await;
            if is_done {
                break;
            }
        }
    });
}

/// No gateway opens the volume in between, which would keep the state of the first restore's snapshot.
#[test]
fn a_restore_after_one_that_was_cut_off_keeps_its_snapshot() {
    run(|| async {
        let (whole, then, files) = source(&Expected::NotSealed).await;
        for changes in 0.. {
            let place = whole.copied();
            let cut = Cut::after(changes);
            let store = cut.store(&place, "bucket").await;
            let back = back_to("s", "first");
            let done = cut
                .run(Box::pin(restore::restore(&store, &place.expected, &back)))
                .await;
            restored(&place, "s", "second").await.unwrap();
            let volume = open(&place).await;
            compare(&volume, &then).await;
            for snapshot in volume.snapshots().await.unwrap() {
                let seen = volume.open_snapshot(&snapshot.name).await.unwrap();
                if snapshot.name == "first" {
                    compare(&*seen, &files).await;
                }
            }
            close(volume).await;
            is_sound(&place).await;
            if done.is_some() {
                break;
            }
        }
    });
}

/// Objects that note merges of the metadata.
fn noted_merges(place: &Place) -> Vec<std::path::PathBuf> {
    super::place::files(&place.bucket().join("meta/compactions"))
}

#[test]
fn a_restore_forgets_the_merges_that_were_noted_before() {
    run(|| async {
        let (place, then, files) = source(&key_file(7)).await;
        // As a gateway leaves it that is killed while it merges; what is in it is of no account.
        let folder = place.bucket().join("meta/compactions");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("00000000000000000001.compactions"), b"a merge").unwrap();
        restored(&place, "s", "before").await.unwrap();
        assert_eq!(noted_merges(&place), [""; 0].map(std::path::PathBuf::from));
        // The next gateway makes new ones, and merges go on.
        let volume = open(&place).await;
        let mut third = then.clone();
        for number in 0..20 {
            put(&volume, &mut third, "again", 700 + number, 1000).await;
            volume.flush().await.unwrap();
        }
        compare(&volume, &third).await;
        compare(&*volume.open_snapshot("before").await.unwrap(), &files).await;
        close(volume).await;
        is_sound(&place).await;
    });
}
