//! The decisions of one circuit, as a function of the answers and the time.
//!
//! ```text
//!               six failures in a row                     the probe is answered
//!   working ---------------------------> outage ---------------------------------> recovering
//!      ^                                  | ^                                         |  |
//!      |                                  +-+ the probe fails: the next one           |  |
//!      |                                      comes later                             |  |
//!      |                                  ^                                           |  |
//!      |                                  +-------- six failures in a row ------------+  |
//!      +-------------- each answer lets one more go, until there is no limit ------------+
//! ```

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use forebay_types::balance;
use tokio::time::Instant;

/// Failures in a row after which the store counts as unreachable: an outage.
const FAILURES: u32 = 6;
/// Number of parallel requests from which on a recovered store counts as working.
const WIDE: usize = 32;
/// Maximum time for which a store's "slow down" is obeyed.
const LONGEST_SLOW_DOWN: Duration = Duration::from_secs(20);
/// Pause before the second try; doubles with each further try.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Pause before the first probe; doubles with each further probe.
const FIRST_PROBE: Duration = Duration::from_secs(1);
const LONGEST_PROBE: Duration = Duration::from_secs(15);
/// Limits of a store's retry policy. The default is right for every store; tests choose shorter ones.
#[derive(Clone, Debug, PartialEq)]
pub struct RetrySettings {
    /// Time limit for the answer to a request without a body; default 25 s. A request that carries bytes gets in
    /// addition the time that they take at `slowest_transfer`.
    pub answer_limit: Duration,
    /// The slowest accepted transfer, in bytes per second, 1 or more; default 64 KiB/s.
    pub slowest_transfer: u64,
    /// Maximum number of tries of one call; default 4.
    pub attempts: u32,
    /// Repeats that may fail before any request succeeds, 1 or more; default 20.
    pub reserve: f64,
    /// Tokens that one success at the first try adds to the budget of repeats; default 0.2.
    pub earned: f64,
    /// Seed of the jitter; `None` for a random one.
    pub seed: Option<u64>,
}

impl Default for RetrySettings {
    fn default() -> Self {
        RetrySettings {
            answer_limit: Duration::from_secs(25),
            slowest_transfer: 64 << 10,
            attempts: 4,
            reserve: 20.0,
            earned: 0.2,
            seed: None,
        }
    }
}

impl RetrySettings {
    /// How long a request that carries `transfer` bytes may take.
    pub(super) fn limit(&self, transfer: u64) -> Duration {
        self.answer_limit
            + Duration::from_secs_f64(transfer as f64 / self.slowest_transfer.max(1) as f64)
    }
}

/// Whether a request may be sent.
#[derive(Debug)]
pub(super) enum Admission {
    Go(Ticket),
    /// Not before another request has ended.
    Wait,
    WaitUntil(Instant),
    /// No: it would fail.
    Outage {
        why: String,
    },
}

/// A permitted request; it has to be returned with an outcome.
#[derive(Debug)]
pub(super) struct Ticket {
    probe: bool,
    /// It took a token.
    repeated: bool,
}

/// The result of a request.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The store has answered, possibly with a refusal.
    Answered,
    SlowDown {
        after: Option<Duration>,
    },
    Failed {
        why: String,
        /// Whether the server sent an answer, so that it can be reached.
        answered: bool,
    },
    /// The caller did not wait.
    GivenUp,
}

/// State of the policy for one kind of requests to a store.
#[derive(Debug)]
pub(super) struct Circuit {
    settings: RetrySettings,
    tokens: f64,
    failures: u32,
    state: State,
    in_flight: usize,
    /// No request is sent before this.
    quiet_until: Option<Instant>,
    last_answer: Option<Instant>,
    random: Random,
}

#[derive(Debug)]
enum State {
    Working,
    /// Maximum number of requests at the same time.
    Recovering(usize),
    Outage {
        why: String,
        since: Instant,
        probes: u32,
        probe_at: Instant,
        probing: bool,
        /// Whether the server sent no answer to the last request, as if it could not be reached.
        silent: bool,
    },
}

impl Circuit {
    pub(super) fn new(settings: RetrySettings) -> Circuit {
        Circuit {
            tokens: settings.reserve,
            failures: 0,
            state: State::Working,
            in_flight: 0,
            quiet_until: None,
            last_answer: None,
            random: Random::new(settings.seed),
            settings,
        }
    }

    pub(super) fn last_answer(&self) -> Option<Instant> {
        self.last_answer
    }

    pub(super) fn outage(&self) -> Option<(&str, Instant)> {
        match &self.state {
            State::Outage { why, since, .. } => Some((why, *since)),
            _ => None,
        }
    }

    /// Whether a request would be refused without being sent.
    pub(super) fn is_shut(&self, now: Instant) -> bool {
        match self.state {
            State::Outage {
                probing, probe_at, ..
            } => probing || probe_at > now,
            _ => false,
        }
    }

    /// The time of the next probe, during an outage in which the store does not answer.
    pub(super) fn silent_until(&self) -> Option<Instant> {
        match &self.state {
            State::Outage {
                probe_at,
                silent: true,
                ..
            } => Some(*probe_at),
            _ => None,
        }
    }

    /// Moves the next probe, during an outage in which the store does not answer.
    pub(super) fn probe_at(&mut self, when: impl FnOnce(Instant) -> Instant) {
        if let State::Outage {
            probe_at,
            silent: true,
            ..
        } = &mut self.state
        {
            *probe_at = when(*probe_at);
        }
    }

    /// Ends an outage in which the store does not answer: it has answered a request of the other circuit. The first failure
    /// here begins the next outage.
    pub(super) fn server_answers(&mut self) {
        if self.silent_until().is_some() {
            self.state = State::Recovering(1);
        }
    }

    pub(super) fn admit(&mut self, repeated: bool, now: Instant) -> Admission {
        if let Some(until) = self.quiet_until.filter(|until| *until > now) {
            return Admission::WaitUntil(until);
        }
        let mut probe = false;
        match &mut self.state {
            State::Working => {}
            State::Recovering(window) if self.in_flight < *window => {}
            State::Recovering(_) => return Admission::Wait,
            State::Outage {
                probing, probe_at, ..
            } if !*probing && *probe_at <= now => {
                *probing = true;
                probe = true;
            }
            State::Outage { why, .. } => return Admission::Outage { why: why.clone() },
        }
        self.in_flight += 1;
        Admission::Go(Ticket { probe, repeated })
    }

    /// Whether a request that failed for the `attempt`th time is repeated, and after which pause. Takes a token.
    pub(super) fn repeat(&mut self, attempt: u32) -> Option<Duration> {
        let is_outage = matches!(self.state, State::Outage { .. });
        if is_outage || attempt >= self.settings.attempts || self.tokens < 1.0 {
            return None;
        }
        self.tokens -= 1.0;
        Some(
            self.random
                .jitter(doubled(FIRST_PAUSE, attempt - 1, LONGEST_PAUSE)),
        )
    }

    pub(super) fn ended(&mut self, ticket: Ticket, outcome: Outcome, now: Instant) {
        self.in_flight = balance::taken_count("requests in flight", self.in_flight, 1);
        match outcome {
            Outcome::Answered => self.answered(&ticket, now),
            Outcome::SlowDown { after } => {
                self.failed(&ticket, "the store asks to slow down", true, now);
                self.slow_down(after, now);
            }
            Outcome::Failed { why, answered } => self.failed(&ticket, &why, answered, now),
            // A caller that did not wait for a probe has seen no answer either.
            Outcome::GivenUp if ticket.probe => {
                self.failed(&ticket, "no answer in time", false, now);
            }
            Outcome::GivenUp => {}
        }
    }

    fn answered(&mut self, ticket: &Ticket, now: Instant) {
        self.failures = 0;
        self.last_answer = Some(now);
        let gain = if ticket.repeated {
            1.0
        } else {
            self.settings.earned
        };
        self.tokens = (self.tokens + gain).min(self.settings.reserve);
        self.state = match &self.state {
            State::Working => State::Working,
            State::Recovering(window) if *window + 1 >= WIDE => State::Working,
            State::Recovering(window) => State::Recovering(window + 1),
            State::Outage { .. } => State::Recovering(1),
        };
    }

    fn failed(&mut self, ticket: &Ticket, reason: &str, answered: bool, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        match &mut self.state {
            State::Outage {
                why,
                probes,
                probe_at,
                probing,
                silent,
                ..
            } if ticket.probe => {
                *probing = false;
                *silent = !answered;
                *probes = probes.saturating_add(1);
                *probe_at = now
                    + self
                        .random
                        .jitter(doubled(FIRST_PROBE, *probes, LONGEST_PROBE));
                reason.clone_into(why);
            }
            // Requests that were in flight when the store became unreachable give no new information.
            State::Outage { .. } => {}
            _ if self.failures >= FAILURES => {
                self.state = State::Outage {
                    why: reason.to_owned(),
                    since: now,
                    probes: 0,
                    probe_at: now + self.random.jitter(FIRST_PROBE),
                    probing: false,
                    silent: !answered,
                };
            }
            _ => {}
        }
    }

    fn slow_down(&mut self, after: Option<Duration>, now: Instant) {
        let fewer = (self.in_flight / 2).max(1);
        match &mut self.state {
            State::Working => self.state = State::Recovering(fewer),
            State::Recovering(window) => *window = (*window / 2).max(1),
            // The probes are slow enough.
            State::Outage { .. } => return,
        }
        let pause = match after {
            Some(after) => after.min(LONGEST_SLOW_DOWN),
            None => self
                .random
                .jitter(doubled(FIRST_PAUSE, self.failures, LONGEST_PAUSE)),
        };
        let until = now + pause;
        self.quiet_until = Some(self.quiet_until.map_or(until, |before| before.max(until)));
    }
}

/// `first`, doubled `times` times, and at most `longest`.
fn doubled(first: Duration, times: u32, longest: Duration) -> Duration {
    first.saturating_mul(1 << times.min(16)).min(longest)
}

/// A random source for pauses that differ between callers: splitmix64.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn new(seed: Option<u64>) -> Random {
        // The hasher's keys are drawn from the system.
        Random(seed.unwrap_or_else(|| RandomState::new().build_hasher().finish()))
    }

    /// A time between a half and all of `pause`.
    fn jitter(&mut self, pause: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let fraction = ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
        pause.mul_f64(0.5 + 0.5 * fraction)
    }
}

#[cfg(test)]
mod tests;
