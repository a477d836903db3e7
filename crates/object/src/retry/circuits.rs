//! A circuit breaker for reads and one for changes.
//!
//! A full server refuses every PUT and serves every GET; one with a read-only disk does the same, and a bucket policy
//! can. So failures of one kind of requests do not predict those of the other kind, and each has a [`Circuit`] of its own:
//! its failures in a row, its probes, its budget of repeats, and its pause when the server asks to slow down.
//!
//! A server that does not answer at all is unreachable for both. While both circuits have found that, a probe of either
//! counts for both: without an answer it postpones the other one's probe, and with an answer both outages are over. So an
//! outage costs no more requests than with one circuit, and its end is noticed as early, even if only one kind of requests
//! is made.

use tokio::time::Instant;

use super::circuit::{Circuit, Outcome, RetrySettings, Ticket};

/// The effect of a request on the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// GET, HEAD, LIST.
    Read,
    /// PUT, DELETE, COPY.
    Change,
}

/// The state of both circuits.
#[derive(Debug)]
pub(super) struct Circuits {
    reads: Circuit,
    changes: Circuit,
}

impl Circuits {
    pub(super) fn new(settings: &RetrySettings) -> Circuits {
        Circuits {
            reads: Circuit::new(settings.clone()),
            changes: Circuit::new(RetrySettings {
                // Different pauses at the same time.
                seed: settings.seed.map(|seed| seed ^ 1),
                ..settings.clone()
            }),
        }
    }

    pub(super) fn of(&mut self, kind: Kind) -> &mut Circuit {
        match kind {
            Kind::Read => &mut self.reads,
            Kind::Change => &mut self.changes,
        }
    }

    /// The circuit of reads.
    pub(super) fn reads(&self) -> &Circuit {
        &self.reads
    }

    /// Why one of the circuits sends no requests, and since when.
    pub(super) fn outage(&self) -> Option<(&str, Instant)> {
        self.reads.outage().or_else(|| self.changes.outage())
    }

    /// Whether one of the circuits would refuse a request without sending it.
    pub(super) fn are_shut(&self, now: Instant) -> bool {
        self.reads.is_shut(now) || self.changes.is_shut(now)
    }

    pub(super) fn ended(&mut self, kind: Kind, ticket: Ticket, outcome: Outcome, now: Instant) {
        let (own, other) = match kind {
            Kind::Read => (&mut self.reads, &mut self.changes),
            Kind::Change => (&mut self.changes, &mut self.reads),
        };
        let was_silent = own.silent_until().is_some();
        own.ended(ticket, outcome, now);
        match own.silent_until() {
            Some(next) => other.probe_at(|at| at.max(next)),
            // Whether the server serves the other kind as well, its next request shows.
            None if was_silent => other.server_answers(),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::circuit::Admission;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const BOTH: [Kind; 2] = [Kind::Read, Kind::Change];

    struct Scene {
        circuits: Circuits,
        now: Instant,
    }

    impl Scene {
        fn new() -> Scene {
            let settings = RetrySettings {
                seed: Some(7),
                ..RetrySettings::default()
            };
            Scene {
                circuits: Circuits::new(&settings),
                now: Instant::now(),
            }
        }

        fn go(&mut self, kind: Kind) -> Option<Ticket> {
            match self.circuits.of(kind).admit(false, self.now) {
                Admission::Go(ticket) => Some(ticket),
                _ => None,
            }
        }

        fn is_silent_for_ten_minutes(&mut self) {
            for _ in 0..60_000 {
                for kind in BOTH {
                    self.ask(kind, SILENCE);
                }
                self.now += SECOND / 100;
            }
            for kind in BOTH {
                assert!(self.go(kind).is_none());
            }
        }

        /// Sends a request of this kind, if one may go, with this answer. Returns whether one went.
        fn ask(&mut self, kind: Kind, answer: Option<bool>) -> bool {
            let Some(ticket) = self.go(kind) else {
                return false;
            };
            let outcome = match answer {
                Some(true) => Outcome::Answered,
                other => Outcome::Failed {
                    why: "no".to_owned(),
                    answered: other.is_some(),
                },
            };
            self.circuits.ended(kind, ticket, outcome, self.now);
            true
        }
    }

    /// Answers of the server to a request: success, an error, or none.
    const WELL: Option<bool> = Some(true);
    const ERROR: Option<bool> = Some(false);
    const SILENCE: Option<bool> = None;

    #[test]
    fn a_server_that_refuses_changes_is_read_from_without_a_pause_and_the_other_way_round() {
        for failing in BOTH {
            for how in [ERROR, SILENCE] {
                let mut scene = Scene::new();
                let other = if failing == Kind::Read {
                    Kind::Change
                } else {
                    Kind::Read
                };
                let mut failed = 0;
                for _ in 0..36_000 {
                    failed += u32::from(scene.ask(failing, how));
                    assert!(scene.ask(other, WELL), "{failing:?} {how:?}");
                    scene.now += SECOND / 10;
                }
                assert!(scene.circuits.outage().is_some());
                // Six until it counts as unreachable, and then a probe every 7 to 15 s, after a few that come sooner.
                assert!((240..=530).contains(&failed), "{failed}");
            }
        }
    }

    #[test]
    fn repeats_of_changes_that_fail_leave_reads_their_budget() {
        let mut scene = Scene::new();
        while scene.circuits.of(Kind::Change).repeat(1).is_some() {}
        assert!(scene.circuits.of(Kind::Read).repeat(1).is_some());
    }

    #[test]
    fn a_server_out_of_reach_costs_what_one_circuit_would() {
        let mut scene = Scene::new();
        let end = scene.now + 3600 * SECOND;
        let mut requests = 0;
        while scene.now < end {
            for kind in BOTH {
                requests += u32::from(scene.ask(kind, SILENCE));
            }
            scene.now += SECOND / 100;
        }
        assert!((240..=540).contains(&requests), "{requests}");
    }

    #[test]
    fn when_one_kind_is_answered_again_the_other_is_tried_at_once() {
        for first in BOTH {
            let mut scene = Scene::new();
            let other = if first == Kind::Read {
                Kind::Change
            } else {
                Kind::Read
            };
            scene.is_silent_for_ten_minutes();
            while !scene.ask(first, WELL) {
                scene.now += SECOND / 100;
            }
            assert!(scene.ask(other, WELL));
            assert!(scene.circuits.outage().is_none());
        }
    }

    #[test]
    fn an_outage_is_over_though_only_one_kind_of_requests_is_made() {
        for asked in BOTH {
            let mut scene = Scene::new();
            scene.is_silent_for_ten_minutes();
            while !scene.ask(asked, WELL) {
                scene.now += SECOND / 100;
            }
            assert!(scene.circuits.outage().is_none());
        }
    }

    #[test]
    fn a_server_that_answers_one_kind_again_and_not_the_other_costs_that_one_a_request() {
        let mut scene = Scene::new();
        scene.is_silent_for_ten_minutes();
        while !scene.ask(Kind::Read, WELL) {
            scene.now += SECOND / 100;
        }
        assert!(scene.ask(Kind::Change, SILENCE));
        assert!(scene.circuits.outage().is_some());
        assert!(!scene.ask(Kind::Change, SILENCE));
        assert!(scene.ask(Kind::Read, WELL));
        assert!(
            !scene.ask(Kind::Change, SILENCE),
            "a second answer says nothing new"
        );
    }

    #[test]
    fn a_server_that_answers_changes_with_errors_is_probed_no_faster_because_reads_work() {
        let mut scene = Scene::new();
        for _ in 0..6 {
            scene.ask(Kind::Change, ERROR);
        }
        scene.now += 2 * SECOND;
        assert!(scene.ask(Kind::Change, ERROR), "a probe");
        for _ in 0..1000 {
            assert!(scene.ask(Kind::Read, WELL));
        }
        assert!(!scene.ask(Kind::Change, WELL));
    }
}
