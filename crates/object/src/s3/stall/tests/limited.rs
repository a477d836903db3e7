//! Servers behind a link with limits: bodies are slow, and no request is given up because of that.

use super::*;
use crate::link::{Direction, LinkLimit};
use crate::retry::RetrySettings;
use crate::retry::{RetryPolicy, RetryingStore};

/// Shorter than the wait for a piece.
const SHORT_LIMIT: Duration = Duration::from_millis(400);
/// A piece a second.
const RATE: u64 = LinkLimit::LOWEST;
const PIECE: usize = 64 << 10;

fn slow(direction: Direction) -> Option<Arc<Link>> {
    let limit = LinkLimit {
        otherwise: Some(RATE),
        hours: Vec::new(),
    };
    let none = LinkLimit::default();
    match direction {
        Direction::Up => Link::new(&limit, &none),
        Direction::Down => Link::new(&none, &limit),
    }
}

/// The store with limits for whole requests that are shorter than the bodies take.
fn retrying(server: &Server) -> RetryingStore {
    let settings = RetrySettings {
        answer_limit: SHORT_LIMIT,
        slowest_transfer: u64::MAX,
        attempts: 1,
        ..RetrySettings::default()
    };
    let policy = RetryPolicy::new(settings, server.store.link());
    RetryingStore::new(Arc::new(server.store.clone()), Arc::new(policy))
}

#[tokio::test]
async fn an_upload_keeps_to_the_limit_and_is_not_given_up_for_it() {
    let server = Server::start_limited(SHORT_LIMIT, true, slow(Direction::Up)).await;
    let store = retrying(&server);
    let began = Instant::now();
    let put = tokio::spawn(async move {
        let payload = PutPayload::from(body(4 * PIECE));
        store.put(&Path::from("x"), payload).await
    });
    let mut connection = server.accept().await;
    connection.head().await;
    for pieces in 1..=4 {
        connection.read_to(pieces * PIECE).await;
        // The first piece may go at once.
        let least = Duration::from_secs(pieces as u64 - 1);
        let took = began.elapsed();
        assert!(took >= least.mul_f64(0.95), "{pieces} pieces in {took:?}");
    }
    connection.answer("").await;
    put.await.unwrap().unwrap();
    assert!(connection.read == body(4 * PIECE));
}

#[tokio::test]
async fn an_upload_that_the_server_does_not_read_is_given_up_in_spite_of_a_limit() {
    let limit = LinkLimit {
        otherwise: Some(64 << 20),
        hours: Vec::new(),
    };
    let link = Link::new(&limit, &LinkLimit::default());
    let server = Server::start_limited(SHORT, true, link).await;
    let put = server.put(LARGE);
    let mut connection = server.accept().await;
    connection.head().await;
    let error = put.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("stands still"), "{error}");
}

/// Answers a GET with this length and these bytes.
async fn answer_get(connection: &mut Connection, len: usize, bytes: &[u8]) {
    let (request, _) = connection.head().await;
    assert!(request.starts_with("GET /bucket/x?"), "{request}");
    let head = format!("HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: {len}\r\n\r\n");
    connection.stream.write_all(head.as_bytes()).await.unwrap();
    connection.stream.write_all(bytes).await.unwrap();
}

#[tokio::test]
async fn a_download_keeps_to_the_limit_and_is_not_given_up_for_it() {
    let server = Server::start_limited(SHORT_LIMIT, true, slow(Direction::Down)).await;
    let store = retrying(&server);
    let began = Instant::now();
    let get = tokio::spawn(async move { store.get(&Path::from("x")).await?.bytes().await });
    let mut connection = server.accept().await;
    let whole = body(4 * PIECE);
    answer_get(&mut connection, whole.len(), &whole).await;
    assert!(get.await.unwrap().unwrap() == whole);
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(2850), "{took:?}");
}

#[tokio::test]
async fn a_download_of_which_nothing_comes_is_given_up_in_spite_of_a_limit() {
    let server = Server::start_limited(SHORT, true, slow(Direction::Down)).await;
    let store = server.store.clone();
    let get = tokio::spawn(async move { store.get(&Path::from("x")).await?.bytes().await });
    let mut connection = server.accept().await;
    answer_get(&mut connection, 2 * PIECE, &body(PIECE)).await;
    let got = tokio::time::timeout(TEST_LIMIT, get)
        .await
        .unwrap()
        .unwrap();
    let error = crate::chain::chain(&got.unwrap_err());
    assert!(error.contains("stands still"), "{error}");
}

#[test]
fn time_in_which_an_upload_is_held_is_not_the_connections() {
    let begun = Instant::now();
    let mut upload = Upload::new(false, begun);
    let later = begun + 10 * STALL_LIMIT;
    upload.held();
    assert_eq!(upload.deadline(STALL_LIMIT, later), later + STALL_LIMIT);
    upload.took(PIECE as u64, false, later);
    let deadline = later + STALL_LIMIT;
    assert_eq!(
        upload.deadline(STALL_LIMIT, later + STALL_LIMIT / 2),
        deadline
    );
}
