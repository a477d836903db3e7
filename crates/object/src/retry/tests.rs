//! Requests that carry bodies over a link with a limit.

use forebay_metrics::{Samples, Source};
use futures_util::FutureExt;
use tokio::time::timeout;

use super::*;
use crate::link::LinkLimit;

const SECOND: Duration = Duration::from_secs(1);
const PACK: u64 = 8 << 20;

/// A store that has asked to slow down, so that one request goes at a time, behind a link that admits one pack at a
/// time.
fn recovering() -> (Arc<RetryPolicy>, Arc<Link>) {
    let limit = LinkLimit {
        otherwise: Some(LinkLimit::LOWEST),
        hours: Vec::new(),
    };
    let link = Link::new(&limit, &LinkLimit::default()).unwrap();
    let policy = RetryPolicy::new(RetrySettings::default(), Some(Arc::clone(&link)));
    let mut circuits = policy.circuits.lock();
    let Admission::Go(ticket) = circuits.of(Kind::Change).admit(false, Instant::now()) else {
        panic!("it works");
    };
    let after = Some(Duration::ZERO);
    let slow = Outcome::SlowDown { after };
    circuits.ended(Kind::Change, ticket, slow, Instant::now());
    drop(circuits);
    (Arc::new(policy), link)
}

#[tokio::test(start_paused = true)]
async fn a_pack_that_waits_for_the_link_keeps_nobody_out_of_a_store_that_recovers() {
    let (policy, link) = recovering();
    let before = Link::begin(Some(&link), Direction::Up, PACK).await;
    let pack = tokio::spawn({
        let policy = Arc::clone(&policy);
        async move {
            policy
                .once(Kind::Change, false, Body::Up(PACK), async { Ok(()) })
                .await
        }
    });
    tokio::time::sleep(SECOND).await;
    assert!(!pack.is_finished(), "there is room on the link for one");
    let small = policy.once(Kind::Change, false, Body::Nothing, async { Ok(7) });
    assert_eq!(timeout(SECOND, small).await.unwrap().unwrap(), 7);
    drop(before);
    timeout(10 * SECOND, pack).await.unwrap().unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_body_has_its_place_on_the_link_until_its_request_has_ended() {
    let (policy, link) = recovering();
    let counted = Arc::clone(&policy);
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let request = async move {
        let _ = ended.await;
        Ok(())
    };
    let pack = tokio::spawn(async move {
        policy
            .once(Kind::Change, false, Body::Up(PACK), request)
            .await
    });
    tokio::time::sleep(SECOND).await;
    let held = || {
        let policy = Arc::clone(&counted);
        let samples = Samples::of([&Health { policy } as &dyn Source]);
        ["up", "down"].map(|direction| samples.number("store_link_held_seconds", &[direction]))
    };
    assert_eq!(held(), [Some(0.0), None]);
    let next = Link::begin(Some(&link), Direction::Up, PACK);
    let mut next = std::pin::pin!(next);
    assert!(timeout(10 * SECOND, &mut next).await.is_err());
    assert_eq!(held(), [Some(10.0), None]);
    drop(end);
    pack.await.unwrap().unwrap();
    assert!(timeout(10 * SECOND, next).await.is_ok());
}

fn answer(status: u16, code: &str) -> object_store::Error {
    let words = crate::s3::error::Words {
        status,
        code: Some(code),
        ..Default::default()
    };
    crate::s3::error::sorted("a", words)
}

#[tokio::test(start_paused = true)]
async fn repeats_are_counted_by_their_reasons() {
    let policy = Arc::new(RetryPolicy::new(RetrySettings::default(), None));
    let health = Health {
        policy: Arc::clone(&policy),
    };
    for (first, second) in [
        (answer(503, "SlowDown"), hung(SECOND)),
        (answer(500, "InternalError"), answer(503, "SlowDown")),
    ] {
        let mut answers = vec![Ok(7), Err(second), Err(first)];
        let next = || {
            let answer = answers.pop().unwrap();
            async move { answer }
        };
        let got = policy.run(Kind::Read, Repeat::Freely, Body::Nothing, next);
        assert_eq!(got.await.unwrap(), 7);
    }
    // A refusal is not repeated.
    let refused = || async { Err::<(), _>(answer(403, "AccessDenied")) };
    let got = policy.run(Kind::Read, Repeat::Freely, Body::Nothing, refused);
    got.await.unwrap_err();
    let samples = Samples::of([&health as &dyn Source]);
    let of = |reason| samples.number("store_retries", &[reason]);
    assert_eq!(of("throttled"), Some(2.0));
    assert_eq!(of("timeout"), Some(1.0));
    assert_eq!(of("failed"), Some(1.0));
    assert_eq!(of("connection"), Some(0.0));
    assert_eq!(samples.number("store_not_sent", &[]), Some(0.0));
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_not_sent_and_those_that_wait_are_counted() {
    let (policy, _link) = recovering();
    let health = Health {
        policy: Arc::clone(&policy),
    };
    let number = |name| Samples::of([&health as &dyn Source]).number(name, &[]);
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let request = async move {
        let _ = ended.await;
        Err::<(), _>(hung(SECOND))
    };
    let ask = |request| {
        let policy = Arc::clone(&policy);
        async move {
            policy
                .once(Kind::Change, false, Body::Nothing, request)
                .await
        }
    };
    // One request goes at a time.
    let first = tokio::spawn(ask(request.boxed()));
    tokio::time::sleep(SECOND / 10).await;
    let second = tokio::spawn(ask(async { Err(hung(SECOND)) }.boxed()));
    tokio::time::sleep(SECOND / 10).await;
    assert_eq!(number("store_requests_waiting"), Some(1.0));
    end.send(()).unwrap();
    first.await.unwrap().unwrap_err();
    second.await.unwrap().unwrap_err();
    assert_eq!(number("store_requests_waiting"), Some(0.0));
    for _ in 0..10 {
        ask(async { Err(hung(SECOND)) }.boxed()).await.unwrap_err();
    }
    assert!(number("store_not_sent") > Some(0.0));
}
