//! Options of a connection's socket.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// After this time without data from a client, TCP probes whether it is alive, and again after each
/// interval; the system gives up after nine probes.
const KEEPALIVE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Send buffer, in bytes, of sockets whose client is on this machine; the system doubles it, for its
/// own overhead.
///
/// By default the system lets megabytes queue in a socket, because a distant client needs them in flight. Here nothing
/// is in flight: queued data has left the processor's nearer caches before the client reads it, and so has the memory
/// into which the next reply is copied. With this limit, a reply of
/// 1 MiB costs the server a quarter less (docs/decisions/0033-sockets-of-this-machine.md).
const SEND_BYTES_ON_THIS_MACHINE: usize = 256 << 10;

/// Sets the socket options. This fails on a connection that has closed already; reading from it will report
/// that.
pub(super) fn set_options(stream: &TcpStream, local: IpAddr, peer: IpAddr) {
    if let Err(error) = try_set(&SockRef::from(stream), local, peer) {
        tracing::debug!(%error, "could not set the options of a connection");
    }
}

fn try_set(socket: &SockRef, local: IpAddr, peer: IpAddr) -> io::Result<()> {
    // Replies are gathered before they are written; there is nothing for TCP to wait for.
    socket.set_tcp_nodelay(true)?;
    if is_this_machine(local, peer) {
        socket.set_send_buffer_size(SEND_BYTES_ON_THIS_MACHINE)?;
    }
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE_INTERVAL);
    socket.set_tcp_keepalive(&keepalive)
}

/// Whether both ends of a connection are on this machine, as far as their addresses show: a container beside the server
/// has an address of its own.
fn is_this_machine(local: IpAddr, peer: IpAddr) -> bool {
    let (local, peer) = (local.to_canonical(), peer.to_canonical());
    local == peer || local.is_loopback() && peer.is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn only_clients_on_this_machine_have_small_sockets() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let (local, peer) = (stream.local_addr().unwrap(), client.local_addr().unwrap());
        let socket = SockRef::from(&stream);
        let before = socket.send_buffer_size().unwrap();

        let distant = "192.0.2.1".parse().unwrap();
        try_set(&socket, local.ip(), distant).unwrap();
        assert_eq!(socket.send_buffer_size().unwrap(), before);
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());

        try_set(&socket, local.ip(), peer.ip()).unwrap();
        let after = socket.send_buffer_size().unwrap();
        assert!(
            (1..=2 * SEND_BYTES_ON_THIS_MACHINE).contains(&after),
            "{after}"
        );
    }

    #[test]
    fn addresses_tell_whether_both_ends_are_here() {
        let here = |local: &str, peer: &str| {
            is_this_machine(local.parse().unwrap(), peer.parse().unwrap())
        };
        assert!(here("127.0.0.1", "127.0.0.1"));
        assert!(here("127.0.0.2", "127.0.0.1"));
        assert!(here("::ffff:127.0.0.1", "127.0.0.1"));
        assert!(here("::1", "::1"));
        assert!(here("192.0.2.7", "192.0.2.7"));
        assert!(!here("192.0.2.7", "192.0.2.8"));
        assert!(!here("127.0.0.1", "192.0.2.8"));
        assert!(!here("fe80::1", "fe80::2"));
    }
}
