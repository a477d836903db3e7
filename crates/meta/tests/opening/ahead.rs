//! What is read ahead of the reader of an opening.

use forebay_meta::Ahead;
use futures_util::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt};

use super::*;

async fn ahead(bucket: &Bucket) -> Option<Ahead> {
    Ahead::read(bucket, &Path::from("meta")).await
}

async fn look_after(
    bucket: &Bucket,
    sealing: Option<Sealing>,
    ahead: Option<Ahead>,
) -> (String, Seen) {
    let (store, path) = (Arc::new(bucket.clone()), Path::from("meta"));
    let limit = Duration::from_secs(10);
    let found = SlateReader::find_first(store, path, limit, sealing, ahead).await;
    let (reader, seen) = found.unwrap().unwrap();
    let value = latest(&reader).await;
    reader.close().await.unwrap();
    (value, seen)
}

/// Requests that are not for parts of tables.
fn of_the_state(requests: Vec<String>) -> Vec<String> {
    let requests = requests.into_iter();
    requests.filter(|one| !one.contains(".sst")).collect()
}

fn looks(newest: u64) -> Vec<String> {
    vec![
        "LIST meta/manifest".to_owned(),
        format!("GET {}", manifest(newest)),
        "GET meta/gc/manifest.boundary".to_owned(),
    ]
}

/// The same objects, the one under `location` with its first byte changed.
async fn damaged(bucket: &Bucket, location: &Path) -> Bucket {
    let copy = Bucket::new();
    let all: Vec<_> = bucket.list(None).try_collect().await.unwrap();
    for object in all {
        let found = bucket.get(&object.location).await.unwrap();
        let mut bytes = found.bytes().await.unwrap().to_vec();
        if object.location == *location {
            bytes[0] ^= 1;
        }
        copy.put(&object.location, bytes.into()).await.unwrap();
    }
    copy
}

#[tokio::test]
async fn a_reader_asks_for_no_state_that_was_read_ahead_of_it() {
    for sealing in [None, Some(new_sealing())] {
        let sealing = || sealing.clone();
        let bucket = Bucket::new();
        let store = open_with(&bucket, sealing(), None).await.unwrap();
        store.commit(&batch("first")).await.unwrap();
        store.close().await.unwrap();
        let newest = bucket.newest().await;
        bucket.take();
        let read = ahead(&bucket).await;
        assert_eq!(bucket.take(), looks(newest));
        let (value, seen) = look_after(&bucket, sealing(), read).await;
        assert_eq!(value, "first");
        let requests = bucket.take();
        assert_eq!(of_the_state(requests.clone()), [""; 0]);
        assert_eq!(requests.len(), 2, "index and block: {requests:?}");
        // The opening for writing profits as from any reader.
        let store = open_with(&bucket, sealing(), Some(seen)).await.unwrap();
        assert_eq!(latest(&store).await, "first");
        assert_eq!(bucket.take(), fence_and_look(newest + 1));
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn what_arrived_damaged_ahead_is_read_again() {
    let bucket = volume().await;
    let newest = bucket.newest().await;
    let read = ahead(&damaged(&bucket, &manifest(newest)).await).await;
    bucket.take();
    let (value, _) = look_after(&bucket, None, read).await;
    assert_eq!(value, "first");
    let expected = [format!("GET {}", manifest(newest))];
    assert_eq!(of_the_state(bucket.take()), expected);
}

#[tokio::test]
async fn a_bucket_that_fails_ahead_is_asked_by_the_reader() {
    for fails in ["LIST", "manifest/", "manifest.boundary"] {
        let bucket = volume().await;
        let newest = bucket.newest().await;
        bucket.fail(fails, Fault::Fails);
        let read = ahead(&bucket).await;
        assert!(read.is_none(), "{fails}");
        bucket.take();
        let (value, _) = look_after(&bucket, None, read).await;
        assert_eq!(value, "first");
        let asked = of_the_state(bucket.take());
        assert!(asked.starts_with(&looks(newest)), "{asked:?}");
    }
}

/// Another gateway has committed since. The reader shows the moment of before, and the opening for writing the last one.
#[tokio::test]
async fn what_is_not_the_newest_any_more_is_a_moment_of_the_past() {
    let bucket = volume().await;
    let read = ahead(&bucket).await;
    write(&bucket, "second").await;
    let (value, seen) = look_after(&bucket, None, read).await;
    assert_eq!(value, "first");
    let store = open(&bucket, Some(seen)).await.unwrap();
    assert_eq!(latest(&store).await, "second");
    store.commit(&batch("third")).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(look(&bucket).await.0, "third");
}

#[tokio::test]
async fn a_store_that_was_not_there_is_not_looked_for_by_the_first_opening() {
    let bucket = Bucket::new();
    let seen = ahead(&bucket).await.unwrap().seen();
    assert!(seen.is_some());
    bucket.take();
    let store = open(&bucket, seen).await.unwrap();
    let expected = [
        format!("PUT {}", manifest(1)),
        "GET meta/gc/manifest.boundary".to_owned(),
        format!("PUT {}", manifest(2)),
        "GET meta/gc/manifest.boundary".to_owned(),
    ];
    assert_eq!(bucket.take(), expected);
    store.commit(&batch("first")).await.unwrap();
    store.close().await.unwrap();
    assert!(ahead(&bucket).await.unwrap().seen().is_none());
}

/// It has seen that there is no store, and another gateway has made one since. The descriptor of a volume is there before its
/// store and only one gateway creates it, so an error is enough.
#[tokio::test]
async fn a_store_that_another_gateway_makes_meanwhile_is_not_made_again() {
    let bucket = Bucket::new();
    let seen = ahead(&bucket).await.unwrap().seen();
    write(&bucket, "by the other").await;
    let newest = bucket.newest().await;
    assert!(open(&bucket, seen).await.is_err());
    assert_eq!(bucket.newest().await, newest);
    assert_eq!(look(&bucket).await.0, "by the other");
}
