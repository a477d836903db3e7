//! One client's connection.
//!
//! A single task owns it and does in turn what can be done without waiting:
//!
//! ```text
//!   socket --read--> scratch --assemble--> record --admit--> call --poll once--+--> done --+
//!      ^                                                                       |           |
//!      |                                                          must wait    v           v
//!      +-------------------------- write <-------- outbox <------------- task of its own --+
//! ```
//!
//! A record is *admitted* while calls in flight and reply bytes are below their limits and its client has budget for it. One
//! that cannot be admitted is parked, if it is small, and those behind it go on. A large one has to wait for a buffer, and so does
//! all that follows it in the stream: no longer than [`Limits::patience`](crate::Limits::patience), then it is read without
//! being kept, and its client is asked to come back with it. A record that lies whole in scratch is used there, if it is long
//! and nothing is waiting: what it has for the log is copied once, from there. When a client asks for TLS, what was read before
//! and after is kept apart: all that came in clear is answered in clear, and nothing that came in clear behind the request is
//! looked at. Calls already begun outlive the connection: when it breaks they are finished, so that the client finds their
//! replies in the replay cache.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::BufMut;
use forebay_vfs::FileSystem;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Seat;
use super::Shared;
use super::budget::{Account, Charge, Client, OWN_BYTES, Share, Waiting};
use super::lanes::Lanes;
use super::outbox::Outbox;
use super::pool::{self, Record, SHARED_BYTES};
use super::scratch::{SCRATCH_BYTES, Unread};
use super::stream::Stream;
use super::timeouts::{Busy, Patience, Timeouts};
use crate::engine::{Lane, Outcome, Session, demand, may_be_put_off, put_off};
use crate::record::{Assembler, MARK_BYTES, RecordError, Step};
use crate::rpc::Reply;
use crate::tls::Tls;

/// What the server wants of its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Serve.
    Serving,
    /// Read no more, finish what was read.
    Draining,
    /// Drop everything.
    Ending,
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("closed")]
    Closed,
    #[error(transparent)]
    Socket(#[from] io::Error),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("what came is no RPC call")]
    NotRpc,
    #[error(
        "the client asked for TLS while other calls of it were under way, or sent more behind it"
    )]
    NotAlone,
    #[error("the TLS handshake failed: {0}")]
    Handshake(io::Error),
    #[error("{0}")]
    TimedOut(&'static str),
    #[error("its client holds more than its share in calls that are not complete or not answered")]
    OverShare,
}

/// Rounds of reading before other tasks of the thread get their turn.
const MAX_ROUNDS: usize = 16;

/// Longest record of a stranger, in bytes: it is told that it may mount nothing, for which any call will do.
const STRANGER_RECORD_BYTES: usize = 1 << 10;

/// Replies up to this length do not count for the limit of a connection's reply bytes.
const SHORT_REPLY_BYTES: usize = 8 << 10;

/// A connection that waits may hold so many bytes without their being counted: a call that waits costs about one KiB.
const UNCOUNTED_BYTES: usize = 2 << 10;

/// What it holds beside them is counted in steps of so many bytes.
const COUNTED_STEP: usize = 4 << 10;

/// What a call needs.
#[derive(Clone, Copy)]
struct Demand {
    lane: Lane,
    /// Bytes that its reply may have.
    expected: usize,
}

/// A reply, or not, from a task, with what its call was charged and what it needed.
type Answer = (Outcome, Charge, Demand);

/// See the module's documentation. `Make` begins a call, `Call` is a call begun.
pub(super) struct Connection<F, Make, Call> {
    stream: Stream,
    /// The client was told that TLS begins: it does when that is sent.
    starting: Option<Tls>,
    peer: SocketAddr,
    client: Client,
    session: Arc<Session<F>>,
    shared: Arc<Shared<F>>,
    make: Make,
    /// Its place among the connections.
    _seat: Seat,
    /// The memory of a finished call, for the next.
    slot: Option<Pin<Box<Call>>>,
    /// The memory of a reply's head, for the next.
    buffer: Vec<u8>,

    unread: Unread,
    assembler: Assembler,
    /// For the large record that is being assembled.
    share: Option<Share>,
    /// What that waits for.
    waiting: Option<Waiting>,
    /// Complete, and neither admitted nor parked yet.
    record: Option<Record>,
    /// Complete, not admitted yet, and out of the way.
    lanes: Lanes,
    patience: Patience,
    /// For what is held while the connection waits.
    rest: Option<Share>,

    calls: JoinSet<Answer>,
    /// Bytes that the replies to `calls` may have.
    expected: usize,
    account: Account,
    outbox: Outbox,

    /// Nothing more will be read: the client has closed its side, or the server is stopping.
    reading_done: bool,
    timeouts: Timeouts,
}

impl<F, Make, Call> Connection<F, Make, Call>
where
    F: FileSystem,
    Make: Fn(Arc<Session<F>>, Record, Instant, Vec<u8>) -> Call + Send,
    Call: Future<Output = (Outcome, Record)> + Send + 'static,
{
    pub(super) fn new(
        stream: TcpStream,
        peer: SocketAddr,
        session: Arc<Session<F>>,
        shared: &Arc<Shared<F>>,
        seat: Seat,
        make: Make,
    ) -> Self {
        let (limits, now) = (&shared.limits, Instant::now());
        let mut timeouts = Timeouts::new(now);
        let record_bytes = if session.is_stranger() {
            timeouts.expel(now, limits.stranger_time);
            STRANGER_RECORD_BYTES
        } else {
            timeouts.expect_call(now, limits.first_call_timeout);
            limits.record_bytes
        };
        Connection {
            stream: Stream::Plain(stream),
            starting: None,
            peer,
            client: Client::at(peer.ip()),
            session,
            shared: shared.clone(),
            make,
            _seat: seat,
            slot: None,
            buffer: Vec::new(),
            unread: Unread::default(),
            assembler: Assembler::with_buffers(record_bytes, pool::small_record),
            share: None,
            waiting: None,
            record: None,
            lanes: Lanes::default(),
            patience: Patience::default(),
            rest: None,
            calls: JoinSet::new(),
            expected: 0,
            account: Account::default(),
            outbox: Outbox::default(),
            reading_done: false,
            timeouts,
        }
    }

    /// Serves until the client closes, something breaks, or the server stops.
    pub(super) async fn run(mut self, mut phase: watch::Receiver<Phase>) {
        let end = loop {
            let wanted = *phase.borrow_and_update();
            match wanted {
                Phase::Serving => {}
                Phase::Draining => self.reading_done = true,
                Phase::Ending => break End::Closed,
            }
            tokio::select! {
                biased;
                changed = phase.changed() => if changed.is_err() {
                    break End::Closed;
                },
                end = std::future::poll_fn(|context| self.poll(context)) => break end,
            }
        };
        self.report(&end);
        let Connection {
            stream,
            mut calls,
            session,
            shared,
            _seat,
            outbox,
            unread,
            assembler,
            share,
            waiting,
            record,
            lanes,
            rest,
            ..
        } = self;
        // Only its calls go on.
        drop((
            outbox, unread, assembler, share, waiting, record, lanes, rest,
        ));
        let metrics = &session.engine.metrics;
        stream.close().await;
        // What was begun is finished; the replies to what must not be repeated are remembered. But not
        // for longer than such a reply is kept: who has not come back by then will not, and must not
        // hold memory and a connection for as long as the file system keeps its calls waiting.
        let forgotten = tokio::time::sleep(shared.limits.replay_age);
        let finished = async {
            while calls.join_next().await.is_some() {
                metrics.calls_waiting.subtract(1);
            }
        };
        // Without a sender the server is gone, which is an ending as well.
        let ending = async { drop(phase.wait_for(|phase| *phase == Phase::Ending).await) };
        let cut_off = tokio::select! {
            () = finished => false,
            () = ending => true,
            () = forgotten => true,
        };
        if cut_off {
            metrics.calls_waiting.subtract(calls.len() as u64);
            calls.shutdown().await;
        }
    }

    fn report(&self, end: &End) {
        let metrics = &self.session.engine.metrics;
        match end {
            End::Closed => {}
            End::Socket(_) => {}
            End::Handshake(_) => metrics.tls_handshakes_failed.add(1),
            End::Record(_) | End::NotRpc | End::NotAlone => metrics.connections_broken.add(1),
            End::TimedOut(_) => metrics.connections_timed_out.add(1),
            End::OverShare => metrics.connections_over_share.add(1),
        }
        tracing::debug!(client = %self.peer, %end, "connection ended");
    }

    /// Does all that can be done now.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<End> {
        let now = Instant::now();
        if self.is_all_sent() {
            self.timeouts.all_taken(now, self.outbox.sent());
        }
        let end = self.poll_rounds(now, context);
        match end {
            Poll::Ready(Ok(())) => Poll::Ready(End::Closed),
            Poll::Ready(Err(end)) => Poll::Ready(end),
            Poll::Pending => {
                if !self.count_rest() {
                    return Poll::Ready(End::OverShare);
                }
                let busy = Busy {
                    unsent: !self.is_all_sent(),
                    calls: !self.calls.is_empty(),
                    others_wait: self.shared.budget.is_short(),
                    sent: self.outbox.sent(),
                };
                let limits = &self.shared.limits;
                match self.timeouts.poll(now, limits, busy, context) {
                    Some(what) => Poll::Ready(End::TimedOut(what)),
                    None => Poll::Pending,
                }
            }
        }
    }

    fn poll_rounds(&mut self, now: Instant, context: &mut Context<'_>) -> Poll<Result<(), End>> {
        for _ in 0..MAX_ROUNDS {
            let blocked = self.take_up(now, context)?;
            // After calls were begun, so that the end of each of them wakes this task.
            let answered = self.poll_calls(context)?;
            let written = match self.poll_write(now, context) {
                Poll::Ready(written) => written? > 0,
                Poll::Pending => false,
            };
            // There may be room now.
            if (answered || written) && (blocked || !self.lanes.is_empty()) {
                continue;
            }
            if blocked {
                return Poll::Pending;
            }
            if self.reading_done {
                let waits = !self.calls.is_empty() || !self.lanes.is_empty();
                let done = !waits && self.is_all_sent();
                return match done {
                    true => Poll::Ready(Ok(())),
                    false => Poll::Pending,
                };
            }
            ready!(self.poll_security(now, context))?;
            match self.poll_read(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(read) => match read? {
                    0 => self.reading_done = true,
                    bytes => {
                        self.timeouts.active_at = now;
                        self.session.engine.metrics.received_bytes.add(bytes as u64);
                    }
                },
            }
        }
        // Others have their turn first.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Takes the replies of calls that had to wait. True if there was one.
    fn poll_calls(&mut self, context: &mut Context<'_>) -> Result<bool, End> {
        let mut answered = false;
        while let Poll::Ready(Some(answer)) = self.calls.poll_join_next(context) {
            self.session.engine.metrics.calls_waiting.subtract(1);
            match answer {
                Ok((outcome, charge, demand)) => {
                    self.expected -= demand.expected;
                    self.lanes.of_mut(demand.lane).in_flight -= 1;
                    self.answer(outcome, charge)?;
                }
                Err(error) => {
                    tracing::error!(client = %self.peer, %error, "a call failed: closing its connection");
                    return Err(io::Error::other(error).into());
                }
            }
            answered = true;
        }
        Ok(answered)
    }

    /// Counts what is held while the connection waits, in the share of its client. False if that has no room for it.
    fn count_rest(&mut self) -> bool {
        let record = match self.share {
            // It is charged already.
            Some(_) => 0,
            None => self.assembler.held_bytes(),
        };
        let parked = self.lanes.parked_bytes() + self.account.own();
        let held = record + self.unread.held_bytes() + parked;
        if held <= UNCOUNTED_BYTES {
            self.rest = None;
            return true;
        }
        let held = held.next_multiple_of(COUNTED_STEP);
        let counted = self.rest.as_ref().map_or(0, Share::bytes);
        if held <= counted {
            if let Some(rest) = self.rest.as_mut().filter(|_| held < counted / 2) {
                rest.keep(held);
            }
            return true;
        }
        let holder = (self.client, Lane::Looking);
        let Some(more) = self.shared.rest.take(holder, held - counted) else {
            return false;
        };
        match &mut self.rest {
            Some(rest) => rest.join(more),
            none => *none = Some(more),
        }
        true
    }

    /// Whether the socket has every reply.
    fn is_all_sent(&self) -> bool {
        self.outbox.is_empty() && !self.stream.holds_back()
    }

    fn poll_write(&mut self, now: Instant, context: &mut Context<'_>) -> Poll<io::Result<u64>> {
        let written = self.poll_outbox(now, context);
        if self.stream.holds_back() {
            // TLS takes more than the socket does.
            let flushed = Pin::new(&mut self.stream).poll_flush(context)?;
            if flushed.is_pending() && !matches!(written, Poll::Ready(Ok(1..))) {
                return Poll::Pending;
            }
        }
        written
    }

    fn poll_outbox(&mut self, now: Instant, context: &mut Context<'_>) -> Poll<io::Result<u64>> {
        if self.outbox.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let socket = Pin::new(&mut self.stream);
        let written = self.outbox.poll_write(socket, &mut self.account, context);
        if let Poll::Ready(Ok(bytes)) = &written {
            self.timeouts.active_at = now;
            self.session.engine.metrics.sent_bytes.add(*bytes);
        }
        written
    }

    /// Goes over to TLS, if the client was told so. Nothing is read before that is done.
    fn poll_security(&mut self, now: Instant, context: &mut Context<'_>) -> Poll<Result<(), End>> {
        if self.starting.is_some() && !self.is_all_sent() {
            return Poll::Pending;
        }
        if let Some(tls) = self.starting.take() {
            self.stream.begin_handshake(&tls);
            self.timeouts.handshake_since = Some(now);
        }
        let secured = ready!(self.stream.poll_handshake(context)).map_err(End::Handshake)?;
        let Some(secured) = secured else {
            return Poll::Ready(Ok(()));
        };
        self.timeouts.handshake_since = None;
        self.session = Arc::new(self.session.secured(secured.transport));
        self.session.engine.metrics.tls_handshakes.add(1);
        match &secured.subject {
            Some(subject) => {
                tracing::debug!(client = %self.peer, subject, "TLS with a client certificate")
            }
            None => tracing::debug!(client = %self.peer, "TLS without a client certificate"),
        }
        Poll::Ready(Ok(()))
    }

    /// Reads what is there, into the large record under way if there is one, or into scratch, which
    /// is empty. An idle connection holds no scratch.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if let Some((record, wanted)) = self.assembler.direct() {
            let mut target = record.limit(wanted);
            let read = pin!(self.stream.read_buf(&mut target)).poll(context);
            if let Poll::Ready(Ok(bytes)) = read
                && let Some(record) = self.assembler.advance(bytes)
            {
                self.record = Some(self.complete(record));
            }
            return read;
        }
        let mut scratch = self.shared.pool.scratch();
        let read = {
            let mut target = scratch.target().limit(SCRATCH_BYTES);
            pin!(self.stream.read_buf(&mut target)).poll(context)
        };
        if matches!(read, Poll::Ready(Ok(bytes)) if bytes > 0) {
            self.unread = Unread::new(scratch);
        } else {
            self.shared.pool.give_scratch(scratch);
        }
        read
    }

    /// Begins the calls that have been read. True when one is in the way of what follows.
    fn take_up(&mut self, now: Instant, context: &mut Context<'_>) -> Result<bool, End> {
        if !self.lanes.is_empty() {
            for lane in Lane::ALL {
                self.begin_parked(lane, now, context)?;
            }
        }
        loop {
            if self.record.is_none() && !self.assemble(now, context)? {
                let blocked = self.waiting.is_some();
                return Ok(blocked);
            }
            let Some(record) = self.record.take() else {
                return Ok(false);
            };
            let (lane, expected) = demand(record.bytes());
            let demand = Demand { lane, expected };
            if let Some(charge) = self.admit(&record, demand) {
                self.begin(record, charge, demand, now, context)?;
                continue;
            }
            match self.lanes.park(lane, record, expected) {
                Ok(()) => self.begin_parked(lane, now, context)?,
                Err(record) if self.is_overdue(&record, now, context) => {
                    self.put_off(record.bytes(), now)?;
                }
                Err(record) => {
                    self.record = Some(record);
                    return Ok(true);
                }
            }
            self.patience.passed();
        }
    }

    /// Begins the calls of a lane that were parked and for which there is room now.
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
            let charge = match self.account.charge(bytes, lane) {
                Some(charge) => charge,
                None => {
                    let mut waiting = self.lanes.of_mut(lane).waiting.take();
                    let share = self.obtain(lane, bytes, &mut waiting, context);
                    self.lanes.of_mut(lane).waiting = waiting;
                    match share {
                        Some(share) => Charge::Shared(share),
                        None => return Ok(()),
                    }
                }
            };
            if let Some(first) = self.lanes.unpark(lane) {
                self.begin(first.record, charge, demand, now, context)?;
            }
        }
        Ok(())
    }

    /// Takes from the shared budget, or waits for it; the task is woken when it is there.
    fn obtain(
        &self,
        lane: Lane,
        bytes: usize,
        waiting: &mut Option<Waiting>,
        context: &mut Context<'_>,
    ) -> Option<Share> {
        let (budget, holder) = (&self.shared.budget, (self.client, lane));
        if waiting.is_none() {
            if let Some(share) = budget.take(holder, bytes) {
                return Some(share);
            }
            self.session.engine.metrics.budget_waits.add(1);
        }
        let wait = waiting.get_or_insert_with(|| budget.wait(holder, bytes));
        let Poll::Ready(share) = Pin::new(wait).poll(context) else {
            return None;
        };
        *waiting = None;
        Some(share)
    }

    /// Whether a call that is in the way has been there for long enough, and may be put off.
    fn is_overdue(&mut self, record: &Record, now: Instant, context: &mut Context<'_>) -> bool {
        may_be_put_off(record.bytes()) && self.is_patience_over(now, context)
    }

    /// Whether what is in the way has been there for long enough. As long as the client does not take its replies it gets no
    /// further ones.
    fn is_patience_over(&mut self, now: Instant, context: &mut Context<'_>) -> bool {
        let patience = self.shared.limits.patience;
        self.outbox.bytes() < OWN_BYTES && self.patience.is_over(now, patience, context)
    }

    /// Asks the client to come back with a call, of which this is the beginning.
    fn put_off(&mut self, head: &[u8], now: Instant) -> Result<(), End> {
        self.patience.put_off(now);
        let buffer = std::mem::take(&mut self.buffer);
        let outcome = put_off(&self.session, head, buffer);
        let charge = self.account.force(0);
        self.answer(outcome, charge)
    }

    /// Takes the next record out of scratch. False when there is none, or it waits for budget.
    fn assemble(&mut self, now: Instant, context: &mut Context<'_>) -> Result<bool, End> {
        if let Some(record) = self.in_scratch() {
            self.timeouts.record_since = None;
            self.record = Some(record);
            return Ok(true);
        }
        loop {
            let mut input = self.unread.bytes();
            let before = input.len();
            let step = self.assembler.take(&mut input);
            let taken = before - input.len();
            self.unread.take(taken);
            match step? {
                Step::NeedInput => {
                    if let Some(scratch) = self.unread.finish() {
                        self.shared.pool.give_scratch(scratch);
                    }
                    if !self.assembler.is_midway() {
                        self.timeouts.record_since = None;
                    } else if self.timeouts.record_since.is_none() {
                        self.timeouts.record_since = Some(now);
                    }
                    return Ok(false);
                }
                Step::NeedBuffer(_) => {
                    let mut waiting = self.waiting.take();
                    let bytes = self.shared.limits.record_bytes;
                    let share = self.obtain(Lane::Changing, bytes, &mut waiting, context);
                    if let Some(share) = share {
                        self.patience.passed();
                        self.share = Some(share);
                        self.assembler.grant(self.shared.pool.record());
                    } else if self.is_patience_over(now, context) {
                        // So that the next one is not waited for either.
                        self.patience.put_off(now);
                        self.assembler.discard();
                    } else {
                        self.waiting = waiting;
                        // The client is not to blame for the time that passes.
                        self.timeouts.record_since = None;
                        return Ok(false);
                    }
                }
                Step::Discarded(head) => {
                    self.timeouts.record_since = None;
                    self.put_off(&head, now)?;
                }
                Step::Record(record) => {
                    self.record = Some(self.complete(record));
                    return Ok(true);
                }
            }
        }
    }

    /// The next record of scratch, if it is worth using where it lies. While a call of this connection waits, records are
    /// copied: the scratch of one is all that waiting calls keep, however many they are, and however little of it is theirs.
    fn in_scratch(&mut self) -> Option<Record> {
        let length = self.assembler.whole(self.unread.bytes())?;
        if length < SHARED_BYTES || !self.calls.is_empty() {
            return None;
        }
        self.unread.take(MARK_BYTES);
        let (scratch, range) = self.unread.take_in_place(length)?;
        Some(Record::shared(scratch, range))
    }

    fn complete(&mut self, record: Vec<u8>) -> Record {
        self.timeouts.record_since = None;
        match self.share.take() {
            Some(share) => Record::large(record, self.shared.pool.clone(), share),
            None => Record::small(record),
        }
    }

    /// Whether limits of this connection let a call begin.
    fn may_begin(&self, demand: Demand) -> bool {
        let Demand { lane, expected } = demand;
        let limits = &self.shared.limits;
        let replies = self.outbox.bytes() + self.expected;
        let is_long = expected > SHORT_REPLY_BYTES;
        let is_too_much = is_long && replies > 0 && replies + expected > limits.reply_bytes;
        self.lanes.of(lane).in_flight < limits.calls_in_flight && !is_too_much
    }

    /// What the call is charged, if it may begin.
    fn admit(&mut self, record: &Record, demand: Demand) -> Option<Charge> {
        if !self.may_begin(demand) {
            return None;
        }
        let Demand { lane, expected } = demand;
        let bytes = record.uncharged_bytes() + expected;
        if let Some(charge) = self.account.charge(bytes, lane) {
            return Some(charge);
        }
        // Others of its lane were there before.
        if self.lanes.of(lane).first().is_some() {
            return None;
        }
        let share = self.shared.budget.take((self.client, lane), bytes);
        share.map(Charge::Shared)
    }

    /// Begins a call; most are done at once.
    fn begin(
        &mut self,
        record: Record,
        charge: Charge,
        demand: Demand,
        now: Instant,
        context: &mut Context<'_>,
    ) -> Result<(), End> {
        if let Some(renewed) = self.session.renewed() {
            if renewed.is_stranger() {
                self.timeouts.expel(now, self.shared.limits.stranger_time);
            }
            self.session = Arc::new(renewed);
        }
        self.timeouts.called();
        let buffer = std::mem::take(&mut self.buffer);
        let call = (self.make)(self.session.clone(), record, now, buffer);
        let mut slot = match self.slot.take() {
            Some(mut slot) => {
                slot.set(call);
                slot
            }
            None => Box::pin(call),
        };
        match slot.as_mut().poll(context) {
            Poll::Ready((outcome, record)) => {
                self.slot = Some(slot);
                if let Some(buffer) = record.into_small_buffer() {
                    self.assembler.reuse(buffer);
                }
                self.answer(outcome, charge)
            }
            Poll::Pending => {
                self.expected += demand.expected;
                self.lanes.of_mut(demand.lane).in_flight += 1;
                self.session.engine.metrics.calls_waiting.add(1);
                self.calls
                    .spawn(async move { (slot.await.0, charge, demand) });
                Ok(())
            }
        }
    }

    fn answer(&mut self, outcome: Outcome, charge: Charge) -> Result<(), End> {
        match outcome {
            Outcome::Reply(reply) => {
                let charge = self.account.settle(charge, reply.len());
                self.buffer = self.outbox.put(reply, charge);
                Ok(())
            }
            Outcome::StartTls(reply, tls) => self.start_tls(reply, tls, charge),
            Outcome::Silence => {
                self.account.release(charge);
                Ok(())
            }
            Outcome::Hangup => Err(End::NotRpc),
        }
    }

    /// Has the client told that TLS begins. Whatever it sent in clear behind its request would else be taken for
    /// something that came in TLS, and what is still being done for it would be answered there: whoever is on
    /// the way could put calls in its mouth. So all of that ends the connection, unanswered (RFC 9289, section
    /// 5.1.1).
    fn start_tls(&mut self, reply: Reply, tls: Tls, charge: Charge) -> Result<(), End> {
        let all_taken = self.unread.bytes().is_empty() && !self.assembler.is_midway();
        let waits = !self.calls.is_empty() || !self.lanes.is_empty() || self.record.is_some();
        let alone = !waits && self.starting.is_none();
        if !all_taken || !alone {
            return Err(End::NotAlone);
        }
        let charge = self.account.settle(charge, reply.len());
        self.buffer = self.outbox.put(reply, charge);
        self.starting = Some(tls);
        Ok(())
    }
}
