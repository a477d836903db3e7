//! SlateDB, the main user of these stores, on each of them: open, put, flush, reopen, fence, and the garbage
//! collection, which needs conditional updates.

mod support;

use std::sync::Arc;
use std::time::Duration;

use forebay_object::Store;
use futures_util::TryStreamExt;
use object_store::path::Path;
use slatedb::config::{
    FlushOptions, FlushType, GarbageCollectorDirectoryOptions, GarbageCollectorOptions, Settings,
};
use slatedb::{CloseReason, Db, ErrorKind};

fn database(store: &Store) -> Path {
    store.path("meta")
}

async fn open(store: &Store) -> Db {
    let eager = Some(GarbageCollectorDirectoryOptions {
        interval: Some(Duration::from_millis(100)),
        min_age: Duration::ZERO,
        ..GarbageCollectorDirectoryOptions::default()
    });
    let settings = Settings {
        wal_enabled: false,
        garbage_collector_options: Some(GarbageCollectorOptions {
            manifest_options: eager,
            ..GarbageCollectorOptions::default()
        }),
        ..Settings::default()
    };
    Db::builder(database(store), Arc::clone(&store.store))
        .with_settings(settings)
        .build()
        .await
        .unwrap()
}

async fn flush(db: &Db) -> Result<(), slatedb::Error> {
    let flush_type = FlushType::MemTable;
    db.flush_with_options(FlushOptions { flush_type }).await
}

async fn manifests(store: &Store) -> Vec<String> {
    let prefix = store.path("meta/manifest");
    let listed = store.store.list(Some(&prefix));
    listed
        .map_ok(|object| object.location.filename().unwrap_or_default().to_owned())
        .try_collect()
        .await
        .unwrap()
}

async fn lives_on(store: &Store) {
    let db = open(store).await;
    // Fewer flushes than those that would have to wait for a compaction.
    for n in 0..4 {
        db.put(format!("key {n}"), format!("value {n}"))
            .await
            .unwrap();
        flush(&db).await.unwrap();
    }
    let first = manifests(store).await.into_iter().min().unwrap();

    // A second opener fences the first one, which can no longer publish anything.
    let other = open(store).await;
    assert_eq!(other.get("key 3").await.unwrap().unwrap(), "value 3");
    let put = db.put("key 4", "fenced").await;
    let result = match put {
        Ok(_) => flush(&db).await,
        Err(error) => Err(error),
    };
    let error = result.unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::Closed(CloseReason::Fenced),
        "{error}"
    );
    assert_eq!(other.get("key 4").await.unwrap(), None);

    // Old manifests are deleted, which takes a conditional update of the boundary before them.
    other.put("after", "the fence").await.unwrap();
    flush(&other).await.unwrap();
    let mut waited = 0;
    while manifests(store).await.contains(&first) {
        assert!(waited < 200, "the first manifest is still there");
        waited += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    other.close().await.unwrap();

    let again = open(store).await;
    assert_eq!(again.get("key 0").await.unwrap().unwrap(), "value 0");
    assert_eq!(again.get("after").await.unwrap().unwrap(), "the fence");
    again.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slatedb_lives_on_memory() {
    lives_on(&support::memory().await.store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slatedb_lives_on_a_folder() {
    lives_on(&support::file().await.store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slatedb_lives_on_s3() {
    lives_on(&support::s3().await.store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the S3 server that FOREBAY_TEST_S3_SERVER names"]
async fn slatedb_lives_on_a_real_s3_server() {
    lives_on(&support::real_s3::start().await.store).await;
}
