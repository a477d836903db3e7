//! Each answer that an S3 server can give, and each way in which there is no answer: its meaning, the program's
//! reaction, and the message for operators. The rows are those of `forebay_object::advice`.

mod support;

use std::fmt::Write as _;
use std::sync::Arc;

use forebay_object::advice::{ANSWERS, Advice, FAILURES, Kind};
use forebay_object::{Fault, Needs, OpenError, RetrySettings, S3Store, Store, StoreOptions, open};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use support::authority::{Authority, Identity};
use support::memory_s3::Behaviour;
use support::s3_options;
use support::scripted::{Answer, Scripted};
use support::server::{DOMAIN, Server};
use tempfile::TempDir;

/// The normal policy, without its pauses: a store with one request at a time needs none.
fn settings() -> RetrySettings {
    RetrySettings {
        attempts: 2,
        ..RetrySettings::default()
    }
}

async fn store(server: &Scripted) -> Store {
    let inner = S3Store::connect(
        "bucket",
        &s3_options(&server.address, "secret"),
        Arc::default(),
    )
    .await
    .unwrap();
    let url = "s3://bucket".to_owned();
    Store::new(Arc::new(inner), Path::default(), url, settings())
}

fn is_repeated(kind: Kind) -> bool {
    matches!(kind, Kind::Again | Kind::Untouched | Kind::SlowDown)
}

/// Each row of answers, as the answer to a GET; those without a code as answers to a HEAD, which have none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_has_its_advice_and_is_repeated_if_that_may_help() {
    let mut all = tokio::task::JoinSet::new();
    for row in ANSWERS {
        all.spawn(answered(row));
    }
    while let Some(done) = all.join_next().await {
        done.unwrap();
    }
}

async fn answered(row: &'static Advice) {
    let server = Scripted::start(move |_| match row.code {
        "" => Answer::new(row.status, "", ""),
        code => Answer::error(row.status, code, "the region is wrong"),
    })
    .await;
    let store = store(&server).await;
    let path = Path::from("x");
    let since = tokio::time::Instant::now();
    let error = match row.code {
        "" => store.store.head(&path).await.unwrap_err(),
        _ => store.store.get(&path).await.unwrap_err(),
    };
    let name = format!("{} {}", row.code, row.status);
    assert_eq!(Fault::of(&error), row.fault, "{name}: {error}");
    let asked = server.count("");
    let expected = if is_repeated(row.kind) { 2 } else { 1 };
    assert_eq!(asked, expected, "{name}");
    // The message for operators: the server's code, and the remedy.
    let told = store.explained(since, "no answer within 30 s");
    match row.kind {
        Kind::Expected if row.fault != Fault::OutOfRange => {
            assert_eq!(told, "no answer within 30 s", "{name}");
        }
        _ => {
            let word = match row.code {
                "" => row.status.to_string(),
                code => code.to_owned(),
            };
            assert!(
                told.contains(&word) && told.contains(row.advice),
                "{name}: {told}"
            );
        }
    }
}

/// Opens a store that cannot be opened, and returns the fault and the message.
async fn refused(url: &str, options: &StoreOptions) -> (Fault, String) {
    let error = open(url, options).await.unwrap_err();
    let text = error.to_string();
    match error {
        OpenError::Store { fault, .. } => (fault, text),
        other => panic!("{other}"),
    }
}

fn advice(code: &str) -> &'static Advice {
    FAILURES.iter().find(|row| row.code == code).unwrap()
}

async fn fails_as(code: &str, options: &StoreOptions) {
    let (fault, text) = refused("s3://bucket/a", options).await;
    let row = advice(code);
    assert_eq!(fault, row.fault, "{code}: {text}");
    assert!(text.contains(row.advice), "{code}: {text}");
}

#[tokio::test]
async fn the_region_that_a_server_names_is_what_to_set() {
    for (status, headers, body) in [
        (
            400,
            "",
            "<Error><Code>AuthorizationHeaderMalformed</Code><Message>the region 'us-east-1' is wrong; expecting 'eu-north-7'</Message><Region>eu-north-7</Region></Error>",
        ),
        (
            301,
            "x-amz-bucket-region: eu-north-7\r\n",
            "<Error><Code>PermanentRedirect</Code><Message>elsewhere</Message></Error>",
        ),
        (307, "x-amz-bucket-region: eu-north-7\r\n", ""),
    ] {
        let server = Scripted::start(move |_| Answer::new(status, headers, body)).await;
        let options = s3_options(&server.address, "secret");
        let (fault, text) = refused("s3://bucket/a", &options).await;
        assert_eq!(fault, Fault::WrongRegion, "{text}");
        assert!(text.contains("AWS_REGION=eu-north-7"), "{text}");
    }
}

#[tokio::test]
async fn a_server_that_is_none_for_s3_is_told_apart_from_an_empty_bucket() {
    const PAGE: &str = "Content-Type: text/html\r\n";
    for (status, headers, body) in [
        (404, PAGE, "<html><body>Not Found</body></html>"),
        (404, "Content-Type: text/plain\r\n", "404 page not found"),
        (403, PAGE, "<html>proxy</html>"),
        (
            200,
            PAGE,
            "<html><body>Welcome to the console</body></html>",
        ),
        (302, "Location: /login\r\n", ""),
        (
            404,
            "Content-Type: application/xml\r\n",
            "<Error><Code>NoSuchRoute</Code></Error>",
        ),
    ] {
        let server = Scripted::start(move |_| Answer::new(status, headers, body)).await;
        let options = s3_options(&server.address, "secret");
        let (fault, text) = refused("s3://bucket/a", &options).await;
        assert_eq!(fault, Fault::NotS3, "{status}: {text}");
        assert!(text.contains("AWS_ENDPOINT_URL"), "{text}");
    }
    // No caller may conclude that an object is missing.
    let server = Scripted::start(|_| Answer::new(404, "", "404 page not found")).await;
    let store = store(&server).await;
    let error = store.store.get(&Path::from("x")).await.unwrap_err();
    assert_eq!(Fault::of(&error), Fault::NotS3, "{error}");
}

#[tokio::test]
async fn servers_that_are_not_there_are_told_apart() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    fails_as("connection refused", &s3_options(&address, "secret")).await;
    // Longer than any part of a host name may be, so that no name server receives it.
    let nobody = format!("{}:9", "x".repeat(64));
    fails_as("no such host", &s3_options(&nobody, "secret")).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let closing = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            drop(stream);
        }
    });
    fails_as("connection broken", &s3_options(&address, "secret")).await;
    closing.abort();
}

/// A server with this certificate, and options that trust the certificates in `ca`.
async fn secured(identity: &Identity, ca: &str) -> (Server, TempDir, StoreOptions) {
    let server = Server::start_as(Behaviour::default(), Some(identity)).await;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, ca).unwrap();
    let options = StoreOptions {
        endpoint_url: Some(format!("https://{}", server.address)),
        ca: Some(file),
        ..server.options()
    };
    (server, folder, options)
}

#[tokio::test]
async fn certificates_that_cannot_be_trusted_are_told_apart() {
    let authority = Authority::new();
    let names = ["127.0.0.1"];
    for (code, identity, ca) in [
        (
            "TLS: unknown authority",
            authority.identity(&names),
            Identity::self_signed(&names, false).1,
        ),
        (
            "TLS: unknown authority",
            Authority::new().identity(&names),
            authority.pem.clone(),
        ),
        (
            "TLS: other name",
            authority.identity(&[DOMAIN]),
            authority.pem.clone(),
        ),
        (
            "TLS: expired",
            authority.identity_of(&names, (2001, 2002)),
            authority.pem.clone(),
        ),
        (
            "TLS: not valid yet",
            authority.identity_of(&names, (2900, 2901)),
            authority.pem.clone(),
        ),
    ] {
        let (_server, _folder, options) = secured(&identity, &ca).await;
        fails_as(code, &options).await;
    }
    // A server that is its own authority.
    let (own, pem) = Identity::self_signed(&names, true);
    let (_server, _folder, options) = secured(&own, &pem).await;
    fails_as("TLS: an authority as server", &options).await;
    // One without TLS.
    let plain = Server::start(Behaviour::default()).await;
    let options = StoreOptions {
        endpoint_url: Some(format!("https://{}", plain.address)),
        ..plain.options()
    };
    fails_as("TLS: not supported", &options).await;
}

#[tokio::test]
async fn a_certificate_that_the_server_has_signed_itself_is_trusted_when_it_is_named() {
    let (own, pem) = Identity::self_signed(&["127.0.0.1"], false);
    let (_server, _folder, options) = secured(&own, &pem).await;
    open("s3://bucket/a", &options).await.unwrap();
}

#[tokio::test]
async fn a_path_of_the_endpoint_stands_before_the_bucket() {
    for end in ["", "/"] {
        let server = Scripted::start(|_| Answer::nothing()).await;
        let options = StoreOptions {
            endpoint_url: Some(format!("http://{}/storage/v1/s3{end}", server.address)),
            ..s3_options(&server.address, "secret")
        };
        open("s3://bucket/a", &options).await.unwrap();
        assert_eq!(server.count("GET /storage/v1/s3/bucket"), 1);
    }
}

/// A permanent refusal ends work that repeats requests without end, as the store of metadata does; the work waits
/// for other answers.
#[tokio::test]
async fn a_refusal_that_lasts_ends_what_would_ask_for_ever() {
    for (status, code, fault) in [
        (403, "AccessDenied", Fault::Denied),
        (400, "XMinioAdminBucketQuotaExceeded", Fault::Full),
        (507, "XMinioStorageFull", Fault::Full),
        (400, "ExpiredToken", Fault::BadCredentials),
        (404, "NoSuchBucket", Fault::BucketMissing),
    ] {
        let server = Scripted::start(move |_| Answer::error(status, code, "no")).await;
        let store = store(&server).await;
        let asks_for_ever = async {
            while store.store.put(&Path::from("x"), "x".into()).await.is_err() {}
            Ok::<(), ()>(())
        };
        let refusal = store
            .unless_refused(Needs::Writes, asks_for_ever)
            .await
            .unwrap_err();
        assert_eq!(refusal.fault, fault);
        assert!(refusal.detail.contains(code), "{refusal}");
    }
    // A refused delete ends nothing, nor does a missing object.
    let server = Scripted::start(|asked| match asked.method.as_str() {
        "DELETE" => Answer::error(403, "AccessDenied", "no"),
        _ => Answer::error(404, "NoSuchKey", "no"),
    })
    .await;
    let store = store(&server).await;
    let work = async {
        store.store.delete(&Path::from("x")).await.unwrap_err();
        store.store.get(&Path::from("x")).await
    };
    let error = store
        .unless_refused(Needs::Writes, work)
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(Fault::of(&error), Fault::NotFound);
    // Work that only reads continues without writes.
    let server = Scripted::start(|asked| match asked.method.as_str() {
        "PUT" => Answer::error(403, "AccessDenied", "no"),
        _ => Answer::new(200, "ETag: \"x\"\r\n", "bytes"),
    })
    .await;
    let store = self::store(&server).await;
    let work = async {
        store
            .store
            .put(&Path::from("x"), "x".into())
            .await
            .unwrap_err();
        store.store.get(&Path::from("x")).await
    };
    store
        .unless_refused(Needs::Reads, work)
        .await
        .unwrap()
        .unwrap();
}

/// The table in the documentation, between its markers.
fn table(name: &str, rows: &[Advice]) -> String {
    let mut text =
        format!("<!-- {name} -->\n| answer | meaning | reaction | remedy |\n|---|---|---|---|\n");
    for row in rows {
        let said = match (row.code, row.status) {
            ("", status) => status.to_string(),
            (code, 0) => code.to_owned(),
            (code, status) => format!("`{code}` ({status})"),
        };
        let Advice {
            means,
            advice,
            kind,
            ..
        } = row;
        writeln!(text, "| {said} | {means} | {} | {advice} |", kind.word()).unwrap();
    }
    text + &format!("<!-- end of {name} -->\n")
}

#[test]
fn the_tables_of_the_documentation_are_these() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/s3.md");
    let text = std::fs::read_to_string(path).unwrap();
    for (name, rows) in [("answers", ANSWERS), ("failures", FAILURES)] {
        let expected = table(name, rows);
        assert!(
            text.contains(&expected),
            "docs/s3.md lacks this table between its markers:\n{expected}"
        );
    }
}
