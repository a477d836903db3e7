//! The lock manager: the state that NLM (locking) and NSM (reboot notices) share.
//!
//! ```text
//!    LOCK, UNLOCK ... (nlm)            SM_NOTIFY (nsm)
//!            |                               |
//!            v                               v
//!   +-----------------+  note, flushed  +---------+    replaced as a whole
//!   |   LockManager   |---------------->|  Peers  |-------------------------> ClientListStore (a file)
//!   |  table, grace   |                 +---------+
//!   +-----------------+                      | after a start: clients with locks
//!            | grants, results               v
//!            +-----> notifications <----- notices
//!                          |
//!                          v   NLM_GRANTED, NLM_*_RES, SM_NOTIFY
//!                   the clients' lock managers
//! ```
//!
//! Locks are in memory only. A restart needs to know which clients held locks. The [`ClientListStore`] holds that list,
//! and a client is on it before its first lock is granted. After a restart the server notifies these clients
//! (SM_NOTIFY), and they reclaim their locks while the grace period keeps all others from taking them.

mod client_list;
mod notification;
mod notifications;
mod peers;

pub use client_list::ClientListStore;
pub(crate) use client_list::Peer;
pub(crate) use notification::Callback;
pub(crate) use notifications::run;
pub(crate) use peers::Guard;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use forebay_lock::{Client, Grace, Grant, Incarnation, LockTable};
use tokio::sync::{Notify, mpsc};

use crate::outgoing::Remote;
use notification::Notification;
use peers::Peers;

/// The port of portmappers.
const PORTMAPPER_PORT: u16 = 111;

/// Configuration of the lock manager.
#[derive(Clone)]
pub struct LockConfig {
    /// Grace period: how long after a start only reclaims are granted, if any client held a lock.
    pub grace: Duration,
    /// Storage for the list of clients that hold locks.
    pub client_list: Arc<dyn ClientListStore>,
    /// Limits on the number of locks.
    pub limits: forebay_lock::Limits,
    /// Name, in addition to the local address, by which clients may know this server.
    pub name: String,
    /// The port of the clients' portmappers: 111.
    pub portmapper: u16,
}

impl LockConfig {
    /// Uses the defaults for everything else.
    pub fn new(grace: Duration, client_list: Arc<dyn ClientListStore>) -> LockConfig {
        LockConfig {
            grace,
            client_list,
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
    notifications: mpsc::UnboundedSender<Notification>,
    /// Signaled when there is work on waiters.
    work_left: Notify,
    name: String,
    portmapper: u16,
}

/// The queued notifications of a lock manager that does not run yet.
pub(crate) struct Notifications {
    receiver: mpsc::UnboundedReceiver<Notification>,
    /// Clients that held locks when the server stopped.
    previous: Vec<Peer>,
}

impl LockManager {
    /// Reads which clients held locks when the server stopped, and begins the grace period if there were any.
    ///
    /// # Errors
    /// The client list cannot be read or written.
    pub(crate) async fn start(config: LockConfig) -> io::Result<(Arc<LockManager>, Notifications)> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let opened = Peers::open(config.client_list, since.unwrap_or_default()).await?;
        let grace = if opened.held_locks {
            tracing::info!(
                clients = opened.previous.len(),
                "clients held locks before the restart: for {} s other clients get no locks",
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
            notifications: sender,
            work_left: Notify::new(),
            name: config.name,
            portmapper: config.portmapper,
        };
        let notifications = Notifications {
            receiver,
            previous: opened.previous,
        };
        Ok((Arc::new(manager), notifications))
    }

    /// Whether a lock may be granted at this time.
    pub(crate) fn admits(&self, reclaim: bool, now: Instant) -> bool {
        self.grace.admits(reclaim, now)
    }

    /// The server's NSM state number.
    pub(crate) fn state(&self) -> i32 {
        self.peers.state()
    }

    /// Records that a client is about to have a lock; the record is on stable storage when this returns. It stays
    /// at least until the guard is dropped.
    pub(crate) async fn note(&self, peer: &Peer) -> io::Result<Guard<'_>> {
        let has_locks = |client: &Client| self.table.entries_of(client.host) > 0;
        // Clients that held locks at the start may reclaim them until the grace period is over.
        let keep_all = self.grace.lasts(Instant::now());
        self.peers
            .note(peer, |client| keep_all || has_locks(client))
            .await
    }

    /// The client's incarnation (its life between two boots) to which a requested lock belongs.
    pub(crate) fn incarnation(&self, client: &Client, said: i32) -> Incarnation {
        Incarnation(match said {
            0 => self.peers.last_state(client),
            said => said,
        })
    }

    /// Handles a client's reboot notice, sent under one of its names: releases the locks that it held before.
    pub(crate) fn rebooted(&self, host: IpAddr, name: &[u8], state: i32) {
        for client in self.peers.rebooted(host, name, state) {
            tracing::info!(
                client = %host,
                name = %client.name.escape_ascii(),
                "a client was rebooted: its earlier locks are released"
            );
            self.notify_granted(self.table.free(&client, Some(Incarnation(state))));
        }
    }

    /// Sends notices of new grants to their owners, and starts the work on waiters that the call left over.
    pub(crate) fn notify_granted(&self, grants: Vec<Grant<Callback>>) {
        for grant in grants {
            // If the receiver is dropped, the server has stopped and its locks with it.
            drop(self.notifications.send(Notification::Granted(grant)));
        }
        if self.table.has_work_left() {
            self.work_left.notify_one();
        }
    }

    /// Queues the results of an asynchronous call.
    pub(crate) fn send_results(&self, to: (IpAddr, IpAddr), procedure: u32, results: Vec<u8>) {
        let remote = self.remote(to);
        drop(self.notifications.send(Notification::Results {
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

    /// For an orderly stop: clients without locks need no notice at the next start.
    pub(crate) async fn stop(&self) {
        let keep_all = self.grace.lasts(Instant::now());
        let has_locks = |client: &Client| keep_all || self.table.entries_of(client.host) > 0;
        if let Err(error) = self.peers.tidy(has_locks).await {
            tracing::warn!(%error, "cannot store the list of clients that hold locks: the next start notifies more clients than these");
        }
    }
}
