//! Decides which calls of a connection may begin, and handles those that may not.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use forebay_vfs::Trees;

use super::incoming::Next;
use super::{Connection, Demand, End};
use crate::engine::{Lane, Outcome, Session, demand, execute_in_memory, may_be_put_off, put_off};
use crate::server::budget::{BudgetPermit, Charge, OWN_BYTES, Part, Waiting};
use crate::server::pool::Record;

/// Replies up to this length do not count for the limit of a connection's reply bytes.
const SHORT_REPLY_BYTES: usize = 8 << 10;

/// Result of the attempt to answer a READ from memory, when its lane has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    /// It is answered.
    Answered,
    /// Its data is not in memory, or it is not a READ that can be answered from there.
    Elsewhere,
    /// There is no room for its reply: memory was not checked.
    NoRoom,
}

impl<F, Make, Call> Connection<F, Make, Call>
where
    F: Trees,
    Make: Fn(Arc<Session<F>>, Record, Instant, Vec<u8>) -> Call + Send,
    Call: Future<Output = (Outcome, Record)> + Send + 'static,
{
    /// Begins the calls that have been read. True when one blocks the calls behind it.
    pub(super) fn take_up(&mut self, now: Instant, context: &mut Context<'_>) -> Result<bool, End> {
        if !self.lanes.is_empty() {
            for lane in Lane::ALL {
                self.begin_parked(lane, now, context)?;
            }
            self.look_at_parked(now, context);
        }
        loop {
            let (record, waited) = match self.record.take() {
                Some(record) => {
                    let waited = record.arrived().elapsed();
                    (record, Some(waited))
                }
                None => match self.next_record(now, context)? {
                    Some(record) => (record, None),
                    None => return Ok(self.waiting.is_some()),
                },
            };
            let (lane, expected) = demand(record.bytes());
            let demand = Demand { lane, expected };
            if let Some(charge) = self.admit(&record, demand) {
                self.blocking.passed();
                self.begin(record, waited, charge, demand, now, context)?;
                continue;
            }
            let looked = self.look(&record, demand, now);
            if looked == Looked::Answered {
                self.blocking.passed();
                continue;
            }
            let unlooked = looked == Looked::NoRoom;
            match self.lanes.park(lane, record, expected, unlooked) {
                Ok(()) => {
                    self.begin_parked(lane, now, context)?;
                    self.look_at_parked(now, context);
                }
                Err(record) if self.is_overdue(&record, now, context) => {
                    self.put_off(record.bytes(), record.arrived(), now)?;
                }
                Err(record) => {
                    self.record = Some(record);
                    return Ok(true);
                }
            }
            self.blocking.passed();
        }
    }

    /// Answers a READ from memory when its lane has no room, if its data is there. So it does not wait for READs that
    /// wait for the bucket. The data lent to its reply is accounted separately from theirs; only replies that the
    /// client does not take can block it.
    fn look(&mut self, record: &Record, demand: Demand, now: Instant) -> Looked {
        if demand.lane != Lane::Reading {
            return Looked::Elsewhere;
        }
        if !self.may_lend(demand.expected) {
            return Looked::NoRoom;
        }
        let holder = (self.client, Part::Memory);
        let charge = self.replies.allowance.charge(demand.expected, demand.lane);
        let charge = charge.or_else(|| {
            let permit = self.shared.budget.take(holder, demand.expected);
            permit.map(Charge::Shared)
        });
        match charge {
            Some(charge) => self.answer_from_memory(record, charge, now),
            None => Looked::NoRoom,
        }
    }

    /// Tries to answer parked READs from memory that found no room for their replies when they arrived.
    fn look_at_parked(&mut self, now: Instant, context: &mut Context<'_>) {
        while let Some((place, mut call)) = self.lanes.take_unlooked() {
            let mut charge = None;
            if self.may_lend(call.expected) {
                charge = self.replies.allowance.charge(call.expected, Lane::Reading);
                if charge.is_none() {
                    let mut waiting = self.lanes.memory.take();
                    let permit = self.obtain(Part::Memory, call.expected, &mut waiting, context);
                    self.lanes.memory = waiting;
                    charge = permit.map(Charge::Shared);
                }
            }
            let Some(charge) = charge else {
                self.lanes.put_back(place, call);
                return;
            };
            // The permit that was waited for was for this READ.
            self.lanes.memory = None;
            if let Looked::Elsewhere = self.answer_from_memory(&call.record, charge, now) {
                call.unlooked = false;
                self.lanes.put_back(place, call);
            }
        }
    }

    /// Whether the connection may queue a further reply of this length, in bytes.
    fn may_lend(&self, expected: usize) -> bool {
        let unsent = self.replies.unsent_bytes();
        unsent == 0 || unsent + expected <= self.shared.limits.reply_bytes
    }

    fn answer_from_memory(&mut self, record: &Record, charge: Charge, now: Instant) -> Looked {
        self.renew_session(now);
        let buffer = self.replies.buffer();
        match execute_in_memory(&self.session, record.bytes(), buffer) {
            Ok(reply) => {
                self.timeouts.called();
                let time = record.arrived().elapsed();
                self.session.count_reply(record.bytes(), &reply, time);
                self.replies.put(reply, charge);
                Looked::Answered
            }
            Err(buffer) => {
                self.replies.give_buffer(buffer);
                self.replies.allowance.release(charge);
                Looked::Elsewhere
            }
        }
    }

    /// Begins the parked calls of a lane for which there is room now.
    fn begin_parked(
        &mut self,
        lane: Lane,
        now: Instant,
        context: &mut Context<'_>,
    ) -> Result<(), End> {
        while let Some(first) = self.lanes.of(lane).first() {
            let expected = first.expected;
            let demand = Demand { lane, expected };
            let bytes = first.record.uncharged_bytes() + expected;
            if !self.may_begin(demand) {
                return Ok(());
            }
            let charge = match self.replies.allowance.charge(bytes, lane) {
                Some(charge) => charge,
                None => {
                    let mut waiting = self.lanes.of_mut(lane).waiting.take();
                    let permit = self.obtain(Part::Call(lane), bytes, &mut waiting, context);
                    self.lanes.of_mut(lane).waiting = waiting;
                    match permit {
                        Some(permit) => Charge::Shared(permit),
                        None => return Ok(()),
                    }
                }
            };
            if let Some(first) = self.lanes.unpark(lane) {
                let waited = Some(first.record.arrived().elapsed());
                self.begin(first.record, waited, charge, demand, now, context)?;
            }
        }
        Ok(())
    }

    /// Takes from the shared budget, or waits for it; the task is woken when the permit is granted.
    fn obtain(
        &self,
        part: Part,
        bytes: usize,
        waiting: &mut Option<Waiting>,
        context: &mut Context<'_>,
    ) -> Option<BudgetPermit> {
        let (budget, holder) = (&self.shared.budget, (self.client, part));
        if waiting.is_none() {
            if let Some(permit) = budget.take(holder, bytes) {
                return Some(permit);
            }
            self.session.engine.metrics.budget_waits.add(1);
        }
        let wait = waiting.get_or_insert_with(|| budget.wait(holder, bytes));
        let Poll::Ready(permit) = Pin::new(wait).poll(context) else {
            return None;
        };
        *waiting = None;
        Some(permit)
    }

    /// Whether a blocking call has waited long enough, and may be put off.
    fn is_overdue(&mut self, record: &Record, now: Instant, context: &mut Context<'_>) -> bool {
        may_be_put_off(record.bytes()) && self.has_blocked_long_enough(now, context)
    }

    /// Whether the blocking call has waited long enough. A client that does not take its replies gets no
    /// further ones.
    fn has_blocked_long_enough(&mut self, now: Instant, context: &mut Context<'_>) -> bool {
        let limit = self.shared.limits.max_blocking;
        self.replies.unsent_bytes() < OWN_BYTES && self.blocking.is_over(now, limit, context)
    }

    /// Asks the client to retry a call later; `head` is the beginning of the call, which was read at `arrived`.
    fn put_off(&mut self, head: &[u8], arrived: fastant::Instant, now: Instant) -> Result<(), End> {
        self.blocking.put_off(now);
        let buffer = self.replies.buffer();
        let outcome = put_off(&self.session, head, buffer);
        self.session.count(head, &outcome, arrived.elapsed());
        let charge = self.replies.allowance.force(0);
        self.answer(outcome, charge)
    }

    /// Returns the next complete record. `None` when there is none, or when a large one waits for a buffer.
    fn next_record(
        &mut self,
        now: Instant,
        context: &mut Context<'_>,
    ) -> Result<Option<Record>, End> {
        loop {
            // While a call of this connection waits, records are copied. So waiting calls keep at most one scratch
            // buffer alive, regardless of their number and of the part of the buffer that they use.
            let in_place = self.calls.is_empty();
            match self.incoming.next(in_place)? {
                Next::Input => {
                    if !self.incoming.is_midway() {
                        self.timeouts.record_since = None;
                    } else if self.timeouts.record_since.is_none() {
                        self.timeouts.record_since = Some(now);
                    }
                    return Ok(None);
                }
                Next::Buffer => {
                    if !self.find_buffer(now, context) {
                        // The client is not responsible for the delay.
                        self.timeouts.record_since = None;
                        return Ok(None);
                    }
                }
                Next::Discarded(head) => {
                    self.timeouts.record_since = None;
                    self.put_off(&head, self.incoming.read_at(), now)?;
                }
                Next::Record(record) => {
                    self.timeouts.record_since = None;
                    return Ok(Some(record));
                }
            }
        }
    }

    /// Gives the large record that has begun a buffer, or discards it when it has waited for one long enough. False
    /// while it waits.
    fn find_buffer(&mut self, now: Instant, context: &mut Context<'_>) -> bool {
        let mut waiting = self.waiting.take();
        let bytes = self.shared.limits.record_bytes;
        let permit = self.obtain(Part::Call(Lane::Changing), bytes, &mut waiting, context);
        if let Some(permit) = permit {
            self.blocking.passed();
            self.incoming.grant(permit);
        } else if self.has_blocked_long_enough(now, context) {
            // The next one must not be waited for either.
            self.blocking.put_off(now);
            self.incoming.discard();
        } else {
            self.waiting = waiting;
            return false;
        }
        true
    }

    /// Whether the limits of this connection allow a call to begin.
    fn may_begin(&self, demand: Demand) -> bool {
        let Demand { lane, expected } = demand;
        let limits = &self.shared.limits;
        let replies = self.replies.unsent_bytes() + self.calls.expected_bytes();
        let is_long = expected > SHORT_REPLY_BYTES;
        let is_too_much = is_long && replies > 0 && replies + expected > limits.reply_bytes;
        self.lanes.of(lane).in_flight < limits.calls_in_flight && !is_too_much
    }

    /// Returns the charge for the call, if it may begin.
    fn admit(&mut self, record: &Record, demand: Demand) -> Option<Charge> {
        if !self.may_begin(demand) {
            return None;
        }
        let Demand { lane, expected } = demand;
        let bytes = record.uncharged_bytes() + expected;
        if let Some(charge) = self.replies.allowance.charge(bytes, lane) {
            return Some(charge);
        }
        // Other calls of its lane came earlier.
        if self.lanes.of(lane).first().is_some() {
            return None;
        }
        let permit = self
            .shared
            .budget
            .take((self.client, Part::Call(lane)), bytes);
        permit.map(Charge::Shared)
    }
}
