//! States that are kept with the commit that makes them.

use super::super::Ahead;
use super::collector::collect_with_slatedb;
use super::*;

fn kept_as(number: u32, name: &str) -> Batch {
    let mut changes = numbered(number);
    changes.keep_as(name);
    changes
}

async fn latest(store: &dyn MetaStore) -> u32 {
    let latest = store.get(b"latest").await.unwrap().unwrap();
    u32::from_be_bytes(latest[..].try_into().unwrap())
}

/// SlateDB's collector notes the manifests that may be deleted by a number. That of a kept state is below it, and stays.
#[tokio::test]
async fn a_kept_state_is_open_to_readers_after_manifests_before_and_behind_it_were_deleted() {
    let bucket = TestBucket::default();
    let store = open(&bucket, settings()).await.unwrap();
    for number in 1..=9 {
        store.commit(&numbered(number)).await.unwrap();
        if number == 5 {
            store.keep("five").await.unwrap();
        }
    }
    let below = async |folder: &str| {
        let objects = bucket.objects().await;
        objects.iter().filter(|name| name.contains(folder)).count()
    };
    let before = below("/manifest/").await;
    collect_with_slatedb(&bucket, Duration::ZERO, None).await;
    assert!(below("/manifest/").await < before);
    assert_eq!(below("/gc/").await, 1);
    let opened = tokio::time::timeout(Duration::from_secs(60), store.open_kept("five"));
    let kept = opened.await.unwrap().unwrap().unwrap();
    assert_eq!((latest(&*kept).await, latest(&store).await), (5, 9));
    store.close().await.unwrap();
}

/// How many checkpoints have the name.
fn checkpoints(store: &SlateStore, name: &str) -> usize {
    let manifest = store.db.manifest();
    let all = manifest.checkpoints().iter();
    all.filter(|one| one.name.as_deref() == Some(name)).count()
}

/// A request takes some milliseconds: SlateDB takes the checkpoint up before the table is in the bucket.
#[tokio::test]
async fn a_state_that_is_kept_with_its_commit_takes_no_request_more() {
    let bucket = TestBucket::default();
    let store = open(&bucket, settings()).await.unwrap();
    store.commit(&numbered(1)).await.unwrap();
    settle(&bucket).await;
    bucket.slow_down(Some((20_000, 100)));
    // The first commits differ: SlateDB knows the newest manifest, or has to ask for it.
    let mut requests = Vec::new();
    for (number, name) in [
        (2, None),
        (3, None),
        (4, Some("four")),
        (5, None),
        (6, Some("six")),
    ] {
        let batch = name.map_or_else(|| numbered(number), |name| kept_as(number, name));
        let before = bucket.tally();
        store.commit(&batch).await.unwrap();
        if let Some(name) = name {
            store.keep(name).await.unwrap();
        }
        let tally = bucket.tally() - before;
        assert_eq!(tally.of("PUT", "manifest").0, 1, "for {number}");
        let counts = tally.0.values().map(|(count, _)| count);
        requests.push(counts.sum::<u64>());
    }
    bucket.slow_down(None);
    assert_eq!(requests[1..], [requests[1]; 4]);
    store.commit(&numbered(7)).await.unwrap();
    let kept = store.open_kept("four").await.unwrap().unwrap();
    assert_eq!((latest(&*kept).await, latest(&store).await), (4, 7));
    store.close().await.unwrap();

    let store = open(&bucket, settings()).await.unwrap();
    assert_eq!(checkpoints(&store, "four"), 1);
    let kept = store.open_kept("four").await.unwrap().unwrap();
    assert_eq!((latest(&*kept).await, latest(&store).await), (4, 7));
    store.release("four").await.unwrap();
    let left = store.kept().await.unwrap();
    assert!(left.contains("six") && left.len() == 1);
}

#[tokio::test]
async fn a_commit_that_is_repeated_keeps_its_state_once() {
    let bucket = TestBucket::default();
    let brief = SlateSettings {
        timeout: Duration::from_millis(500),
        ..settings()
    };
    let store = open(&bucket, brief).await.unwrap();
    store.commit(&numbered(1)).await.unwrap();
    settle(&bucket).await;
    bucket.fail(Operation::PutManifest);
    for _ in 0..3 {
        let late = store.commit(&kept_as(2, "two")).await;
        assert!(matches!(late, Err(StoreError::Transient(_))), "{late:?}");
    }
    bucket.heal();
    while let Err(error) = store.commit(&kept_as(2, "two")).await {
        assert!(matches!(error, StoreError::Transient(_)), "{error}");
    }
    store.keep("two").await.unwrap();
    store.commit(&numbered(3)).await.unwrap();
    store.close().await.unwrap();

    let store = open(&bucket, settings()).await.unwrap();
    assert_eq!(checkpoints(&store, "two"), 1);
    let kept = store.open_kept("two").await.unwrap().unwrap();
    assert_eq!((latest(&*kept).await, latest(&store).await), (2, 3));
}

/// As after a crash between a commit and what keeps its state, where a store does not do both at once.
#[tokio::test]
async fn a_state_is_kept_later_under_a_name_that_its_batch_did_not_have() {
    let bucket = TestBucket::default();
    let store = open(&bucket, settings()).await.unwrap();
    store.commit(&numbered(1)).await.unwrap();
    store.close().await.unwrap();
    let store = open(&bucket, settings()).await.unwrap();
    store.keep("one").await.unwrap();
    store.commit(&kept_as(2, "two")).await.unwrap();
    for (name, number) in [("one", 1), ("two", 2)] {
        let kept = store.open_kept(name).await.unwrap().unwrap();
        assert_eq!(latest(&*kept).await, number);
    }
}

fn key(table: u32, number: u32) -> Bytes {
    format!("{number:06} of {table}").into_bytes().into()
}

/// Keeps the state of a store with tables with these numbers of keys as "then". Their ranges of keys overlap.
async fn keep_tables(bucket: &TestBucket, tables: &[u32]) {
    let store = open(bucket, settings()).await.unwrap();
    for (table, keys) in (0..).zip(tables) {
        let mut batch = Batch::new();
        for number in 0..*keys {
            batch.put_encoded(key(table, number), vec![number as u8; 500].into());
        }
        store.commit(&batch).await.unwrap();
    }
    store.keep("then").await.unwrap();
    store.close().await.unwrap();
}

/// Round trips of looking these keys up, one after the other, in a kept state of which nothing is in memory: until the first is
/// found, and until the others are.
async fn looks(bucket: &TestBucket, keys: &[Bytes]) -> (u64, Vec<u64>) {
    let store = open(bucket, settings()).await.unwrap();
    settle(bucket).await;
    let first_look = async {
        let kept = store.open_kept("then").await.unwrap().unwrap();
        assert!(kept.get(&keys[0]).await.unwrap().is_some());
        kept
    };
    let (kept, first) = bucket.round_trips(first_look).await;
    let mut others = Vec::new();
    for key in &keys[1..] {
        let (found, more) = bucket.round_trips(kept.get(key)).await;
        assert!(found.unwrap().is_some());
        others.push(more);
    }
    store.close().await.unwrap();
    (first, others)
}

/// The manifest; the indexes and filters; the block, and beside it all others.
#[tokio::test]
async fn a_first_look_into_small_tables_is_three_round_trips_and_others_are_none() {
    let bucket = TestBucket::default();
    const TABLES: usize = COMPACT_AT_TABLES - 3;
    keep_tables(&bucket, &[100; TABLES]).await;
    // Every table may have the first one.
    let keys = [key(0, 50), key(TABLES as u32 - 1, 99), key(1, 0)];
    assert_eq!(looks(&bucket, &keys).await, (3, vec![0, 0]));
}

/// The newest table, into which SlateDB looks first, has a filter. Small ones have none.
#[tokio::test]
async fn a_first_look_into_a_large_table_does_not_wait_for_small_ones() {
    let bucket = TestBucket::default();
    keep_tables(&bucket, &[100, 1000, 100, 1000]).await;
    let keys = [
        key(1, 50),
        key(0, 99),
        key(2, 0),
        key(3, 999),
        key(3, 999),
        key(1, 0),
    ];
    assert_eq!(looks(&bucket, &keys).await, (3, vec![0, 0, 1, 0, 1]));
}

/// What is read before it, ahead, and then filter and index of the newest table together, and the block.
#[tokio::test]
async fn the_reader_of_an_opening_takes_two_round_trips_to_a_key_that_each_commit_writes() {
    let bucket = TestBucket::default();
    keep_tables(&bucket, &[1000, 100, 1000]).await;
    let (store, path) = (Arc::new(bucket.clone()), Path::from("volume/meta"));
    let ahead = Ahead::read(&*store, &path).await;
    assert!(ahead.is_some());
    let look = async {
        let limit = settings().timeout;
        let found = SlateReader::find_first(store, path, limit, None, ahead).await;
        let (reader, _) = found.unwrap().unwrap();
        assert!(reader.get(&key(2, 500)).await.unwrap().is_some());
    };
    assert_eq!(bucket.round_trips(look).await.1, 2);
}

/// Indexes and filters of all tables, and then the block.
#[tokio::test]
async fn a_first_look_into_the_open_store_takes_two_round_trips_and_later_ones_need_a_block() {
    let bucket = TestBucket::default();
    keep_tables(&bucket, &[1000, 1000, 1000]).await;
    let store = open(&bucket, settings()).await.unwrap();
    settle(&bucket).await;
    for (table, expected) in [(1, 2), (0, 1), (2, 1)] {
        let key = key(table, 500);
        let (found, trips) = bucket.round_trips(store.get(&key)).await;
        assert!(found.unwrap().is_some());
        assert_eq!(trips, expected, "table {table}");
    }
    store.close().await.unwrap();
}
