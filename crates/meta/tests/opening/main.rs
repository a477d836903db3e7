//! An opening for writing that follows a look at the state: what it asks the bucket for, and that it fences as ever.

#![allow(missing_docs)]

mod ahead;
mod bucket;
mod commits;
mod meeting;
mod put_back;

use std::sync::Arc;
use std::time::Duration;

use bucket::{Bucket, Fault, manifest};
use forebay_meta::{
    Batch, MetaStore, Sealing, Seen, SlateReader, SlateSettings, SlateStore, StoreError,
};
use forebay_seal::{DataKeyId, DataKeys, Secret, SystemEntropy};
use forebay_types::VolumeId;
use object_store::path::Path;

const KEY: &[u8] = b"latest";

/// A sealing with a new key.
fn new_sealing() -> Sealing {
    let current = (DataKeyId(1), Secret::draw(&SystemEntropy));
    Sealing {
        keys: Arc::new(DataKeys::new(VolumeId([1; 16]), current, [])),
        entropy: Arc::new(SystemEntropy),
    }
}

fn batch(value: &str) -> Batch {
    let mut batch = Batch::new();
    batch.put_encoded(KEY.to_vec().into(), value.to_owned().into());
    batch
}

async fn open(bucket: &Bucket, seen: Option<Seen>) -> Result<SlateStore, StoreError> {
    open_with(bucket, None, seen).await
}

async fn open_with(
    bucket: &Bucket,
    sealing: Option<Sealing>,
    seen: Option<Seen>,
) -> Result<SlateStore, StoreError> {
    let (store, path) = (Arc::new(bucket.clone()), Path::from("meta"));
    let settings = SlateSettings::default();
    SlateStore::open_after(store, path, settings, sealing, |store| store, seen).await
}

/// Looks at the state, as a gateway does before it opens the store.
async fn look(bucket: &Bucket) -> (String, Seen) {
    look_with(bucket, None).await
}

async fn look_with(bucket: &Bucket, sealing: Option<Sealing>) -> (String, Seen) {
    let (store, path) = (Arc::new(bucket.clone()), Path::from("meta"));
    let found = SlateReader::find_first(store, path, Duration::from_secs(10), sealing, None).await;
    let (reader, seen) = found.unwrap().unwrap();
    let value = latest(&reader).await;
    reader.close().await.unwrap();
    (value, seen)
}

async fn latest(store: &dyn MetaStore) -> String {
    try_latest(store).await.unwrap()
}

async fn try_latest(store: &dyn MetaStore) -> Result<String, StoreError> {
    let value = store.get(KEY).await?.unwrap();
    Ok(String::from_utf8(value.to_vec()).unwrap())
}

async fn write(bucket: &Bucket, value: &str) {
    let store = open(bucket, None).await.unwrap();
    store.commit(&batch(value)).await.unwrap();
    store.close().await.unwrap();
}

async fn volume() -> Bucket {
    let bucket = Bucket::new();
    write(&bucket, "first").await;
    bucket
}

/// The fence, and then in one round trip whether it counts, and whether the manifest before is still there.
fn fence_and_look(fence: u64) -> Vec<String> {
    vec![
        format!("PUT {}", manifest(fence)),
        "GET meta/gc/manifest.boundary".to_owned(),
        format!("HEAD {}", manifest(fence - 1)),
    ]
}

#[tokio::test]
async fn what_was_looked_at_is_not_asked_for_again() {
    let bucket = volume().await;
    let (value, seen) = look(&bucket).await;
    assert_eq!(value, "first");
    let newest = bucket.newest().await;
    bucket.take();
    let store = open(&bucket, Some(seen)).await.unwrap();
    assert_eq!(latest(&store).await, "first");
    assert_eq!(bucket.take(), fence_and_look(newest + 1));
    store.commit(&batch("second")).await.unwrap();
    assert_eq!(latest(&store).await, "second");
    store.close().await.unwrap();
    assert_eq!(look(&bucket).await.0, "second");
}

#[tokio::test]
async fn a_sealed_volume_is_asked_for_as_little() {
    let sealing = new_sealing();
    let sealing = || Some(sealing.clone());
    let bucket = Bucket::new();
    let values = [("", "first"), ("first", "second"), ("second", "third")];
    for (tables, (before, value)) in values.into_iter().enumerate() {
        let seen = match before {
            "" => None,
            before => {
                let (value, seen) = look_with(&bucket, sealing()).await;
                assert_eq!(value, before);
                Some(seen)
            }
        };
        let newest = bucket.manifests().await.last().copied();
        bucket.take();
        let store = open_with(&bucket, sealing(), seen).await.unwrap();
        if let Some(newest) = newest {
            assert_eq!(latest(&store).await, before);
            let mut asked = bucket.take();
            let others = asked.split_off(3);
            assert_eq!(asked, fence_and_look(newest + 1));
            // Beside the first look-up, index and filter of the tables that `look_with` has not read.
            assert!(
                others
                    .iter()
                    .all(|one| one.starts_with("GET meta/compacted/"))
            );
            assert_eq!(others.len(), 2 * (tables - 1));
        }
        store.commit(&batch(value)).await.unwrap();
        store.close().await.unwrap();
    }
    assert_eq!(look_with(&bucket, sealing()).await.0, "third");
}

/// The collector leaves the number up to which manifests may have been deleted; from then on SlateDB asks whether it has
/// changed since it was read.
#[tokio::test]
async fn a_boundary_of_the_collector_is_read_once_and_checked_after_the_fence() {
    let bucket = volume().await;
    bucket.collected(1).await;
    for round in 0..3 {
        let (_, seen) = look(&bucket).await;
        let fence = bucket.newest().await + 1;
        bucket.take();
        let store = open(&bucket, Some(seen)).await.unwrap();
        assert_eq!(bucket.take(), fence_and_look(fence));
        store.commit(&batch(&round.to_string())).await.unwrap();
        assert_eq!(latest(&store).await, round.to_string());
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn no_log_of_slatedb_is_looked_for_or_written() {
    let bucket = volume().await;
    let store = open(&bucket, None).await.unwrap();
    store.close().await.unwrap();
    let requests = bucket.take();
    assert!(requests.len() > 3);
    assert!(
        !requests.iter().any(|one| one.contains("/wal/")),
        "{requests:#?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_seen_long_ago_is_asked_for_again() {
    let bucket = volume().await;
    let (_, seen) = look(&bucket).await;
    tokio::time::advance(Duration::from_secs(31)).await;
    bucket.take();
    let store = open(&bucket, Some(seen)).await.unwrap();
    assert_eq!(bucket.take()[0], "LIST meta/manifest");
    store.close().await.unwrap();
}

/// After a look that fails the opening looks again.
#[tokio::test]
async fn a_look_that_fails_is_repeated() {
    for asked in ["boundary", "before"] {
        let bucket = volume().await;
        let (_, seen) = look(&bucket).await;
        let newest = bucket.newest().await;
        let text = match asked {
            "boundary" => "manifest.boundary".to_owned(),
            _ => format!("HEAD {}", manifest(newest)),
        };
        bucket.fail(&text, Fault::Fails);
        bucket.take();
        let store = open(&bucket, Some(seen)).await.unwrap();
        let mut expected = fence_and_look(newest + 1);
        expected.extend_from_within(1..);
        assert_eq!(bucket.take(), expected, "{asked}");
        store.commit(&batch("second")).await.unwrap();
        assert_eq!(latest(&store).await, "second");
        store.close().await.unwrap();
        assert_eq!(look(&bucket).await.0, "second");
    }
}

/// SlateDB repeats the creation, and recognises its own manifest.
#[tokio::test]
async fn a_fence_whose_answer_is_unclear_is_found_out_about() {
    for fault in [Fault::Fails, Fault::AnswerIsLost] {
        let bucket = volume().await;
        let (_, seen) = look(&bucket).await;
        let newest = bucket.newest().await;
        bucket.take();
        bucket.fail("PUT meta/manifest", fault);
        let store = open(&bucket, Some(seen)).await.unwrap();
        let requests = bucket.take();
        let puts: Vec<_> = requests
            .iter()
            .filter(|one| one.starts_with("PUT"))
            .collect();
        let fence = format!("PUT {}", manifest(newest + 1));
        assert_eq!(puts, [&fence, &fence], "{fault:?}");
        let asked = requests.iter().position(|one| one.ends_with(".boundary"));
        assert!(asked >= Some(2), "{fault:?}: {requests:#?}");
        store.commit(&batch("second")).await.unwrap();
        assert_eq!(latest(&store).await, "second");
        store.close().await.unwrap();
        assert_eq!(look(&bucket).await.0, "second");
    }
}

/// A boundary that is moved while a reader opens does not make it look for a later manifest without end.
#[tokio::test]
async fn a_reader_opens_while_a_collector_deletes_manifests() {
    for requests in 0..4 {
        let bucket = volume().await;
        let store = open(&bucket, None).await.unwrap();
        store.commit(&batch("second")).await.unwrap();
        let slow = bucket.stopping_after(requests);
        let looking = tokio::spawn({
            let slow = slow.clone();
            async move { look(&slow).await.0 }
        });
        assert!(slow.until_stopped(&looking).await);
        let before = bucket.newest().await;
        store.commit(&batch("third")).await.unwrap();
        bucket.collected(before).await;
        slow.go_on();
        let value = tokio::time::timeout(Duration::from_secs(5), looking).await;
        let value = value.unwrap().unwrap();
        assert!(["second", "third"].contains(&&value[..]), "{value}");
        store.close().await.unwrap();
    }
}
