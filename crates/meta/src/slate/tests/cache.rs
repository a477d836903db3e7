//! The counts of look-ups in memory, and its bytes.

use super::*;
use crate::store::{CacheStatus, Lookups};

/// Small tables have no filters.
fn parts(status: &CacheStatus) -> [Lookups; 2] {
    [status.blocks, status.indexes]
}

#[tokio::test]
async fn look_ups_are_counted_by_part_and_outcome_for_the_store_and_its_kept_states() {
    let bucket = TestBucket::default();
    let store = open(&bucket, settings()).await.unwrap();
    store.commit(&numbered(1)).await.unwrap();
    store.keep("one").await.unwrap();
    store.close().await.unwrap();
    // Nothing is in memory.
    let store = open(&bucket, settings()).await.unwrap();
    let before = store.cache().unwrap();
    assert_eq!(before.limit_bytes, settings().cache_bytes);
    assert_eq!((before.blocks.hits, before.blocks.misses), (0, 0));
    store.get(b"latest").await.unwrap().unwrap();
    let first = store.cache().unwrap();
    // Its block is read beside the look-up as well, since the table is small.
    assert_eq!(first.blocks.misses, 1);
    assert!(first.used_bytes > 500 && first.used_bytes <= first.limit_bytes);
    store.get(b"latest").await.unwrap().unwrap();
    let second = store.cache().unwrap();
    assert_eq!(second.blocks.hits, first.blocks.hits + 1);
    for (before, after) in parts(&first).iter().zip(parts(&second)) {
        assert!(after.hits > before.hits, "{first:?}, {second:?}");
        assert_eq!(after.misses, before.misses, "{first:?}, {second:?}");
    }
    assert_eq!(second.used_bytes, first.used_bytes);

    let kept = store.open_kept("one").await.unwrap().unwrap();
    kept.get(b"latest").await.unwrap().unwrap();
    let third = store.cache().unwrap();
    assert!(third.blocks.hits > second.blocks.hits, "{third:?}");
    assert_eq!(third.blocks.misses, 1);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_store_without_memory_has_no_counts() {
    let without = SlateSettings {
        cache_bytes: 0,
        ..settings()
    };
    let store = open(&TestBucket::default(), without).await.unwrap();
    store.commit(&numbered(1)).await.unwrap();
    store.get(b"latest").await.unwrap().unwrap();
    assert_eq!(store.cache(), None);
    store.close().await.unwrap();
}
