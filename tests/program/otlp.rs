//! Slow calls as spans of OpenTelemetry, which a collector in this process receives. Its requests are protobuf; texts in them
//! are as they are.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crate::support::{Place, TIMEOUT};

/// A collector that gives each request this answer. Its thread ends with the process.
struct Collector {
    endpoint: String,
    requests: Receiver<Request>,
}

struct Request {
    /// The first line of its head.
    line: String,
    body: Vec<u8>,
}

impl Request {
    fn has(&self, text: &str) -> bool {
        let mut parts = self.body.windows(text.len());
        parts.any(|part| part == text.as_bytes())
    }
}

impl Collector {
    fn start(answer: &'static str) -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (seen, requests) = channel();
        thread::spawn(move || {
            for gateway in listener.incoming().map_while(Result::ok) {
                // A connection that ends is a gateway that has stopped.
                let _ = serve(gateway, answer, &seen);
            }
        });
        Collector { endpoint, requests }
    }

    /// The next request that has all of these texts.
    #[track_caller]
    fn request_with(&self, texts: &[&str]) -> Request {
        loop {
            let request = self.requests.recv_timeout(TIMEOUT).unwrap();
            if texts.iter().all(|text| request.has(text)) {
                return request;
            }
        }
    }
}

fn serve(gateway: TcpStream, answer: &str, seen: &Sender<Request>) -> std::io::Result<()> {
    let mut reader = BufReader::new(gateway.try_clone()?);
    let mut gateway = gateway;
    loop {
        let (mut first, mut len) = (String::new(), 0);
        reader.read_line(&mut first)?;
        if first.is_empty() {
            return Ok(());
        }
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                len = value.trim().parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; len];
        reader.read_exact(&mut body)?;
        let line = first.trim_end().to_owned();
        if seen.send(Request { line, body }).is_err() {
            return Ok(());
        }
        let answer = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n");
        gateway.write_all(answer.as_bytes())?;
    }
}

#[test]
fn a_slow_call_arrives_as_a_span_with_its_waits_and_requests() {
    let place = Place::new();
    let gateway = place.serve();
    gateway.client().put("film", &[7; 100_000]);
    gateway.flush();
    gateway.stop_cleanly();
    // Nothing is in memory any more: the read has to ask the bucket.
    let collector = Collector::start("200 OK");
    let endpoint = format!("--otlp-endpoint={}", collector.endpoint);
    let gateway = place.serve_with("data", &[&endpoint, "--slow-call=1ns"]);
    gateway.client().get("film").unwrap();
    let request = collector.request_with(&["nfs/READ", "/film", "bucket get"]);
    assert_eq!(request.line, "POST /v1/traces HTTP/1.1");
    for text in [
        "service.name",
        "forebay",
        "onc_rpc.procedure.name",
        "client.address",
        "127.0.0.1",
        "forebay.result",
        "forebay.requests",
    ] {
        assert!(request.has(text), "{text}");
    }
    gateway.stop_cleanly();
}

#[test]
fn a_collector_that_refuses_costs_spans_and_nothing_else() {
    let place = Place::new();
    let collector = Collector::start("400 Bad Request");
    let endpoint = format!("--otlp-endpoint={}", collector.endpoint);
    let gateway = place.serve_with("data", &[&endpoint, "--slow-call=1ns"]);
    gateway.client().put("file", b"data");
    collector.request_with(&["nfs/WRITE"]);
    gateway.says("does not take them");
    assert_eq!(gateway.client().get("file").unwrap(), b"data");
    gateway.stop_cleanly();
}
