//! The admin HTTP server: health, the state of the gateway as JSON, and the orders of an operator.
//!
//! It answers HTTP/1.1 on `admin_listen` from before the volume is opened until the gateway has stopped:
//!
//! ```text
//! GET  /, /page/FILE     the page, for browsers
//! GET  /health/live     200 as long as the process runs
//! GET  /health/ready    200 while it owns the volume and serves, else 503; the body says why
//! GET  /metrics         for Prometheus
//! GET  /api/v1/events   the latest messages, and further ones as they come
//! GET  /api/v1/live     the last ten minutes, and what clients and files do now
//! GET  /api/v1/where    ?path=/a/b: where a file or tree is
//! GET  /api/v1/status, clients, exports, quotas, log, requests, cost, config, scrub, gc
//! POST /api/v1/flush, scrub, gc                             with the token of `admin_token`
//! ```
//!
//! `rules` decides which requests are answered: pages of other sites in a browser must reach nothing, whatever names
//! they give this machine. `connection` bounds time and memory of a connection, and `Limits` the number of
//! everything. So that no request costs the clients of the volume anything, answers are computed one at a time, at a
//! bounded rate, and shared by the requests that wait for them (`shared`).
//!
//! A route is added in `router`: its handler gets `Admin`, with the gateway behind [`Control`], as axum's state.

mod access;
mod actions;
mod api;
mod connection;
mod counts;
mod events;
mod guard;
mod health;
mod metrics;
mod page;
mod path;
mod rate;
mod reply;
mod rules;
mod shared;
mod state;
mod timed;

#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use forebay_fs::Opening;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::admin::Control;
use crate::config::{Config, Source};
use access::Access;
pub use access::Reloaded;
use state::Admin;

/// The setting of the address.
const LISTEN: &str = "admin_listen";

/// The bounds of everything that requests can use up.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Connections at once; further ones are closed.
    connections: usize,
    /// Requests that are answered at once, of all connections; more wait.
    requests: usize,
    /// Requests that wait for a flush at once; further ones are refused.
    flushes: usize,
    /// Requests that walk a tree, or wait for a walk, at once; further ones are refused.
    walks: usize,
    /// The time for a walk.
    walk: Duration,
    /// Clients that follow events; further ones are refused.
    followers: usize,
    /// Answers of more than 256 KiB that clients are taking; further ones are refused.
    large: usize,
    /// The time for a TLS handshake, for the header of a request, and between two requests of a connection.
    header: Duration,
    /// The time for a request, from the end of its header to its answer.
    request: Duration,
    /// The same for a flush.
    flush: Duration,
    /// The time in which a client has to take the answer.
    take: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 32,
            requests: 8,
            flushes: 4,
            walks: 2,
            walk: Duration::from_secs(60),
            followers: 8,
            large: 2,
            header: Duration::from_secs(10),
            request: Duration::from_secs(10),
            flush: Duration::from_secs(120),
            take: Duration::from_secs(20),
        }
    }
}

/// Maximum number of bytes of a request's body.
const BODY_BYTES: usize = 16 << 10;

/// The admin HTTP server of a gateway.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    data_dir: PathBuf,
    /// The configuration that the gateway was started with.
    started: Config,
    access: Arc<Mutex<Arc<Access>>>,
    limits: Limits,
}

impl Server {
    /// Listens on the configured address; clients wait until [`Server::run`]. Returns nothing if there is none, or if it
    /// is the default and cannot be used, as with a second gateway on a machine: that is logged. Must be called within a
    /// tokio runtime.
    ///
    /// # Errors
    /// The address or a file cannot be used, as a message to the user.
    pub async fn bind(config: &Config) -> Result<Option<Server>, String> {
        let Some(wanted) = config.admin_listen.0 else {
            return Ok(None);
        };
        let access = Access::load(config, config, wanted.ip())?;
        let listener = match TcpListener::bind(wanted).await {
            Ok(listener) => listener,
            Err(error) => {
                cannot_listen(wanted, config.source(LISTEN), &error)?;
                return Ok(None);
            }
        };
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let scheme = if access.tls.is_some() {
            "https"
        } else {
            "http"
        };
        tracing::info!("admin HTTP on {scheme}://{address}");
        Ok(Some(Server {
            listener,
            address,
            data_dir: config.data_dir.clone(),
            started: config.clone(),
            access: Arc::new(Mutex::new(Arc::new(access))),
            limits: Limits::default(),
        }))
    }

    /// The address on which it listens, with the actual port if port 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Reads certificate, key, token and names of a new configuration; [`Server::put_in_force`] uses them.
    ///
    /// # Errors
    /// A file cannot be used, as a message to the user.
    pub fn reload(&self, config: &Config) -> Result<Reloaded, String> {
        Access::load(&self.started, config, self.address.ip()).map(Reloaded)
    }

    /// Applies a new configuration to all further requests, and to further connections as far as TLS is concerned.
    pub fn put_in_force(&self, reloaded: Reloaded) {
        *self.access.lock() = Arc::new(reloaded.0);
    }

    /// Answers clients, until it is dropped, which closes all connections. Until `control` has a gateway, only its health
    /// and its configuration are known.
    pub async fn run<C: Control>(
        &self,
        control: watch::Receiver<Option<Arc<C>>>,
        opening: &Opening,
        stopping: &Stopping,
    ) {
        let admin = Admin::new(self, control, opening.clone(), stopping.clone());
        connection::accept(&self.listener, Arc::new(admin)).await;
    }
}

/// Logs that the server cannot listen on an address, if nobody has asked for this address.
///
/// # Errors
/// If the address was configured.
fn cannot_listen(wanted: SocketAddr, source: Source, error: &std::io::Error) -> Result<(), String> {
    if source != Source::Default {
        return Err(format!(
            "cannot listen on {wanted} for admin HTTP: {error}; choose another address with --admin-listen, or none"
        ));
    }
    tracing::warn!(
        "there is no admin HTTP server: cannot listen on {wanted}: {error}; set {LISTEN} to a free address of this \
         machine, or to none"
    );
    Ok(())
}

/// Whether a gateway stops, and why. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stopping(Arc<OnceLock<String>>);

impl Stopping {
    /// The gateway begins to stop; the first reason stays.
    pub fn begin(&self, reason: String) {
        let _ = self.0.set(reason);
    }

    /// The reason, once it stops.
    fn reason(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug)]
struct Ends {
    client: SocketAddr,
    /// The address of this machine that the client is connected to.
    server: IpAddr,
    tls: bool,
}

/// All routes.
fn router<C: Control>(admin: Arc<Admin<C>>) -> Router {
    // Answered within a bounded time, a bounded number at once.
    let short = Router::new()
        .route("/", get(page::index))
        .route("/page/{file}", get(page::file))
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready::<C>))
        .route("/metrics", get(metrics::scrape::<C>))
        .route("/api/v1/status", get(api::status::<C>))
        .route("/api/v1/live", get(api::live::<C>))
        .route("/api/v1/clients", get(metrics::clients::<C>))
        .route("/api/v1/exports", get(api::exports::<C>))
        .route("/api/v1/quotas", get(api::quotas::<C>))
        .route("/api/v1/log", get(api::log::<C>))
        .route("/api/v1/requests", get(api::requests::<C>))
        .route("/api/v1/cost", get(api::cost::<C>))
        .route("/api/v1/config", get(api::config::<C>))
        .route(
            "/api/v1/scrub",
            get(api::scrub::<C>).post(actions::scrub::<C>),
        )
        .route("/api/v1/gc", get(api::gc::<C>).post(actions::gc::<C>))
        .layer(from_fn_with_state(admin.clone(), guard::in_bounds::<C>));
    // These have bounds of their own.
    let long = Router::new()
        .route("/api/v1/flush", post(actions::flush::<C>))
        .route("/api/v1/where", get(path::whereabouts::<C>))
        .route("/api/v1/events", get(events::follow::<C>));
    short
        .merge(long)
        .fallback(reply::no_such_path)
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .layer(from_fn_with_state(admin.clone(), guard::permitted::<C>))
        .layer(from_fn(guard::with_headers))
        .with_state(admin)
}
