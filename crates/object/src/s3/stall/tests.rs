//! Uploads to servers that read and answer slowly, in part, or not at all.

use std::collections::HashMap;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::Body;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload, PutResult, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

mod limited;

use super::*;
use crate::s3::S3Store;
use crate::{Credentials, Fault, StoreOptions};

/// Time limit of the tests: enough for a machine with other work, too.
const SHORT: Duration = Duration::from_secs(2);
/// Maximum time of a test; beyond it the test has failed.
const TEST_LIMIT: Duration = Duration::from_secs(120);
/// More than all buffers between the two ends of a connection hold.
const LARGE: usize = 8 << 20;

/// Bytes that show their position.
fn body(len: usize) -> Bytes {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// A listener, behind which the test itself plays the server, and a store that talks to it.
struct Server {
    listener: TcpListener,
    store: S3Store,
}

impl Server {
    async fn start(stall_limit: Duration, unsigned_payload: bool) -> Server {
        Server::start_limited(stall_limit, unsigned_payload, None).await
    }

    async fn start_limited(
        stall_limit: Duration,
        unsigned_payload: bool,
        link: Option<Arc<Link>>,
    ) -> Server {
        let socket = TcpSocket::new_v4().unwrap();
        // Few bytes are in transit between the two, so the upload moves as the server reads.
        socket.set_recv_buffer_size(64 << 10).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(8).unwrap();
        let options = StoreOptions {
            endpoint_url: Some(format!("http://{}", listener.local_addr().unwrap())),
            region: Some("us-east-1".to_owned()),
            credentials: Some(Credentials {
                access_key_id: "testkey".to_owned(),
                secret_access_key: "testsecret".to_owned(),
            }),
            unsigned_payload,
            ..StoreOptions::default()
        };
        let store =
            S3Store::connect_with("bucket", &options, stall_limit, link, Arc::default()).await;
        let store = store.unwrap();
        Server { listener, store }
    }

    /// Puts an object of `len` bytes, while the test acts as the server.
    fn put(&self, len: usize) -> JoinHandle<Result<PutResult>> {
        let store = self.store.clone();
        tokio::spawn(async move {
            let payload = PutPayload::from(body(len));
            let path = Path::from("x");
            let put = store.put(&path, payload);
            tokio::time::timeout(TEST_LIMIT, put)
                .await
                .expect("it is given up, or succeeds")
        })
    }

    async fn accept(&self) -> Connection {
        let (stream, _) = self.listener.accept().await.unwrap();
        Connection {
            stream,
            read: Vec::new(),
        }
    }
}

struct Connection {
    stream: TcpStream,
    /// Bytes that were read and belong to no head.
    read: Vec<u8>,
}

impl Connection {
    /// Reads until there are `len` bytes, or the peer has ended the connection.
    async fn read_to(&mut self, len: usize) {
        let mut piece = vec![0; 64 << 10];
        while self.read.len() < len {
            match self.stream.read(&mut piece).await {
                Ok(0) | Err(_) => return,
                Ok(got) => self.read.extend_from_slice(&piece[..got]),
            }
        }
    }

    /// The request line, and the headers with names in lower case.
    async fn head(&mut self) -> (String, HashMap<String, String>) {
        let end = loop {
            let end = self.read.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = end {
                break end;
            }
            let len = self.read.len();
            self.read_to(len + 1).await;
            assert!(self.read.len() > len, "a whole head comes");
        };
        let rest = self.read.split_off(end + 4);
        let head = String::from_utf8(std::mem::replace(&mut self.read, rest)).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let request = lines.next().unwrap().to_owned();
        let headers = lines.map(|line| line.split_once(": ").unwrap());
        let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned()));
        (request, headers.collect())
    }

    async fn answer(&mut self, xml: &str) {
        let len = xml.len();
        let answer =
            format!("HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: {len}\r\n\r\n{xml}");
        self.stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

#[tokio::test]
async fn an_upload_that_the_server_stops_reading_is_given_up_with_its_connection() {
    let server = Server::start(SHORT, true).await;
    let put = server.put(LARGE);
    let mut connection = server.accept().await;
    connection.head().await;
    connection.read_to(256 << 10).await;
    let error = put.await.unwrap().unwrap_err();
    assert_eq!(Fault::of(&error), Fault::Unreachable);
    assert!(error.to_string().contains("stands still"), "{error}");
    // The rest of the body is not kept for a server that may come back.
    let rest = connection.read_to(LARGE);
    tokio::time::timeout(TEST_LIMIT, rest).await.unwrap();
    assert!(connection.read.len() < LARGE);
}

#[tokio::test]
async fn an_upload_that_moves_succeeds_however_long_it_takes() {
    const READ: usize = 64 << 10;
    const PAUSE: Duration = Duration::from_millis(60);
    let reads = (LARGE / READ) as u32;
    assert!(PAUSE * reads > 3 * SHORT);
    let server = Server::start(SHORT, true).await;
    let put = server.put(LARGE);
    let mut connection = server.accept().await;
    connection.head().await;
    for read in 1..=reads as usize {
        connection.read_to(read * READ).await;
        tokio::time::sleep(PAUSE).await;
    }
    connection.answer("").await;
    put.await.unwrap().unwrap();
    assert!(connection.read == body(LARGE));
}

#[tokio::test]
async fn what_is_uploaded_has_to_be_answered() {
    let server = Server::start(SHORT, true).await;
    for len in [0, 40_000] {
        let put = server.put(len);
        let mut connection = server.accept().await;
        connection.head().await;
        connection.read_to(len).await;
        let error = put.await.unwrap().unwrap_err();
        assert_eq!(Fault::of(&error), Fault::Unreachable);
        assert!(error.to_string().contains("no answer"), "{error}");
    }
}

#[tokio::test]
async fn a_request_without_a_body_has_to_be_answered() {
    let server = Server::start(SHORT, true).await;
    let path = Path::from("x");
    let head = server.store.head(&path);
    let error = tokio::time::timeout(TEST_LIMIT, head)
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(Fault::of(&error), Fault::Unreachable);
    assert!(error.to_string().contains("no answer"), "{error}");
}

/// The SDK repeats the request with the body that it kept, not with the one that was split into pieces.
#[tokio::test]
async fn a_part_that_stands_still_is_sent_again_as_a_whole() {
    let server = Server::start(SHORT, true).await;
    let store = server.store.clone();
    let (sender, sent) = oneshot::channel();
    tokio::spawn(async move {
        let mut upload = store.put_multipart(&Path::from("x")).await.unwrap();
        let part = upload.put_part(PutPayload::from(body(LARGE)));
        let outcome = tokio::time::timeout(TEST_LIMIT, part).await;
        sender.send(outcome).unwrap();
    });
    let mut first = server.accept().await;
    first.head().await;
    let begun = "<InitiateMultipartUploadResult><UploadId>u</UploadId>\
                 </InitiateMultipartUploadResult>";
    first.answer(begun).await;
    let (request, _) = first.head().await;
    assert!(request.starts_with("PUT /bucket/x?"), "{request}");
    first.read_to(256 << 10).await;

    let mut second = server.accept().await;
    let (again, headers) = second.head().await;
    assert_eq!(again, request);
    assert_eq!(headers["content-length"], LARGE.to_string());
    second.read_to(LARGE).await;
    second.answer("").await;
    sent.await.unwrap().expect("it is given up").unwrap();
    assert!(second.read == body(LARGE));
}

/// Splitting the body into pieces has no effect except in time.
#[tokio::test]
async fn pieces_are_sent_under_the_headers_of_a_whole_body() {
    for (unsigned, hash) in [
        (
            false,
            "3c65ea93424a9c362fec0e3a69ea36031e8a358441479dd665cc6110eabe7b08",
        ),
        (true, "UNSIGNED-PAYLOAD"),
    ] {
        let server = Server::start(STALL_LIMIT, unsigned).await;
        let put = server.put(300_000);
        let mut connection = server.accept().await;
        let (request, headers) = connection.head().await;
        assert!(request.starts_with("PUT /bucket/x?"), "{request}");
        assert_eq!(headers["content-length"], "300000");
        assert_eq!(headers["x-amz-checksum-crc32"], "MSHyGA==");
        assert_eq!(headers["x-amz-content-sha256"], hash);
        let signature = &headers["authorization"];
        for signed in [
            "content-length",
            "x-amz-checksum-crc32",
            "x-amz-content-sha256",
        ] {
            assert!(signature.contains(signed), "{signature}");
        }
        for absent in ["transfer-encoding", "content-encoding", "x-amz-trailer"] {
            assert_eq!(headers.get(absent), None);
        }
        connection.read_to(300_000).await;
        connection.answer("").await;
        put.await.unwrap().unwrap();
        assert!(connection.read == body(300_000));
    }
}

#[test]
fn limits_run_from_the_last_progress() {
    let begun = Instant::now();
    let mut upload = Upload::new(false, begun);
    assert_eq!(upload.limit(STALL_LIMIT), STALL_LIMIT);
    let later = begun + 10 * STALL_LIMIT;
    upload.took(4 << 20, false, later);
    assert_eq!(
        (upload.last, upload.limit(STALL_LIMIT)),
        (later, STALL_LIMIT)
    );
    upload.took(4 << 20, true, later);
    // The bytes in buffers, at 64 KiB/s.
    let rest = Duration::from_secs(16);
    assert_eq!(upload.limit(STALL_LIMIT), STALL_LIMIT + rest);

    let mut small = Upload::new(false, begun);
    small.took(640 << 10, true, begun);
    let rest = Duration::from_secs(10);
    assert_eq!(small.limit(STALL_LIMIT), STALL_LIMIT + rest);
    let empty = Upload::new(true, begun);
    assert_eq!(empty.limit(STALL_LIMIT), STALL_LIMIT);
}

#[test]
fn pieces_are_slices_of_the_body_and_the_last_one_says_so() {
    let whole = body(200_000);
    let upload = Arc::new(Mutex::new(Upload::new(false, Instant::now())));
    let mut pieces = Pieces::new(SdkBody::from(whole.clone()), Arc::clone(&upload), None);
    let mut at = 0;
    for len in [65_536, 65_536, 65_536, 3_392] {
        assert_eq!(pieces.size_hint().exact(), Some((whole.len() - at) as u64));
        assert!(!pieces.is_end_stream());
        let polled = Pin::new(&mut pieces).poll_frame(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Some(Ok(frame))) = polled else {
            panic!("{polled:?}");
        };
        let piece = frame.into_data().unwrap();
        assert_eq!((piece.as_ptr(), piece.len()), (whole[at..].as_ptr(), len));
        at += len;
        let upload = upload.lock();
        assert_eq!(
            (upload.sent, upload.is_whole),
            (at as u64, at == whole.len())
        );
    }
    assert!(pieces.is_end_stream());
    assert_eq!(pieces.size_hint().exact(), Some(0));
}
