//! Clients that want to use up the server.

use std::time::Duration;

use super::*;

/// Short enough for a test to wait for it.
const SHORT: Duration = Duration::from_millis(50);

/// The default limits, but for a short one.
fn limits(change: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = Limits::default();
    change(&mut limits);
    limits
}

/// Sends a byte again and again, until the server has closed the connection.
async fn trickle(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        tokio::select! {
            read = stream.read(&mut buffer) => match read {
                Ok(count @ 1..) => answer.extend_from_slice(&buffer[..count]),
                Ok(0) | Err(_) => return String::from_utf8(answer).unwrap(),
            },
            // The distance of the bytes.
            () = tokio::time::sleep(Duration::from_millis(1)) => {
                if stream.write_all(b"x").await.is_err() {
                    return String::from_utf8(answer).unwrap();
                }
            }
        }
    }
}

#[tokio::test]
async fn a_client_that_trickles_a_header_is_cut_off() {
    let site = Site::with(limits(|limits| limits.header = SHORT), Fake::default()).await;
    let mut stream = site.connect().await;
    // The server may be faster.
    let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: ").await;
    assert_eq!(trickle(&mut stream).await, "");
}

#[tokio::test]
async fn a_client_that_trickles_a_body_is_cut_off() {
    let site = Site::with(limits(|limits| limits.request = SHORT), Fake::default()).await;
    let mut stream = site.connect().await;
    let head = format!(
        "POST /api/v1/gc HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 16000\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = Answer(trickle(&mut stream).await);
    answer.refuses(504, "the body did not arrive");
    assert!(site.fake.orders.lock().is_empty());
}

#[tokio::test]
async fn a_client_that_sends_nothing_is_cut_off_before_and_after_a_request() {
    let site = Site::with(limits(|limits| limits.header = SHORT), Fake::default()).await;
    let mut idle = site.connect().await;
    assert_eq!(rest(&mut idle).await, "");
    // On a busy machine the request may come too late.
    loop {
        let kept = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n";
        if site.raw(kept).await.status() == 200 {
            break;
        }
    }
}

#[tokio::test]
async fn a_client_that_does_not_take_its_answer_loses_its_place() {
    let fake = Fake {
        exports: vec![export(); 100_000],
        ..Fake::default()
    };
    let limits = limits(|limits| {
        limits.connections = 1;
        limits.take = SHORT;
    });
    let site = Site::with(limits, fake).await;
    let mut never_reads = site.connect().await;
    never_reads
        .write_all(b"GET /api/v1/exports HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    while site.get("/health/live").await.status() != 200 {}
}

#[tokio::test]
async fn large_answers_are_in_memory_once_at_a_time() {
    let fake = Fake {
        exports: vec![export(); 100_000],
        ..Fake::default()
    };
    let site = Site::with(limits(|limits| limits.large = 1), fake).await;
    let mut slow = site.connect().await;
    slow.write_all(b"GET /api/v1/exports HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    assert_ne!(slow.read(&mut [0; 1]).await.unwrap(), 0);
    let refused = site.get("/api/v1/exports").await;
    refused.refuses(503, "other clients are taking answers of this size");
    assert_eq!(site.get("/api/v1/status").await.status(), 200);
    drop(slow);
    while site.get("/api/v1/exports").await.status() != 200 {}
}

#[tokio::test]
async fn further_connections_are_closed_and_places_are_given_back() {
    let limits = limits(|limits| {
        limits.connections = 2;
        limits.header = Duration::from_secs(3600);
    });
    let site = Site::with(limits, Fake::default()).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = site.connect().await;
        stream
            .write_all(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .await
            .unwrap();
        // Its connection was accepted.
        assert_ne!(stream.read(&mut [0; 1]).await.unwrap(), 0);
        held.push(stream);
    }
    for _ in 0..20 {
        assert_eq!(site.get("/health/live").await.status(), 0);
    }
    held.pop();
    while site.get("/health/live").await.status() != 200 {}
    drop(held);
    let scrape = loop {
        let scrape = site.get("/metrics").await;
        if scrape.status() == 200 {
            break scrape;
        }
    };
    assert!(scrape.metric("forebay_admin_connections_refused_total") >= 20.0);
}

#[tokio::test]
async fn headers_and_bodies_are_bounded() {
    let site = Site::new().await;
    let long = format!("X: {}", "x".repeat(17 << 10));
    assert_eq!(
        site.ask("GET /health/live", &[&long], "").await.status(),
        431
    );
    let many = vec!["X: y"; 70];
    assert_eq!(site.ask("GET /health/live", &many, "").await.status(), 431);
    let path = format!("GET /{}", "x".repeat(17 << 10));
    let status = site.ask(&path, &[], "").await.status();
    assert!(matches!(status, 414 | 431), "{status}");
    let body = "x".repeat(BODY_BYTES + 1);
    assert_eq!(site.post("/api/v1/gc", &body).await.status(), 413);
    // The same in chunks, whose sum is not announced.
    let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
    let head = format!(
        "POST /api/v1/gc HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    let request = format!("{head}{}", chunk.repeat(5));
    assert_eq!(site.raw(request.as_bytes()).await.status(), 413);
    assert!(site.fake.orders.lock().is_empty());
    assert_eq!(site.get("/health/live").await.status(), 200);
}

#[tokio::test]
async fn malformed_requests_and_other_versions_are_refused() {
    let site = Site::new().await;
    for request in [
        "nonsense\r\n\r\n",
        "GET / HTTP/1.1\r\nHost localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: local\0host\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    ] {
        let status = site.raw(request.as_bytes()).await.status();
        assert!(matches!(status, 400 | 505), "{status}: {request}");
    }
    let old = site
        .raw(b"GET /health/live HTTP/1.0\r\nHost: localhost\r\n\r\n")
        .await;
    assert!(old.0.contains(" 505 "), "{old:?}");
    // HTTP/2 with prior knowledge.
    let preface = site.raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    assert_ne!(preface.status(), 200);
    assert_eq!(site.get("/health/live").await.status(), 200);
}

#[tokio::test]
async fn a_handler_that_panics_ends_its_connection_alone() {
    let fake = Fake {
        exports: Vec::new(),
        ..Fake::default()
    };
    let site = Site::with(Limits::default(), fake).await;
    for _ in 0..40 {
        assert_eq!(site.get("/api/v1/exports").await.status(), 0);
    }
    assert_eq!(site.get("/api/v1/status").await.status(), 200);
}

#[tokio::test]
async fn waiting_flushes_are_few_and_hold_nothing_up() {
    let few = limits(|limits| {
        limits.flushes = 1;
        limits.requests = 1;
    });
    let site = Site::with(few, Fake::default()).await;
    let waits = async {
        let answer = site.post("/api/v1/flush", "").await;
        assert_eq!(answer.is(200)["published_lsn"], 9000);
    };
    let others = async {
        site.fake.flushing.notified().await;
        site.post("/api/v1/flush", "")
            .await
            .refuses(503, "1 other requests wait for a flush");
        assert_eq!(site.get("/api/v1/status").await.status(), 200);
        site.fake.let_go.notify_one();
    };
    tokio::join!(waits, others);

    let site = Site::with(limits(|limits| limits.flush = SHORT), Fake::default()).await;
    let answer = site.post("/api/v1/flush", "").await;
    answer.refuses(504, "publishing goes on");
}
