//! Tests of the store in the bucket, and the suite for all stores.

mod barrier;
mod bucket;
mod cache;
mod checkpoints;
mod collector;
mod kept;
mod names;
mod no_log;
mod presence;
mod sealed_objects;
mod sealed_store;
mod unshared;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use object_store::ObjectStore;
use object_store::path::Path;

use super::housekeeping::{COMPACT_AT_TABLES, MAX_RUNS};
use super::{MAX_TABLES, SlateReader, SlateSettings, SlateStore};
use crate::batch::Batch;
use crate::error::StoreError;
use crate::key::KeyRange;
use crate::store::MetaStore;
use crate::store::conformance::{Bucket, batch, conformance_tests};
use bucket::{Operation, TestBucket};

fn settings() -> SlateSettings {
    SlateSettings {
        cache_bytes: 4 << 20,
        timeout: Duration::from_secs(20),
        retention: Duration::from_secs(60),
    }
}

async fn open(bucket: &TestBucket, settings: SlateSettings) -> Result<SlateStore, StoreError> {
    let store: Arc<dyn ObjectStore> = Arc::new(bucket.clone());
    SlateStore::open(store, Path::from("volume/meta"), settings).await
}

async fn read(bucket: &TestBucket) -> SlateReader {
    let store: Arc<dyn ObjectStore> = Arc::new(bucket.clone());
    SlateReader::open(store, Path::from("volume/meta"), settings().timeout)
        .await
        .unwrap()
}

#[async_trait]
impl Bucket for TestBucket {
    async fn open(&self) -> Arc<dyn MetaStore> {
        Arc::new(open(self, settings()).await.unwrap())
    }
}

conformance_tests!(TestBucket::default());

fn numbered(n: u32) -> Batch {
    let mut changes = Batch::new();
    changes.put_encoded("latest".into(), n.to_be_bytes().to_vec().into());
    for key in [n, n % 7 + 1_000_000] {
        changes.put_encoded(key.to_be_bytes().to_vec().into(), vec![n as u8; 500].into());
    }
    changes
}

/// Waits until the bucket got no request for a second; fails after half a minute.
async fn settle(bucket: &TestBucket) {
    let end = Instant::now() + Duration::from_secs(30);
    let mut before = bucket.requests();
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = bucket.requests();
        if now == before {
            return;
        }
        assert!(Instant::now() < end, "there are still requests");
        before = now;
    }
}

/// Makes the store delete replaced objects, with a retention of at most two seconds.
async fn collect(store: &SlateStore, bucket: &TestBucket, changes: &Batch) {
    // Twice, because the first round may come while the last collection is too recent.
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(2100)).await;
        store.commit(changes).await.unwrap();
        settle(bucket).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_of_much_is_few_requests_and_one_of_little_asks_for_little() {
    const ENTRIES: u32 = 10_000;
    let key = |n: u32| Bytes::copy_from_slice(&n.to_be_bytes());
    let bucket = TestBucket::default();
    let store = open(&bucket, settings()).await.unwrap();
    let mut changes = Batch::new();
    for n in 0..ENTRIES {
        changes.put_encoded(key(n), vec![n as u8; 80].into());
    }
    store.commit(&changes).await.unwrap();
    store.close().await.unwrap();
    // Nothing is in memory, however it is opened.
    let stores: [Arc<dyn MetaStore>; 2] = [
        Arc::new(open(&bucket, settings()).await.unwrap()),
        Arc::new(read(&bucket).await),
    ];
    for store in stores {
        settle(&bucket).await;
        let all = KeyRange {
            start: key(0),
            end: key(ENTRIES),
        };
        let (before, bytes) = (bucket.requests(), bucket.bytes_got());
        let few = store.scan(&all, 10).await.unwrap();
        assert_eq!(few.len(), 10);
        assert!(
            bucket.requests() - before <= 3,
            "the table's index and its first block"
        );
        assert!(bucket.bytes_got() - bytes < 128 << 10);
        let before = bucket.requests();
        let found = store.scan(&all, 2 * ENTRIES as usize).await.unwrap();
        assert_eq!(found.len(), ENTRIES as usize);
        // More than 800 KB, in blocks of 4 KiB.
        let gets = bucket.requests() - before;
        assert!(gets <= 10, "{gets} requests");
        store.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_store_makes_no_requests() {
    let bucket = TestBucket::default();
    let store = open(&bucket, settings()).await.unwrap();
    // Enough for merges, so that the compactor must have stopped again.
    for n in 0..2 * COMPACT_AT_TABLES as u32 {
        store.commit(&numbered(n)).await.unwrap();
    }
    settle(&bucket).await;
    assert!(store.tables().1 > 0, "nothing was merged");
    let before = bucket.requests();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(bucket.requests(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_sustained_commits_tables_are_merged_and_old_objects_deleted() {
    let bucket = TestBucket::default();
    let brief = SlateSettings {
        timeout: Duration::from_secs(2),
        retention: Duration::from_secs(2),
        ..settings()
    };
    let store = open(&bucket, brief).await.unwrap();
    let started = Instant::now();
    let mut most_tables = 0;
    let mut commits = 0u32;
    // Long enough for several collections.
    while commits < 400 || started.elapsed() < Duration::from_secs(8) {
        store.commit(&numbered(commits)).await.unwrap();
        most_tables = most_tables.max(store.tables().0);
        commits += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(
        most_tables <= MAX_TABLES,
        "{most_tables} tables that were not merged"
    );
    // On a busy machine the time for merges is over before all is merged. The rest follows after the next commits.
    let mut collections = 0;
    loop {
        collect(&store, &bucket, &numbered(commits)).await;
        collections += 1;
        let (tables, runs) = store.tables();
        let objects = bucket.objects().await;
        if tables < COMPACT_AT_TABLES && (1..=MAX_RUNS).contains(&runs) && objects.len() < 60 {
            break;
        }
        assert!(
            collections < 10,
            "{commits} commits left {tables} tables, {runs} runs, {} objects: {objects:#?}",
            objects.len()
        );
    }

    store.close().await.unwrap();
    let store = open(&bucket, settings()).await.unwrap();
    let latest = store.get(b"latest").await.unwrap().unwrap();
    assert_eq!(latest[..], commits.to_be_bytes());
    let found = store.scan(&KeyRange::all(), usize::MAX).await.unwrap();
    assert_eq!(found.len(), commits as usize + 1 + 7 + 1);
    for n in (0..=commits).step_by(17) {
        let value = store.get(&n.to_be_bytes()).await.unwrap();
        assert_eq!(value, Some(Bytes::from(vec![n as u8; 500])), "key {n}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_run_is_not_written_again_for_small_commits() {
    const LARGE: u64 = 2 << 20;
    let bucket = TestBucket::default();
    let store = open(&bucket, settings()).await.unwrap();
    // As many runs as there may be, from the oldest to the newest. SlateDB finds no four of them that are alike.
    for kib in [4, 256, 32, 4, 256, 32, 4, LARGE >> 10] {
        for n in 0..COMPACT_AT_TABLES as u32 {
            let mut changes = Batch::new();
            let value = vec![n as u8; ((kib << 10) / COMPACT_AT_TABLES as u64) as usize];
            let key = [&kib.to_be_bytes()[..], &n.to_be_bytes()].concat();
            changes.put_encoded(key.into(), value.into());
            store.commit(&changes).await.unwrap();
        }
        settle(&bucket).await;
    }
    assert_eq!(store.tables(), (0, MAX_RUNS));
    let before = bucket.bytes_put();
    for n in 0..4 * COMPACT_AT_TABLES as u32 {
        store.commit(&numbered(n)).await.unwrap();
    }
    settle(&bucket).await;
    let (tables, runs) = store.tables();
    assert!(
        tables < COMPACT_AT_TABLES && runs <= MAX_RUNS,
        "{tables} tables, {runs} runs"
    );
    let written = bucket.bytes_put() - before;
    assert!(written < LARGE, "{written} bytes for 48 commits of 1 KB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_again_and_again_leaves_no_heap_of_objects() {
    let bucket = TestBucket::default();
    let brief = SlateSettings {
        timeout: Duration::from_secs(1),
        retention: Duration::from_secs(1),
        ..settings()
    };
    for n in 0..30 {
        let store = open(&bucket, brief.clone()).await.unwrap();
        store.commit(&numbered(n)).await.unwrap();
        store.close().await.unwrap();
    }
    let store = open(&bucket, brief).await.unwrap();
    // How much one round deletes depends on when the merges of the brief openings were given up.
    let mut objects = Vec::new();
    for _ in 0..5 {
        collect(&store, &bucket, &numbered(30)).await;
        objects = bucket.objects().await;
        if objects.len() < 40 {
            break;
        }
    }
    assert!(objects.len() < 40, "{objects:#?}");
    assert_eq!(
        store.get(&7u32.to_be_bytes()).await.unwrap().unwrap().len(),
        500
    );
}

/// SlateDB would leave the merge alone for half a minute and poll it ten times a second: the number of requests shows
/// the difference.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_merge_that_a_killed_gateway_had_begun_is_taken_up_at_once() {
    let bucket = TestBucket::default();
    let store = open(&bucket, settings()).await.unwrap();
    for n in 1..COMPACT_AT_TABLES as u32 {
        store.commit(&numbered(n)).await.unwrap();
    }
    settle(&bucket).await;
    // The commit's own table, and the first of the merge that it leads to.
    bucket.die_at_table(2);
    store.commit(&numbered(0)).await.unwrap();
    while !bucket.is_dead() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let bucket = bucket.survivor();
    drop(store);

    let store = open(&bucket, settings()).await.unwrap();
    store.commit(&numbered(0)).await.unwrap();
    while store.tables().0 >= COMPACT_AT_TABLES {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let requests = bucket.requests();
    assert!(requests < 200, "{requests} requests");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_the_bucket_did_not_take_is_there_once_after_its_repetition() {
    for operation in [Operation::PutTable, Operation::PutManifest] {
        let bucket = TestBucket::default();
        let brief = SlateSettings {
            timeout: Duration::from_millis(1500),
            ..settings()
        };
        let store = open(&bucket, brief).await.unwrap();
        store.commit(&numbered(1)).await.unwrap();
        settle(&bucket).await;

        bucket.fail(operation);
        for _ in 0..3 {
            let result = store.commit(&numbered(2)).await;
            assert!(
                matches!(result, Err(StoreError::Transient(_))),
                "{operation:?}: {result:?}"
            );
        }
        bucket.heal();
        let end = Instant::now() + Duration::from_secs(10);
        while store.commit(&numbered(2)).await.is_err() {
            assert!(Instant::now() < end, "{operation:?}: no recovery");
        }
        assert_eq!(
            store.tables().0,
            2,
            "{operation:?}: the batch was written again and again"
        );
        std::mem::forget(store);

        let store = open(&bucket, settings()).await.unwrap();
        let latest = store.get(b"latest").await.unwrap().unwrap();
        assert_eq!(latest[..], 2u32.to_be_bytes());
        let found = store.scan(&KeyRange::all(), 99).await.unwrap();
        assert_eq!(found.len(), 5);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_between_the_table_and_its_manifest_leaves_nothing_of_the_batch() {
    let bucket = TestBucket::default();
    let brief = SlateSettings {
        timeout: Duration::from_millis(1500),
        ..settings()
    };
    let store = open(&bucket, brief).await.unwrap();
    store.commit(&numbered(1)).await.unwrap();
    settle(&bucket).await;
    let tables = bucket.tables().await;

    bucket.fail(Operation::PutManifest);
    assert!(store.commit(&numbered(2)).await.is_err());
    assert_eq!(bucket.tables().await, tables + 1, "the table did arrive");
    // From here on the first one's requests fail for good, as those of a dead machine do.
    let after_the_crash = bucket.survivor();
    std::mem::forget(store);

    let store = open(&after_the_crash, settings()).await.unwrap();
    let latest = store.get(b"latest").await.unwrap().unwrap();
    assert_eq!(latest[..], 1u32.to_be_bytes());
    assert_eq!(store.get(&2u32.to_be_bytes()).await.unwrap(), None);
    store.commit(&numbered(2)).await.unwrap();
    let latest = store.get(b"latest").await.unwrap().unwrap();
    assert_eq!(latest[..], 2u32.to_be_bytes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_bucket_is_away_reads_of_new_tables_fail_and_come_back() {
    let bucket = TestBucket::default();
    {
        let store = open(&bucket, settings()).await.unwrap();
        store.commit(&numbered(1)).await.unwrap();
        store.close().await.unwrap();
    }
    let brief = SlateSettings {
        timeout: Duration::from_millis(1500),
        ..settings()
    };
    let store = open(&bucket, brief.clone()).await.unwrap();
    bucket.fail(Operation::Everything);
    let read = store.get(b"latest").await;
    assert!(matches!(read, Err(StoreError::Transient(_))), "{read:?}");
    let opened = open(&bucket, brief).await.err();
    assert!(
        matches!(opened, Some(StoreError::Transient(_))),
        "{opened:?}"
    );
    bucket.heal();
    let end = Instant::now() + Duration::from_secs(10);
    let read = loop {
        match store.get(b"latest").await {
            Err(StoreError::Transient(_)) if Instant::now() < end => {}
            read => break read,
        }
    };
    assert!(read.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_table_is_reported_and_never_served() {
    let bucket = TestBucket::default();
    let store = open(&bucket, settings()).await.unwrap();
    store.commit(&numbered(1)).await.unwrap();
    store.close().await.unwrap();
    assert!(bucket.damage("/compacted/").await > 0);
    let store = match open(&bucket, settings()).await {
        Ok(store) => store,
        Err(error) => {
            assert!(matches!(error, StoreError::Corrupt(_)), "{error:?}");
            return;
        }
    };
    let read = store.get(b"latest").await;
    assert!(matches!(read, Err(StoreError::Corrupt(_))), "{read:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_manifest_is_reported_and_never_believed() {
    let bucket = TestBucket::default();
    let store = open(&bucket, settings()).await.unwrap();
    store.commit(&numbered(1)).await.unwrap();
    store.close().await.unwrap();
    assert!(bucket.damage("/manifest/").await > 0);
    let opened = open(&bucket, settings()).await.err();
    let Some(StoreError::Corrupt(why)) = opened else {
        panic!("{opened:?}");
    };
    assert!(why.contains(".manifest does not match"), "{why}");
    assert!(bucket.cut_off("/manifest/", 8).await > 0);
    let opened = open(&bucket, settings()).await.err();
    let Some(StoreError::Corrupt(why)) = opened else {
        panic!("{opened:?}");
    };
    assert!(why.contains(".manifest has no checksum"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_arrives_damaged_of_any_kind_is_read_again() {
    let bucket = TestBucket::default();
    let store = open(&bucket, settings()).await.unwrap();
    let mut latest = 0;
    store.commit(&numbered(latest)).await.unwrap();
    store.close().await.unwrap();
    for round in 0..7 {
        // Not often enough in a row to count as damage in the bucket.
        bucket.damage_on_the_way("/manifest/", 1 + round % 3);
        let store = open(&bucket, settings()).await.unwrap();
        let read = store.get(b"latest").await.unwrap().unwrap();
        assert_eq!(read.as_ref(), u32::to_be_bytes(latest));
        assert_eq!(bucket.damage_to_come(), 0);
        bucket.damage_on_the_way("/compactions/", 1 + round % 3);
        for _ in 0..2 * COMPACT_AT_TABLES {
            latest += 1;
            store.commit(&numbered(latest)).await.unwrap();
        }
        settle(&bucket).await;
        assert_eq!(bucket.damage_to_come(), 0, "nothing was merged");
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn keys_that_the_engine_cannot_take_are_refused() {
    let store = open(&TestBucket::default(), settings()).await.unwrap();
    for len in [0, 70_000] {
        let mut changes = batch(&[("a", Some("1"))]);
        changes.put_encoded(vec![b'k'; len].into(), "v".into());
        assert!(matches!(
            store.commit(&changes).await,
            Err(StoreError::Fatal(_))
        ));
        assert_eq!(store.get(b"a").await.unwrap(), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_sees_what_was_committed_and_disturbs_nobody() {
    let bucket = TestBucket::default();
    let store = open(&bucket, settings()).await.unwrap();
    for n in 1..=5 {
        store.commit(&numbered(n)).await.unwrap();
    }
    settle(&bucket).await;
    let objects = bucket.objects().await;
    let reader = read(&bucket).await;
    let latest = reader.get(b"latest").await.unwrap().unwrap();
    assert_eq!(latest.as_ref(), 5_u32.to_be_bytes());
    let all = KeyRange::all();
    let seen = reader.scan(&all, 1000).await.unwrap();
    assert_eq!(seen, store.scan(&all, 1000).await.unwrap());
    let refused = reader.commit(&numbered(9)).await;
    assert!(matches!(refused, Err(StoreError::Fatal(_))), "{refused:?}");
    assert_eq!(bucket.objects().await, objects, "a reader writes nothing");
    // The writer was not fenced, and the reader keeps its view.
    store.commit(&numbered(6)).await.unwrap();
    let latest = reader.get(b"latest").await.unwrap().unwrap();
    assert_eq!(latest.as_ref(), 5_u32.to_be_bytes());
    reader.close().await.unwrap();
    store.close().await.unwrap();
}

/// SlateDB's reader would switch to a newer state once, right after opening.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_beside_a_busy_writer_keeps_the_moment_of_its_opening() {
    let bucket = TestBucket::default();
    let store = Arc::new(open(&bucket, settings()).await.unwrap());
    store.commit(&numbered(0)).await.unwrap();
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            for n in 1.. {
                store.commit(&numbered(n)).await.unwrap();
            }
        })
    };
    for _ in 0..20 {
        let reader = read(&bucket).await;
        let first = reader.get(b"latest").await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(reader.get(b"latest").await.unwrap(), first);
        reader.close().await.unwrap();
    }
    writer.abort();
    let _ = writer.await;
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_pinned_reader_needs_is_not_deleted_until_it_is_closed() {
    let bucket = TestBucket::default();
    let brief = SlateSettings {
        timeout: Duration::from_secs(1),
        retention: Duration::from_secs(1),
        ..settings()
    };
    let store = open(&bucket, brief).await.unwrap();
    for n in 1..=5 {
        store.commit(&numbered(n)).await.unwrap();
    }
    settle(&bucket).await;
    let shared: Arc<dyn ObjectStore> = Arc::new(bucket.clone());
    let reader = SlateReader::open_pinned(
        shared.clone(),
        Path::from("volume/meta"),
        settings().timeout,
        Duration::from_secs(60),
    )
    .await
    .unwrap();
    let all = KeyRange::all();
    let seen = store.scan(&all, 1000).await.unwrap();
    let before = bucket.objects().await;
    for n in 6..=6 + 4 * COMPACT_AT_TABLES as u32 {
        store.commit(&numbered(n)).await.unwrap();
    }
    settle(&bucket).await;
    collect(&store, &bucket, &numbered(1)).await;
    let tables = |objects: &[String]| -> Vec<String> {
        let tables = objects.iter().filter(|name| name.ends_with(".sst"));
        tables
            .filter(|name| name.contains("compacted"))
            .cloned()
            .collect()
    };
    let after = bucket.objects().await;
    for table in tables(&before) {
        assert!(after.contains(&table), "{table} was deleted");
    }
    assert!(reader.is_held() && reader.is_still_held().await);
    // In pieces, each of which is a page.
    let (mut range, mut found) = (all.clone(), Vec::new());
    loop {
        let page = reader.page(&range, 3, usize::MAX).await.unwrap();
        let Some((last, _)) = page.last() else { break };
        range = range.after(last);
        found.extend(page);
    }
    assert_eq!(found, seen);
    assert_eq!(reader.page(&all, 99, 1).await.unwrap().len(), 1);
    reader.close().await.unwrap();
    // The writer was not fenced, and deletes all of it now.
    collect(&store, &bucket, &numbered(2)).await;
    let after = bucket.objects().await;
    assert!(
        tables(&before).iter().all(|table| !after.contains(table)),
        "{after:#?}"
    );
    store.close().await.unwrap();
}
