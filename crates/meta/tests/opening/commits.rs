//! Requests of commits.

use super::*;

/// Commits, and returns the requests without the names of tables.
async fn requests_of_a_commit(bucket: &Bucket, store: &SlateStore, value: &str) -> Vec<String> {
    bucket.take();
    store.commit(&batch(value)).await.unwrap();
    let requests = bucket.take().into_iter();
    let short = requests.map(|one| match one.ends_with(".sst") {
        true => one.split_once(' ').unwrap().0.to_owned() + " table",
        false => one,
    });
    short.collect()
}

#[tokio::test]
async fn a_commit_puts_a_table_and_a_manifest_and_asks_for_the_boundary() {
    let bucket = volume().await;
    let store = open(&bucket, None).await.unwrap();
    bucket.take();
    store.commit(&batch("second")).await.unwrap();
    // The first commit is followed by a round of the collector, whose last request this is.
    bucket.until_asked("LIST meta/wal").await;
    for round in 0..4 {
        let next = bucket.newest().await + 1;
        let value = round.to_string();
        let requests = requests_of_a_commit(&bucket, &store, &value).await;
        let expected = [
            "PUT table".to_owned(),
            format!("PUT {}", manifest(next)),
            "GET meta/gc/manifest.boundary".to_owned(),
        ];
        assert_eq!(requests, expected, "{round}");
        assert_eq!(latest(&store).await, value);
    }
}

/// The creation of its next manifest fails, whatever it believed to be the newest.
#[tokio::test]
async fn a_gateway_that_was_fenced_finds_out_with_its_next_commit() {
    for commits in 0..3 {
        let bucket = volume().await;
        let one = open(&bucket, None).await.unwrap();
        for round in 0..3 {
            one.commit(&batch(&round.to_string())).await.unwrap();
        }
        let other = open(&bucket, None).await.unwrap();
        assert_eq!(latest(&other).await, "2");
        for round in 0..commits {
            let value = format!("by the other {round}");
            other.commit(&batch(&value)).await.unwrap();
        }
        let late = one.commit(&batch("too late")).await;
        assert_eq!(late, Err(StoreError::Fenced));
        other.commit(&batch("last")).await.unwrap();
        assert_eq!(look(&bucket).await.0, "last");
    }
}
