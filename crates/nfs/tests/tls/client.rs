//! A client that switches to TLS as RFC 9289 specifies.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::Arc;

use forebay_nfs::record::mark;
use forebay_nfs::xdr::Writer;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::authority::{Authority, Identity};
use crate::common::{Client, MOUNT, NFS, Running};

/// Name of the server in its certificate.
pub(crate) const SERVER: &str = "server.example";

pub(crate) type Secure = Client<StreamOwned<ClientConnection, TcpStream>>;

/// A client's parameters for the handshake.
pub(crate) struct Manner<'a> {
    pub(crate) trusted: &'a Authority,
    pub(crate) identity: Option<&'a Identity>,
    pub(crate) alpn: &'a [&'a [u8]],
}

impl<'a> Manner<'a> {
    pub(crate) fn trusting(trusted: &'a Authority) -> Manner<'a> {
        Manner {
            trusted,
            identity: None,
            alpn: &[b"sunrpc"],
        }
    }

    pub(crate) fn with(self, identity: &'a Identity) -> Manner<'a> {
        Manner {
            identity: Some(identity),
            ..self
        }
    }

    fn config(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        let trusted = CertificateDer::from_pem_slice(self.trusted.pem.as_bytes()).unwrap();
        roots.add(trusted).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match self.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let (chain, key) = identity.parts();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = self.alpn.iter().map(|name| name.to_vec()).collect();
        config
    }

    /// Connects and switches to TLS.
    pub(crate) fn connect(&self, server: &Running) -> io::Result<Secure> {
        let mut plain = server.client();
        plain.send_record(&probe(plain.xid, NFS, 3, 0));
        assert_eq!(plain.receive()?, told_to_start(plain.xid));
        self.handshake(plain)
    }

    /// Performs the handshake on a connection on which the server waits for it.
    pub(crate) fn handshake(&self, plain: Client) -> io::Result<Secure> {
        let Client {
            stream,
            xid,
            caller,
        } = plain;
        let name = ServerName::try_from(SERVER).unwrap();
        let session = ClientConnection::new(Arc::new(self.config()), name);
        let mut stream = StreamOwned::new(session.map_err(io::Error::other)?, stream);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        stream.flush()?;
        Ok(Client {
            stream,
            xid,
            caller,
        })
    }
}

/// A call with AUTH_TLS; it has a header only.
pub(crate) fn probe(xid: u32, program: u32, version: u32, procedure: u32) -> Vec<u8> {
    let mut wire = Vec::new();
    let mut writer = Writer::new(&mut wire);
    for word in [xid, 0, 2, program, version, procedure, 7, 0, 0, 0] {
        writer.u32(word);
    }
    wire
}

/// The answer to a probe by a server with TLS.
pub(crate) fn told_to_start(xid: u32) -> Vec<u8> {
    let mut wire = Vec::new();
    let mut writer = Writer::new(&mut wire);
    for word in [xid, 1, 0, 0] {
        writer.u32(word);
    }
    writer.opaque(b"STARTTLS");
    writer.u32(0);
    wire
}

/// Encodes messages as consecutive records.
pub(crate) fn records(messages: &[Vec<u8>]) -> Vec<u8> {
    let record = |message: &Vec<u8>| [&mark(message.len())[..], message].concat();
    messages.iter().flat_map(record).collect()
}

/// Sends bytes to the server.
pub(crate) fn send(client: &mut Client, bytes: &[u8]) {
    client.stream.write_all(bytes).unwrap();
}

/// A probe of MOUNT has the same effect as one of NFS.
pub(crate) fn programs() -> [(u32, u32); 2] {
    [(NFS, 3), (MOUNT, 3)]
}
