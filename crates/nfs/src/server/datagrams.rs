//! The UDP port: most clients send their reboot notices as datagrams.

use std::sync::Arc;

use forebay_vfs::Trees;
use tokio::net::UdpSocket;

use super::ACCEPT_PAUSE;
use crate::Transport;
use crate::engine::{Engine, execute_datagram};
use crate::record::MARK_BYTES;

/// Longest datagram that is decoded, in bytes; no call that is served is longer.
const MAX_BYTES: usize = 2048;

/// Answers datagrams until it is dropped.
pub(super) async fn serve<F: Trees>(engine: Arc<Engine<F>>, socket: UdpSocket) {
    let mut datagram = vec![0; MAX_BYTES];
    loop {
        let received = socket.recv_from(&mut datagram).await;
        let Ok((bytes, from)) = received else {
            // Usually an answer that could not be delivered. For any other error, the pause avoids a busy loop.
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
