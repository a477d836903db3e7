//! Conformance suite for every implementation of [`MetaStore`].
//!
//! [`conformance_tests!`] makes a test of each scenario for the store that a [`Bucket`] opens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::batch::Batch;
use crate::error::StoreError;
use crate::key::KeyRange;
use crate::store::{MetaStore, Ready};

/// Storage that outlives the stores opened on it.
#[async_trait]
pub(crate) trait Bucket: Send + Sync {
    async fn open(&self) -> Arc<dyn MetaStore>;
}

macro_rules! conformance_tests {
    ($bucket:expr; $($scenario:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $scenario() {
                $crate::store::conformance::$scenario(&$bucket).await;
            }
        )*
    };
    ($bucket:expr) => {
        $crate::store::conformance::conformance_tests!($bucket;
            a_new_store_is_empty,
            the_last_change_of_a_key_counts,
            scans_are_ordered_and_bounded,
            a_batch_is_seen_whole_or_not_at_all,
            a_batch_of_ten_thousand_keys_and_eight_mebibytes,
            a_batch_is_seen_when_what_it_refers_to_is_there_and_not_before,
            a_batch_whose_objects_never_arrive_leaves_nothing,
            what_was_committed_is_there_after_close_and_open,
            what_was_committed_is_there_after_a_crash,
            a_second_open_fences_the_first,
            a_repeated_commit_changes_nothing,
            a_closed_store_refuses,
            kept_states_stay_until_they_are_released,
            random_changes_match_a_model,
        );
    };
}
pub(crate) use conformance_tests;

pub(crate) fn batch(changes: &[(&str, Option<&str>)]) -> Batch {
    let mut batch = Batch::new();
    for (key, value) in changes {
        let key = Bytes::copy_from_slice(key.as_bytes());
        match value {
            Some(value) => batch.put_encoded(key, Bytes::copy_from_slice(value.as_bytes())),
            None => batch.delete_encoded(key),
        }
    }
    batch
}

pub(crate) async fn value(store: &Arc<dyn MetaStore>, key: &str) -> Option<String> {
    let value = store.get(key.as_bytes()).await.unwrap();
    value.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

async fn everything(store: &Arc<dyn MetaStore>) -> Vec<(Bytes, Bytes)> {
    store.scan(&KeyRange::all(), usize::MAX).await.unwrap()
}

fn range(start: &str, end: &str) -> KeyRange {
    KeyRange {
        start: Bytes::copy_from_slice(start.as_bytes()),
        end: Bytes::copy_from_slice(end.as_bytes()),
    }
}

pub(crate) async fn kept_states_stay_until_they_are_released(bucket: &dyn Bucket) {
    let store = bucket.open().await;
    store
        .commit(&batch(&[("a", Some("1")), ("b", Some("1"))]))
        .await
        .unwrap();
    store.keep("one").await.unwrap();
    // The batch says what follows.
    let mut second = batch(&[("a", Some("2")), ("b", None)]);
    second.keep_as("two");
    store.commit(&second).await.unwrap();
    store.keep("two").await.unwrap();
    store
        .commit(&batch(&[("a", None), ("c", Some("3"))]))
        .await
        .unwrap();
    store.close().await.unwrap();

    let store = bucket.open().await;
    let names: Vec<String> = store.kept().await.unwrap().into_iter().collect();
    assert_eq!(names, ["one", "two"]);
    let one = store.open_kept("one").await.unwrap().unwrap();
    let two = store.open_kept("two").await.unwrap().unwrap();
    assert_eq!(everything(&one).await.len(), 2);
    assert_eq!(value(&one, "a").await.as_deref(), Some("1"));
    assert_eq!(value(&two, "a").await.as_deref(), Some("2"));
    assert_eq!(
        (value(&two, "b").await, value(&two, "c").await),
        (None, None)
    );
    assert_eq!(value(&store, "c").await.as_deref(), Some("3"));
    assert!(
        one.commit(&batch(&[("a", Some("4"))])).await.is_err()
            || value(&store, "a").await.is_none()
    );
    store.release("one").await.unwrap();
    store.release("one").await.unwrap();
    assert!(store.open_kept("one").await.unwrap().is_none());
    assert_eq!(value(&two, "a").await.as_deref(), Some("2"));
    let names: Vec<String> = store.kept().await.unwrap().into_iter().collect();
    assert_eq!(names, ["two"]);
    // A store that was fenced keeps nothing.
    let newer = bucket.open().await;
    newer.commit(&batch(&[("d", Some("5"))])).await.unwrap();
    assert_eq!(store.keep("three").await, Err(StoreError::Fenced));
    assert!(!newer.kept().await.unwrap().contains("three"));
}

pub(crate) async fn a_new_store_is_empty(bucket: &dyn Bucket) {
    let store = bucket.open().await;
    assert_eq!(value(&store, "a").await, None);
    assert!(everything(&store).await.is_empty());
    store.commit(&Batch::new()).await.unwrap();
    assert!(everything(&store).await.is_empty());
}

pub(crate) async fn the_last_change_of_a_key_counts(bucket: &dyn Bucket) {
    let store = bucket.open().await;
    let changes = batch(&[
        ("a", Some("1")),
        ("a", Some("2")),
        ("b", Some("1")),
        ("b", None),
        ("c", None),
        ("c", Some("")),
    ]);
    store.commit(&changes).await.unwrap();
    assert_eq!(value(&store, "a").await.as_deref(), Some("2"));
    assert_eq!(value(&store, "b").await, None);
    assert_eq!(value(&store, "c").await.as_deref(), Some(""));
    store
        .commit(&batch(&[("a", None), ("b", Some("3"))]))
        .await
        .unwrap();
    assert_eq!(value(&store, "a").await, None);
    assert_eq!(value(&store, "b").await.as_deref(), Some("3"));
    assert_eq!(everything(&store).await.len(), 2);
}

pub(crate) async fn scans_are_ordered_and_bounded(bucket: &dyn Bucket) {
    let store = bucket.open().await;
    // In several commits and out of order; one of them deletes.
    for start in [2, 0, 1] {
        let keys: Vec<_> = (start..60).step_by(3).map(|n| format!("k{n:02}")).collect();
        let puts: Vec<_> = keys.iter().map(|key| (key.as_str(), Some("v"))).collect();
        store.commit(&batch(&puts)).await.unwrap();
    }
    store
        .commit(&batch(&[("k11", None), ("k30", None)]))
        .await
        .unwrap();
    let keys = |found: Vec<(Bytes, Bytes)>| -> Vec<String> {
        found
            .into_iter()
            .map(|(key, _)| String::from_utf8(key.to_vec()).unwrap())
            .collect()
    };
    let found = keys(store.scan(&range("k09", "k14"), 99).await.unwrap());
    assert_eq!(found, ["k09", "k10", "k12", "k13"]);
    let found = keys(store.scan(&range("k09", "k14"), 2).await.unwrap());
    assert_eq!(found, ["k09", "k10"]);
    let all = keys(store.scan(&KeyRange::all(), 99).await.unwrap());
    assert_eq!(all.len(), 58);
    assert!(all.is_sorted());
    assert!(
        store
            .scan(&range("k14", "k09"), 9)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        store
            .scan(&range("k14", "k14"), 9)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        store
            .scan(&range("k14", "k15"), 0)
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        keys(store.scan(&range("k58", ""), 9).await.unwrap()),
        ["k58", "k59"]
    );
}

pub(crate) async fn a_batch_is_seen_whole_or_not_at_all(bucket: &dyn Bucket) {
    let store = bucket.open().await;
    let looks = Arc::new(AtomicU64::new(0));
    let reader = tokio::spawn({
        let (store, looks) = (store.clone(), looks.clone());
        async move {
            while looks.load(Ordering::Acquire) < 50 {
                let found = store.scan(&KeyRange::all(), 99).await.unwrap();
                if !found.is_empty() {
                    looks.fetch_add(1, Ordering::Release);
                    assert_eq!(found.len(), 8);
                    assert!(
                        found.windows(2).all(|pair| pair[0].1 == pair[1].1),
                        "{found:?}"
                    );
                }
                tokio::task::yield_now().await;
            }
        }
    });
    let mut round = 0u64;
    while !reader.is_finished() {
        let mut changes = Batch::new();
        for key in 0..8 {
            changes.put_encoded(vec![b'k', key].into(), round.to_string().into());
        }
        store.commit(&changes).await.unwrap();
        round += 1;
        tokio::task::yield_now().await;
    }
    reader.await.unwrap();
}

pub(crate) async fn a_batch_of_ten_thousand_keys_and_eight_mebibytes(bucket: &dyn Bucket) {
    const KEYS: u32 = 10_000;
    const VALUE_BYTES: usize = (8 << 20) / KEYS as usize;
    let store = bucket.open().await;
    let mut changes = Batch::new();
    for n in (0..KEYS).rev() {
        let mut value = vec![n as u8; VALUE_BYTES];
        value[..4].copy_from_slice(&n.to_be_bytes());
        changes.put_encoded(n.to_be_bytes().to_vec().into(), value.into());
    }
    store.commit(&changes).await.unwrap();
    drop(store);
    let store = bucket.open().await;
    let found = everything(&store).await;
    assert_eq!(found.len(), KEYS as usize);
    for (n, (key, value)) in found.iter().enumerate() {
        assert_eq!(key[..], (n as u32).to_be_bytes());
        assert_eq!(value[..4], key[..]);
        assert_eq!(value.len(), VALUE_BYTES);
    }
}

pub(crate) async fn a_batch_is_seen_when_what_it_refers_to_is_there_and_not_before(
    bucket: &dyn Bucket,
) {
    let store = bucket.open().await;
    store.commit(&batch(&[("a", Some("1"))])).await.unwrap();
    let (arrived, ready) = Ready::later();
    let changes = batch(&[("a", Some("2")), ("b", Some("1"))]);
    let commit = tokio::spawn({
        let (store, changes) = (store.clone(), changes.clone());
        async move { store.commit_when(&changes, &ready).await }
    });
    // A fixed time, because nothing shows that the commit will not return.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!commit.is_finished());
    assert_eq!(value(&store, "a").await.as_deref(), Some("1"));
    assert_eq!(everything(&store).await.len(), 1);
    arrived.announce();
    commit.await.unwrap().unwrap();
    assert_eq!(value(&store, "a").await.as_deref(), Some("2"));
    assert_eq!(everything(&store).await.len(), 2);
}

pub(crate) async fn a_batch_whose_objects_never_arrive_leaves_nothing(bucket: &dyn Bucket) {
    let store = bucket.open().await;
    store.commit(&batch(&[("a", Some("1"))])).await.unwrap();
    let (arrived, ready) = Ready::later();
    drop(arrived);
    let refused = store.commit_when(&batch(&[("b", Some("1"))]), &ready).await;
    assert!(matches!(refused, Err(StoreError::Fatal(_))), "{refused:?}");
    let _ = store.close().await;
    let store = bucket.open().await;
    assert_eq!(everything(&store).await.len(), 1);
    store.commit(&batch(&[("b", Some("2"))])).await.unwrap();
    assert_eq!(value(&store, "b").await.as_deref(), Some("2"));
}

pub(crate) async fn what_was_committed_is_there_after_close_and_open(bucket: &dyn Bucket) {
    let store = bucket.open().await;
    store
        .commit(&batch(&[("a", Some("1")), ("b", Some("1"))]))
        .await
        .unwrap();
    store
        .commit(&batch(&[("b", None), ("c", Some("2"))]))
        .await
        .unwrap();
    let before = everything(&store).await;
    store.close().await.unwrap();
    let store = bucket.open().await;
    assert_eq!(everything(&store).await, before);
    store.commit(&batch(&[("d", Some("3"))])).await.unwrap();
    assert_eq!(everything(&store).await.len(), 3);
}

pub(crate) async fn what_was_committed_is_there_after_a_crash(bucket: &dyn Bucket) {
    for round in 0..4 {
        let store = bucket.open().await;
        assert_eq!(everything(&store).await.len(), round);
        let key = round.to_string();
        store.commit(&batch(&[(&key, Some("x"))])).await.unwrap();
        // Neither closed nor dropped: as if the machine had lost its power.
        std::mem::forget(store);
    }
}

pub(crate) async fn a_second_open_fences_the_first(bucket: &dyn Bucket) {
    let first = bucket.open().await;
    first.commit(&batch(&[("a", Some("first"))])).await.unwrap();
    let second = bucket.open().await;
    assert_eq!(value(&second, "a").await.as_deref(), Some("first"));
    second
        .commit(&batch(&[("a", Some("second"))]))
        .await
        .unwrap();
    for _ in 0..2 {
        let refused = first
            .commit(&batch(&[("a", Some("late")), ("b", Some("late"))]))
            .await;
        assert_eq!(refused, Err(StoreError::Fenced));
    }
    second
        .commit(&batch(&[("c", Some("second"))]))
        .await
        .unwrap();
    drop(first);
    second.close().await.unwrap();
    let third = bucket.open().await;
    assert_eq!(value(&third, "a").await.as_deref(), Some("second"));
    assert_eq!(value(&third, "b").await, None);
    assert_eq!(value(&third, "c").await.as_deref(), Some("second"));
}

pub(crate) async fn a_repeated_commit_changes_nothing(bucket: &dyn Bucket) {
    let store = bucket.open().await;
    let changes = batch(&[("a", Some("1")), ("b", None)]);
    for _ in 0..3 {
        store.commit(&changes).await.unwrap();
    }
    assert_eq!(everything(&store).await, [("a".into(), "1".into())]);
}

pub(crate) async fn a_closed_store_refuses(bucket: &dyn Bucket) {
    let store = bucket.open().await;
    store.close().await.unwrap();
    store.close().await.unwrap();
    assert!(matches!(store.get(b"a").await, Err(StoreError::Fatal(_))));
    assert!(matches!(
        store.scan(&KeyRange::all(), 1).await,
        Err(StoreError::Fatal(_))
    ));
    let refused = store.commit(&batch(&[("a", Some("1"))])).await;
    assert!(matches!(refused, Err(StoreError::Fatal(_))));
}

pub(crate) async fn random_changes_match_a_model(bucket: &dyn Bucket) {
    let seed = 0x5eed_u64;
    let mut state = seed;
    // Xorshift: enough to scatter keys, and the same every time.
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut model: BTreeMap<Bytes, Bytes> = BTreeMap::new();
    let mut store = bucket.open().await;
    for round in 0..60u64 {
        let mut changes = Batch::new();
        for _ in 0..random(30) {
            let key = Bytes::from(format!("{:03}", random(200)));
            if random(3) == 0 {
                model.remove(&key);
                changes.delete_encoded(key);
            } else {
                let value = Bytes::from(vec![round as u8; random(50) as usize]);
                model.insert(key.clone(), value.clone());
                changes.put_encoded(key, value);
            }
        }
        store.commit(&changes).await.unwrap();
        let (start, end) = (format!("{:03}", random(200)), format!("{:03}", random(200)));
        let limit = random(40) as usize;
        let found = store.scan(&range(&start, &end), limit).await.unwrap();
        let expected = model
            .iter()
            .filter(|(key, _)| range(&start, &end).contains(key));
        let expected: Vec<_> = expected
            .take(limit)
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        assert_eq!(
            found, expected,
            "seed {seed:x} round {round}: {start}..{end}"
        );
        let key = format!("{:03}", random(200));
        let found = store.get(key.as_bytes()).await.unwrap();
        assert_eq!(found.as_ref(), model.get(key.as_bytes()));
        if random(10) == 0 {
            store = bucket.open().await;
        }
    }
}

mod memory {
    use super::*;
    use crate::store::{MemoryBucket, MemoryStore};

    #[async_trait]
    impl Bucket for MemoryBucket {
        async fn open(&self) -> Arc<dyn MetaStore> {
            Arc::new(MemoryStore::open(self))
        }
    }

    conformance_tests!(MemoryBucket::default());
}
