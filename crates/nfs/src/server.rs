//! The async shell: sockets, tasks, time.
//!
//! One task for each connection reads, begins calls, gathers replies and writes; see
//! [`connection`]. A call whose file system operation completes at once needs no task. A call that has
//! to wait gets one, so that it neither blocks its neighbours nor is lost with its connection.
//! [`stream`] switches a connection to TLS. [`budget`] limits the bytes that clients may hold, [`seats`] the number of
//! their connections, and [`shares`] divides both; [`lanes`] has the calls that cannot begin yet, [`timeouts`] limits
//! all waits, [`socket`] sets the options of sockets, and [`pool`] reuses buffers.

mod budget;
mod connection;
mod datagrams;
mod lanes;
mod outbox;
mod pool;
mod scratch;
mod seats;
mod shares;
mod socket;
mod stream;
mod timeouts;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use forebay_vfs::{Trees, Trouble, Troubles};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::engine::{Engine, execute};
use crate::locks::{LockManager, Notifications, run};
use crate::{
    CallWatch, ExportControl, Limits, LockConfig, Metrics, ServerConfig, TlsControl, Transport,
    View,
};
use budget::Budget;
use connection::{Connection, Phase};
use pool::Pool;
use seats::{Seat, Seats};

/// Pause after the system had no room for another connection (EMFILE, ENOBUFS): an immediate
/// retry would fail again and turn into a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The charge for a call is at most the largest record or reply, plus this many bytes: a record that asks for a long
/// reply.
const BESIDE_RECORD_BYTES: usize = 64 << 10;

/// More bytes than a connection can hold on its own: one scratch buffer, one small incomplete record, small calls and
/// their replies, and parked calls.
const LARGEST_REST: usize = 512 << 10;

/// An NFS and MOUNT server on one TCP port. With a lock manager ([`Server::with_locks`]) the port also serves NLM and
/// NSM, and the UDP port of the same number serves NSM.
pub struct Server<F> {
    listener: TcpListener,
    locks: Option<Locks>,
    shared: Arc<Shared<F>>,
}

/// The parts that a lock manager adds to the connections.
struct Locks {
    manager: Arc<LockManager>,
    notifications: Notifications,
    datagrams: Option<UdpSocket>,
}

/// State that all connections of a server share.
struct Shared<F> {
    engine: Arc<Engine<F>>,
    /// For large calls and replies.
    budget: Arc<Budget>,
    /// For the other memory that connections hold while they wait.
    rest: Arc<Budget>,
    pool: Arc<Pool>,
    limits: Limits,
}

impl<F: Trees> Server<F> {
    /// Listens on `address`; port 0 takes a free one. Fails when the address is not available, and with
    /// [`io::ErrorKind::InvalidInput`] and a [`crate::ConfigError`] on an invalid configuration. Clients can connect
    /// from now on; [`Server::serve`] serves them.
    pub async fn bind(
        address: SocketAddr,
        fs: Arc<F>,
        config: ServerConfig,
    ) -> io::Result<Server<F>> {
        Server::bind_views(address, config, |_| fs.clone()).await
    }

    /// Like [`Server::bind`], but each rule can have its own view of the file system.
    pub async fn bind_views(
        address: SocketAddr,
        config: ServerConfig,
        view: impl Fn(View) -> Arc<F>,
    ) -> io::Result<Server<F>> {
        config
            .check()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let listener = TcpListener::bind(address).await?;
        let limits = &config.limits;
        let largest_call = limits.record_bytes + BESIDE_RECORD_BYTES;
        let engine = Arc::new(Engine::new(&config, view));
        let held = &engine.metrics.held;
        let budget = |bytes, most| Arc::new(Budget::new(bytes, most, held.clone()));
        let holdable = limits.shared_bytes + limits.resting_bytes;
        engine.metrics.holdable.set(holdable as u64);
        let shared = Arc::new(Shared {
            budget: budget(limits.shared_bytes, largest_call),
            rest: budget(limits.resting_bytes, LARGEST_REST),
            engine: engine.clone(),
            pool: Arc::new(Pool::new(config.limits.record_bytes)),
            limits: config.limits,
        });
        Ok(Server {
            listener,
            locks: None,
            shared,
        })
    }

    /// Adds a lock manager. If clients held locks when the last server with this client list stopped, the grace
    /// period begins now, and [`Server::serve`] notifies them.
    ///
    /// # Errors
    /// The client list cannot be read or written. A UDP port that is in use is not an error: the server then
    /// misses reboot notices that clients send over UDP.
    pub async fn with_locks(mut self, config: LockConfig) -> io::Result<Server<F>> {
        let (manager, notifications) = LockManager::start(config).await?;
        let address = self.local_addr()?;
        let datagrams = UdpSocket::bind(address).await;
        if let Err(error) = &datagrams {
            tracing::warn!(
                "cannot listen on UDP port {}: {error}; locks of clients that crash stay until they have mounted again and speak by TCP",
                address.port()
            );
        }
        // It cannot be set already: the server is not shared yet.
        drop(self.shared.engine.locks.set(manager.clone()));
        self.locks = Some(Locks {
            manager,
            notifications,
            datagrams: datagrams.ok(),
        });
        Ok(self)
    }

    /// The address that the server listens on.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The server's metrics; they stay valid after the server has ended.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.shared.engine.metrics.clone()
    }

    /// Counts of refused clients; they stay valid after the server has ended.
    pub fn troubles(&self) -> Arc<Troubles> {
        self.shared.engine.troubles.clone()
    }

    /// Handle for watching calls; it stays valid after the server has ended, and sees nothing then.
    pub fn call_watch(&self) -> CallWatch {
        self.shared.engine.watch.clone()
    }

    /// Handle for replacing the exports while the server runs.
    pub fn export_control(&self) -> ExportControl<F> {
        ExportControl(self.shared.engine.clone())
    }

    /// Handle for setting the TLS configuration, before or while the server runs. Until then, the server refuses
    /// requests for TLS.
    pub fn tls_control(&self) -> TlsControl {
        self.shared.engine.tls.clone()
    }

    /// Serves until `shutdown` completes, and then stops: accepts no more connections, reads no more,
    /// finishes the calls that were read, sends their replies, and closes, all within
    /// [`Limits::grace`]. Calls that are not done by then are dropped, which leaves each executed or not executed, as
    /// [`FileSystem`](forebay_vfs::FileSystem) promises.
    ///
    /// Dropping the future ends everything at once.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) {
        let grace = self.shared.limits.grace;
        let shutdown = async move {
            shutdown.await;
            grace
        };
        self.serve_until(shutdown).await;
    }

    /// Like [`Server::serve`], but `shutdown` returns the time that calls have to finish, in place of
    /// [`Limits::grace`].
    pub async fn serve_until(self, shutdown: impl Future<Output = Duration>) {
        let Server {
            listener,
            locks,
            shared,
        } = self;
        // These tasks end with this future.
        let mut beside = JoinSet::new();
        let manager = locks.as_ref().map(|locks| locks.manager.clone());
        if let Some(locks) = locks {
            let metrics = shared.engine.metrics.clone();
            beside.spawn(run(locks.manager, locks.notifications, metrics));
            if let Some(socket) = locks.datagrams {
                beside.spawn(datagrams::serve(shared.engine.clone(), socket));
            }
        }
        let (phase, _) = watch::channel(Phase::Serving);
        let mut connections = JoinSet::new();
        let seats = Seats::new(&shared.limits);
        let mut shutdown = std::pin::pin!(shutdown);
        let grace = loop {
            tokio::select! {
                biased;
                grace = &mut shutdown => break grace,
                Some(ended) = connections.join_next(), if !connections.is_empty() => {
                    report(ended, &shared.engine.metrics);
                }
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        shared.accept(stream, peer, &seats, &phase, &mut connections);
                    }
                    Err(error) => shared.not_accepted(&error).await,
                },
            }
        };
        drop(listener);
        phase.send_replace(Phase::Draining);
        let all_ended = async {
            while let Some(ended) = connections.join_next().await {
                report(ended, &shared.engine.metrics);
            }
        };
        if tokio::time::timeout(grace, all_ended).await.is_err() {
            tracing::warn!(
                connections = connections.len(),
                "the time for finishing calls at shutdown is over: dropping the rest"
            );
            phase.send_replace(Phase::Ending);
            while let Some(ended) = connections.join_next().await {
                report(ended, &shared.engine.metrics);
            }
        }
        beside.shutdown().await;
        if let Some(manager) = manager {
            manager.stop().await;
        }
    }
}

fn report(ended: Result<(), tokio::task::JoinError>, metrics: &Metrics) {
    metrics.connections.subtract(1);
    if let Err(error) = ended {
        tracing::error!(%error, "a connection failed");
    }
}

impl<F: Trees> Shared<F> {
    fn accept(
        self: &Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        seats: &Seats,
        phase: &watch::Sender<Phase>,
        connections: &mut JoinSet<()>,
    ) {
        let metrics = &self.engine.metrics;
        // A connection without an address has closed already; reading from it will report that.
        let local = stream.local_addr().map_or(peer.ip(), |local| local.ip());
        let session = Arc::new(self.engine.session(peer, local, Transport::Plain));
        let is_stranger = session.is_stranger();
        let Some(seat) = seats.take(peer, is_stranger) else {
            // The new connection is refused, which is better than to slow down all others.
            metrics.connections_refused.add(1);
            let client = peer.ip().to_canonical();
            if is_stranger {
                tracing::warn!(
                    %client,
                    "connection refused: no export includes its address, and such addresses have reached their limit of connections"
                );
            } else {
                let troubles = &self.engine.troubles;
                troubles.refused(Trouble::Connections, client);
                tracing::debug!(%client, "connection refused: the client, or all clients together, have reached the limit of connections");
            }
            return;
        };
        if is_stranger {
            metrics.connections_of_strangers.add(1);
        }
        metrics.connections_accepted.add(1);
        metrics.connections.add(1);
        socket::set_options(&stream, local, peer.ip());
        let connection = Connection::new(
            stream,
            peer,
            session,
            self,
            seat,
            async |session, record, now, buffer| {
                let outcome = execute(&session, record.bytes(), now, buffer).await;
                session.count(record.bytes(), &outcome, record.arrived().elapsed());
                (outcome, record)
            },
        );
        connections.spawn(connection.run(phase.subscribe()));
    }

    /// Handles an error of accept; the server then waits for the next connection in every case.
    async fn not_accepted(&self, error: &io::Error) {
        self.engine.metrics.accept_errors.add(1);
        tracing::debug!(%error, "could not accept a connection");
        let is_the_peers = matches!(
            error.kind(),
            io::ErrorKind::ConnectionAborted
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::Interrupted
        );
        if !is_the_peers {
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}
