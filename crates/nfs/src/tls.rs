//! RPC with TLS (RFC 9289), as implemented by Linux clients from 6.5 on.
//!
//! ```text
//!  client                                           server
//!    |  NULL, credential AUTH_TLS, in clear  ------->  |
//!    |  <-------  accepted, verifier "STARTTLS"        |
//!    |  <=======  handshake of TLS 1.3  ============>  |
//!    |  everything else, records as before, in TLS     |
//! ```
//!
//! The engine decides the answer to AUTH_TLS; the connection does the handshake and the I/O after it
//! (`server::stream`). This module has the server's identity and requirements: [`Tls`], made of PEM texts, and
//! [`TlsControl`], which replaces it while the server runs.
//!
//! Three choices are for clients whose kernel takes over the connection after the
//! handshake (kTLS), as Linux does. First, there are no session tickets: they would arrive after the handshake,
//! where the kernel expects only data. Clients therefore show their certificate on every
//! connection, so a replaced authority takes effect at once. Second, only TLS 1.3 is supported (RFC 9289,
//! section 5). Third, ALPN is answered with "sunrpc", but not required: RFC 9289 has clients send it, but
//! tlshd, which does the handshake for Linux, does not. The port serves nothing else that a client
//! could be redirected to.

mod subject;

use std::sync::Arc;

use parking_lot::Mutex;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{InconsistentKeys, RootCertStore, ServerConfig};

pub(crate) use subject::subject;

/// The protocol's name in ALPN (RFC 9289, section 8.2).
const ALPN: &[u8] = b"sunrpc";

/// The identity that a server shows, and the authorities of the client certificates that it accepts.
#[derive(Clone, Debug)]
pub struct Tls(pub(crate) Arc<ServerConfig>);

/// Why PEM texts cannot be used, by the text that is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The text of the certificates.
    #[error("{0}")]
    Certificate(String),
    /// The text of the key.
    #[error("{0}")]
    Key(String),
    /// The text of the clients' authorities.
    #[error("{0}")]
    ClientAuthority(String),
}

impl Tls {
    /// Reads PEM texts: the server's certificate, followed by the intermediate certificates up to its authority; its
    /// private key (PKCS #8, PKCS #1 or SEC 1); and the authorities for client certificates, which rules may require.
    /// Without the last, the server asks clients for no certificate.
    ///
    /// # Errors
    /// Names the text that is wrong, with the reason. Expiry is not checked: clients check it.
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
                // The rules of exports refuse clients without a certificate, where they require one.
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
                "this key does not belong to the certificate: name the key of the certificate"
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

impl Tls {
    /// The same identity and requirements for another protocol, under the protocol's name in ALPN.
    pub fn for_protocol(&self, name: &[u8]) -> Arc<ServerConfig> {
        let mut config = ServerConfig::clone(&self.0);
        config.alpn_protocols = vec![name.to_vec()];
        Arc::new(config)
    }
}

/// Parses all certificates of a text; there has to be at least one.
fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let read = read.map_err(|error| format!("this is not a valid PEM file: {error}"))?;
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
                true => "the key is encrypted, and the gateway cannot ask for its password: store \
                         it without one (`openssl pkey -in KEY -out FILE`), readable for its owner \
                         alone"
                    .to_owned(),
                false => "there is no private key in it: it has to hold one in PEM form, which \
                          begins with -----BEGIN PRIVATE KEY-----"
                    .to_owned(),
            }
        }
        // The message must not contain text of the file.
        pem::Error::IllegalSectionStart { .. } | pem::Error::Base64Decode(_) => {
            "this is not a valid PEM file".to_owned()
        }
        error => format!("this is not a valid PEM file: {error}"),
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

/// Replaces a server's TLS configuration while it serves; see [`crate::Server::tls_control`].
#[derive(Clone, Debug, Default)]
pub struct TlsControl(Arc<Mutex<Option<Tls>>>);

impl TlsControl {
    /// Later upgrades to TLS use `tls`; with `None`, connections cannot switch to TLS. Connections that are
    /// protected already do not change.
    pub fn replace(&self, tls: Option<Tls>) {
        *self.0.lock() = tls;
    }

    /// The configuration for a connection that switches to TLS now.
    pub(crate) fn current(&self) -> Option<Tls> {
        self.0.lock().clone()
    }
}
