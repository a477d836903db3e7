//! Calls that the server makes: to the lock managers of its clients, and to the portmappers of clients and of this
//! machine.
//!
//! The calls are rare and small, so each has a connection, or a socket, of its own. Replies are trusted as
//! little as client requests: they are bounded, and decoded with the same care.

mod message;
mod portmapper;

pub(crate) use message::{Failure, call, results};
pub(crate) use portmapper::{parse_address, universal_address};

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, UdpSocket};

use crate::record::{LAST_FRAGMENT, MARK_BYTES, mark};

/// Time limit of one call, including the connect.
const CALL_LIMIT: Duration = Duration::from_secs(3);

/// Longest reply that is read, in bytes: a list of all programs of a machine is the longest.
const MAX_REPLY_BYTES: usize = 64 << 10;

/// A program of another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) number: u32,
    pub(crate) version: u32,
}

/// How to reach the programs of another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    pub(crate) host: IpAddr,
    /// The local address that the machine knows as this server's; calls come from this address, so that the machine
    /// recognizes them.
    pub(crate) local: IpAddr,
    /// Where its portmapper listens.
    pub(crate) portmapper: u16,
}

/// The two ways to send a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

impl Remote {
    /// Calls a procedure over TCP, or else over UDP; returns the results. Asks the machine's portmapper for the
    /// port each time, since the port changes with every boot.
    pub(crate) async fn call(
        &self,
        program: Program,
        procedure: u32,
        arguments: &[u8],
    ) -> Result<Vec<u8>, Failure> {
        let by_tcp = self
            .call_by(Transport::Tcp, program, procedure, arguments)
            .await;
        match by_tcp {
            // A program that has answered over TCP gives the same answer over UDP.
            Ok(_) | Err(Failure::Refused(_)) => by_tcp,
            Err(Failure::Unreachable(_)) => {
                self.call_by(Transport::Udp, program, procedure, arguments)
                    .await
            }
        }
    }

    async fn call_by(
        &self,
        transport: Transport,
        program: Program,
        procedure: u32,
        arguments: &[u8],
    ) -> Result<Vec<u8>, Failure> {
        let (asked, question) = portmapper::question(self.host, transport, program);
        let answer = self
            .exchange(
                transport,
                self.portmapper,
                asked,
                question.procedure,
                &question.arguments,
            )
            .await?;
        let port = portmapper::port(self.host, &answer)?;
        self.exchange(transport, port, program, procedure, arguments)
            .await
    }

    pub(crate) async fn exchange(
        &self,
        transport: Transport,
        port: u16,
        program: Program,
        procedure: u32,
        arguments: &[u8],
    ) -> Result<Vec<u8>, Failure> {
        let to = SocketAddr::new(self.host, port);
        let (xid, call) = message::call(program, procedure, arguments);
        let reply = async {
            match transport {
                Transport::Tcp => {
                    let mut stream = self.socket()?.connect(to).await?;
                    by_stream(&mut stream, &call).await
                }
                Transport::Udp => by_datagram(SocketAddr::new(self.local, 0), to, &call).await,
            }
        };
        let reply = tokio::time::timeout(CALL_LIMIT, reply).await;
        let reply = reply.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        message::results(xid, &reply).map(<[u8]>::to_vec)
    }

    fn socket(&self) -> io::Result<TcpSocket> {
        let socket = match self.host {
            IpAddr::V4(_) => TcpSocket::new_v4()?,
            IpAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.bind(SocketAddr::new(self.local, 0))?;
        Ok(socket)
    }
}

/// Sends a call over a stream and reads the reply.
pub(crate) async fn by_stream(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    call: &[u8],
) -> io::Result<Vec<u8>> {
    let mut record = mark(call.len()).to_vec();
    record.extend_from_slice(call);
    stream.write_all(&record).await?;
    let mut reply = Vec::new();
    loop {
        let mut mark = [0; MARK_BYTES];
        stream.read_exact(&mut mark).await?;
        let mark = u32::from_be_bytes(mark);
        let length = (mark & !LAST_FRAGMENT) as usize;
        if reply.len() + length > MAX_REPLY_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the reply is too long",
            ));
        }
        let before = reply.len() as u64;
        let read = stream.take(length as u64).read_to_end(&mut reply).await?;
        if read < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // An empty fragment that is not the last makes no progress; no correct peer sends one.
        if mark & LAST_FRAGMENT != 0 || reply.len() as u64 == before {
            return Ok(reply);
        }
    }
}

async fn by_datagram(from: SocketAddr, to: SocketAddr, call: &[u8]) -> io::Result<Vec<u8>> {
    let socket = UdpSocket::bind(from).await?;
    // From now on the socket receives only from that address.
    socket.connect(to).await?;
    let mut reply = vec![0; MAX_REPLY_BYTES];
    loop {
        socket.send(call).await?;
        let wait = CALL_LIMIT / 3;
        if let Ok(received) = tokio::time::timeout(wait, socket.recv(&mut reply)).await {
            reply.truncate(received?);
            return Ok(reply);
        }
    }
}

#[cfg(test)]
mod tests;
