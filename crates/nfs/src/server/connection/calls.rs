//! The calls of a connection that have begun and are not complete.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use forebay_waits::{FirstPoll, For};
use tokio::task::{JoinError, JoinSet};

use super::Demand;
use crate::Metrics;
use crate::engine::Outcome;
use crate::server::budget::Charge;
use crate::server::pool::Record;

/// The outcome of a call, with its charge and demand.
type Answer = (Outcome, Charge, Demand);

/// The state of a call that has begun.
#[expect(
    clippy::large_enum_variant,
    reason = "it is matched as soon as it is returned; a box would be an allocation for each call"
)]
pub(super) enum Begun {
    /// It is complete. The record is not needed any more.
    Done(Outcome, Record, Charge),
    /// It waits, in a task of its own.
    Waits,
}

/// See the module's documentation. `Call` is the future of a call.
pub(super) struct Calls<Call> {
    metrics: Arc<Metrics>,
    /// The memory of a completed call, for the next one.
    slot: Option<Pin<Box<Call>>>,
    tasks: JoinSet<Answer>,
    /// Upper bound for the reply bytes of the waiting calls.
    expected: usize,
}

impl<Call> Calls<Call>
where
    Call: Future<Output = (Outcome, Record)> + Send + 'static,
{
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Calls {
            metrics,
            slot: None,
            tasks: JoinSet::new(),
            expected: 0,
        }
    }

    /// Begins a call, which has `waited` for its turn; most complete at once.
    pub(super) fn begin(
        &mut self,
        call: Call,
        waited: Option<Duration>,
        charge: Charge,
        demand: Demand,
        context: &mut Context<'_>,
    ) -> Begun {
        let mut slot = match self.slot.take() {
            Some(mut slot) => {
                slot.set(call);
                slot
            }
            None => Box::pin(call),
        };
        let first = FirstPoll::begin();
        if let Some(time) = waited {
            forebay_waits::add(For::Turn, time);
        }
        match slot.as_mut().poll(context) {
            Poll::Ready((outcome, record)) => {
                self.slot = Some(slot);
                Begun::Done(outcome, record, charge)
            }
            Poll::Pending => {
                self.expected += demand.expected;
                self.metrics.calls_waiting.add(1);
                let work = first.into_call().scope(slot);
                self.tasks
                    .spawn(async move { (work.await.0, charge, demand) });
                Begun::Waits
            }
        }
    }

    /// Returns the next call that completes; an error if it has panicked.
    pub(super) fn poll_done(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Answer, JoinError>>> {
        let done = self.tasks.poll_join_next(context);
        if let Poll::Ready(Some(answer)) = &done {
            self.metrics.calls_waiting.subtract(1);
            if let Ok((_, _, demand)) = answer {
                self.expected -= demand.expected;
            }
        }
        done
    }

    /// Whether no call waits.
    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Upper bound for the reply bytes of the waiting calls.
    pub(super) fn expected_bytes(&self) -> usize {
        self.expected
    }

    /// Runs the calls to completion, without their connection, but no longer than `time`, nor than until `ending`.
    pub(super) async fn outlive(mut self, time: Duration, ending: impl Future<Output = ()>) {
        let finished = async {
            while self.tasks.join_next().await.is_some() {
                self.metrics.calls_waiting.subtract(1);
            }
        };
        let cut_off = tokio::select! {
            () = finished => false,
            () = ending => true,
            () = tokio::time::sleep(time) => true,
        };
        if cut_off {
            self.metrics.calls_waiting.subtract(self.tasks.len() as u64);
            self.tasks.shutdown().await;
        }
    }
}
