//! The scrub of clones, of their sources, and of volumes that were restored.

use super::*;

/// Runs a round over all packs; returns how many it has read.
async fn scrub(volume: &Volume) -> u64 {
    volume.start_scrub(Duration::ZERO).unwrap();
    while volume.scrub_status().await.unwrap().running.is_some() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The status before may have read the checks while the round still ran.
    let status = volume.scrub_status().await.unwrap();
    volume.flush().await.unwrap();
    let end = status.last.unwrap();
    assert_eq!((end.damaged, end.cut_short), (0, None));
    assert_eq!((status.packs, status.never), (end.packs, 0));
    end.packs
}

async fn each_scrubs_its_own(expected: Expected) {
    let (place, _, _) = source(&expected).await;
    let volume = opened(&place).await;
    assert!(volume.status().held_bytes > 0);
    assert_eq!(scrub(&volume).await, place.packs().len() as u64);
    // This one has the checks of held packs in its metadata.
    volume.make_snapshot("later", "a test").await.unwrap();
    volume.flush().await.unwrap();
    close(volume).await;
    is_sound(&place).await;

    for name in ["s", "later"] {
        let other = empty(&expected);
        clone(&place, &other, name).await.unwrap();
        is_sound(&other).await;
        let volume = opened(&other).await;
        assert_eq!(scrub(&volume).await, 0, "all lie at the source");
        put(&volume, &mut Files::new(), "own", 900, 1000).await;
        volume.flush().await.unwrap();
        assert_eq!(scrub(&volume).await, other.packs().len() as u64);
        close(volume).await;
        is_sound(&other).await;
        // Once they are its own, they are read.
        detached(&other).await.unwrap();
        let volume = opened(&other).await;
        settled(&other, &volume).await;
        assert_eq!(scrub(&volume).await, other.packs().len() as u64);
        close(volume).await;
        is_sound(&other).await;
        std::fs::remove_dir_all(other.bucket()).unwrap();
    }

    for name in ["s", "later"] {
        restored(&place, name, &format!("before {name}"))
            .await
            .unwrap();
        is_sound(&place).await;
        let volume = open(&place).await;
        settled(&place, &volume).await;
        assert_eq!(scrub(&volume).await, place.packs().len() as u64);
        close(volume).await;
        is_sound(&place).await;
    }
}

#[test]
fn packs_are_scrubbed_by_the_volume_where_they_lie() {
    run(|| each_scrubs_its_own(Expected::NotSealed));
}

#[test]
fn packs_of_sealed_volumes_are_scrubbed_where_they_lie() {
    run(|| each_scrubs_its_own(key_file(3)));
}
