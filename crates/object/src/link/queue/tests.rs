//! Bodies that ask for permits, on a clock that tests drive.

use super::*;
use crate::link::Hours;

const MIB: u64 = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);

fn at_rate(rate: u64) -> LinkLimit {
    LinkLimit {
        otherwise: Some(rate),
        hours: Vec::new(),
    }
}

struct Body {
    class: Class,
    place: Option<Ticket>,
    moved: u64,
}

/// A link whose bodies all ask whenever they may, and a clock that advances as the queue demands.
struct Scene {
    queue: Queue,
    now: Instant,
    minute: u16,
    bodies: Vec<Body>,
}

impl Scene {
    fn new(limit: LinkLimit) -> Scene {
        let now = Instant::now();
        Scene {
            queue: Queue::new(limit, now),
            now,
            minute: 0,
            bodies: Vec::new(),
        }
    }

    fn with(mut self, class: Class) -> Scene {
        self.bodies.push(Body {
            class,
            place: None,
            moved: 0,
        });
        self
    }

    fn ask(&mut self, body: usize) -> Answer {
        let body = &mut self.bodies[body];
        let permit = self
            .queue
            .ask(&mut body.place, body.class, PIECE, self.now, self.minute);
        if permit == Answer::Granted {
            body.moved += PIECE as u64;
        }
        permit
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            let mut wake = end;
            let mut went = false;
            for body in 0..self.bodies.len() {
                match self.ask(body) {
                    Answer::Granted => went = true,
                    Answer::Wait(until) => wake = wake.min(until),
                }
            }
            if !went {
                self.now = wake;
            }
        }
    }

    fn moved(&self) -> Vec<u64> {
        self.bodies.iter().map(|body| body.moved).collect()
    }
}

#[test]
fn what_moves_is_the_rate_and_a_tenth_of_a_second_at_the_beginning() {
    for rate in [64 << 10, MIB, 100 * MIB, 1000 * MIB] {
        let mut scene = Scene::new(at_rate(rate)).with(Class::Large);
        scene.run(10 * SECOND);
        let moved = scene.bodies[0].moved;
        let most = 10 * rate + (rate / 10).max(PIECE as u64);
        // The last pause may be a millisecond too long.
        let least = 10 * rate - (rate / 500).max(PIECE as u64);
        assert!((least..=most).contains(&moved), "{moved}");
    }
}

#[test]
fn a_pause_earns_no_more_than_a_tenth_of_a_second() {
    let mut scene = Scene::new(at_rate(10 * MIB)).with(Class::Large);
    scene.run(SECOND);
    let before = scene.bodies[0].moved;
    scene.now += 3600 * SECOND;
    let mut at_once = 0;
    while scene.ask(0) == Answer::Granted {
        at_once += 1;
    }
    assert_eq!(at_once, MIB / PIECE as u64);
    assert!(scene.bodies[0].moved <= before + MIB);
}

#[test]
fn large_bodies_share_the_link_evenly() {
    let mut scene = Scene::new(at_rate(8 * MIB));
    for _ in 0..4 {
        scene = scene.with(Class::Large);
    }
    scene.run(10 * SECOND);
    for moved in scene.moved() {
        assert!(moved.abs_diff(20 * MIB) <= MIB, "{moved}");
    }
}

#[test]
fn a_small_body_goes_before_large_ones_that_wait() {
    let mut scene = Scene::new(at_rate(64 << 10))
        .with(Class::Large)
        .with(Class::Large)
        .with(Class::Small);
    assert_eq!(scene.ask(0), Answer::Granted);
    for body in [0, 1, 2] {
        assert!(matches!(scene.ask(body), Answer::Wait(_)));
    }
    scene.now += SECOND;
    for body in [0, 1] {
        assert!(
            matches!(scene.ask(body), Answer::Wait(_)),
            "another body is before it"
        );
    }
    assert_eq!(scene.ask(2), Answer::Granted);
}

#[test]
fn small_bodies_without_end_leave_a_quarter_to_large_ones() {
    let mut scene = Scene::new(at_rate(8 * MIB))
        .with(Class::Small)
        .with(Class::Small)
        .with(Class::Large);
    scene.run(10 * SECOND);
    let large = scene.bodies[2].moved;
    assert!(large.abs_diff(20 * MIB) <= MIB, "{large}");
}

#[test]
fn the_rate_of_the_hour_holds_and_none_lets_everybody_go() {
    let mut scene = Scene::new(LinkLimit {
        otherwise: Some(10 * MIB),
        hours: vec![
            Hours {
                from: 60,
                until: 120,
                rate: Some(MIB),
            },
            Hours {
                from: 120,
                until: 180,
                rate: None,
            },
        ],
    })
    .with(Class::Large);
    scene.run(10 * SECOND);
    let fast = scene.bodies[0].moved;
    assert!(fast.abs_diff(100 * MIB) <= 2 * MIB, "{fast}");
    scene.minute = 60;
    scene.run(10 * SECOND);
    let slow = scene.bodies[0].moved - fast;
    assert!(slow.abs_diff(10 * MIB) <= 2 * MIB, "{slow}");
    scene.minute = 120;
    for _ in 0..1000 {
        assert_eq!(scene.ask(0), Answer::Granted);
    }
}

#[test]
fn a_body_that_asks_no_more_delays_no_other() {
    let mut scene = Scene::new(at_rate(MIB))
        .with(Class::Small)
        .with(Class::Small)
        .with(Class::Large);
    while scene.ask(0) == Answer::Granted {}
    for body in [1, 2] {
        assert!(matches!(scene.ask(body), Answer::Wait(_)));
    }
    // The first body has stopped without notice; the others ask every second.
    for _ in 0..10 {
        scene.now += SECOND;
        for body in [1, 2] {
            let _ = scene.ask(body);
        }
    }
    assert!(scene.bodies[1].moved > 0 && scene.bodies[2].moved > 0);
    // It may come back.
    scene.now += SECOND;
    assert_eq!(scene.ask(0), Answer::Granted);
}

#[test]
fn time_is_held_while_somebody_waits() {
    let mut scene = Scene::new(at_rate(64 << 10)).with(Class::Large);
    assert_eq!(scene.ask(0), Answer::Granted);
    scene.now += SECOND;
    assert_eq!(scene.queue.held(scene.now), Duration::ZERO);
    assert_eq!(scene.ask(0), Answer::Granted);
    assert!(matches!(scene.ask(0), Answer::Wait(_)));
    scene.now += SECOND / 2;
    assert_eq!(scene.queue.held(scene.now), SECOND / 2);
    let mut place = scene.bodies[0].place;
    scene.queue.take(&mut place, scene.now);
    scene.now += SECOND;
    assert_eq!(scene.queue.held(scene.now), SECOND / 2);
}

#[test]
fn as_many_bodies_begin_as_can_have_a_piece_every_few_seconds() {
    for (class, most) in [(Class::Large, 2), (Class::Small, 8)] {
        let mut scene = Scene::new(at_rate(128 << 10));
        let mut places = [None; 10];
        let mut begin = |scene: &mut Scene, body: usize| {
            scene.queue.begin(&mut places[body], class, scene.now, 0)
        };
        let begun: Vec<_> = (0..10)
            .filter(|body| begin(&mut scene, *body) == Answer::Granted)
            .collect();
        assert_eq!(begun, (0..most).collect::<Vec<_>>());
        scene.queue.end(class);
        let later = begin(&mut scene, most + 1);
        assert!(
            matches!(later, Answer::Wait(_)),
            "another one was before it"
        );
        assert_eq!(begin(&mut scene, most), Answer::Granted);
        assert!(matches!(begin(&mut scene, most + 1), Answer::Wait(_)));
        assert!(scene.queue.held_since.is_some());
    }
}
