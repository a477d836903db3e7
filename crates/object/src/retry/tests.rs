//! Requests that carry bodies over a link with a limit.

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
    let next = Link::begin(Some(&link), Direction::Up, PACK);
    let mut next = std::pin::pin!(next);
    assert!(timeout(10 * SECOND, &mut next).await.is_err());
    drop(end);
    pack.await.unwrap().unwrap();
    assert!(timeout(10 * SECOND, next).await.is_ok());
}
