//! The store of a sealed volume.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use super::bucket::TestBucket;
use super::sealed_objects::{FOLDER, sealing};
use super::{COMPACT_AT_TABLES, numbered, settings, settle};
use crate::batch::Batch;
use crate::error::StoreError;
use crate::key::KeyRange;
use crate::slate::{Sealing, SlateReader, SlateStore};
use crate::store::MetaStore;
use crate::store::conformance::{Bucket, conformance_tests};

async fn open(bucket: &TestBucket, sealing: Option<Sealing>) -> Result<SlateStore, StoreError> {
    let store: Arc<dyn ObjectStore> = Arc::new(bucket.clone());
    SlateStore::open_with(store, FOLDER.into(), settings(), sealing, |store| store).await
}

async fn read(bucket: &TestBucket, sealing: Option<Sealing>) -> SlateReader {
    let store: Arc<dyn ObjectStore> = Arc::new(bucket.clone());
    SlateReader::open_with(store, FOLDER.into(), settings().timeout, sealing)
        .await
        .unwrap()
}

#[derive(Default)]
struct SealedBucket(TestBucket);

#[async_trait]
impl Bucket for SealedBucket {
    async fn open(&self) -> Arc<dyn MetaStore> {
        Arc::new(open(&self.0, Some(sealing(1))).await.unwrap())
    }
}

conformance_tests!(SealedBucket::default());

/// Contiguous entries under one marker.
fn entries(first: u32, count: u32, value_bytes: usize) -> Batch {
    let mut changes = Batch::new();
    for n in first..first + count {
        let mut value = vec![n as u8; value_bytes];
        value[..MARKER.len()].copy_from_slice(MARKER);
        changes.put_encoded(key(n), value.into());
    }
    changes
}

fn key(n: u32) -> Bytes {
    [MARKER, &n.to_be_bytes()[..]].concat().into()
}

/// A name that must not appear in the bucket.
const MARKER: &[u8] = b"secret-plans.txt";

async fn stored(bucket: &TestBucket) -> Vec<(Path, Bytes)> {
    let listed: Vec<_> = bucket.raw().list(None).try_collect().await.unwrap();
    let mut stored = Vec::new();
    for meta in listed {
        let found = bucket.raw().get(&meta.location).await.unwrap();
        stored.push((meta.location, found.bytes().await.unwrap()));
    }
    stored
}

/// Number of objects that contain the marker.
async fn marked(bucket: &TestBucket) -> usize {
    let stored = stored(bucket).await;
    let marked =
        |(_, bytes): &&(Path, Bytes)| bytes.windows(MARKER.len()).any(|window| window == MARKER);
    stored.iter().filter(marked).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_name_and_no_value_is_found_in_the_bucket_after_commits_and_merges() {
    for sealing in [None, Some(sealing(1))] {
        let bucket = TestBucket::default();
        let store = open(&bucket, sealing.clone()).await.unwrap();
        for n in 0..COMPACT_AT_TABLES as u32 + 2 {
            store.commit(&entries(n * 10, 10, 200)).await.unwrap();
        }
        settle(&bucket).await;
        assert!(store.tables().1 > 0, "nothing was merged");
        store.close().await.unwrap();
        let folders = ["manifest", "compacted", "compactions"];
        let objects = stored(&bucket).await;
        for folder in folders {
            let folder = format!("{FOLDER}/{folder}/");
            let mut of_folder = objects.iter();
            assert!(
                of_folder.any(|(name, _)| name.as_ref().starts_with(&folder)),
                "{folder}"
            );
        }
        if sealing.is_none() {
            assert!(marked(&bucket).await > 0, "it would not be found");
            continue;
        }
        assert_eq!(marked(&bucket).await, 0);
        for (name, bytes) in objects {
            assert!(bytes.starts_with(b"FBmd"), "{name}");
        }
    }
}

/// Requests and bytes that were read, by operation.
async fn costs(sealing: Option<Sealing>) -> Vec<(&'static str, u64, u64)> {
    let bucket = TestBucket::default();
    let mut costs = Vec::new();
    let mut before = (0, 0);
    let mut note = |what, bucket: &TestBucket| {
        let now = (bucket.requests(), bucket.bytes_got());
        costs.push((what, now.0 - before.0, now.1 - before.1));
        before = now;
    };
    let store = open(&bucket, sealing.clone()).await.unwrap();
    settle(&bucket).await;
    note("open a new one", &bucket);
    store.commit(&entries(0, 1, 100)).await.unwrap();
    settle(&bucket).await;
    note("the first commit", &bucket);
    store.commit(&entries(1, 100, 100)).await.unwrap();
    settle(&bucket).await;
    note("a commit", &bucket);
    store.commit(&entries(200, 20_000, 80)).await.unwrap();
    settle(&bucket).await;
    note("a commit of 2 MiB", &bucket);
    store.commit(&entries(30_000, 6_000, 5_000)).await.unwrap();
    settle(&bucket).await;
    note("a commit of 30 MiB", &bucket);
    store.close().await.unwrap();
    settle(&bucket).await;
    note("close", &bucket);
    let store = open(&bucket, sealing.clone()).await.unwrap();
    settle(&bucket).await;
    note("open", &bucket);
    assert!(store.get(&key(9_000)).await.unwrap().is_some());
    note("a cold get", &bucket);
    assert!(store.get(&key(9_001)).await.unwrap().is_some());
    note("a get beside it", &bucket);
    let few = KeyRange {
        start: key(300),
        end: key(400),
    };
    assert_eq!(store.scan(&few, 100).await.unwrap().len(), 100);
    note("a scan of 100", &bucket);
    let many = KeyRange {
        start: key(200),
        end: key(20_200),
    };
    assert_eq!(store.scan(&many, 20_000).await.unwrap().len(), 20_000);
    note("a scan of 20,000", &bucket);
    let reader = read(&bucket, sealing).await;
    settle(&bucket).await;
    note("open a reader", &bucket);
    assert!(reader.get(&key(9_000)).await.unwrap().is_some());
    note("a cold get of a reader", &bucket);
    costs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sealing_costs_no_request() {
    let (plain, sealed) = tokio::join!(costs(None), costs(Some(sealing(1))));
    for (plain, sealed) in plain.iter().zip(&sealed) {
        eprintln!(
            "{:24} {:3} requests, {:3} sealed; {:8} bytes read, {:8} sealed",
            plain.0, plain.1, sealed.1, plain.2, sealed.2
        );
    }
    let requests = |costs: &[(&'static str, u64, u64)]| -> Vec<(&'static str, u64)> {
        costs.iter().map(|cost| (cost.0, cost.1)).collect()
    };
    assert_eq!(requests(&plain), requests(&sealed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_in_the_bucket_is_reported_and_never_served() {
    for folder in ["/manifest/", "/compacted/"] {
        let bucket = TestBucket::default();
        let store = open(&bucket, Some(sealing(1))).await.unwrap();
        store.commit(&numbered(1)).await.unwrap();
        store.close().await.unwrap();
        assert!(bucket.damage(folder).await > 0);
        let before = bucket.requests();
        let failed = match open(&bucket, Some(sealing(1))).await {
            Ok(store) => store.get(b"latest").await.err(),
            Err(error) => Some(error),
        };
        let Some(StoreError::Corrupt(why)) = failed else {
            panic!("{failed:?}");
        };
        assert!(why.contains("does not authenticate"), "{why}");
        assert!(why.contains(folder), "{why}");
        // Opening takes 19 of them.
        let requests = bucket.requests() - before;
        assert!(requests < 30, "{requests} requests");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_were_cut_off_or_swapped_are_refused() {
    for swap in [false, true] {
        let bucket = TestBucket::default();
        let store = open(&bucket, Some(sealing(1))).await.unwrap();
        store.commit(&entries(0, 1000, 100)).await.unwrap();
        store.commit(&entries(1000, 1000, 100)).await.unwrap();
        store.close().await.unwrap();
        if swap {
            let tables = stored(&bucket).await;
            let mut tables = tables
                .into_iter()
                .filter(|(name, _)| name.as_ref().contains("/compacted/"));
            let (first, second) = (tables.next().unwrap(), tables.next().unwrap());
            let raw = bucket.raw();
            raw.put(&first.0, second.1.into()).await.unwrap();
            raw.put(&second.0, first.1.into()).await.unwrap();
        } else {
            assert!(bucket.cut_off("/compacted/", 40_000).await > 0);
        }
        let store = open(&bucket, Some(sealing(1))).await;
        for n in [0, 1500] {
            let failed = match &store {
                Ok(store) => store.get(&key(n)).await.unwrap_err(),
                Err(error) => error.clone(),
            };
            assert!(
                matches!(failed, StoreError::Corrupt(_)),
                "swap {swap}: {failed:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_rotation_older_tables_open_and_without_their_key_nothing_does() {
    let bucket = TestBucket::default();
    for newest in 1..=3 {
        let store = open(&bucket, Some(sealing(newest))).await.unwrap();
        store.commit(&entries(newest, 1, 100)).await.unwrap();
        for n in 1..=newest {
            assert!(store.get(&key(n)).await.unwrap().is_some());
        }
        store.close().await.unwrap();
    }
    let failed = open(&bucket, Some(sealing(2))).await.err();
    let Some(StoreError::Fatal(why)) = failed else {
        panic!("{failed:?}");
    };
    assert!(why.contains("there is no data key 3"), "{why}");
    assert!(why.contains(".manifest"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealed_volume_takes_nothing_unsealed_and_the_other_way_round() {
    let plain = TestBucket::default();
    let store = open(&plain, None).await.unwrap();
    store.commit(&numbered(1)).await.unwrap();
    store.close().await.unwrap();
    let failed = open(&plain, Some(sealing(1))).await.err();
    let Some(StoreError::Corrupt(why)) = failed else {
        panic!("{failed:?}");
    };
    assert!(why.contains("is not sealed"), "{why}");
    let bucket = TestBucket::default();
    let store = open(&bucket, Some(sealing(1))).await.unwrap();
    store.commit(&numbered(1)).await.unwrap();
    store.close().await.unwrap();
    let failed = open(&bucket, None).await.err();
    assert!(matches!(failed, Some(StoreError::Corrupt(_))), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_under_another_prefix_opens() {
    let bucket = TestBucket::default();
    let store = open(&bucket, Some(sealing(1))).await.unwrap();
    store.commit(&numbered(1)).await.unwrap();
    store.close().await.unwrap();
    for (name, bytes) in stored(&bucket).await {
        let name = name.as_ref().replace("volume/", "elsewhere/deeper/");
        bucket.raw().put(&name.into(), bytes.into()).await.unwrap();
    }
    let shared: Arc<dyn ObjectStore> = Arc::new(bucket.clone());
    let path = Path::from("elsewhere/deeper/meta");
    let store =
        SlateStore::open_with(shared, path, settings(), Some(sealing(1)), |store| store).await;
    assert!(store.unwrap().get(b"latest").await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_a_sealed_volume_read_and_pin_it() {
    let bucket = TestBucket::default();
    let store = open(&bucket, Some(sealing(1))).await.unwrap();
    store.commit(&entries(0, 1000, 100)).await.unwrap();
    let shared: Arc<dyn ObjectStore> = Arc::new(bucket.clone());
    let pinned = SlateReader::open_pinned_with(
        shared,
        FOLDER.into(),
        settings().timeout,
        Duration::from_secs(60),
        Some(sealing(1)),
    );
    let pinned = pinned.await.unwrap();
    let all = KeyRange::all();
    assert_eq!(
        pinned.page(&all, 9999, usize::MAX).await.unwrap().len(),
        1000
    );
    assert!(pinned.is_still_held().await);
    store.commit(&entries(1000, 1, 100)).await.unwrap();
    let reader = read(&bucket, Some(sealing(1))).await;
    assert_eq!(reader.scan(&all, 9999).await.unwrap().len(), 1001);
    pinned.close().await.unwrap();
    reader.close().await.unwrap();
    store.close().await.unwrap();
}
