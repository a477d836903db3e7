//! Openings of several gateways at the same time.

use super::*;

/// Opens the store on a way of its own, in a task.
fn opening(
    bucket: &Bucket,
    seen: Option<Seen>,
) -> tokio::task::JoinHandle<Result<SlateStore, StoreError>> {
    let bucket = bucket.clone();
    tokio::spawn(async move { open(&bucket, seen).await })
}

/// A gateway that has opened the store, or was fenced meanwhile.
struct Gateway {
    name: &'static str,
    store: Option<SlateStore>,
}

impl Gateway {
    fn of(name: &'static str, opened: Result<SlateStore, StoreError>) -> Gateway {
        let store = match opened {
            Ok(store) => Some(store),
            Err(error) => {
                assert_eq!(error, StoreError::Fenced, "{name}");
                None
            }
        };
        Gateway { name, store }
    }

    /// Commits, unless it is fenced. Then it must have read what was committed last.
    async fn commit(&self, last: &mut String, number: u32) -> bool {
        let Some(store) = &self.store else {
            return false;
        };
        // A store that was noticed to be fenced does not read either.
        let before = match try_latest(store).await {
            Ok(before) => before,
            Err(error) => {
                assert_eq!(error, StoreError::Fenced, "{}", self.name);
                return false;
            }
        };
        let value = format!("{number} by {}", self.name);
        match store.commit(&batch(&value)).await {
            Ok(()) => {
                assert_eq!(before, *last, "{value}: a commit was lost");
                *last = value;
                true
            }
            Err(error) => {
                assert_eq!(error, StoreError::Fenced, "{value}");
                false
            }
        }
    }
}

/// Both stop after some requests. Then one opens the store and commits, then the other. Returns which of them did stop.
async fn meet((one_stops, other_stops): (usize, usize), other_has_seen: bool) -> (bool, bool) {
    let bucket = volume().await;
    let (_, seen_by_one) = look(&bucket).await;
    let (_, seen_by_other) = look(&bucket).await;
    let (one_way, other_way) = (
        bucket.stopping_after(one_stops),
        bucket.stopping_after(other_stops),
    );
    let one = opening(&one_way, Some(seen_by_one));
    let one_stopped = one_way.until_stopped(&one).await;
    let other = opening(&other_way, other_has_seen.then_some(seen_by_other));
    let other_stopped = other_way.until_stopped(&other).await;

    let mut last = "first".to_owned();
    one_way.go_on();
    let one = Gateway::of("one", one.await.unwrap());
    one.commit(&mut last, 1).await;
    other_way.go_on();
    let other = Gateway::of("the other", other.await.unwrap());
    let by_other = other.commit(&mut last, 2).await;
    let by_one = one.commit(&mut last, 3).await;
    // The one that created the newest manifest while opening.
    assert!(by_one != by_other, "{by_one} {by_other}");
    for gateway in [&one, &other] {
        if let Some(store) = &gateway.store {
            store.close().await.unwrap();
        }
    }
    assert_eq!(look(&bucket).await.0, last);
    (one_stopped, other_stopped)
}

#[tokio::test]
async fn wherever_two_openings_meet_one_goes_on_and_no_commit_is_lost() {
    for other_has_seen in [true, false] {
        let mut meetings = 0;
        for one in 0.. {
            let mut one_stopped = false;
            for other in 0.. {
                let (is_one, is_other) = meet((one, other), other_has_seen).await;
                meetings += 1;
                one_stopped |= is_one;
                if !is_other {
                    break;
                }
            }
            if !one_stopped {
                break;
            }
        }
        assert!(meetings > 20, "{meetings}");
    }
}

#[tokio::test]
async fn of_two_that_have_seen_the_same_state_the_later_fences_the_earlier_and_reads_its_commits() {
    let bucket = volume().await;
    let (_, seen_by_one) = look(&bucket).await;
    let (_, seen_by_other) = look(&bucket).await;
    let one = open(&bucket, Some(seen_by_one)).await.unwrap();
    one.commit(&batch("by one")).await.unwrap();
    let other = open(&bucket, Some(seen_by_other)).await.unwrap();
    assert_eq!(latest(&other).await, "by one");
    assert_eq!(
        one.commit(&batch("too late")).await,
        Err(StoreError::Fenced)
    );
    other.commit(&batch("by the other")).await.unwrap();
    assert_eq!(look(&bucket).await.0, "by the other");
}

/// Between the two attempts to create the fence, another gateway opens the store.
#[tokio::test]
async fn a_fence_that_another_gateway_created_first_is_not_taken_for_the_own_one() {
    for fault in [Fault::Fails, Fault::AnswerIsLost] {
        let bucket = volume().await;
        let (_, seen) = look(&bucket).await;
        let slow = bucket.stopping_after(1);
        slow.fail("PUT meta/manifest", fault);
        let one = opening(&slow, Some(seen));
        assert!(slow.until_stopped(&one).await);
        let other = open(&bucket, None).await.unwrap();
        other.commit(&batch("by the other")).await.unwrap();
        slow.go_on();
        let mut last = "by the other".to_owned();
        let one = Gateway::of("one", one.await.unwrap());
        let other = Gateway::of("the other", Ok(other));
        let by_one = one.commit(&mut last, 1).await;
        let by_other = other.commit(&mut last, 2).await;
        assert!(by_one != by_other, "{fault:?}: {by_one} {by_other}");
        assert_eq!(look(&bucket).await.0, last, "{fault:?}");
    }
}

/// A gateway was held up for so long that the manifest that it creates was there before, and was deleted.
#[tokio::test]
async fn a_fence_behind_the_boundary_does_not_count() {
    // How far the boundary is behind the manifest of the fence.
    for ahead in 0..4 {
        let bucket = volume().await;
        let (_, seen) = look(&bucket).await;
        let fence = bucket.newest().await + 1;
        let other = open(&bucket, None).await.unwrap();
        for number in 0..6 {
            other.commit(&batch(&number.to_string())).await.unwrap();
        }
        bucket.collected(fence + ahead).await;
        assert!(bucket.newest().await > fence + ahead);
        bucket.take();
        let one = open(&bucket, Some(seen)).await.unwrap();
        assert_eq!(bucket.take()[0], format!("PUT {}", manifest(fence)));
        assert_eq!(latest(&one).await, "5");
        one.commit(&batch("by one")).await.unwrap();
        let late = other.commit(&batch("too late")).await;
        assert_eq!(late, Err(StoreError::Fenced));
        assert_eq!(look(&bucket).await.0, "by one");
    }
}
