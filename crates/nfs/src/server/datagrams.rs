//! The UDP port: by datagram clients tell that they were booted anew, as most do.

use std::sync::Arc;

use forebay_vfs::FileSystem;
use tokio::net::UdpSocket;

use super::ACCEPT_PAUSE;
use crate::Transport;
use crate::engine::{Engine, execute_datagram};
use crate::record::MARK_BYTES;

/// Longest datagram that is looked at, in bytes; no call that is served is longer.
const MAX_BYTES: usize = 2048;

/// Answers datagrams until it is dropped.
pub(super) async fn serve<F: FileSystem>(engine: Arc<Engine<F>>, socket: UdpSocket) {
    let mut datagram = vec![0; MAX_BYTES];
    loop {
        let received = socket.recv_from(&mut datagram).await;
        let Ok((bytes, from)) = received else {
            // An answer that did not arrive, mostly; whatever it is, it must not burn the processor.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let session = engine.session(from, from.ip(), Transport::Plain);
        let datagram = datagram.get(..bytes).unwrap_or_default();
        let Some(reply) = execute_datagram(&session, datagram) else {
            continue;
        };
        let (reply, _) = reply.finish();
        let reply = reply.get(MARK_BYTES..).unwrap_or_default();
        if let Err(error) = socket.send_to(reply, from).await {
            tracing::debug!(client = %from, %error, "could not answer a datagram");
        }
    }
}
