//! One client's connection.
//!
//! A single task owns it and does in turn all work that needs no waiting:
//!
//! ```text
//!   socket --read--> scratch --assemble--> record --admit--> call --poll once--+--> done --+
//!      ^                                                                       |           |
//!      |                                                          must wait    v           v
//!      +-------------------------- write <-------- outbox <------------- task of its own --+
//! ```
//!
//! [`incoming`] makes records of the bytes that are read. [`admission`] decides which of them may begin, and for what
//! the others wait. Calls that have begun are in [`calls`], replies and their charges in [`replies`]; [`rest`] counts
//! the other memory.
//!
//! A record is *admitted* while calls in flight and reply bytes are below their limits and its client has budget for
//! it. A small one that cannot be admitted is parked, and the records behind it proceed. A large one has to wait for a
//! buffer, and so does all that follows it in the stream, for at most [`Limits::max_blocking`](crate::Limits::max_blocking).
//! After that it is read without being kept, and its client is asked to retry it later. A record that lies whole in
//! scratch is used there, if it is long and no call waits: its data for the log is copied once, from there. When a
//! client asks for TLS, data from before and after is kept apart: all calls that came in clear are answered in clear,
//! and bytes that came in clear behind the request are never processed. Calls that have begun outlive the connection:
//! when it breaks they are finished, so that the client finds their replies in the replay cache.

mod admission;
mod calls;
mod incoming;
mod replies;
mod rest;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use forebay_vfs::Trees;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::Seat;
use super::Shared;
use super::budget::{Charge, Waiting};
use super::lanes::Lanes;
use super::pool::Record;
use super::stream::Stream;
use super::timeouts::{Blocking, Busy, Timeouts};
use crate::address::ClientNetwork;
use crate::engine::{Lane, Outcome, Session};
use crate::record::RecordError;
use crate::rpc::Reply;
use crate::tls::Tls;
use calls::{Begun, Calls};
use incoming::Incoming;
use replies::Replies;
use rest::Rest;

/// The state that the server requests of its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Serve.
    Serving,
    /// Read no more; finish the calls that were read.
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
    #[error("the bytes are not an RPC call")]
    NotRpc,
    #[error(
        "the client asked for TLS while it had other calls in flight, or sent more bytes behind the request"
    )]
    NotAlone,
    #[error("the TLS handshake failed: {0}")]
    Handshake(io::Error),
    #[error("{0}")]
    TimedOut(&'static str),
    #[error("its client holds more than its share in calls that are not complete or not answered")]
    OverShare,
}

/// Rounds of reading before other tasks of the thread run.
const MAX_ROUNDS: usize = 16;

/// Longest record of a stranger, in bytes. Its calls are refused, so they need not be long.
const STRANGER_RECORD_BYTES: usize = 1 << 10;

/// The resources that a call needs.
#[derive(Clone, Copy)]
struct Demand {
    lane: Lane,
    /// Upper bound for the bytes of its reply.
    expected: usize,
}

/// See the module's documentation. `Make` begins a call, `Call` is the future of a call.
pub(super) struct Connection<F, Make, Call> {
    stream: Stream,
    /// Set when AUTH_TLS was answered; TLS begins once that reply is sent.
    starting: Option<Tls>,
    peer: SocketAddr,
    client: ClientNetwork,
    session: Arc<Session<F>>,
    shared: Arc<Shared<F>>,
    make: Make,
    /// Its place among the connections.
    _seat: Seat,

    incoming: Incoming,
    /// The buffer that the current large record waits for.
    waiting: Option<Waiting>,
    /// Complete, and neither admitted nor parked yet.
    record: Option<Record>,
    /// Complete calls that are parked: not admitted yet, and not blocking others.
    lanes: Lanes,
    blocking: Blocking,
    calls: Calls<Call>,
    replies: Replies,
    /// Memory held while the connection waits.
    rest: Rest,

    /// Nothing more will be read: the client has closed its side, or the server is stopping.
    reading_done: bool,
    timeouts: Timeouts,
}

impl<F, Make, Call> Connection<F, Make, Call>
where
    F: Trees,
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
            client: ClientNetwork::of(peer.ip()),
            calls: Calls::new(session.engine.metrics.clone()),
            session,
            shared: shared.clone(),
            make,
            _seat: seat,
            incoming: Incoming::new(record_bytes, shared.pool.clone()),
            waiting: None,
            record: None,
            lanes: Lanes::default(),
            blocking: Blocking::default(),
            replies: Replies::default(),
            rest: Rest::default(),
            reading_done: false,
            timeouts,
        }
    }

    /// Serves until the client closes, an error occurs, or the server stops.
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
            calls,
            shared,
            _seat,
            incoming,
            waiting,
            record,
            lanes,
            replies,
            rest,
            ..
        } = self;
        // Only its calls continue.
        drop((incoming, waiting, record, lanes, replies, rest));
        stream.close().await;
        // Calls that have begun are finished; replies to those that must not be repeated are kept. But a call does not
        // run longer than its reply would be kept: a client that has not reconnected by then will not do so, and must
        // not hold memory and a connection for as long as the file system keeps its calls waiting. If the sender of
        // phases is missing, the server has ended, which counts as an ending as well.
        let ending = async { drop(phase.wait_for(|phase| *phase == Phase::Ending).await) };
        calls.outlive(shared.limits.replay_age, ending).await;
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

    /// Does all work that can be done now.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<End> {
        let now = Instant::now();
        if self.replies.are_all_sent(&self.stream) {
            self.timeouts.all_taken(now, self.replies.sent_bytes());
        }
        let end = self.poll_rounds(now, context);
        match end {
            Poll::Ready(Ok(())) => Poll::Ready(End::Closed),
            Poll::Ready(Err(end)) => Poll::Ready(end),
            Poll::Pending => {
                let held = self.stream.held_bytes()
                    + self.incoming.held_bytes()
                    + self.lanes.parked_bytes()
                    + self.replies.allowance.own();
                if !self.rest.count(held, &self.shared.rest, self.client) {
                    return Poll::Ready(End::OverShare);
                }
                let busy = Busy {
                    unsent: !self.replies.are_all_sent(&self.stream),
                    calls: !self.calls.is_empty(),
                    others_wait: self.shared.budget.is_short(),
                    sent: self.replies.sent_bytes(),
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
            // Only after calls have begun, so that the completion of each of them wakes this task.
            let answered = self.poll_calls(context)?;
            let written = match self.replies.poll_send(&mut self.stream, context) {
                Poll::Ready(bytes) => bytes?,
                Poll::Pending => 0,
            };
            if written > 0 {
                self.timeouts.active_at = now;
                self.session.engine.metrics.sent_bytes.add(written);
                self.session.counts.sent(written);
            }
            // There may be room now.
            if (answered || written > 0) && (blocked || !self.lanes.is_empty()) {
                continue;
            }
            if blocked {
                return Poll::Pending;
            }
            if self.reading_done {
                let waits = !self.calls.is_empty() || !self.lanes.is_empty();
                let done = !waits && self.replies.are_all_sent(&self.stream);
                return match done {
                    true => Poll::Ready(Ok(())),
                    false => Poll::Pending,
                };
            }
            ready!(self.poll_security(now, context))?;
            match self.incoming.poll_read(&mut self.stream, context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(read) => match read? {
                    0 => self.reading_done = true,
                    bytes => {
                        self.timeouts.active_at = now;
                        self.session.engine.metrics.received_bytes.add(bytes as u64);
                        self.session.counts.received(bytes as u64);
                    }
                },
            }
        }
        // Other tasks run first.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Queues the replies of calls that had to wait. True if there was one.
    fn poll_calls(&mut self, context: &mut Context<'_>) -> Result<bool, End> {
        let mut answered = false;
        while let Poll::Ready(Some(answer)) = self.calls.poll_done(context) {
            match answer {
                Ok((outcome, charge, demand)) => {
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

    /// Switches to TLS, if that was promised to the client. Nothing is read before that is done.
    fn poll_security(&mut self, now: Instant, context: &mut Context<'_>) -> Poll<Result<(), End>> {
        if self.starting.is_some() && !self.replies.are_all_sent(&self.stream) {
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

    /// Begins a call, which has `waited` for its turn.
    fn begin(
        &mut self,
        record: Record,
        waited: Option<Duration>,
        charge: Charge,
        demand: Demand,
        now: Instant,
        context: &mut Context<'_>,
    ) -> Result<(), End> {
        self.renew_session(now);
        self.timeouts.called();
        let buffer = self.replies.buffer();
        let call = (self.make)(self.session.clone(), record, now, buffer);
        match self.calls.begin(call, waited, charge, demand, context) {
            Begun::Done(outcome, record, charge) => {
                if let Some(buffer) = record.into_small_buffer() {
                    self.incoming.reuse(buffer);
                }
                self.answer(outcome, charge)
            }
            Begun::Waits => {
                self.lanes.of_mut(demand.lane).in_flight += 1;
                Ok(())
            }
        }
    }

    /// Adopts the exports in force.
    fn renew_session(&mut self, now: Instant) {
        if let Some(renewed) = self.session.renewed() {
            if renewed.is_stranger() {
                self.timeouts.expel(now, self.shared.limits.stranger_time);
            }
            self.session = Arc::new(renewed);
        }
    }

    fn answer(&mut self, outcome: Outcome, charge: Charge) -> Result<(), End> {
        match outcome {
            Outcome::Reply(reply) => {
                self.replies.put(reply, charge);
                Ok(())
            }
            Outcome::StartTls(reply, tls) => self.start_tls(reply, tls, charge),
            Outcome::Silence => {
                self.replies.allowance.release(charge);
                Ok(())
            }
            Outcome::Hangup => Err(End::NotRpc),
        }
    }

    /// Agrees to TLS. Bytes that came in clear behind the request could otherwise be mistaken for bytes that came
    /// in TLS, and calls in flight would be answered in TLS: an attacker on the network could inject calls.
    /// So both end the connection, without an answer (RFC 9289, section 5.1.1).
    fn start_tls(&mut self, reply: Reply, tls: Tls, charge: Charge) -> Result<(), End> {
        let waits = !self.calls.is_empty() || !self.lanes.is_empty() || self.record.is_some();
        let alone = !waits && self.starting.is_none();
        if !self.incoming.is_empty() || !alone {
            return Err(End::NotAlone);
        }
        self.replies.put(reply, charge);
        self.starting = Some(tls);
        Ok(())
    }
}
