//! One policy for asking again: when a request that failed is repeated, and when none is sent at all.
//!
//! [`PacedStore`] stands between the program and any store, and every request of the volume goes
//! through it: those of packs as well as those that SlateDB makes. Its decisions are in [`policy`], which reads
//! no clock and does no I/O.
//!
//! * **Reads do not wait for changes.** GET, HEAD and LIST have one circuit, PUT, DELETE and COPY another: each of
//!   them counts and decides all of the following by itself ([`circuits`]).
//! * **Nothing waits for ever.** A request has a limit for its answer and for every pause of a body; beyond
//!   it is cut off and counts as failed. Time in which the [link](crate::link) holds bodies back does not count. A body
//!   that goes to the store waits for its place on the link before its request asks for a turn here: it keeps nobody out
//!   meanwhile.
//! * **Repeats have a budget.** A repeat takes a token and gives it back if it succeeds; requests that
//!   succeed at once earn a fifth of one; there are never more than twenty. So however many callers there are,
//!   repeats that fail are at most a fifth of what succeeds, and twenty more.
//! * **An outage costs a trickle.** After six failures in a row with no answer in between the store is *away*:
//!   requests fail at once, without being sent, but for one at a time, the probe, from half a second to
//!   15 s after the last one. An idle volume does not probe.
//! * **Nobody storms in when it is back.** The probe that is answered lets one request go at a time; each
//!   answer lets one more go beside it.
//! * **A store that says "slow down" is obeyed**: nothing is sent for as long as it asks for (at most 20 s),
//!   and half as many requests go at the same time afterwards.
//!
//! Pauses are jittered: half of each is random, so that many who failed together do not come back together.

mod circuits;
mod policy;
mod store;
mod words;

use std::sync::Arc;
use std::time::Duration;

use object_store::Result;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) use circuits::Kind;
pub use policy::PaceSettings;
pub(crate) use store::PacedStore;
pub use store::UnansweredTry;

use circuits::Circuits;
use policy::{Admission, Outcome, Ticket};
pub use words::Needs;
use words::Words;

use crate::chain::chain;
use crate::error::{away, hung};
use crate::link::{Link, UnderWay, Way, in_time};
use crate::sort::Answer;
use crate::{Fault, Refusal};

/// What all requests to one store share: the state of the policy, and who waits for it.
#[derive(Debug)]
pub(crate) struct Pacer {
    circuits: Mutex<Circuits>,
    settings: PaceSettings,
    /// Something has ended: who waits looks again.
    ended: Notify,
    /// Holds bodies back on their way; limits do not run meanwhile.
    link: Option<Arc<Link>>,
    pub(crate) words: Words,
}

/// How the store has answered lately. Clones look at the same store.
#[derive(Clone, Debug)]
pub struct Health {
    pub(crate) pacer: Arc<Pacer>,
}

impl Health {
    /// When the store has answered a read last; none if it never has. A refusal is an answer.
    pub fn last_read(&self) -> Option<Instant> {
        self.pacer.circuits.lock().reads().last_answer()
    }

    /// The store's last refusal or failure, if it did not come before `since`.
    pub fn words_since(&self, since: Instant) -> Option<Refusal> {
        self.pacer.words.since(since)
    }

    /// Bytes a second that may go to the store at this time of the day; none for as many as there are.
    pub fn upload_rate(&self) -> Option<u64> {
        self.pacer.link.as_ref()?.rate(Way::Up)
    }

    /// Why the store is held to be away, for reads or for changes, and since when: such requests fail at once, but for a
    /// probe now and then.
    pub fn away(&self) -> Option<(String, Duration)> {
        let circuits = self.pacer.circuits.lock();
        let (why, since) = circuits.away()?;
        Some((why.to_owned(), since.elapsed()))
    }
}

/// How a request may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// As often as one likes: the outcome is the same.
    Freely,
    /// Only if the store says that it did nothing: a repeat might meet the work of the first try.
    IfNothingWasDone,
}

/// What a request carries, in bytes: it takes longer then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Nothing,
    /// To the store.
    Up(u64),
    /// From the store, at most.
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

impl Pacer {
    pub(crate) fn new(settings: PaceSettings, link: Option<Arc<Link>>) -> Pacer {
        Pacer {
            circuits: Mutex::new(Circuits::new(&settings)),
            settings,
            ended: Notify::new(),
            link,
            words: Words::default(),
        }
    }

    /// Waits for at most `limit`, in which the time that bodies are held back on the link does not count; else the error
    /// that says so.
    pub(crate) async fn in_time<T>(
        &self,
        limit: Duration,
        what: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        in_time(self.link.as_deref(), limit, what)
            .await
            .unwrap_or_else(|| Err(hung(limit)))
    }

    /// Asks until there is an answer, or repeating is of no use for now.
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

    /// The same, and whether a try before the one that was answered may have been carried out, or may be yet.
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
            tokio::time::sleep(pause).await;
            attempt += 1;
        }
    }

    /// Sends one request when it is its turn, and cuts it off if it takes too long.
    pub(crate) async fn once<T>(
        &self,
        kind: Kind,
        repeated: bool,
        body: Body,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        // First the link: while the store recovers there are few turns, and who waits for the link with one of them keeps
        // out all others, down to the smallest read.
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
    async fn begin(&self, body: Body) -> Option<UnderWay> {
        match body {
            Body::Up(bytes) => Link::begin(self.link.as_ref(), Way::Up, bytes).await,
            Body::Nothing | Body::Down(_) => None,
        }
    }

    /// Waits for its turn; an error when the store is away.
    async fn admit(&self, kind: Kind, repeated: bool) -> Result<Going<'_>> {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            // Registered before the look, so that no end falls in between.
            ended.as_mut().enable();
            let admission = self
                .circuits
                .lock()
                .of(kind)
                .admit(repeated, Instant::now());
            match admission {
                Admission::Go(ticket) => {
                    return Ok(Going {
                        pacer: self,
                        kind,
                        ticket: Some(ticket),
                    });
                }
                Admission::Wait => ended.await,
                Admission::WaitUntil(until) => tokio::time::sleep_until(until).await,
                Admission::Away { why } => return Err(away(why)),
            }
        }
    }
}

/// A request that is under way. Dropping it without an outcome means that its caller has given up.
struct Going<'a> {
    pacer: &'a Pacer,
    kind: Kind,
    ticket: Option<Ticket>,
}

impl Going<'_> {
    fn ended(mut self, outcome: Outcome) {
        self.end(outcome);
    }

    fn end(&mut self, outcome: Outcome) {
        if let Some(ticket) = self.ticket.take() {
            self.pacer
                .circuits
                .lock()
                .ended(self.kind, ticket, outcome, Instant::now());
            self.pacer.ended.notify_waiters();
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
