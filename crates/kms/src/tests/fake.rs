//! A service that wraps by writing down.

use std::sync::{Arc, Mutex};

use aws_smithy_types::base64;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What it answers.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    /// What is right.
    Well,
    /// The same, after so many errors.
    WellAfter(usize),
    /// A status and a code.
    Error(u16, &'static str),
    /// These bytes, whatever is to be unwrapped.
    Plaintext(&'static [u8]),
    /// Nothing.
    Never,
}

#[derive(Clone)]
pub(super) struct Request {
    pub(super) target: String,
    pub(super) authorization: String,
    pub(super) body: Value,
}

pub(super) struct FakeKms {
    pub(super) url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl FakeKms {
    /// Listens until the test's runtime ends.
    pub(super) async fn start(answer: Answer) -> FakeKms {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, answer, seen.clone()));
            }
        });
        FakeKms { url, requests }
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

/// One request on one connection.
async fn serve(mut stream: TcpStream, answer: Answer, seen: Arc<Mutex<Vec<Request>>>) {
    let request = read(&mut stream).await;
    let before = {
        let mut seen = seen.lock().unwrap();
        seen.push(request.clone());
        seen.len() - 1
    };
    let (status, body) = match answer {
        Answer::Never => return std::future::pending().await,
        Answer::Error(status, code) => (status, error(code)),
        Answer::WellAfter(errors) if before < errors => (500, error("KMSInternalException")),
        Answer::Plaintext(bytes) => (200, json!({ "Plaintext": base64::encode(bytes) })),
        Answer::Well | Answer::WellAfter(_) => well(&request),
    };
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} Status\r\ncontent-type: application/x-amz-json-1.1\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await.unwrap();
}

async fn read(stream: &mut TcpStream) -> Request {
    let mut bytes = Vec::new();
    loop {
        assert!(
            stream.read_buf(&mut bytes).await.unwrap() > 0,
            "the request was cut off"
        );
        let text = String::from_utf8(bytes.clone()).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let header = |wanted: &str| {
            let lines = head.lines().filter_map(|line| line.split_once(": "));
            let mut values = lines.filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
            values.next().map_or("", |(_, value)| value).to_owned()
        };
        if body.len() < header("content-length").parse().unwrap() {
            continue;
        }
        assert!(head.starts_with("POST / HTTP/1.1"));
        assert_eq!(header("content-type"), "application/x-amz-json-1.1");
        return Request {
            target: header("x-amz-target"),
            authorization: header("authorization"),
            body: serde_json::from_str(body).unwrap(),
        };
    }
}

fn error(code: &str) -> Value {
    json!({ "__type": code, "message": "what the service says" })
}

/// The wrapped key is what there was to wrap, with key and context, as text.
fn well(request: &Request) -> (u16, Value) {
    let body = &request.body;
    let of = |name: &str| body[name].clone();
    match request.target.as_str() {
        "TrentService.Encrypt" => {
            let note = json!([of("KeyId"), of("EncryptionContext"), of("Plaintext")]);
            let blob = base64::encode(note.to_string());
            (200, json!({ "CiphertextBlob": blob, "KeyId": of("KeyId") }))
        }
        "TrentService.Decrypt" => {
            let blob = base64::decode(body["CiphertextBlob"].as_str().unwrap()).unwrap();
            let note: Value = serde_json::from_slice(&blob).unwrap_or_default();
            if note[1] != of("EncryptionContext") {
                return (400, error("InvalidCiphertextException"));
            }
            if note[0] != of("KeyId") {
                return (400, error("IncorrectKeyException"));
            }
            (200, json!({ "Plaintext": note[2], "KeyId": note[0] }))
        }
        other => panic!("nobody asks for {other}"),
    }
}
