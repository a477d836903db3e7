//! The lock manager: what NLM, which locks, and NSM, which notices reboots, have in common.
//!
//! ```text
//!    LOCK, UNLOCK ... (nlm)            SM_NOTIFY (nsm)
//!            |                               |
//!            v                               v
//!   +-----------------+  note, flushed  +---------+    replaced as a whole
//!   |   LockManager   |---------------->|  Peers  |-------------------------> Notebook (a file)
//!   |  table, grace   |                 +---------+
//!   +-----------------+                      | after a start: who held locks
//!            | grants, results               v
//!            +--------> errands <-------- notices
//!                          |
//!                          v   NLM_GRANTED, NLM_*_RES, SM_NOTIFY
//!                   the clients' lock managers
//! ```
//!
//! Locks are in memory alone. What a restart must know is who had any, and that is in the [`Notebook`] before
//! a client's first lock is granted; after the restart these clients are told ("SM_NOTIFY"), and lock again what
//! they held while the grace period keeps everybody else from it.

mod errand;
mod errands;
mod notebook;
mod peers;

pub(crate) use errand::Callback;
pub(crate) use errands::run;
pub use notebook::Notebook;
pub(crate) use notebook::Peer;
pub(crate) use peers::Guard;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use forebay_lock::{Client, Grace, Grant, Incarnation, LockTable};
use tokio::sync::{Notify, mpsc};

use crate::outgoing::Remote;
use errand::Errand;
use peers::Peers;

/// Where portmappers listen.
const PORTMAPPER_PORT: u16 = 111;

/// How the lock manager works.
#[derive(Clone)]
pub struct LockConfig {
    /// How long after a start only locks from before are given again, if anybody held one.
    pub grace: Duration,
    /// Where it is kept which clients hold locks.
    pub notebook: Arc<dyn Notebook>,
    /// How much may be locked.
    pub limits: forebay_lock::Limits,
    /// The own name, beside the own address, under which clients may know this server.
    pub name: String,
    /// Where the portmappers of clients listen: 111.
    pub portmapper: u16,
}

impl LockConfig {
    /// With everything but this as it is usual.
    pub fn new(grace: Duration, notebook: Arc<dyn Notebook>) -> LockConfig {
        LockConfig {
            grace,
            notebook,
            limits: forebay_lock::Limits::default(),
            name: String::new(),
            portmapper: PORTMAPPER_PORT,
        }
    }
}

/// See the module's documentation.
pub(crate) struct LockManager {
    pub(crate) table: LockTable<Callback>,
    grace: Grace,
    peers: Peers,
    errands: mpsc::UnboundedSender<Errand>,
    /// There are waiters to be looked at.
    work_left: Notify,
    name: String,
    portmapper: u16,
}

/// The errands of a lock manager that is not running yet.
pub(crate) struct Errands {
    receiver: mpsc::UnboundedReceiver<Errand>,
    /// Who held locks when the server went.
    previous: Vec<Peer>,
}

impl LockManager {
    /// Reads who held locks when the server went, and begins the grace period if anybody did.
    ///
    /// # Errors
    /// The notebook cannot be read or written.
    pub(crate) async fn start(config: LockConfig) -> io::Result<(Arc<LockManager>, Errands)> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let opened = Peers::open(config.notebook, since.unwrap_or_default()).await?;
        let grace = if opened.held_locks {
            tracing::info!(
                clients = opened.previous.len(),
                "clients held locks: for {} s nobody else gets any",
                config.grace.as_secs()
            );
            Grace::until(Instant::now() + config.grace)
        } else {
            Grace::NONE
        };
        let (sender, receiver) = mpsc::unbounded_channel();
        let manager = LockManager {
            table: LockTable::new(config.limits),
            grace,
            peers: opened.peers,
            errands: sender,
            work_left: Notify::new(),
            name: config.name,
            portmapper: config.portmapper,
        };
        let errands = Errands {
            receiver,
            previous: opened.previous,
        };
        Ok((Arc::new(manager), errands))
    }

    /// Whether a lock may be given at this time.
    pub(crate) fn admits(&self, reclaim: bool, now: Instant) -> bool {
        self.grace.admits(reclaim, now)
    }

    /// The server's NSM state number.
    pub(crate) fn state(&self) -> i32 {
        self.peers.state()
    }

    /// Notes that a client is about to have a lock; the note is on stable storage when this returns. It stays
    /// at least until the guard is gone.
    pub(crate) async fn note(&self, peer: &Peer) -> io::Result<Guard<'_>> {
        let has_locks = |client: &Client| self.table.entries_of(client.host) > 0;
        // Who held locks at the start may come for them until the grace period is over.
        let keep_all = self.grace.lasts(Instant::now());
        self.peers
            .note(peer, |client| keep_all || has_locks(client))
            .await
    }

    /// From which life of the client a lock is that it asks for.
    pub(crate) fn incarnation(&self, client: &Client, said: i32) -> Incarnation {
        Incarnation(match said {
            0 => self.peers.last_state(client),
            said => said,
        })
    }

    /// A client says that it was booted anew, under one of its names: what it held before is free.
    pub(crate) fn rebooted(&self, host: IpAddr, name: &[u8], state: i32) {
        for client in self.peers.rebooted(host, name, state) {
            tracing::info!(
                client = %host,
                name = %client.name.escape_ascii(),
                "was booted anew: its locks from before are free"
            );
            self.tell(self.table.free(&client, Some(Incarnation(state))));
        }
    }

    /// Starts the reports of new grants to their owners, and the work on waiters that the call has not reached.
    pub(crate) fn tell(&self, grants: Vec<Grant<Callback>>) {
        for grant in grants {
            // Without a receiver the server is gone, and its locks with it.
            drop(self.errands.send(Errand::Granted(grant)));
        }
        if self.table.has_work_left() {
            self.work_left.notify_one();
        }
    }

    /// Has the results of an asynchronous call sent.
    pub(crate) fn send_results(&self, to: (IpAddr, IpAddr), procedure: u32, results: Vec<u8>) {
        let remote = self.remote(to);
        drop(self.errands.send(Errand::Results {
            remote,
            procedure,
            results,
        }));
    }

    fn remote(&self, (host, local): (IpAddr, IpAddr)) -> Remote {
        Remote {
            host,
            local,
            portmapper: self.portmapper,
        }
    }

    /// At an orderly stop: who holds nothing need not be told at the next start.
    pub(crate) async fn stop(&self) {
        let keep_all = self.grace.lasts(Instant::now());
        let has_locks = |client: &Client| keep_all || self.table.entries_of(client.host) > 0;
        if let Err(error) = self.peers.tidy(has_locks).await {
            tracing::warn!(%error, "could not note which clients hold locks: more than these will be told at the next start");
        }
    }
}
