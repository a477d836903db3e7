//! The protocol engine without its sockets, for the fuzz targets.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use forebay_vfs::Trees;

use crate::engine::{Engine, Outcome, execute};
use crate::{ServerConfig, Transport};

/// State that all connections of a server share.
pub struct Service<F>(Arc<Engine<F>>);

/// The server's reaction to a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Sends these bytes, record mark included.
    Reply(Vec<u8>),
    /// Sends no reply.
    Silence,
    /// Closes the connection.
    Hangup,
}

impl<F: Trees> Service<F> {
    /// Creates the engine as [`crate::Server::bind`] does.
    pub fn new(fs: Arc<F>, config: &ServerConfig) -> Service<F> {
        Service(Arc::new(Engine::new(config, |_| fs.clone())))
    }

    /// Serves a record that came from a privileged port of `address` at `now`.
    pub async fn serve(&self, address: IpAddr, record: &[u8], now: Instant) -> Answer {
        let from = SocketAddr::new(address, 700);
        let session = self.0.session(from, address, Transport::Plain);
        match execute(&session, record, now, Vec::new()).await {
            Outcome::Reply(reply) | Outcome::StartTls(reply, _) => {
                let (mut bytes, data) = reply.finish();
                data.iter().for_each(|piece| bytes.extend_from_slice(piece));
                Answer::Reply(bytes)
            }
            Outcome::Silence => Answer::Silence,
            Outcome::Hangup => Answer::Hangup,
        }
    }
}

/// Upper bound for the bytes of the reply to a record: the amount that a connection is charged before the call
/// begins.
pub fn reply_bound(record: &[u8]) -> usize {
    crate::engine::demand(record).1
}
