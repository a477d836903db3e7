//! TLS by settings: reports of the gateway, changes by SIGHUP, and unusable files.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::support::{Gateway, Place, refused};

/// A certificate authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// A certificate and its key.
    fn issue(&self, name: &str) -> [String; 2] {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        [certificate.pem(), key.serialize_pem()]
    }
}

/// The files of TLS in a place.
struct Files<'a>(&'a Place);

impl Files<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    /// Writes the server's certificate and key.
    fn put(&self, [certificate, key]: &[String; 2]) {
        fs::write(self.path("server.pem"), certificate).unwrap();
        let path = self.path("key.pem");
        fs::write(&path, key).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn flags(&self) -> Vec<String> {
        [("certificate", "server.pem"), ("key", "key.pem")]
            .map(|(what, file)| format!("--tls-{what}={}", self.path(file).display()))
            .to_vec()
    }
}

/// The words of a call or of a reply without results, with its record mark.
fn record(words: &[u32]) -> Vec<u8> {
    let mark = (words.len() as u32 * 4) | (1 << 31);
    let all = std::iter::once(&mark).chain(words);
    all.flat_map(|word| word.to_be_bytes()).collect()
}

/// NULL of NFS with a credential of this flavor.
fn null(flavor: u32) -> Vec<u8> {
    record(&[7, 0, 2, 100_003, 3, 0, flavor, 0, 0, 0])
}

/// Switches to TLS, trusting `authority`, and calls NULL over it; returns the reply.
fn call_inside(
    gateway: &Gateway,
    authority: &Authority,
    identity: Option<&[String; 2]>,
) -> std::io::Result<Vec<u8>> {
    let mut socket = TcpStream::connect(("127.0.0.1", gateway.port()))?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    socket.write_all(&null(7))?;
    let mut answer = [0; 36];
    socket.read_exact(&mut answer)?;
    assert_eq!(answer[24..32], *b"STARTTLS", "{answer:?}");
    let mut roots = RootCertStore::empty();
    let trusted = CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap();
    roots.add(trusted).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some([certificate, key]) => {
            let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder
                .with_client_auth_cert(vec![certificate], key)
                .unwrap()
        }
    };
    let name = ServerName::try_from("server.example").unwrap();
    let session = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(session, socket);
    stream.write_all(&null(0))?;
    let mut reply = vec![0; 28];
    stream.read_exact(&mut reply)?;
    Ok(reply)
}

#[test]
fn clients_that_ask_for_tls_get_it_and_sighup_takes_up_a_new_certificate() {
    let (place, authority) = (Place::new(), Authority::new());
    let files = Files(&place);
    files.put(&authority.issue("server.example"));
    fs::write(place.path("clients.pem"), &authority.pem).unwrap();
    let mut flags = files.flags();
    let clients = place.path("clients.pem");
    flags.push(format!("--tls-client-ca={}", clients.display()));
    flags.push("--xprtsec=tls,mtls".to_owned());
    flags.push("--log-level=debug".to_owned());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let gateway = place.serve_with("data", &flags);
    let accepted = record(&[7, 1, 0, 0, 0, 0]);
    assert_eq!(call_inside(&gateway, &authority, None).unwrap(), accepted);
    let client = authority.issue("client.example");
    let reply = call_inside(&gateway, &authority, Some(&client));
    assert_eq!(reply.unwrap(), accepted);
    gateway.says("CN=client.example");
    let shown = gateway.ask(&["exports"]);
    assert!(
        shown.stdout.contains("xprtsec=tls:mtls"),
        "{}",
        shown.stdout
    );

    // A key that does not belong to the certificate changes nothing.
    let other = Authority::new();
    let [certificate, key] = other.issue("server.example");
    fs::write(place.path("server.pem"), &certificate).unwrap();
    gateway.hang_up();
    gateway.says("does not belong to the certificate");
    assert!(call_inside(&gateway, &authority, None).is_ok());

    files.put(&[certificate, key]);
    gateway.hang_up();
    gateway.says("SIGHUP: the exports of the configuration are in force");
    assert_eq!(call_inside(&gateway, &other, None).unwrap(), accepted);
    assert!(call_inside(&gateway, &authority, None).is_err());
    gateway.stop_cleanly();
}

#[test]
fn files_that_cannot_be_used_keep_the_gateway_from_starting_and_say_why() {
    let (place, authority) = (Place::new(), Authority::new());
    let files = Files(&place);
    let serve = || {
        let mut arguments = vec!["serve".to_owned()];
        arguments.extend(place.flags("data"));
        arguments.extend(files.flags());
        refused(&arguments)
    };
    let missing = serve();
    assert_eq!(missing.code, 1);
    missing.says(&["tls_certificate", "server.pem", "put the file there"]);

    let one = authority.issue("server.example");
    files.put(&one);
    fs::set_permissions(files.path("key.pem"), fs::Permissions::from_mode(0o640)).unwrap();
    serve().says(&["tls_key", "mode 0640", "chmod 600"]);

    let [_, other_key] = authority.issue("server.example");
    let [certificate, key] = &one;
    files.put(&[certificate.clone(), other_key]);
    serve().says(&["tls_key", "does not belong to the certificate"]);

    files.put(&[certificate.clone(), certificate.clone()]);
    serve().says(&["tls_key", "no private key in it", "BEGIN PRIVATE KEY"]);

    files.put(&[key.clone(), key.clone()]);
    serve().says(&["tls_certificate", "no certificate in it"]);
    let made = fs::exists(place.bucket()).unwrap();
    assert!(!made, "a volume was made all the same");
}

#[test]
fn a_certificate_without_a_key_is_a_contradiction() {
    let place = Place::new();
    let mut arguments = vec!["serve".to_owned()];
    arguments.extend(place.flags("data"));
    arguments.push("--tls-certificate=/server.pem".to_owned());
    let refusal = refused(&arguments);
    assert_eq!(refusal.code, 2);
    refusal.says(&["tls_certificate = /server.pem", "needs tls_key"]);
}
