//! Sequences of observations, and the messages that they cause.

use std::sync::Arc;

use forebay_vfs::{Counts, Trouble, Troubles};

use super::*;
use crate::health::tests::well;
use crate::watch::{Counters, look};

/// A gateway whose clients wait, and a watch that looks at it once a second.
#[derive(Default)]
struct Scene {
    troubles: Arc<Troubles>,
    watch: Watch,
    second: u64,
}

fn calls(troubles: &Arc<Troubles>) -> Counters {
    Counters {
        troubles: vec![troubles.clone()],
        ..Counters::default()
    }
}

impl Scene {
    /// Looks for `seconds`; returns the messages, with their second.
    fn pass(&mut self, seconds: u64) -> Vec<(u64, Level, String)> {
        let mut said = Vec::new();
        for _ in 0..seconds {
            let seen = look(&well(), &calls(&self.troubles));
            let notices = self.watch.look(Duration::from_secs(self.second), seen);
            let second = self.second;
            said.extend(notices.into_iter().map(|one| (second, one.level, one.text)));
            self.second += 1;
        }
        said
    }
}

#[test]
fn a_wait_is_said_when_it_begins_every_five_minutes_and_when_it_is_over() {
    let mut scene = Scene::default();
    let troubles = scene.troubles.clone();
    assert_eq!(scene.pass(10), []);
    let waiting = [
        troubles.wait(Trouble::LogFull),
        troubles.wait(Trouble::LogFull),
    ];
    let said = scene.pass(610);
    let times: Vec<_> = said.iter().map(|(second, ..)| *second).collect();
    assert_eq!(times, [14, 314, 614]);
    let (_, level, text) = &said[0];
    assert_eq!(*level, Level::Warn);
    assert!(text.starts_with("calls wait for room in the log"), "{text}");
    assert!(
        text.contains("2 wait now, 2 have waited since it began"),
        "{text}"
    );
    assert!(
        said[1].2.starts_with("for 5m 4s: calls wait"),
        "{}",
        said[1].2
    );
    drop(waiting);
    let said = scene.pass(20);
    assert_eq!(said.len(), 1);
    let (second, level, text) = &said[0];
    assert_eq!((*second, *level), (629, Level::Info));
    assert!(text.starts_with("ended after 10m 9s: calls wait"), "{text}");
    assert!(text.ends_with("2 calls had to wait"), "{text}");
}

#[test]
fn waits_that_are_soon_over_are_not_said() {
    let mut scene = Scene::default();
    let troubles = scene.troubles.clone();
    for _ in 0..50 {
        let waiting = troubles.wait(Trouble::MemoryFull);
        assert_eq!(scene.pass(2), []);
        drop(waiting);
        assert_eq!(scene.pass(4), []);
        assert_eq!(scene.watch.waits(Duration::ZERO), []);
    }
}

#[test]
fn many_short_waits_between_two_looks_are_not_said_and_many_that_overlap_are() {
    let mut scene = Scene::default();
    let troubles = scene.troubles.clone();
    for _ in 0..20 {
        drop(troubles.wait(Trouble::LogFull));
        assert_eq!(scene.pass(1), []);
    }
    let mut waiting = troubles.wait(Trouble::LogFull);
    let mut said = Vec::new();
    for _ in 0..5 {
        let next = troubles.wait(Trouble::LogFull);
        drop(std::mem::replace(&mut waiting, next));
        said.extend(scene.pass(1));
    }
    assert_eq!(said.len(), 1);
    assert!(
        said[0].2.contains("1 wait now, 6 have waited"),
        "{}",
        said[0].2
    );
}

#[test]
fn a_refusal_is_said_at_once_and_more_of_them_are_counted() {
    let mut scene = Scene::default();
    let troubles = scene.troubles.clone();
    troubles.refused(Trouble::MountAddress, [127, 0, 0, 5].into());
    let said = scene.pass(1);
    assert_eq!(said.len(), 1);
    assert!(
        said[0]
            .2
            .contains("1 since it began, the last from 127.0.0.5"),
        "{}",
        said[0].2
    );
    for client in 0..100 {
        troubles.refused(Trouble::MountAddress, [127, 0, 1, client].into());
        assert_eq!(scene.pass(1), []);
    }
    let waits = scene.watch.waits(Duration::from_secs(100));
    assert_eq!((waits[0].total, waits[0].waiting), (101, 0));
    let said = scene.pass(100);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].2.ends_with("; 101 in all"), "{}", said[0].2);
    assert_eq!(scene.watch.waits(Duration::from_secs(300)), []);
}

#[test]
fn a_problem_of_the_volume_says_how_many_calls_wait_for_it() {
    let troubles = Arc::new(Troubles::default());
    let mut watch = Watch::default();
    let mut status = well();
    let at = Duration::from_secs;
    let _waiting = troubles.wait(Trouble::Bucket);
    let all = calls(&troubles);
    // While the bucket answers, calls that wait for it cause no message.
    for second in 0..20 {
        assert_eq!(watch.look(at(second), look(&status, &all)), []);
    }
    status.store_trouble = Some(("503".to_owned(), Duration::ZERO));
    let said = watch.look(at(20), look(&status, &all));
    assert_eq!(said.len(), 1);
    let text = &said[0].text;
    assert!(
        text.starts_with("the bucket does not answer: 503; 1 wait now"),
        "{text}"
    );
    status.store_trouble = None;
    assert_eq!(watch.look(at(22), look(&status, &all)), []);
    let said = watch.look(at(23), look(&status, &all));
    assert_eq!(said.len(), 1);
    assert!(
        said[0]
            .text
            .starts_with("ended after 0s: the bucket does not answer: 503")
    );
}

#[test]
fn what_says_itself_that_it_begins_is_said_again_when_it_lasts() {
    let mut watch = Watch::default();
    let mut status = well();
    status.log_trouble = Some(("EIO".to_owned(), Some(Duration::ZERO)));
    let mut said = Vec::new();
    for second in 0..=300 {
        said.extend(watch.look(
            Duration::from_secs(second),
            look(&status, &Counters::default()),
        ));
    }
    assert_eq!(said.len(), 1);
    assert_eq!(said[0].level, Level::Error);
    assert!(
        said[0].text.starts_with("for 5m: the log has failed"),
        "{}",
        said[0].text
    );
    status.log_trouble = None;
    assert_eq!(
        watch.look(
            Duration::from_secs(400),
            look(&status, &Counters::default())
        ),
        []
    );
}

#[test]
fn counts_of_two_places_are_one() {
    let one = Counts {
        waiting: 1,
        total: 3,
        client: None,
    };
    let other = Counts {
        waiting: 2,
        total: 2,
        client: Some([10, 0, 0, 1].into()),
    };
    let both = one.and(other);
    assert_eq!(
        (both.waiting, both.total, both.client),
        (3, 5, other.client)
    );
}
