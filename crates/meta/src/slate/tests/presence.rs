//! Tables that are deleted under an open store.

use object_store::{ObjectStoreExt, PutPayload};

use super::*;

/// Time after which a test that waits for an event fails.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Names of the tables in the bucket.
async fn tables_of(bucket: &TestBucket) -> Vec<String> {
    let objects = bucket.objects().await.into_iter();
    objects
        .filter(|name| name.ends_with(".sst") && name.contains("/compacted/"))
        .collect()
}

/// Removes a table from the bucket; returns its contents.
async fn take(bucket: &TestBucket, table: &str) -> (Path, Bytes) {
    let path = Path::from(table);
    let found = bucket.raw().get(&path).await.unwrap();
    let bytes = found.bytes().await.unwrap();
    bucket.raw().delete(&path).await.unwrap();
    (path, bytes)
}

/// Removes all tables from the bucket; returns their contents.
async fn take_tables(bucket: &TestBucket) -> Vec<(Path, Bytes)> {
    let mut taken = Vec::new();
    for table in tables_of(bucket).await {
        taken.push(take(bucket, &table).await);
    }
    taken
}

async fn put_back(bucket: &TestBucket, taken: Vec<(Path, Bytes)>) {
    for (path, bytes) in taken {
        let put = bucket.raw().put(&path, PutPayload::from(bytes));
        put.await.unwrap();
    }
}

fn is_gone(result: &Result<(), StoreError>, taken: &[(Path, Bytes)]) -> bool {
    match result {
        Err(StoreError::Gone(why)) => taken.iter().any(|(path, _)| why.contains(path.as_ref())),
        _ => false,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_request_proves_a_table_and_another_one_each_time() {
    let bucket = TestBucket::default();
    let store = open(&bucket, settings()).await.unwrap();
    for n in 0..5 {
        store.commit(&numbered(n)).await.unwrap();
    }
    let older = tables_of(&bucket).await;
    store.commit(&numbered(5)).await.unwrap();
    settle(&bucket).await;
    let tables = store.tables().0;
    assert_eq!(tables, 6, "none was merged");
    let before = bucket.requests();
    for _ in 0..tables {
        store.prove().await.unwrap();
    }
    assert_eq!(bucket.requests() - before, tables as u64);

    // Any missing table is noticed within a round, and named.
    for table in older {
        let taken = vec![take(&bucket, &table).await];
        let mut noticed = false;
        for _ in 0..tables - 1 {
            noticed |= is_gone(&store.prove().await, &taken);
        }
        assert!(noticed, "{table}");
        // A suspected table is asked for first.
        assert!(is_gone(&store.prove().await, &taken));
        put_back(&bucket, taken).await;
        store.prove().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_were_merged_away_are_not_missed() {
    let bucket = TestBucket::default();
    let brief = SlateSettings {
        retention: Duration::from_secs(2),
        ..settings()
    };
    let store = open(&bucket, brief).await.unwrap();
    store.commit(&numbered(0)).await.unwrap();
    let first = tables_of(&bucket).await;
    assert_eq!(first.len(), 1);
    // Until the table was merged and deleted; by then others were too.
    let end = Instant::now() + TIMEOUT;
    let mut n = 1;
    while tables_of(&bucket).await.contains(&first[0]) {
        assert!(Instant::now() < end, "nothing was deleted");
        store.commit(&numbered(n)).await.unwrap();
        store.prove().await.unwrap();
        n += 1;
    }
    assert!(store.tables().1 > 0, "nothing was merged");
    for _ in 0..store.tables().0 {
        store.prove().await.unwrap();
    }
}

/// The collector deletes the tables that were merged, whether or not anything is committed after the merge.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_store_reads_the_merged_tables_after_a_merge() {
    let bucket = TestBucket::default();
    let store = open(&bucket, settings()).await.unwrap();
    for n in 0..COMPACT_AT_TABLES as u32 {
        store.commit(&numbered(n)).await.unwrap();
    }
    let end = Instant::now() + TIMEOUT;
    while store.tables() != (0, 1) {
        assert!(Instant::now() < end, "{:?}", store.tables());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_merge_that_misses_a_table_ends_is_named_and_goes_on_when_it_is_back() {
    let bucket = TestBucket::default();
    let brief = SlateSettings {
        timeout: Duration::from_secs(4),
        ..settings()
    };
    let store = open(&bucket, brief).await.unwrap();
    let mut oldest = Vec::new();
    for n in 0..COMPACT_AT_TABLES as u32 - 1 {
        store.commit(&numbered(n)).await.unwrap();
        if n == 0 {
            oldest = tables_of(&bucket).await;
        }
    }
    settle(&bucket).await;
    assert_eq!(oldest.len(), 1);
    let taken = vec![take(&bucket, &oldest[0]).await];
    store.commit(&numbered(99)).await.unwrap();
    let end = Instant::now() + TIMEOUT;
    while !is_gone(&store.prove().await, &taken) {
        assert!(Instant::now() < end, "the merge has not met it");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The merge is not repeated without end.
    settle(&bucket).await;

    // Commits that still come report the cause when there are too many tables.
    let mut commits = 0;
    let refused = loop {
        match store.commit(&numbered(100 + commits)).await {
            Ok(()) => commits += 1,
            refused => break refused,
        }
        assert!(
            commits < 2 * MAX_TABLES as u32,
            "it never had to wait for a merge"
        );
    };
    assert!(is_gone(&refused, &taken), "{refused:?}");

    put_back(&bucket, taken).await;
    store.prove().await.unwrap();
    let end = Instant::now() + TIMEOUT;
    while store.commit(&numbered(100 + commits)).await.is_err() {
        assert!(Instant::now() < end, "it does not recover");
    }
    while store.tables().0 >= COMPACT_AT_TABLES {
        assert!(Instant::now() < end, "nothing was merged");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let latest = store.get(b"latest").await.unwrap().unwrap();
    assert_eq!(latest[..], (100 + commits).to_be_bytes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_of_a_table_that_is_gone_says_which() {
    let bucket = TestBucket::default();
    {
        let store = open(&bucket, settings()).await.unwrap();
        store.commit(&numbered(1)).await.unwrap();
        store.close().await.unwrap();
    }
    let store = open(&bucket, settings()).await.unwrap();
    let taken = take_tables(&bucket).await;
    let read = store.get(b"latest").await.map(drop);
    assert!(is_gone(&read, &taken), "{read:?}");
    put_back(&bucket, taken).await;
    assert!(store.get(b"latest").await.unwrap().is_some());
}
