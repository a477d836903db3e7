//! Batches that refer to objects which are still on their way.

use tokio::task::JoinHandle;

use super::*;
use crate::store::{Arrived, Ready};

type Commit = JoinHandle<Result<(), StoreError>>;

/// Begins a commit of a batch whose objects have not arrived yet.
fn begin(store: &Arc<SlateStore>, number: u32) -> (Arrived, Commit) {
    let (arrived, ready) = Ready::later();
    let store = store.clone();
    let commit = async move {
        let committed = store.commit_when(&numbered(number), &ready).await;
        let is_early = committed.is_ok() && !ready.is_there();
        assert!(!is_early, "its objects have not arrived");
        committed
    };
    (arrived, tokio::spawn(commit))
}

async fn more_tables_than(tables: usize, bucket: &TestBucket) {
    let end = Instant::now() + Duration::from_secs(20);
    while bucket.tables().await <= tables {
        assert!(Instant::now() < end, "no table comes");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_is_put_beside_what_it_refers_to_and_named_only_after_it() {
    let bucket = TestBucket::default();
    let brief = SlateSettings {
        timeout: Duration::from_millis(1500),
        ..settings()
    };
    let store = Arc::new(open(&bucket, brief.clone()).await.unwrap());
    store.commit(&numbered(1)).await.unwrap();
    settle(&bucket).await;
    let tables = bucket.tables().await;
    let (arrived, commit) = begin(&store, 2);
    more_tables_than(tables, &bucket).await;
    // Longer than the bucket may take for an answer: the commit does not wait for the bucket, and succeeds below.
    tokio::time::sleep(brief.timeout + Duration::from_millis(200)).await;
    let seen = read(&bucket).await;
    let latest = seen.get(b"latest").await.unwrap().unwrap();
    assert_eq!(latest[..], 1u32.to_be_bytes());
    arrived.announce();
    commit.await.unwrap().unwrap();
    let seen = read(&bucket).await;
    let latest = seen.get(b"latest").await.unwrap().unwrap();
    assert_eq!(latest[..], 2u32.to_be_bytes());

    // The commit waits for a bucket that is unreachable meanwhile, and the same batch is committed again.
    let (arrived, commit) = begin(&store, 3);
    bucket.fail(Operation::PutManifest);
    arrived.announce();
    let late = commit.await.unwrap();
    assert!(matches!(late, Err(StoreError::Transient(_))), "{late:?}");
    bucket.heal();
    store.commit(&numbered(3)).await.unwrap();

    // The gateway dies while its packs are on their way.
    let (arrived, commit) = begin(&store, 4);
    settle(&bucket).await;
    let after_the_crash = bucket.survivor();
    std::mem::forget((arrived, commit));
    let store = open(&after_the_crash, settings()).await.unwrap();
    let latest = store.get(b"latest").await.unwrap().unwrap();
    assert_eq!(latest[..], 3u32.to_be_bytes());
    store.commit(&numbered(5)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_never_arrives_after_its_table_was_put_stops_the_store_and_is_not_there() {
    let bucket = TestBucket::default();
    let store = Arc::new(open(&bucket, settings()).await.unwrap());
    store.commit(&numbered(1)).await.unwrap();
    settle(&bucket).await;
    let tables = bucket.tables().await;
    let (arrived, commit) = begin(&store, 2);
    more_tables_than(tables, &bucket).await;
    drop(arrived);
    for refused in [commit.await.unwrap(), store.commit(&numbered(3)).await] {
        // A caller that repeated this call would repeat it for ever.
        assert!(matches!(refused, Err(StoreError::Fatal(_))), "{refused:?}");
    }
    let store = open(&bucket, settings()).await.unwrap();
    let latest = store.get(b"latest").await.unwrap().unwrap();
    assert_eq!(latest[..], 1u32.to_be_bytes());
    store.commit(&numbered(4)).await.unwrap();
}

/// The store knows of a merge once the next manifest is there, which may wait for long. Until then reads use the tables
/// that it has replaced, and reads that have begun continue with them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_were_replaced_while_a_manifest_waited_are_kept_for_a_while() {
    let brief = SlateSettings {
        timeout: Duration::from_millis(1500),
        retention: Duration::from_secs(2),
        ..settings()
    };
    let bucket = TestBucket::default();
    let store = Arc::new(open(&bucket, brief).await.unwrap());
    let last = COMPACT_AT_TABLES as u32;
    for n in 1..last {
        store.commit(&numbered(n)).await.unwrap();
    }
    settle(&bucket).await;
    let before = bucket.tables().await;
    // A commit that leads to a merge, and one that keeps the store from seeing the result.
    store.commit(&numbered(last)).await.unwrap();
    let (arrived, commit) = begin(&store, last + 1);
    more_tables_than(before + 1, &bucket).await;
    settle(&bucket).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let merged = bucket.tables().await;
    arrived.announce();
    commit.await.unwrap().unwrap();
    settle(&bucket).await;
    assert!(store.tables().1 > 0, "nothing was merged");
    assert_eq!(bucket.tables().await, merged, "they were deleted at once");
    collect(&store, &bucket, &numbered(last + 2)).await;
    assert!(bucket.tables().await < merged);
}
