//! Connections to an S3 server and its addresses: authorities, proxies, the name of the bucket.

mod support;

use std::path::{Path as FilePath, PathBuf};

use forebay_object::{Fault, OpenError, Proxy, Store, StoreOptions, open};
use object_store::ObjectStoreExt;
use support::authority::Authority;
use support::memory_s3::Behaviour;
use support::proxy;
use support::server::{DOMAIN, Server};
use tempfile::TempDir;

async fn use_it(store: &Store) {
    let path = store.path("x");
    store.store.put(&path, "bytes".into()).await.unwrap();
    let got = store.store.get(&path).await.unwrap();
    assert_eq!(got.bytes().await.unwrap(), "bytes");
}

/// A server with TLS, and the file of its authority.
async fn secure_server() -> (Server, TempDir, PathBuf) {
    let authority = Authority::new();
    let identity = authority.identity(&["127.0.0.1", DOMAIN, &format!("bucket.{DOMAIN}")]);
    let server = Server::start_as(Behaviour::default(), Some(&identity)).await;
    let folder = TempDir::new().unwrap();
    let ca = folder.path().join("ca.pem");
    // Another certificate before it: all certificates of the file count.
    let both = format!("{}\n{}", Authority::new().pem, authority.pem);
    std::fs::write(&ca, both).unwrap();
    (server, folder, ca)
}

fn secure(server: &Server) -> StoreOptions {
    StoreOptions {
        endpoint_url: Some(format!("https://{}", server.address)),
        ..server.options()
    }
}

#[tokio::test]
async fn a_server_is_trusted_when_its_authority_is_named() {
    let (server, _folder, ca) = secure_server().await;
    let error = open("s3://bucket/a", &secure(&server)).await.unwrap_err();
    let OpenError::Store { fault, detail, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*fault, Fault::Untrusted);
    assert!(detail.contains("UnknownIssuer"), "{detail}");
    let options = StoreOptions {
        ca: Some(ca),
        ..secure(&server)
    };
    use_it(&open("s3://bucket/a", &options).await.unwrap()).await;
}

#[tokio::test]
async fn a_file_without_authorities_is_refused_with_what_is_wrong_with_it() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(Behaviour::default()).await;
    let open_with = async |ca: &FilePath| {
        let options = StoreOptions {
            ca: Some(ca.to_owned()),
            ..server.options()
        };
        open("s3://bucket/a", &options)
            .await
            .unwrap_err()
            .to_string()
    };
    let file = folder.path().join("ca.pem");
    let missing = open_with(&file).await;
    assert!(missing.contains("cannot be read"), "{missing}");
    for (text, why) in [
        ("", "no certificate"),
        ("not a PEM", "no certificate"),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "certificate 1",
        ),
        (
            "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n",
            "not a PEM file",
        ),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n", "not a PEM file"),
    ] {
        std::fs::write(&file, text).unwrap();
        let error = open_with(&file).await;
        assert!(
            error.contains(why) && error.contains("s3_ca"),
            "{text:?}: {error}"
        );
    }
}

#[tokio::test]
async fn requests_go_through_the_proxy_that_is_named() {
    let server = Server::start(Behaviour::default()).await;
    let proxy = proxy::Proxy::start(server.address.clone()).await;
    let options = StoreOptions {
        endpoint_url: Some(format!("http://{DOMAIN}")),
        proxy: Proxy::Url(proxy.url.replace("http://", "http://me:secret@")),
        ..server.options()
    };
    use_it(&open("s3://bucket/a", &options).await.unwrap()).await;
    let asked = proxy.asked();
    let first = format!("GET http://{DOMAIN}/bucket/");
    assert!(asked[0].starts_with(&first), "{asked:?}");
    let head = proxy.heads()[0].to_lowercase();
    assert!(head.contains("proxy-authorization: basic"), "{head}");
}

#[tokio::test]
async fn requests_through_tls_go_through_a_tunnel_of_the_proxy() {
    let (server, _folder, ca) = secure_server().await;
    let proxy = proxy::Proxy::start(server.address.clone()).await;
    let options = StoreOptions {
        endpoint_url: Some(format!("https://{DOMAIN}")),
        ca: Some(ca),
        proxy: Proxy::Url(proxy.url.clone()),
        ..server.options()
    };
    use_it(&open("s3://bucket/a", &options).await.unwrap()).await;
    let asked = proxy.asked();
    assert!(!asked.is_empty());
    for line in asked {
        assert_eq!(line, format!("CONNECT {DOMAIN}:443 HTTP/1.1"));
    }
    assert!(!server.seen("PUT", "/bucket/a/x").is_empty());
}

#[tokio::test]
async fn a_server_that_is_named_by_no_proxy_is_spoken_to_directly() {
    let server = Server::start(Behaviour::default()).await;
    let options = StoreOptions {
        proxy: Proxy::Direct,
        ..server.options()
    };
    use_it(&open("s3://bucket/a", &options).await.unwrap()).await;
    let gone = StoreOptions {
        proxy: Proxy::Url("http://127.0.0.1:1".to_owned()),
        ..server.options()
    };
    let error = open("s3://bucket/a", &gone).await.unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::Store {
                fault: Fault::Unreachable,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn the_bucket_is_named_in_the_path_or_in_the_host() {
    let server = Server::start(Behaviour::default()).await;
    let proxy = proxy::Proxy::start(server.address.clone()).await;
    for (path_style, host, path) in [
        (None, DOMAIN.to_owned(), "/bucket/a/x"),
        (Some(true), DOMAIN.to_owned(), "/bucket/a/x"),
        (Some(false), format!("bucket.{DOMAIN}"), "/a/x"),
    ] {
        let options = StoreOptions {
            endpoint_url: Some(format!("http://{DOMAIN}")),
            proxy: Proxy::Url(proxy.url.clone()),
            path_style,
            ..server.options()
        };
        use_it(&open("s3://bucket/a", &options).await.unwrap()).await;
        let put = server.seen("PUT", "a/x").pop().unwrap();
        assert_eq!(
            (put.host, put.path.as_str()),
            (host, path),
            "{path_style:?}"
        );
    }
}
