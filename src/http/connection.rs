//! Connections: how many, and how long each may take for what.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::state::Admin;
use super::timed::Timed;
use super::{Ends, Limits, router};
use crate::admin::Control;

/// Maximum number of bytes of a request's header, with the start line.
const HEADER_BYTES: usize = 16 << 10;

/// Maximum number of headers of a request.
const HEADERS: usize = 64;

/// Pause after a failed accept, as when the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts and serves connections, until it is dropped.
pub(super) async fn accept<C: Control>(listener: &TcpListener, admin: Arc<Admin<C>>) {
    let router = router(admin.clone());
    let mut connections = JoinSet::new();
    loop {
        admin.accepted.wait().await;
        let accepted = listener.accept().await;
        // A panic ends the connection that caused it, and is logged by its hook.
        while connections.try_join_next().is_some() {}
        let (stream, client) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a client of admin HTTP");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = admin.connections.clone().try_acquire_owned() else {
            let most = admin.limits.connections;
            admin.counts.connections_refused.add(1);
            tracing::warn!(%client, "admin HTTP: closed, since there are {most} connections");
            continue;
        };
        let tls = admin.access().tls.clone().map(TlsAcceptor::from);
        let service = TowerToHyperService::new(router.clone());
        let serve = converse(stream, client, tls, service, admin.limits, permit);
        connections.spawn(serve);
    }
}

/// Serves one connection.
async fn converse(
    stream: TcpStream,
    client: SocketAddr,
    tls: Option<TlsAcceptor>,
    service: TowerToHyperService<axum::Router>,
    limits: Limits,
    _permit: OwnedSemaphorePermit,
) {
    // Without it small answers may wait for acknowledgements.
    let _ = stream.set_nodelay(true);
    let Ok(server) = stream.local_addr() else {
        return;
    };
    let ends = Ends {
        client,
        server: server.ip(),
        tls: tls.is_some(),
    };
    match tls {
        None => answer(stream, ends, service, limits).await,
        Some(tls) => match timeout(limits.header, tls.accept(stream)).await {
            Ok(Ok(stream)) => answer(stream, ends, service, limits).await,
            Ok(Err(error)) => tracing::debug!(%client, "admin HTTP: TLS failed: {error}"),
            Err(_) => tracing::debug!(%client, "admin HTTP: TLS took too long"),
        },
    }
}

/// Answers the requests of a connection, in plain or within TLS.
async fn answer<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    ends: Ends,
    service: TowerToHyperService<axum::Router>,
    limits: Limits,
) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ends);
        service.call(request)
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        // It runs between requests as well.
        .header_read_timeout(limits.header)
        .max_buf_size(HEADER_BYTES)
        .max_headers(HEADERS)
        .serve_connection(TokioIo::new(Timed::new(stream, limits.take)), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(client = %ends.client, "admin HTTP: {error}");
    }
}
