//! Bodies on a link, on a clock that tests drive.

use std::future::poll_fn;

use super::*;

const MIB: u64 = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);

fn at_rate(rate: u64) -> LinkLimit {
    LinkLimit {
        otherwise: Some(rate),
        hours: Vec::new(),
    }
}

fn link(up: u64) -> Arc<Link> {
    Link::with_clock(&at_rate(up), &LinkLimit::default(), || 0).unwrap()
}

/// Sends a body; returns how long that took.
async fn send(link: &Arc<Link>, len: u64) -> Duration {
    let began = Instant::now();
    let _under_way = Link::begin(Some(link), Direction::Up, len).await;
    let mut permits = Permits::new(link, Direction::Up, Some(len)).unwrap();
    for _ in 0..len.div_ceil(PIECE as u64) {
        poll_fn(|cx| permits.poll(PIECE, cx)).await;
    }
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_large_body_takes_the_time_that_its_bytes_need() {
    let link = link(MIB);
    let took = send(&link, 64 * MIB).await;
    assert!((63 * SECOND..=65 * SECOND).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_small_body_does_not_wait_for_the_packs_before_it() {
    let link = link(MIB);
    let packs = [(); 4].map(|()| {
        let link = Arc::clone(&link);
        tokio::spawn(async move { send(&link, 8 * MIB).await })
    });
    tokio::time::sleep(5 * SECOND).await;
    for _ in 0..10 {
        let took = send(&link, PIECE as u64).await;
        assert!(took <= SECOND / 4, "{took:?}");
    }
    // A small file of eight pieces leaves every fourth permit to the packs.
    let took = send(&link, 512 << 10).await;
    assert!(took <= SECOND, "{took:?}");
    for pack in packs {
        let took = pack.await.unwrap();
        assert!((28 * SECOND..=35 * SECOND).contains(&took), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_of_unknown_length_is_small_until_it_is_not() {
    let link = link(MIB);
    let mut permits = Permits::new(&link, Direction::Up, None).unwrap();
    assert_eq!(permits.class, Class::Small);
    for _ in 0..SMALL / PIECE as u64 {
        assert_eq!(permits.class, Class::Small);
        poll_fn(|cx| permits.poll(PIECE, cx)).await;
    }
    assert_eq!(permits.class, Class::Large);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_gives_up_while_it_waits_lets_the_next_one_go() {
    let link = link(64 << 10);
    send(&link, PIECE as u64).await;
    let first = tokio::time::timeout(SECOND / 2, send(&link, MIB)).await;
    assert!(first.is_err());
    let took = send(&link, MIB).await;
    assert!(took <= 16 * SECOND, "{took:?}");
    assert!(link.up.as_ref().unwrap().lock().wakers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_other_way_has_no_limit() {
    let link = link(MIB);
    assert!(Permits::new(&link, Direction::Down, None).is_none());
    assert!(link.limits(Direction::Up) && !link.limits(Direction::Down));
    let none = LinkLimit::default();
    assert!(Link::new(&none, &none).is_none());
}

#[tokio::test(start_paused = true)]
async fn time_on_the_link_does_not_count_for_limits_and_other_time_does() {
    let link = link(MIB);
    let sent = in_time(Some(&link), SECOND, send(&link, 64 * MIB)).await;
    assert!(sent.is_some());
    let began = Instant::now();
    let slept = in_time(Some(&link), SECOND, tokio::time::sleep(60 * SECOND)).await;
    assert!(slept.is_none() && began.elapsed() == SECOND);
    let slept = in_time(None, SECOND, tokio::time::sleep(60 * SECOND)).await;
    assert!(slept.is_none());
    // A request that hangs is given up once no body is held back any more.
    let began = Instant::now();
    let other = tokio::spawn({
        let link = Arc::clone(&link);
        async move { send(&link, 30 * MIB).await }
    });
    let hung = in_time(Some(&link), SECOND, std::future::pending::<()>()).await;
    assert!(hung.is_none() && began.elapsed() < 33 * SECOND);
    other.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn more_packs_than_the_link_can_carry_go_after_one_another() {
    let link = link(128 << 10);
    let packs = [(); 6].map(|()| {
        let link = Arc::clone(&link);
        tokio::spawn(async move { send(&link, 2 * MIB).await })
    });
    let mut took = Vec::new();
    for pack in packs {
        took.push(pack.await.unwrap());
    }
    // Two at a time, 32 s each pair.
    for (pack, took) in took.iter().enumerate() {
        let expected = 32 * SECOND * (1 + pack as u32 / 2);
        assert!(took.abs_diff(expected) <= 2 * SECOND, "{pack}: {took:?}");
    }
    assert!(link.up.as_ref().unwrap().lock().wakers.is_empty());
}
