//! Runs our engine over any file system, on a port of the loopback.

#![allow(dead_code, reason = "no benchmark needs all of it")]

use std::net::SocketAddr;
use std::sync::Arc;

use forebay_nfs::{AddressRange, Export, Limits, Rule, Server, ServerConfig, SourcePort, Squash};
use forebay_types::VolumeId;
use forebay_vfs::Trees;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A running server.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    /// Stops the server; `None` if it serves until it is aborted.
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
}

/// Serves all of `fs` to every client, as root.
pub(crate) async fn start<F: Trees>(fs: Arc<F>) -> Running {
    let config = ServerConfig {
        handle_key: [7; 32],
        volume: VolumeId([7; 16]),
        exports: vec![Export {
            id: 1,
            path: b"/".to_vec(),
            rules: vec![Rule {
                clients: vec![AddressRange::ANY_V4],
                squash: Squash::None,
                source_port: SourcePort::Any,
                ..Rule::default()
            }],
        }],
        limits: Limits::default(),
    };
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::bind(any, fs, config).await.expect("a free port");
    let address = server.local_addr().expect("an address");
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(server.serve(async { stopped.await.unwrap_or_default() }));
    Running {
        address,
        stop: Some(stop),
        served,
    }
}

impl Running {
    /// A server that can only be ended by aborting it.
    pub(crate) fn endless(address: SocketAddr, served: JoinHandle<()>) -> Running {
        Running {
            address,
            stop: None,
            served,
        }
    }

    pub(crate) async fn stop(self) {
        match self.stop {
            Some(stop) => stop.send(()).expect("it runs"),
            None => self.served.abort(),
        }
        // The error of an aborted task is expected.
        let _ = self.served.await;
    }
}
