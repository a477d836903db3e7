use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn failure(why: &str) -> Outcome {
    let why = why.to_owned();
    let answered = false;
    Outcome::Failed { why, answered }
}

struct Scene {
    circuit: Circuit,
    now: Instant,
}

impl Scene {
    fn new() -> Scene {
        let settings = RetrySettings {
            seed: Some(7),
            ..RetrySettings::default()
        };
        Scene {
            circuit: Circuit::new(settings),
            now: Instant::now(),
        }
    }

    /// A permitted request.
    fn go(&mut self, repeated: bool) -> Option<Ticket> {
        match self.circuit.admit(repeated, self.now) {
            Admission::Go(ticket) => Some(ticket),
            _ => None,
        }
    }

    fn fails(&mut self) {
        let ticket = self.go(false).unwrap();
        self.circuit.ended(ticket, failure("no"), self.now);
    }

    fn succeeds(&mut self, repeated: bool) {
        let ticket = self.go(repeated).unwrap();
        self.circuit.ended(ticket, Outcome::Answered, self.now);
    }

    fn stops_answering(&mut self) {
        for _ in 0..FAILURES {
            self.fails();
        }
        assert!(self.circuit.outage().is_some());
    }
}

#[test]
fn repeats_that_fail_use_the_budget_up_and_successes_earn_it() {
    let mut scene = Scene::new();
    let spent = (0..1000).filter(|_| scene.circuit.repeat(1).is_some());
    assert_eq!(spent.count(), 20);
    for _ in 0..4 {
        scene.succeeds(false);
    }
    assert_eq!(scene.circuit.repeat(1), None);
    scene.succeeds(false);
    scene.succeeds(false);
    assert!(scene.circuit.repeat(1).is_some());
    assert_eq!(scene.circuit.repeat(1), None);
    scene.succeeds(true);
    assert!(
        scene.circuit.repeat(1).is_some(),
        "a repeat that works is free"
    );
}

#[test]
fn one_call_asks_four_times_with_growing_pauses_that_differ() {
    let mut scene = Scene::new();
    let pauses: Vec<_> = (1..4)
        .map(|attempt| scene.circuit.repeat(attempt).unwrap())
        .collect();
    for (pause, longest) in pauses.iter().zip([100, 200, 400]) {
        let longest = Duration::from_millis(longest);
        assert!((longest / 2..=longest).contains(pause), "{pauses:?}");
    }
    assert_eq!(scene.circuit.repeat(4), None);
    let mut other = Scene::new();
    other.circuit.random = Random::new(Some(8));
    assert_ne!(other.circuit.repeat(1), Some(pauses[0]));
}

#[test]
fn an_hour_of_outage_costs_a_trickle_however_many_ask() {
    let mut scene = Scene::new();
    scene.stops_answering();
    let end = scene.now + 3600 * SECOND;
    let mut probes = 0;
    while scene.now < end {
        // Ten callers, a hundred times a second.
        for _ in 0..10 {
            if let Some(ticket) = scene.go(false) {
                assert!(scene.go(false).is_none(), "two probes at the same time");
                probes += 1;
                scene.circuit.ended(ticket, failure("no"), scene.now);
            }
        }
        scene.now += SECOND / 100;
    }
    assert!((3600 / 15..=3600 / 7).contains(&probes), "{probes}");
    assert_eq!(
        scene.circuit.repeat(1),
        None,
        "nothing is repeated meanwhile"
    );
}

#[test]
fn a_recovered_store_is_asked_by_one_then_two_then_more() {
    let mut scene = Scene::new();
    scene.stops_answering();
    scene.now += 2 * SECOND;
    let probe = scene.go(false).unwrap();
    scene.circuit.ended(probe, Outcome::Answered, scene.now);
    assert_eq!(scene.circuit.last_answer(), Some(scene.now));
    for window in 1..WIDE {
        let mut all: Vec<_> = std::iter::from_fn(|| scene.go(false)).take(1000).collect();
        assert_eq!(all.len(), window);
        // One of them is answered, the others are given up.
        scene
            .circuit
            .ended(all.pop().unwrap(), Outcome::Answered, scene.now);
        for ticket in all {
            scene.circuit.ended(ticket, Outcome::GivenUp, scene.now);
        }
    }
    let all: Vec<_> = std::iter::from_fn(|| scene.go(false)).take(1000).collect();
    assert_eq!(all.len(), 1000, "no limit but the callers' own");
}

#[test]
fn a_probe_that_nobody_waited_for_has_failed_and_another_one_follows() {
    let mut scene = Scene::new();
    scene.stops_answering();
    scene.now += 2 * SECOND;
    let probe = scene.go(false).unwrap();
    scene.circuit.ended(probe, Outcome::GivenUp, scene.now);
    assert!(scene.go(false).is_none());
    scene.now += 2 * SECOND;
    assert!(scene.go(false).is_some());
}

#[test]
fn a_request_in_flight_when_the_outage_began_does_not_delay_the_probe() {
    let mut scene = Scene::new();
    let late = scene.go(false).unwrap();
    scene.stops_answering();
    scene.now += 2 * SECOND;
    scene.circuit.ended(late, failure("late"), scene.now);
    assert!(scene.go(false).is_some());
}

#[test]
fn a_store_that_asks_to_slow_down_is_left_alone_and_then_asked_by_half_as_many() {
    let mut scene = Scene::new();
    let mut all: Vec<_> = (0..9).map(|_| scene.go(false).unwrap()).collect();
    let after = Some(3 * SECOND);
    scene
        .circuit
        .ended(all.pop().unwrap(), Outcome::SlowDown { after }, scene.now);
    for ticket in all {
        scene.circuit.ended(ticket, Outcome::Answered, scene.now);
    }
    let until = scene.now + 3 * SECOND;
    assert!(
        matches!(scene.circuit.admit(false, scene.now), Admission::WaitUntil(at) if at == until)
    );
    scene.now = until;
    // Four of eight, and one more for each of the eight that were answered.
    assert_eq!(std::iter::from_fn(|| scene.go(false)).take(99).count(), 12);

    let mut scene = Scene::new();
    let ticket = scene.go(false).unwrap();
    let after = Some(3600 * SECOND);
    scene
        .circuit
        .ended(ticket, Outcome::SlowDown { after }, scene.now);
    scene.now += LONGEST_SLOW_DOWN;
    assert!(
        scene.go(false).is_some(),
        "a server cannot stop all requests for an hour"
    );
}

#[test]
fn refusals_are_answers() {
    let mut scene = Scene::new();
    for _ in 0..50 {
        scene.fails();
        scene.succeeds(false);
    }
    assert!(scene.circuit.outage().is_none());
}
