//! The server with TLS.

use rcgen::{CertificateParams, KeyPair};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring, version::TLS13};

use super::*;

/// Writes a new certificate and its key; returns the certificate, and both paths.
fn identity(dir: &Path) -> (String, [String; 2]) {
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    let paths = [
        private(&dir.join("admin.pem"), &certificate),
        private(&dir.join("admin.key"), &key.serialize_pem()),
    ];
    (certificate, paths)
}

/// Sends a request over TLS to a server with this certificate; nothing if there is no TLS with it.
async fn ask(site: &Site, certificate: &str, alpn: &[&str], request: &str) -> Option<Answer> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    roots.add(certificate).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let connector = TlsConnector::from(Arc::new(config));
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = connector.connect(name, site.connect().await).await.ok()?;
    stream.write_all(request.as_bytes()).await.ok()?;
    Some(Answer(rest(&mut stream).await))
}

#[tokio::test]
async fn tls_is_spoken_with_the_configured_certificate_until_it_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, [pem, key]) = identity(dir.path());
    let token = private(&dir.path().join("token"), TOKEN);
    let flags = [
        ("admin_tls_certificate", pem.as_str()),
        ("admin_tls_key", key.as_str()),
        ("admin_token", token.as_str()),
    ];
    let site = Site::opening(dir, &flags, Limits::default(), Fake::default()).await;
    site.opened.send_replace(Some(site.fake.clone()));
    let status = async |request: &str, alpn: &[&str]| {
        let answer = ask(&site, &certificate, alpn, request).await;
        answer.map(|answer| answer.status())
    };
    let live = request("GET /health/live", &["Host: localhost"], "");
    assert_eq!(status(&live, &[]).await, Some(200));
    assert_eq!(status(&live, &["h2", "http/1.1"]).await, Some(200));
    assert_eq!(status(&live, &["h2"]).await, None);
    // Without TLS there is no answer.
    assert_eq!(site.raw(live.as_bytes()).await.status(), 0);

    let gc = |headers: &[&str]| {
        let headers = [&["Host: localhost"], headers].concat();
        request("POST /api/v1/gc", &headers, "")
    };
    assert_eq!(status(&gc(&[]), &[]).await, Some(401));
    let wrong = ["Authorization: Bearer 0123456789abcdef0124"];
    assert_eq!(status(&gc(&wrong), &[]).await, Some(401));
    let right = format!("Authorization: Bearer {TOKEN}");
    // A page that came without TLS is not this server's.
    let page = [&*right, "Origin: http://localhost"];
    assert_eq!(status(&gc(&page), &[]).await, Some(403));
    let page = [&*right, "Origin: https://localhost"];
    assert_eq!(status(&gc(&page), &[]).await, Some(200));

    let (new, _) = identity(site.dir.path());
    let config = load(site.dir.path(), &flags).unwrap();
    site.server
        .put_in_force(site.server.reload(&config).unwrap());
    assert_eq!(status(&live, &[]).await, None);
    let answer = ask(&site, &new, &[], &live).await.unwrap();
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn beyond_this_machine_there_is_no_server_without_tls() {
    let dir = tempfile::tempdir().unwrap();
    for address in ["0.0.0.0:9049", "[::]:9049", "192.0.2.1:9049"] {
        let problem = load(dir.path(), &[("admin_listen", address)]).unwrap_err();
        for part in [
            "needs TLS",
            "admin_tls_certificate",
            "ssh -L 9049:127.0.0.1:9049",
        ] {
            assert!(problem.contains(part), "{problem}");
        }
    }
    for address in ["127.9.9.9:9049", "[::1]:9049", "[::ffff:127.0.0.1]:9049"] {
        load(dir.path(), &[("admin_listen", address)]).unwrap();
    }
    let (_, [pem, key]) = identity(dir.path());
    let flags = [
        ("admin_tls_certificate", pem.as_str()),
        ("admin_tls_key", key.as_str()),
        ("admin_listen", "0.0.0.0:0"),
    ];
    let config = load(dir.path(), &flags).unwrap();
    let server = Server::bind(&config).await.unwrap().unwrap();
    // The next start would be on the loopback address; this server is not.
    let later = load(dir.path(), &[]).unwrap();
    let problem = server.reload(&later).unwrap_err();
    assert!(problem.contains("needs TLS there"), "{problem}");
    let lone = load(dir.path(), &flags[..1]).unwrap_err();
    assert!(lone.contains("needs admin_tls_key"), "{lone}");
}
