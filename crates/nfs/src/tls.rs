//! RPC with TLS (RFC 9289), as Linux clients from 6.5 on speak it.
//!
//! ```text
//!  client                                           server
//!    |  NULL, credential AUTH_TLS, in clear  ------->  |
//!    |  <-------  accepted, verifier "STARTTLS"        |
//!    |  <=======  handshake of TLS 1.3  ============>  |
//!    |  everything else, records as before, in TLS     |
//! ```
//!
//! What AUTH_TLS is answered is decided in the engine; the handshake and what follows are the connection's
//! (`server::stream`). Here is what the server shows and asks for: [`Tls`], made of PEM texts, and
//! [`TlsControl`], by which it is replaced while the server runs.
//!
//! Three things are as they are for the sake of clients whose kernel takes over the connection after the
//! handshake (kTLS), as Linux does. There are no session tickets: they would arrive when the handshake is
//! over, where the kernel expects nothing but data; and a client then shows its certificate at every
//! connection, so that it counts at once when the authority is replaced. There is TLS 1.3 only (RFC 9289,
//! section 5). And ALPN is answered with "sunrpc", but not insisted on: RFC 9289 has clients send it, and
//! tlshd, which does the handshake for Linux, does not. Nothing else is served on the port that a client
//! could be led to instead.

mod subject;

use std::sync::Arc;

use parking_lot::Mutex;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{InconsistentKeys, RootCertStore, ServerConfig};

pub(crate) use subject::subject;

/// What the protocol is called in ALPN (RFC 9289, section 8.2).
const ALPN: &[u8] = b"sunrpc";

/// The identity that a server shows, and whose clients' certificates it accepts.
#[derive(Clone, Debug)]
pub struct Tls(pub(crate) Arc<ServerConfig>);

/// Why texts cannot be used, by the one that is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// That of the certificates.
    #[error("{0}")]
    Certificate(String),
    /// That of the key.
    #[error("{0}")]
    Key(String),
    /// That of the clients' authorities.
    #[error("{0}")]
    ClientAuthority(String),
}

impl Tls {
    /// Of PEM texts: the server's certificate with those between it and its authority after it, its private
    /// key (PKCS #8, PKCS #1 or SEC 1), and the authorities whose clients may do what is for clients with a
    /// certificate. Without the last nobody is asked for one.
    ///
    /// # Errors
    /// Which text is wrong, and how. Whether a certificate is still valid is for clients to see.
    pub fn from_pem(
        certificate: &[u8],
        key: &[u8],
        client_authority: Option<&[u8]>,
    ) -> Result<Tls, TlsError> {
        let chain = certificates(certificate).map_err(TlsError::Certificate)?;
        let key = private_key(key).map_err(TlsError::Key)?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| TlsError::Certificate(error.to_string()))?;
        let builder = match client_authority {
            None => builder.with_no_client_auth(),
            Some(text) => {
                let roots = Arc::new(authorities(text).map_err(TlsError::ClientAuthority)?);
                // Those without one are for the rules of exports to refuse.
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
                    .allow_unauthenticated()
                    .build()
                    .map_err(|error| TlsError::ClientAuthority(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsError::Key(
                "this key is not that of the certificate: take the one that the certificate was made for"
                    .to_owned(),
            ),
            rustls::Error::InvalidCertificate(problem) => TlsError::Certificate(format!(
                "its first certificate cannot be used: {problem:?}"
            )),
            error => TlsError::Key(format!(
                "its key cannot be used ({error}): take an ECDSA key (P-256, P-384), Ed25519, or RSA of at \
                 least 2048 bits"
            )),
        })?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Tls(Arc::new(config)))
    }
}

/// Every certificate of a text, at least one.
fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let read = read.map_err(|error| format!("this is no right PEM file: {error}"))?;
    match read.is_empty() {
        true => Err(
            "there is no certificate in it: it has to hold one in PEM form, which \
                     begins with -----BEGIN CERTIFICATE-----"
                .to_owned(),
        ),
        false => Ok(read),
    }
}

fn private_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(text).map_err(|error| match error {
        pem::Error::NoItemsFound => {
            let encrypted = b"BEGIN ENCRYPTED PRIVATE KEY";
            match text.windows(encrypted.len()).any(|part| part == encrypted) {
                true => "the key is encrypted, and nobody is there to type its password: store it \
                         without one (`openssl pkey -in KEY -out FILE`), readable for its owner alone"
                    .to_owned(),
                false => "there is no private key in it: it has to hold one in PEM form, which \
                          begins with -----BEGIN PRIVATE KEY-----"
                    .to_owned(),
            }
        }
        // Never with what stands in the file.
        pem::Error::IllegalSectionStart { .. } | pem::Error::Base64Decode(_) => {
            "this is no right PEM file".to_owned()
        }
        error => format!("this is no right PEM file: {error}"),
    })
}

fn authorities(text: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for (index, certificate) in certificates(text)?.into_iter().enumerate() {
        roots.add(certificate).map_err(|error| {
            format!(
                "its certificate number {} cannot be used: {error}",
                index + 1
            )
        })?;
    }
    Ok(roots)
}

/// Replaces what a server shows and asks for while it serves; see [`crate::Server::tls_control`].
#[derive(Clone, Debug, Default)]
pub struct TlsControl(Arc<Mutex<Option<Tls>>>);

impl TlsControl {
    /// Connections that go over to TLS after this do so with `tls`, and with `None` none do. Those that are
    /// protected already stay as they are.
    pub fn replace(&self, tls: Option<Tls>) {
        *self.0.lock() = tls;
    }

    /// What a connection goes over to TLS with now.
    pub(crate) fn current(&self) -> Option<Tls> {
        self.0.lock().clone()
    }
}
