//! The async shell: sockets, tasks, time.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use forebay_vfs::FileSystem;
use tokio::net::TcpListener;

use crate::ServerConfig;

/// An NFS and MOUNT server on one port.
pub struct Server<F> {
    listener: TcpListener,
    _fs: Arc<F>,
}

impl<F: FileSystem> Server<F> {
    /// Listens on `address`; port 0 takes a free one.
    pub async fn bind(
        address: SocketAddr,
        fs: Arc<F>,
        _config: ServerConfig,
    ) -> io::Result<Server<F>> {
        Ok(Server {
            listener: TcpListener::bind(address).await?,
            _fs: fs,
        })
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown` is done.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        shutdown.await;
        Ok(())
    }
}
