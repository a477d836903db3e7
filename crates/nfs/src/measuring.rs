//! The engine without its sockets, and two of its steps in isolation: the replay cache and the rules.
//! For the benchmark `call_cost`, and for the tests that count what calls allocate.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use forebay_vfs::permission::{self, Owned};
use forebay_vfs::{Access, Trees};
use forebay_waits::FirstPoll;

use crate::engine::{Engine, Outcome, Session, execute};
use crate::handle::Named;
use crate::replay::{Arrival, ReplayCache};
use crate::rpc::Credential;
use crate::{Limits, ServerConfig, Transport, nfs3};

/// State that all connections of a server share.
pub struct Gateway<F>(Arc<Engine<F>>);

/// A connection to a [`Gateway`], without its socket.
pub struct Connected<F>(Session<F>);

impl<F: Trees> Gateway<F> {
    /// Creates the engine as [`crate::Server::bind`] does.
    pub fn new(fs: Arc<F>, config: &ServerConfig) -> Gateway<F> {
        Gateway(Arc::new(Engine::new(config, |_| fs.clone())))
    }

    /// Connects a client from `peer`. The rules are looked up here by its address, once for each connection.
    pub fn connect(&self, peer: SocketAddr) -> Connected<F> {
        Connected(self.0.session(peer, peer.ip(), Transport::Plain))
    }

    /// The object that a handle names, if this server made it.
    pub fn named(&self, handle: &[u8]) -> Option<Named> {
        self.0.handles.decode(handle).ok()
    }
}

impl<F: Trees> Connected<F> {
    /// Serves a record that has just been read: from decoding to the reply without its data, built in the memory of
    /// `buffer`, and counted in the metrics. `None` if there is no reply.
    pub async fn serve(&self, record: &[u8], now: Instant, buffer: Vec<u8>) -> Option<Vec<u8>> {
        let arrived = fastant::Instant::now();
        let mut call = pin!(execute(&self.0, record, now, buffer));
        let outcome = poll_fn(|context| {
            let _first = FirstPoll::begin();
            call.as_mut().poll(context)
        });
        let outcome = outcome.await;
        self.0.count(record, &outcome, arrived.elapsed());
        match outcome {
            Outcome::Reply(reply) => Some(reply.finish().0),
            Outcome::StartTls(..) | Outcome::Silence | Outcome::Hangup => None,
        }
    }

    /// Prepares a read-only call with this claimed credential.
    pub fn claimed<'a>(&'a self, claimed: &'a Credential) -> Claimed<'a, F> {
        let session = &self.0;
        Claimed {
            session,
            request: nfs3::Request {
                handles: &session.engine.handles,
                metrics: &session.engine.metrics,
                exports: &session.exports,
                client: &session.client,
                claimed,
                changes: false,
                in_clear: false,
                too_weak: AtomicBool::new(false),
            },
        }
    }
}

/// A call whose header is decoded.
pub struct Claimed<'a, F> {
    session: &'a Session<F>,
    request: nfs3::Request<'a, F>,
}

impl<F: Trees> Claimed<'_, F> {
    /// Takes a call through all checks of rules and permissions: whether the rules of this connection are still in
    /// force, whether the client is known and may use the export, whether the rule accepts its credential and its
    /// connection, which identity the caller has after squashing, and which rights to the object it has. `None` if it
    /// has none.
    pub fn permitted(&self, named: Named, object: Owned, wanted: Access) -> Option<Access> {
        let Claimed { request, .. } = self;
        let target = self.target(named)?;
        let caller = request.identity(target).ok()?;
        let granted = permission::access(object, &caller, wanted);
        Some(request.allowed(target, granted))
    }

    /// Takes a call through the part of these checks that a GETATTR needs, as GETATTR is open to everyone who may use
    /// the export. True if it may be answered.
    pub fn admitted(&self, named: Named) -> bool {
        self.target(named).is_some()
    }

    fn target(&self, named: Named) -> Option<nfs3::Target<'_, F>> {
        let Claimed { session, request } = self;
        if session.renewed().is_some() || !session.client.is_known() {
            return None;
        }
        request.admitted(named).ok()
    }
}

/// A replay cache.
pub struct Replay(ReplayCache);

impl Replay {
    /// Creates a cache with the limits of a server.
    pub fn new(limits: &Limits) -> Replay {
        Replay(ReplayCache::new(
            limits.replay_entries,
            limits.replay_bytes,
            limits.replay_age,
        ))
    }

    /// Takes a call of this procedure through the cache: nothing if it may be repeated, otherwise from its
    /// arrival to the storage of its reply. True if it is to be executed, that is, if it is not a repetition.
    pub fn pass(
        &self,
        procedure: u32,
        address: IpAddr,
        record: &[u8],
        now: Instant,
        reply: &[u8],
    ) -> bool {
        if !nfs3::is_replayed(procedure) {
            return true;
        }
        match self.0.arrive(address, Transport::Plain, record, now) {
            Arrival::First(ticket) => {
                ticket.finish(reply);
                true
            }
            Arrival::Done(_) | Arrival::UnderWay(_) | Arrival::Crowded => false,
        }
    }
}
