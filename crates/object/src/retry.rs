//! The retry policy of all requests: when a failed request is repeated, and when none is sent at all.
//!
//! [`RetryingStore`] stands between the program and any store, and every request of the volume goes through it: those for
//! packs as well as those of SlateDB. Its decisions are in [`circuit`], which reads no clock and does no I/O.
//!
//! * **Reads do not wait for changes.** GET, HEAD and LIST have one circuit, PUT, DELETE and COPY another: each of them
//!   counts and decides all of the following by itself ([`circuits`]).
//! * **Nothing waits for ever.** A request has a limit for its answer and for every pause of a body; beyond it the
//!   request is aborted and counts as failed. Time in which the [link](crate::link) holds bodies back does not count. A
//!   body that goes to the store waits for its place on the link before its request asks for permission here: it blocks
//!   no other request meanwhile.
//! * **Repeats have a budget.** A repeat takes a token and returns it if it succeeds; a request that succeeds at the
//!   first try earns a fifth of a token; there are never more than twenty. So with any number of callers, the failed
//!   repeats are at most a fifth of the successful requests, plus twenty.
//! * **An outage costs little traffic.** After six failures in a row without an answer in between there is an *outage*:
//!   requests fail at once, without being sent, except for one at a time, the probe, from half a second to 15 s after
//!   the last one. Nothing is sent of its own accord: the program asks for an idle volume.
//! * **Recovery is gradual.** A successful probe allows one request at a time; each answer allows one more in parallel.
//! * **A "slow down" of the store is obeyed**: nothing is sent for the time that it asks for (at most 20 s), and half
//!   as many requests run in parallel afterwards.
//!
//! Pauses are jittered: half of each is random, so that requests which failed together do not come back together.

mod circuit;
mod circuits;
mod instruments;
mod store;
mod words;

use std::sync::Arc;
use std::time::Duration;

use object_store::Result;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

pub use circuit::RetrySettings;
pub(crate) use circuits::Kind;
pub(crate) use store::RetryingStore;
pub use store::UnansweredTry;

use circuit::{Admission, Outcome, Ticket};
use circuits::Circuits;
use instruments::Instruments;
pub use words::Needs;
use words::Words;

use crate::chain::chain;
use crate::error::{hung, outage};
use crate::link::{Direction, InTransit, Link, in_time};
use crate::sort::Answer;
use crate::{Fault, Refusal};

/// The state that all requests to one store share: the policy, and the waiting requests.
#[derive(Debug)]
pub(crate) struct RetryPolicy {
    circuits: Mutex<Circuits>,
    settings: RetrySettings,
    /// Notified when a request has ended: waiting requests check again.
    ended: Notify,
    /// Holds bodies back in transit; limits do not run meanwhile.
    link: Option<Arc<Link>>,
    pub(crate) words: Words,
    instruments: Instruments,
}

/// How the store has answered lately. Clones report on the same store.
#[derive(Clone, Debug)]
pub struct Health {
    pub(crate) policy: Arc<RetryPolicy>,
}

impl Health {
    /// Time of the store's last answer to a read; `None` if there was none yet. A refusal is an answer.
    pub fn last_read(&self) -> Option<Instant> {
        self.policy.circuits.lock().reads().last_answer()
    }

    /// The store's last refusal or failure, if it did not come before `since`.
    pub fn words_since(&self, since: Instant) -> Option<Refusal> {
        self.policy.words.since(since)
    }

    /// Bytes per second that may go to the store at this time of the day; `None` for no limit.
    pub fn upload_rate(&self) -> Option<u64> {
        self.policy.link.as_ref()?.rate(Direction::Up)
    }

    /// Why the store counts as unreachable, for reads or for changes, and for how long it has been so: such requests
    /// fail at once, except for occasional probes.
    pub fn outage(&self) -> Option<(String, Duration)> {
        let circuits = self.policy.circuits.lock();
        let (why, since) = circuits.outage()?;
        Some((why.to_owned(), since.elapsed()))
    }

    /// Whether a request would be sent now, rather than fail at once: there is no outage, or its next probe is due.
    pub fn takes_requests(&self) -> bool {
        !self.policy.circuits.lock().are_shut(Instant::now())
    }
}

/// How a request may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Any number of times: the outcome is the same.
    Freely,
    /// Only if the store reports that it did nothing: a repeat might meet the effect of the first try.
    IfNothingWasDone,
}

/// The bytes that a request carries, which extend its time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Nothing,
    /// To the store.
    Up(u64),
    /// From the store; an upper bound.
    Down(u64),
}

impl Body {
    fn bytes(self) -> u64 {
        match self {
            Body::Nothing => 0,
            Body::Up(bytes) | Body::Down(bytes) => bytes,
        }
    }
}

impl RetryPolicy {
    pub(crate) fn new(settings: RetrySettings, link: Option<Arc<Link>>) -> RetryPolicy {
        RetryPolicy {
            circuits: Mutex::new(Circuits::new(&settings)),
            settings,
            ended: Notify::new(),
            link,
            words: Words::default(),
            instruments: Instruments::default(),
        }
    }

    /// Waits for `what` for at most `limit`, not counting the time in which bodies are held back on the link; after
    /// that, returns the error for an aborted request.
    pub(crate) async fn in_time<T>(
        &self,
        limit: Duration,
        what: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        in_time(self.link.as_deref(), limit, what)
            .await
            .unwrap_or_else(|| Err(hung(limit)))
    }

    /// Repeats a request until there is an answer, or until a repetition is of no use for now.
    pub(crate) async fn run<T, F>(
        &self,
        kind: Kind,
        repeat: Repeat,
        body: Body,
        ask: impl FnMut() -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let (answer, _) = self.run_telling(kind, repeat, body, ask).await?;
        Ok(answer)
    }

    /// The same; also returns whether an earlier, unanswered try may have taken effect, or may do so later.
    pub(crate) async fn run_telling<T, F>(
        &self,
        kind: Kind,
        repeat: Repeat,
        body: Body,
        mut ask: impl FnMut() -> F,
    ) -> Result<(T, bool)>
    where
        F: Future<Output = Result<T>>,
    {
        let (mut attempt, mut is_doubtful) = (1, false);
        loop {
            let error = match self.once(kind, attempt > 1, body, ask()).await {
                Ok(answer) => return Ok((answer, is_doubtful)),
                Err(error) => error,
            };
            let may = match Answer::of(&error) {
                Answer::Final => false,
                Answer::SlowDown { .. } => true,
                Answer::Failed { did_nothing } => {
                    is_doubtful |= !did_nothing;
                    did_nothing || repeat == Repeat::Freely
                }
            };
            let pause = may
                .then(|| self.circuits.lock().of(kind).repeat(attempt))
                .flatten();
            let Some(pause) = pause else {
                return Err(error);
            };
            self.instruments.repeated(&error);
            tokio::time::sleep(pause).await;
            attempt += 1;
        }
    }

    /// Sends one request when the policy permits, and aborts it if it takes too long.
    pub(crate) async fn once<T>(
        &self,
        kind: Kind,
        repeated: bool,
        body: Body,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        // First the link: while the store recovers few requests are permitted, and one that waits for the link with a
        // permission blocks all others, down to the smallest read.
        let _under_way = self.begin(body).await;
        let going = self.admit(kind, repeated).await?;
        let limit = self.limit(body.bytes());
        let result = self.in_time(limit, request).await;
        going.ended(match result.as_ref().map_err(Answer::of) {
            Ok(_) | Err(Answer::Final) => Outcome::Answered,
            Err(Answer::SlowDown { after }) => Outcome::SlowDown { after },
            Err(Answer::Failed { .. }) => Outcome::Failed {
                why: result
                    .as_ref()
                    .err()
                    .map(|error| chain(error))
                    .unwrap_or_default(),
                answered: (result.as_ref().err())
                    .is_some_and(|error| Fault::of(error) != Fault::Unreachable),
            },
        });
        result
    }

    /// How long a request that carries `bytes` bytes may take.
    pub(crate) fn limit(&self, bytes: u64) -> Duration {
        self.settings.limit(bytes)
    }

    /// Waits until a body that goes to the store may begin.
    async fn begin(&self, body: Body) -> Option<InTransit> {
        match body {
            Body::Up(bytes) => Link::begin(self.link.as_ref(), Direction::Up, bytes).await,
            Body::Nothing | Body::Down(_) => None,
        }
    }

    /// Waits for permission; an error if the store counts as unreachable.
    async fn admit(&self, kind: Kind, repeated: bool) -> Result<Going<'_>> {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            // Registered before the check, so that no notification falls in between.
            ended.as_mut().enable();
            let admission = self
                .circuits
                .lock()
                .of(kind)
                .admit(repeated, Instant::now());
            match admission {
                Admission::Go(ticket) => {
                    return Ok(Going {
                        policy: self,
                        kind,
                        ticket: Some(ticket),
                    });
                }
                Admission::Wait => {
                    let _counted = self.instruments.wait();
                    ended.await;
                }
                Admission::WaitUntil(until) => {
                    let _counted = self.instruments.wait();
                    tokio::time::sleep_until(until).await;
                }
                Admission::Outage { why } => {
                    self.instruments.not_sent.add(1);
                    return Err(outage(why));
                }
            }
        }
    }
}

/// A request in flight. Dropping it without an outcome means that its caller has given up.
struct Going<'a> {
    policy: &'a RetryPolicy,
    kind: Kind,
    ticket: Option<Ticket>,
}

impl Going<'_> {
    fn ended(mut self, outcome: Outcome) {
        self.end(outcome);
    }

    fn end(&mut self, outcome: Outcome) {
        if let Some(ticket) = self.ticket.take() {
            self.policy
                .circuits
                .lock()
                .ended(self.kind, ticket, outcome, Instant::now());
            self.policy.ended.notify_waiters();
        }
    }
}

impl Drop for Going<'_> {
    fn drop(&mut self) {
        self.end(Outcome::GivenUp);
    }
}

#[cfg(test)]
mod tests;
