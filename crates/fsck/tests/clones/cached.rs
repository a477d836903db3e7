//! The disk cache of gateways of clones and of restored volumes.

use forebay_fs::{DiskCacheStatus, MIN_DISK_CACHE};

use super::*;

async fn caching(place: &Place) -> Volume {
    Box::pin(place.open_with(|config| {
        eager(config);
        config.disk_cache_limit = MIN_DISK_CACHE;
        config.memory_limit = 16 << 20;
        config.prefetch_bytes = 0;
    }))
    .await
}

fn cache(volume: &Volume) -> DiskCacheStatus {
    volume.status().disk_cache.unwrap()
}

/// Reads all files, of which the disk cache has every frame or none.
async fn reads(volume: &Volume, files: &Files, from_cache: bool) {
    let before = cache(volume);
    compare(volume, files).await;
    let after = cache(volume);
    let (hits, misses) = (after.hits - before.hits, after.misses - before.misses);
    match from_cache {
        true => assert!(hits >= files.len() as u64 && misses == 0, "{after:?}"),
        false => assert!(misses >= files.len() as u64, "{after:?}"),
    }
    assert_eq!(after.damaged, 0);
}

#[test]
fn the_disk_cache_of_a_clone_serves_what_lies_at_its_source_plain() {
    run(|| of_a_clone(Expected::NotSealed));
}

#[test]
fn the_disk_cache_of_a_clone_serves_what_lies_at_its_source_sealed() {
    run(|| of_a_clone(key_file(7)));
}

async fn of_a_clone(expected: Expected) {
    let (place, then, _) = source(&expected).await;
    let other = empty(&expected);
    clone(&place, &other, "s").await.unwrap();
    let volume = caching(&other).await;
    reads(&volume, &then, false).await;
    close(volume).await;
    let volume = caching(&other).await;
    reads(&volume, &then, true).await;
    close(volume).await;

    // Packs have their numbers and bytes when they are copied: the cache stays.
    detached(&other).await.unwrap();
    let volume = caching(&other).await;
    reads(&volume, &then, true).await;
    let mut cloned = then.clone();
    put(&volume, &mut cloned, "file-1", 301, MIB + 1000).await;
    volume.flush().await.unwrap();
    close(volume).await;
    let volume = caching(&other).await;
    compare(&volume, &cloned).await;
    assert_eq!(cache(&volume).damaged, 0);
    close(volume).await;
    is_sound(&other).await;
}

#[test]
fn the_disk_cache_serves_no_byte_of_the_state_before_a_restore_plain() {
    run(|| of_a_restored_volume(Expected::NotSealed));
}

#[test]
fn the_disk_cache_serves_no_byte_of_the_state_before_a_restore_sealed() {
    run(|| of_a_restored_volume(key_file(7)));
}

async fn of_a_restored_volume(expected: Expected) {
    let (place, then, files) = source(&expected).await;
    let volume = caching(&place).await;
    compare(&*volume.open_snapshot("s").await.unwrap(), &then).await;
    reads(&volume, &files, false).await;
    close(volume).await;
    restored(&place, "s", "before").await.unwrap();

    let volume = caching(&place).await;
    reads(&volume, &then, true).await;
    // In the same files as before the restore, other bytes.
    let mut third = then.clone();
    for number in 0..6 {
        put(
            &volume,
            &mut third,
            &format!("file-{number}"),
            700 + number,
            MIB + 1000,
        )
        .await;
    }
    volume.flush().await.unwrap();
    close(volume).await;
    let volume = caching(&place).await;
    compare(&volume, &third).await;
    compare(&*volume.open_snapshot("before").await.unwrap(), &files).await;
    compare(&*volume.open_snapshot("s").await.unwrap(), &then).await;
    assert_eq!(cache(&volume).damaged, 0);
    close(volume).await;

    restored(&place, "before", "between").await.unwrap();
    let volume = caching(&place).await;
    compare(&volume, &files).await;
    assert_eq!(cache(&volume).damaged, 0);
    close(volume).await;
    is_sound(&place).await;
}
