//! A bucket that changes between the look at the state and the opening in a way that no gateway changes it.

use super::*;

/// The volume, a copy of it, and what was seen of it after one more commit.
async fn changed() -> (Bucket, std::collections::BTreeMap<Path, bytes::Bytes>, Seen) {
    let bucket = volume().await;
    let earlier = bucket.copy().await;
    write(&bucket, "second").await;
    let (value, seen) = look(&bucket).await;
    assert_eq!(value, "second");
    (bucket, earlier, seen)
}

#[track_caller]
fn assert_refused(opened: Result<SlateStore, StoreError>, read: u64) {
    let why = match opened.map(|_| ()) {
        Err(StoreError::Fatal(why)) => why,
        other => panic!("{other:?}"),
    };
    for part in [
        "put back to an earlier state",
        manifest(read).as_ref(),
        &format!("delete {}", manifest(read + 1)),
    ] {
        assert!(why.contains(part), "{why}");
    }
}

#[tokio::test]
async fn a_bucket_that_is_put_back_while_it_is_opened_is_refused() {
    for fault in [None, Some(Fault::Fails), Some(Fault::AnswerIsLost)] {
        let (bucket, earlier, seen) = changed().await;
        let read = bucket.newest().await;
        bucket.put_back(&earlier).await;
        if let Some(fault) = fault {
            bucket.fail("PUT meta/manifest", fault);
        }
        assert_refused(open(&bucket, Some(seen)).await, read);
        // What the error says to do.
        bucket.delete(&manifest(read + 1)).await;
        assert_eq!(look(&bucket).await.0, "first");
        write(&bucket, "third").await;
        assert_eq!(look(&bucket).await.0, "third");
    }
}

#[tokio::test]
async fn a_bucket_that_is_emptied_while_it_is_opened_is_refused() {
    let (bucket, _, seen) = changed().await;
    let read = bucket.newest().await;
    bucket.put_back(&Default::default()).await;
    assert_refused(open(&bucket, Some(seen)).await, read);
}

/// The other gateway has written a manifest with the number of the one that was read.
#[tokio::test]
async fn a_bucket_that_was_put_back_and_written_is_not_overwritten_silently() {
    let (bucket, earlier, seen) = changed().await;
    let read = bucket.newest().await;
    bucket.put_back(&earlier).await;
    let other = open(&bucket, None).await.unwrap();
    while bucket.newest().await < read {
        other.commit(&batch("by the other")).await.unwrap();
    }
    assert_refused(open(&bucket, Some(seen)).await, read);
}

#[tokio::test]
async fn a_manifest_that_the_collector_deletes_meanwhile_is_no_reason_to_refuse() {
    let (bucket, _, seen) = changed().await;
    let read = bucket.newest().await;
    // Another gateway, which this one fences, collects right after the boundary was answered.
    bucket.fail("manifest.boundary", Fault::CollectedAfter(read));
    let store = open(&bucket, Some(seen)).await.unwrap();
    assert_eq!(bucket.manifests().await, [read + 1]);
    assert_eq!(latest(&store).await, "second");
    store.commit(&batch("third")).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(look(&bucket).await.0, "third");
}
