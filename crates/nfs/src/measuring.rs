//! The engine without its sockets, and two parts of its way by themselves: the replay cache and the rules.
//! For the benchmark `call_cost`, and for the tests of what calls allocate.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use forebay_vfs::permission::{self, Owned};
use forebay_vfs::{Access, FileSystem};

use crate::engine::{Engine, Outcome, Session, execute};
use crate::handle::Named;
use crate::replay::{Arrival, ReplayCache};
use crate::rpc::Credential;
use crate::{Limits, ServerConfig, Transport, nfs3};

/// What all connections of a server share.
pub struct Gateway<F>(Arc<Engine<F>>);

/// A connection to it, without its socket.
pub struct Connected<F>(Session<F>);

impl<F: FileSystem> Gateway<F> {
    /// As [`crate::Server::bind`] makes it.
    pub fn new(fs: Arc<F>, config: &ServerConfig) -> Gateway<F> {
        Gateway(Arc::new(Engine::new(config, |_| fs.clone())))
    }

    /// A client connects from there: here, and once for each connection, its rules are looked up by its address.
    pub fn connect(&self, peer: SocketAddr) -> Connected<F> {
        Connected(self.0.session(peer, peer.ip(), Transport::Plain))
    }

    /// What a handle names, if it is ours.
    pub fn named(&self, handle: &[u8]) -> Option<Named> {
        self.0.handles.decode(handle).ok()
    }
}

impl<F: FileSystem> Connected<F> {
    /// Serves a record, from decoding it to its reply without data, in the memory of `buffer`. `None` if nothing
    /// would be answered.
    pub async fn serve(&self, record: &[u8], now: Instant, buffer: Vec<u8>) -> Option<Vec<u8>> {
        match execute(&self.0, record, now, buffer).await {
            Outcome::Reply(reply) => Some(reply.finish().0),
            Outcome::StartTls(..) | Outcome::Silence | Outcome::Hangup => None,
        }
    }

    /// A call that claims to be this caller's, and only looks.
    pub fn claimed(&self, claimed: Credential) -> Claimed<'_, F> {
        let session = &self.0;
        Claimed {
            session,
            request: nfs3::Request {
                handles: &session.engine.handles,
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

impl<F: FileSystem> Claimed<'_, F> {
    /// The whole way of a call through the rules and the permissions: are the rules still those of this
    /// connection, is the client known, has it the export, does the rule take its credential and its connection,
    /// who is the caller after squashing, and what may he do with such an object. `None` if nothing.
    pub fn permitted(&self, named: Named, object: Owned, wanted: Access) -> Option<Access> {
        let Claimed { request, .. } = self;
        let target = self.target(named)?;
        let who = request.identity(target).ok()?;
        let granted = permission::access(object, &who, wanted);
        Some(request.allowed(target, granted))
    }

    /// The part of that way which a GETATTR goes, since it is for everybody who has the export: whether it may be
    /// answered.
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
    /// With the limits of a server.
    pub fn new(limits: &Limits) -> Replay {
        Replay(ReplayCache::new(
            limits.replay_entries,
            limits.replay_bytes,
            limits.replay_age,
        ))
    }

    /// The way of a call of this procedure through the cache: nothing if it may be repeated, else from its
    /// arrival to keeping its reply. True if it is to be done, which is when it is not a repetition.
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
