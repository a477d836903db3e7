//! A certificate authority for the tests, and server certificates from it.
#![allow(dead_code, reason = "each test binary uses its part of it")]

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate.
    pub(crate) pem: String,
}

/// The certificate of a server, and its private key.
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "authority of a test");
        let pem = params.self_signed(&key).unwrap().pem();
        Authority {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// An identity for a server with these names and addresses.
    pub(crate) fn identity(&self, names: &[&str]) -> Identity {
        self.identity_of(names, (2000, 3000))
    }

    /// The same, valid from the start of one year to the start of another.
    pub(crate) fn identity_of(&self, names: &[&str], (from, to): (i32, i32)) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = named(names);
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(to, 1, 1);
        Identity {
            certificate: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }
}

fn named(names: &[&str]) -> CertificateParams {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    CertificateParams::new(names).unwrap()
}

impl Identity {
    /// A self-signed identity, of an authority or of a server; and its certificate.
    pub(crate) fn self_signed(names: &[&str], is_authority: bool) -> (Identity, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = named(names);
        params.is_ca = match is_authority {
            true => IsCa::Ca(BasicConstraints::Unconstrained),
            false => IsCa::ExplicitNoCa,
        };
        let pem = params.self_signed(&key).unwrap().pem();
        let identity = Identity {
            certificate: pem.clone(),
            key: key.serialize_pem(),
        };
        (identity, pem)
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}
