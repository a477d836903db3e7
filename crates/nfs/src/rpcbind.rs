//! Registers the ports of the server's programs with this machine's rpcbind (RFC 1833), so that clients find the lock
//! manager: no mount option names its port.
//!
//! The server connects to the Unix socket of rpcbind, which identifies the user; over the network, rpcbind
//! accepts no registrations.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};

use crate::outgoing::{self, Failure, Program, Remote, Transport};
use crate::xdr::{Malformed, Reader, Writer};
use crate::{mount, nfs3, nlm, nsm};

/// Paths of rpcbind's socket.
pub const SOCKETS: [&str; 2] = ["/run/rpcbind.sock", "/var/run/rpcbind.sock"];

/// Time limit for a whole registration or removal.
const LIMIT: Duration = Duration::from_secs(5);

const RPCBIND: Program = Program {
    number: 100_000,
    version: 4,
};
const SET: u32 = 1;
const UNSET: u32 = 2;
const DUMP: u32 = 4;

/// Limits for the registrations that are read: their number, and the longest text in one.
const MAX_LISTED: usize = 1024;
const MAX_TEXT: usize = 1024;

/// The programs to register, with their names for people.
const PROGRAMS: [(&str, Program, &[Transport]); 4] = [
    (
        "NFS",
        program(nfs3::PROGRAM, nfs3::VERSION),
        &[Transport::Tcp],
    ),
    (
        "MOUNT",
        program(mount::PROGRAM, mount::VERSION),
        &[Transport::Tcp],
    ),
    (
        "NLM",
        program(nlm::PROGRAM, nlm::VERSION),
        &[Transport::Tcp],
    ),
    (
        "NSM",
        program(nsm::PROGRAM, nsm::VERSION),
        &[Transport::Tcp, Transport::Udp],
    ),
];

const fn program(number: u32, version: u32) -> Program {
    Program { number, version }
}

/// Why nothing was registered.
#[derive(Debug, thiserror::Error)]
pub enum RpcbindError {
    /// No process listens at the socket.
    #[error("no rpcbind answers at {path}: {source}")]
    Absent {
        /// The socket.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// It does not follow the protocol.
    #[error("rpcbind at {path} gave an unexpected answer: {why}")]
    Misbehaves {
        /// The socket.
        path: PathBuf,
        /// The unexpected behaviour.
        why: String,
    },
}

/// A program that another running server has registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Name of the program.
    pub program: &'static str,
    /// Transport, as rpcbind names it: `tcp`, `udp6`.
    pub transport: &'static str,
    /// Where it is registered, if rpcbind says so.
    pub address: Option<SocketAddr>,
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.program, self.transport)?;
        match self.address {
            Some(address) => write!(f, " is at port {}", address.port()),
            None => write!(f, " belongs to another program"),
        }
    }
}

/// Registrations; they stay until [`Registration::remove`], or until rpcbind ends.
#[derive(Debug)]
pub struct Registration {
    socket: PathBuf,
    entries: Vec<Entry>,
    /// Programs that could not be registered.
    pub taken: Vec<Taken>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    name: &'static str,
    program: Program,
    transport: Transport,
    netid: &'static str,
    address: SocketAddr,
}

/// The entries for a server that listens at `address`: for IPv4, for IPv6, or, at the unspecified IPv6 address, for
/// both.
fn entries(address: SocketAddr) -> Vec<Entry> {
    let mut addresses = vec![address];
    if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        addresses.push(SocketAddr::new(
            Ipv4Addr::UNSPECIFIED.into(),
            address.port(),
        ));
    }
    let mut entries = Vec::new();
    for (name, program, transports) in PROGRAMS {
        for transport in transports {
            entries.extend(addresses.iter().map(|address| Entry {
                name,
                program,
                transport: *transport,
                netid: match (transport, address.is_ipv4()) {
                    (Transport::Tcp, true) => "tcp",
                    (Transport::Tcp, false) => "tcp6",
                    (Transport::Udp, true) => "udp",
                    (Transport::Udp, false) => "udp6",
                },
                address: *address,
            }));
        }
    }
    entries
}

/// Registers NFS, MOUNT, NLM and NSM of the server that listens at `address`, with the rpcbind whose socket is
/// `socket`. Entries of a server that does not run any more are replaced; entries of another running server stay,
/// and are listed in [`Registration::taken`].
///
/// # Errors
/// There is no rpcbind, or it does not follow the protocol; some programs may or may not be registered then.
pub async fn register(address: SocketAddr, socket: &Path) -> Result<Registration, RpcbindError> {
    let path = socket.to_owned();
    let registered = async {
        let stream = UnixStream::connect(socket).await;
        let mut stream = stream.map_err(|source| RpcbindError::Absent {
            path: path.clone(),
            source,
        })?;
        let mut registration = Registration {
            socket: path.clone(),
            entries: Vec::new(),
            taken: Vec::new(),
        };
        for entry in entries(address) {
            registration.add(&mut stream, entry).await?;
        }
        Ok(registration)
    };
    let late = |_| RpcbindError::Misbehaves {
        path: path.clone(),
        why: format!("it takes more than {} s", LIMIT.as_secs()),
    };
    let registered = tokio::time::timeout(LIMIT, registered).await;
    registered.map_err(late)?
}

impl Registration {
    async fn add(&mut self, stream: &mut UnixStream, entry: Entry) -> Result<(), RpcbindError> {
        if self.ask(stream, SET, entry).await? {
            self.entries.push(entry);
            return Ok(());
        }
        let others = self.listed(stream).await?;
        let key = (
            entry.program.number,
            entry.program.version,
            entry.netid.to_owned(),
        );
        let other = others.get(&key).copied();
        // An entry of an earlier run of this server, or one that another server left behind.
        let is_left = match other {
            Some(other) => !answers(other, entry).await,
            None => false,
        };
        if is_left && self.ask(stream, UNSET, entry).await? && self.ask(stream, SET, entry).await? {
            self.entries.push(entry);
        } else {
            self.taken.push(Taken {
                program: entry.name,
                transport: entry.netid,
                address: other,
            });
        }
        Ok(())
    }

    /// Removes the registrations. Takes at most 5 s.
    ///
    /// # Errors
    /// rpcbind has ended or does not follow the protocol; entries that remain name a port without a listener.
    pub async fn remove(self) -> Result<(), RpcbindError> {
        let removed = async {
            let mut stream =
                UnixStream::connect(&self.socket)
                    .await
                    .map_err(|source| RpcbindError::Absent {
                        path: self.socket.clone(),
                        source,
                    })?;
            for entry in &self.entries {
                self.ask(&mut stream, UNSET, *entry).await?;
            }
            Ok(())
        };
        let late = |_| self.misbehaves("it takes too long");
        tokio::time::timeout(LIMIT, removed).await.map_err(late)?
    }

    /// Sets or unsets an entry; returns whether rpcbind did so.
    async fn ask(
        &self,
        stream: &mut UnixStream,
        procedure: u32,
        entry: Entry,
    ) -> Result<bool, RpcbindError> {
        let mut arguments = Vec::new();
        let mut writer = Writer::new(&mut arguments);
        writer.u32(entry.program.number);
        writer.u32(entry.program.version);
        writer.opaque(entry.netid.as_bytes());
        writer.opaque(outgoing::universal_address(entry.address).as_bytes());
        // The owner; rpcbind knows the real one from the socket.
        writer.opaque(b"forebay");
        let results = self.exchange(stream, procedure, &arguments).await?;
        let done = Reader::new(&results).bool();
        done.map_err(|Malformed| self.misbehaves("its answer is malformed"))
    }

    /// Lists all registrations.
    async fn listed(
        &self,
        stream: &mut UnixStream,
    ) -> Result<BTreeMap<(u32, u32, String), SocketAddr>, RpcbindError> {
        let results = self.exchange(stream, DUMP, &[]).await?;
        let malformed = |Malformed| self.misbehaves("its list is malformed");
        let mut reader = Reader::new(&results);
        let mut listed = BTreeMap::new();
        for _ in 0..MAX_LISTED {
            let entry = reader.option(|reader| {
                let (program, version) = (reader.u32()?, reader.u32()?);
                let netid = String::from_utf8_lossy(reader.opaque(MAX_TEXT)?).into_owned();
                let address = outgoing::parse_address(reader.opaque(MAX_TEXT)?);
                reader.opaque(MAX_TEXT)?;
                Ok(((program, version, netid), address))
            });
            match entry.map_err(malformed)? {
                Some((key, address)) => listed.extend(address.map(|address| (key, address))),
                None => break,
            }
        }
        Ok(listed)
    }

    async fn exchange(
        &self,
        stream: &mut UnixStream,
        procedure: u32,
        arguments: &[u8],
    ) -> Result<Vec<u8>, RpcbindError> {
        let (xid, call) = outgoing::call(RPCBIND, procedure, arguments);
        let reply = outgoing::by_stream(stream, &call).await;
        let reply = reply.map_err(|error| self.misbehaves(&error.to_string()))?;
        let results = outgoing::results(xid, &reply).map(<[u8]>::to_vec);
        results.map_err(|failure| self.misbehaves(&failure.to_string()))
    }

    fn misbehaves(&self, why: &str) -> RpcbindError {
        RpcbindError::Misbehaves {
            path: self.socket.clone(),
            why: why.to_owned(),
        }
    }
}

/// Whether a server answers for `entry`'s program at the address of another registration, as seen from this machine.
async fn answers(other: SocketAddr, entry: Entry) -> bool {
    let host = match other.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    match entry.transport {
        // A busy server may not answer: an accepted connection is proof enough. This server itself
        // listens already, too.
        Transport::Tcp => TcpStream::connect((host, other.port())).await.is_ok(),
        Transport::Udp => {
            let local = match host {
                IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            let remote = Remote {
                host,
                local,
                portmapper: 0,
            };
            let answer = remote.exchange(Transport::Udp, other.port(), entry.program, 0, &[]);
            !matches!(answer.await, Err(Failure::Unreachable(_)))
        }
    }
}

#[cfg(test)]
mod tests;
