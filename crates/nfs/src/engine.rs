//! Serves one record: picks program and procedure, consults the replay cache, and builds the reply.
//!
//! This is the whole protocol without its sockets. Time is an argument.

mod lane;
mod session;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use forebay_vfs::{Trees, Troubles};
use forebay_waits::{For, waiting};

pub(crate) use lane::{Lane, demand, may_be_put_off};
pub(crate) use session::Session;

use crate::config::check_exports;
use crate::exports::{Exports, InForce};
use crate::handle::Handles;
use crate::locks::LockManager;
use crate::metrics::Metrics;
use crate::mount::Mounts;
use crate::replay::{Arrival, ReplayCache, Ticket};
use crate::rpc::{Call, Credential, Denial, NotServed, Rejection, Reply};
use crate::seen::CallWatch;
use crate::tls::{Tls, TlsControl};
use crate::xdr::Malformed;
use crate::{ConfigError, Export, ServerConfig, Transport, View, mount, nfs3, nlm, nsm};

/// State that all connections share.
pub(crate) struct Engine<F> {
    pub(crate) handles: Handles,
    exports: InForce<F>,
    mounts: Mounts,
    replay: ReplayCache,
    /// NLM and NSM are not served while this is unset.
    pub(crate) locks: OnceLock<Arc<LockManager>>,
    pub(crate) tls: TlsControl,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) troubles: Arc<Troubles>,
    pub(crate) watch: CallWatch,
}

/// Replaces the exports of a server while it serves; see [`crate::Server::export_control`].
pub struct ExportControl<F>(pub(crate) Arc<Engine<F>>);

impl<F: Trees> ExportControl<F> {
    /// Replaces the server's exports. The new ones apply at once and on every connection, to the calls that begin
    /// after this; calls in flight finish under the rules under which they began. Handles stay valid as long as the
    /// client may use an export with their number. `view` is as for [`crate::Server::bind_views`]. On an error the
    /// exports stay as they are.
    pub fn replace(
        &self,
        exports: Vec<Export>,
        view: impl Fn(View) -> Arc<F>,
    ) -> Result<(), ConfigError> {
        check_exports(&exports)?;
        self.0.exports.replace(Exports::new(exports, view));
        Ok(())
    }
}

/// What the connection has to do about a record.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Send this reply.
    Reply(Reply),
    /// Send this reply, then switch to TLS.
    StartTls(Reply, Tls),
    /// Nothing: a repetition of a call that is answered elsewhere.
    Silence,
    /// The peer does not speak RPC: close the connection.
    Hangup,
}

/// The programs on the port. To add one, add an entry here and an arm in [`execute`].
#[derive(Clone, Copy)]
enum Program<'a> {
    Nfs,
    Mount,
    Nlm(&'a LockManager),
    Nsm(&'a LockManager),
}

impl<'a> Program<'a> {
    fn find(
        program: u32,
        version: u32,
        locks: Option<&'a LockManager>,
    ) -> Result<Program<'a>, Rejection> {
        let (found, served) = match (program, locks) {
            (nfs3::PROGRAM, _) => (Program::Nfs, nfs3::VERSION),
            (mount::PROGRAM, _) => (Program::Mount, mount::VERSION),
            (nlm::PROGRAM, Some(locks)) => (Program::Nlm(locks), nlm::VERSION),
            (nsm::PROGRAM, Some(locks)) => (Program::Nsm(locks), nsm::VERSION),
            _ => return Err(Rejection::ProgramUnavailable),
        };
        if version == served {
            Ok(found)
        } else {
            Err(Rejection::ProgramMismatch(served, served))
        }
    }
}

/// Answers a call for which there is no room with NFS3ERR_JUKEBOX. `head` may be only the beginning of the call. Only
/// a WRITE has a valid reason to be longer than the kept bytes; any other call that was cut has bytes left over.
pub(crate) fn put_off<F: Trees>(session: &Session<F>, head: &[u8], buffer: Vec<u8>) -> Outcome {
    let metrics = &session.engine.metrics;
    let call = match Call::decode(head) {
        Ok(call) => call,
        Err(NotServed::NotACall) => return Outcome::Hangup,
        Err(NotServed::Denied { xid, denial }) => {
            metrics.calls_denied.add(1);
            return Outcome::Reply(Reply::denied(xid, denial, buffer));
        }
    };
    if !session.client.is_known() {
        metrics.calls_denied.add(1);
        return Outcome::Reply(Reply::denied(call.xid, Denial::TooWeak, buffer));
    }
    if !may_be_put_off(head) || call.version != nfs3::VERSION {
        metrics.calls_garbage.add(1);
        let rejection = Rejection::GarbageArguments;
        return Outcome::Reply(Reply::rejected(call.xid, rejection, buffer));
    }
    metrics.calls_put_off.add(1);
    let mut reply = Reply::accepted(call.xid, buffer);
    nfs3::put_off(call.procedure, &mut reply);
    Outcome::Reply(reply)
}

impl<F: Trees> Engine<F> {
    pub(crate) fn new(config: &ServerConfig, view: impl Fn(View) -> Arc<F>) -> Engine<F> {
        let limits = &config.limits;
        let replay = ReplayCache::new(
            limits.replay_entries,
            limits.replay_bytes,
            limits.replay_age,
        );
        Engine {
            handles: Handles::new(config.handle_key, config.volume),
            exports: InForce::new(Exports::new(config.exports.clone(), view)),
            mounts: Mounts::default(),
            replay,
            locks: OnceLock::new(),
            tls: TlsControl::default(),
            metrics: Arc::default(),
            troubles: Arc::default(),
            watch: CallWatch::default(),
        }
    }

    /// Opens a session for a connection from `peer` to the local address `local`, protected by `transport`.
    pub(crate) fn session(
        self: &Arc<Self>,
        peer: SocketAddr,
        local: IpAddr,
        transport: Transport,
    ) -> Session<F> {
        let exports = self.exports.current();
        let client = exports.client(peer, transport);
        let clients = &self.metrics.clients;
        let counts = match client.is_known() {
            true => clients.of(client.address),
            false => clients.other(),
        };
        Session {
            engine: self.clone(),
            peer,
            transport,
            counts,
            client,
            exports,
            local: local.to_canonical(),
        }
    }
}

/// Serves one record. The reply is built in the memory of `buffer`.
pub(crate) async fn execute<F: Trees>(
    session: &Session<F>,
    record: &[u8],
    now: Instant,
    buffer: Vec<u8>,
) -> Outcome {
    let metrics = &session.engine.metrics;
    let mut call = match Call::decode(record) {
        Ok(call) => call,
        Err(NotServed::NotACall) => return Outcome::Hangup,
        Err(NotServed::Denied { xid, denial }) => {
            metrics.calls_denied.add(1);
            return Outcome::Reply(Reply::denied(xid, denial, buffer));
        }
    };
    let xid = call.xid;
    if call.credential == Credential::Tls {
        return start_tls(session, &call, buffer);
    }
    let locks = session.engine.locks.get().map(|locks| &**locks);
    match Program::find(call.program, call.version, locks) {
        Ok(Program::Nfs) => {
            call.credential.set_client(session.client.id);
            nfs(session, &call, record, now, buffer).await
        }
        Ok(Program::Mount) => mount(session, &call, buffer).await,
        Ok(Program::Nlm(locks)) => lock(session, locks, &call, record, now, buffer).await,
        Ok(Program::Nsm(locks)) => status(session, locks, &call, buffer),
        Err(rejection) => {
            metrics.calls_elsewhere.add(1);
            if call.program != nfs3::ACL_PROGRAM {
                tracing::debug!(
                    client = %session.peer,
                    program = call.program,
                    version = call.version,
                    "call of a program or version that is not served"
                );
            }
            Outcome::Reply(Reply::rejected(xid, rejection, buffer))
        }
    }
}

/// Serves a record if it is a READ of data in memory. Otherwise nothing was done, and the buffer is returned.
pub(crate) fn execute_in_memory<F: Trees>(
    session: &Session<F>,
    record: &[u8],
    buffer: Vec<u8>,
) -> Result<Reply, Vec<u8>> {
    let call = Call::decode(record).ok().filter(|call| {
        let is_nfs = (call.program, call.version) == (nfs3::PROGRAM, nfs3::VERSION);
        is_nfs && session.client.is_known() && call.credential != Credential::Tls
    });
    let Some(mut call) = call else {
        return Err(buffer);
    };
    call.credential.set_client(session.client.id);
    let mut reply = Reply::accepted(call.xid, buffer);
    let request = session.request(call.procedure, &call.credential);
    match nfs3::call_in_memory(&request, call.procedure, call.arguments, &mut reply) {
        Some(()) => Ok(reply),
        None => Err(reply.finish().0),
    }
}

/// Answers AUTH_TLS (RFC 9289, section 4.1), on NULL of any program that is served.
fn start_tls<F: Trees>(session: &Session<F>, call: &Call<'_>, buffer: Vec<u8>) -> Outcome {
    let metrics = &session.engine.metrics;
    let deny = |denial, buffer| {
        metrics.calls_denied.add(1);
        Outcome::Reply(Reply::denied(call.xid, denial, buffer))
    };
    if call.procedure != 0 || session.transport != Transport::Plain {
        return deny(Denial::BadCredential, buffer);
    }
    let locks = session.engine.locks.get().map(|locks| &**locks);
    if let Err(rejection) = Program::find(call.program, call.version, locks) {
        metrics.calls_elsewhere.add(1);
        return Outcome::Reply(Reply::rejected(call.xid, rejection, buffer));
    }
    if call.arguments.end().is_err() {
        metrics.calls_garbage.add(1);
        let rejection = Rejection::GarbageArguments;
        return Outcome::Reply(Reply::rejected(call.xid, rejection, buffer));
    }
    // A handshake costs time and shows the certificate: only clients that could mount something get one.
    if !session.client.is_known() {
        return deny(Denial::TooWeak, buffer);
    }
    match session.engine.tls.current() {
        Some(tls) => Outcome::StartTls(Reply::start_tls(call.xid, buffer), tls),
        None => deny(Denial::BadCredential, buffer),
    }
}

async fn mount<F: Trees>(session: &Session<F>, call: &Call<'_>, buffer: Vec<u8>) -> Outcome {
    let engine = &*session.engine;
    let request = mount::Request {
        handles: &engine.handles,
        exports: &session.exports,
        mounts: &engine.mounts,
        client: &session.client,
    };
    let mut reply = Reply::accepted(call.xid, buffer);
    let metrics = &engine.metrics;
    match mount::call(&request, call.procedure, call.arguments, &mut reply).await {
        Ok(mount::Done::Mounted) => metrics.mounts.add(1),
        Ok(mount::Done::Refused) => {
            metrics.mounts_refused.add(1);
            session.count_refusal();
        }
        Ok(mount::Done::Other) => {}
        Ok(mount::Done::NoProcedure) => {
            metrics.calls_elsewhere.add(1);
            reply = reply.turned_into(call.xid, Rejection::ProcedureUnavailable);
        }
        Err(Malformed) => {
            metrics.calls_garbage.add(1);
            reply = reply.turned_into(call.xid, Rejection::GarbageArguments);
        }
    }
    Outcome::Reply(reply)
}

async fn nfs<F: Trees>(
    session: &Session<F>,
    call: &Call<'_>,
    record: &[u8],
    now: Instant,
    buffer: Vec<u8>,
) -> Outcome {
    let engine = &*session.engine;
    let metrics = &engine.metrics;
    if call.procedure as usize >= nfs3::PROCEDURES.len() {
        metrics.calls_elsewhere.add(1);
        let rejection = Rejection::ProcedureUnavailable;
        return Outcome::Reply(Reply::rejected(call.xid, rejection, buffer));
    }
    // NULL is open to everyone: it shows only that a server is here.
    if call.procedure != 0 && !session.client.is_known() {
        metrics.calls_denied.add(1);
        return Outcome::Reply(Reply::denied(call.xid, Denial::TooWeak, buffer));
    }
    let is_replayed = nfs3::is_replayed(call.procedure);
    let (ticket, buffer) = match first_time(session, is_replayed, record, now, buffer).await {
        Ok(first) => first,
        Err(outcome) => return outcome,
    };
    let request = session.request(call.procedure, &call.credential);
    let mut reply = Reply::accepted(call.xid, buffer);
    let done = nfs3::call(&request, call.procedure, call.arguments, &mut reply).await;
    if let Err(Malformed) = done {
        metrics.calls_garbage.add(1);
        // The call was not executed, so there is nothing to keep for a repetition.
        let reply = reply.turned_into(call.xid, Rejection::GarbageArguments);
        return Outcome::Reply(reply);
    }
    if request.too_weak.into_inner() {
        metrics.calls_denied.add(1);
        return Outcome::Reply(reply.denied_after_all(call.xid, Denial::TooWeak));
    }
    if let Some((ticket, record)) = ticket.zip(reply.record()) {
        ticket.finish(record);
    }
    Outcome::Reply(reply)
}

/// Checks whether a call was executed before. If it was, or is in flight, returns its outcome; otherwise returns the
/// ticket to report the result with, if a repetition must not be executed again.
async fn first_time<'a, F: Trees>(
    session: &'a Session<F>,
    is_replayed: bool,
    record: &[u8],
    now: Instant,
    buffer: Vec<u8>,
) -> Result<(Option<Ticket<'a>>, Vec<u8>), Outcome> {
    if !is_replayed {
        return Ok((None, buffer));
    }
    let engine = &*session.engine;
    let metrics = &engine.metrics;
    let address = session.client.address;
    let arrival = engine
        .replay
        .arrive(address, session.transport, record, now);
    match arrival {
        Arrival::First(ticket) => Ok((Some(ticket), buffer)),
        Arrival::Done(reply) => {
            metrics.replays_answered.add(1);
            Err(Outcome::Reply(Reply::repeated(&reply, buffer)))
        }
        Arrival::UnderWay(reply) => {
            metrics.replays_joined.add(1);
            let Ok(reply) = waiting(For::Repetition, reply).await else {
                metrics.replays_dropped.add(1);
                return Err(Outcome::Silence);
            };
            Err(Outcome::Reply(Reply::repeated(&reply, buffer)))
        }
        Arrival::Crowded => {
            metrics.replays_dropped.add(1);
            Err(Outcome::Silence)
        }
    }
}

async fn lock<F: Trees>(
    session: &Session<F>,
    locks: &LockManager,
    call: &Call<'_>,
    record: &[u8],
    now: Instant,
    buffer: Vec<u8>,
) -> Outcome {
    let engine = &*session.engine;
    let metrics = &engine.metrics;
    metrics.lock_calls.add(1);
    if call.procedure != 0 && !session.client.is_known() {
        metrics.calls_denied.add(1);
        return Outcome::Reply(Reply::denied(call.xid, Denial::TooWeak, buffer));
    }
    let is_replayed = nlm::is_replayed(call.procedure);
    let (ticket, buffer) = match first_time(session, is_replayed, record, now, buffer).await {
        Ok(first) => first,
        Err(outcome) => return outcome,
    };
    let request = nlm::Request {
        nfs: nfs3::Request {
            handles: &engine.handles,
            metrics: &engine.metrics,
            exports: &session.exports,
            client: &session.client,
            claimed: &call.credential,
            // A lock changes no stored data: files of a read-only export can be locked.
            changes: false,
            in_clear: true,
            too_weak: AtomicBool::new(false),
        },
        locks,
        local: session.local,
        now,
    };
    let mut reply = Reply::accepted(call.xid, buffer);
    let done = nlm::call(&request, call.procedure, call.arguments, &mut reply).await;
    metrics.locks.set(locks.table.entries() as u64);
    if request.nfs.too_weak.into_inner() {
        metrics.calls_denied.add(1);
        return Outcome::Reply(reply.denied_after_all(call.xid, Denial::TooWeak));
    }
    match done {
        Ok(nlm::Done::Yes) => {
            if let Some((ticket, record)) = ticket.zip(reply.record()) {
                ticket.finish(record);
            }
            Outcome::Reply(reply)
        }
        Ok(nlm::Done::NoProcedure) => {
            metrics.calls_elsewhere.add(1);
            Outcome::Reply(reply.turned_into(call.xid, Rejection::ProcedureUnavailable))
        }
        Err(Malformed) => {
            metrics.calls_garbage.add(1);
            Outcome::Reply(reply.turned_into(call.xid, Rejection::GarbageArguments))
        }
    }
}

fn status<F: Trees>(
    session: &Session<F>,
    locks: &LockManager,
    call: &Call<'_>,
    buffer: Vec<u8>,
) -> Outcome {
    let metrics = &session.engine.metrics;
    if call.procedure != 0 && !session.client.is_known() {
        metrics.calls_denied.add(1);
        return Outcome::Reply(Reply::denied(call.xid, Denial::TooWeak, buffer));
    }
    let mut reply = Reply::accepted(call.xid, buffer);
    let host = session.client.address;
    let done = nsm::call(locks, host, call.procedure, call.arguments, &mut reply);
    metrics.locks.set(locks.table.entries() as u64);
    Outcome::Reply(match done {
        Ok(nsm::Done::Yes) => reply,
        Ok(nsm::Done::NoProcedure) => {
            metrics.calls_elsewhere.add(1);
            reply.turned_into(call.xid, Rejection::ProcedureUnavailable)
        }
        Err(Malformed) => {
            metrics.calls_garbage.add(1);
            reply.turned_into(call.xid, Rejection::GarbageArguments)
        }
    })
}

/// Serves a datagram, of NSM only, and returns the answer, if any. This never waits.
pub(crate) fn execute_datagram<F: Trees>(session: &Session<F>, datagram: &[u8]) -> Option<Reply> {
    let call = match Call::decode(datagram) {
        Ok(call) => call,
        Err(NotServed::NotACall) => return None,
        Err(NotServed::Denied { xid, denial }) => {
            return Some(Reply::denied(xid, denial, Vec::new()));
        }
    };
    let locks = session.engine.locks.get().map(|locks| &**locks);
    let outcome = match Program::find(call.program, call.version, locks) {
        Ok(Program::Nsm(locks)) => status(session, locks, &call, Vec::new()),
        Ok(_) => Outcome::Reply(Reply::rejected(
            call.xid,
            Rejection::ProgramUnavailable,
            Vec::new(),
        )),
        Err(rejection) => Outcome::Reply(Reply::rejected(call.xid, rejection, Vec::new())),
    };
    match outcome {
        Outcome::Reply(reply) => Some(reply),
        // TLS works on connections only.
        Outcome::StartTls(..) | Outcome::Silence | Outcome::Hangup => None,
    }
}
