//! A fake KMS service, for tests only: it speaks the protocol of KMS (JSON 1.1), and "wraps" keys as plain text, so it
//! keeps no secret.
//!
//! A wrapped key contains all inputs of unwrapping, so any of these services unwraps what another has wrapped. Any name
//! is a valid key, except that [`ALIAS`] is another name of [`KEY`].

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_smithy_types::base64;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A key.
pub const KEY: &str =
    "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab";

/// Another name of the same key.
pub const ALIAS: &str = "alias/forebay";

/// The answer to requests.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// The right answer.
    Well,
    /// The right answer, after this number of errors.
    WellAfter(usize),
    /// A status and a code.
    Error(u16, &'static str),
    /// These bytes as the result of every unwrapping.
    Plaintext(&'static [u8]),
    /// None.
    Never,
}

/// A request that the service has received.
#[derive(Clone, Debug)]
pub struct Request {
    /// The operation, as in `TrentService.Encrypt`.
    pub target: String,
    /// The header `authorization`.
    pub authorization: String,
    /// The body.
    pub body: Value,
}

type Requests = Arc<Mutex<Vec<Request>>>;

/// The service, without TLS, at a port of its own on this machine.
#[derive(Debug)]
pub struct FakeKms {
    /// Host and port.
    pub address: String,
    /// The endpoint.
    pub url: String,
    requests: Requests,
}

impl FakeKms {
    /// Listens until the current runtime ends.
    ///
    /// # Errors
    /// When no port is available.
    pub async fn start(answer: Answer) -> io::Result<FakeKms> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let requests = Requests::default();
        let seen = requests.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, answer, seen.clone()));
            }
        });
        Ok(FakeKms {
            url: format!("http://{address}"),
            address,
            requests,
        })
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Request> {
        kept(&self.requests).clone()
    }
}

fn kept(requests: &Requests) -> MutexGuard<'_, Vec<Request>> {
    requests.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves one request on one connection. A connection that breaks is the client's problem.
async fn serve(mut stream: TcpStream, answer: Answer, seen: Requests) {
    let Some(request) = read(&mut stream).await else {
        return;
    };
    let before = {
        let mut seen = kept(&seen);
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
        "HTTP/1.1 {status} Status\r\ncontent-type: {CONTENT_TYPE}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all((head + &body).as_bytes()).await;
}

const CONTENT_TYPE: &str = "application/x-amz-json-1.1";

/// Reads a request; `None` if the connection breaks, or the request is not one of KMS.
async fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8(bytes.clone()).ok()?;
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let header = |wanted: &str| {
            let lines = head.lines().filter_map(|line| line.split_once(": "));
            let mut values = lines.filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
            values.next().map_or("", |(_, value)| value).to_owned()
        };
        if body.len() < header("content-length").parse().ok()? {
            continue;
        }
        if !head.starts_with("POST / HTTP/1.1") || header("content-type") != CONTENT_TYPE {
            return None;
        }
        return Some(Request {
            target: header("x-amz-target"),
            authorization: header("authorization"),
            body: serde_json::from_str(body).ok()?,
        });
    }
}

fn error(code: &str) -> Value {
    json!({ "__type": code, "message": "what the service says" })
}

/// The right answer. The wrapped key is the plaintext, with key and context, as text.
fn well(request: &Request) -> (u16, Value) {
    let body = &request.body;
    let of = |name: &str| body[name].clone();
    let key = match of("KeyId") {
        key if key == ALIAS => KEY.into(),
        key => key,
    };
    match request.target.as_str() {
        "TrentService.Encrypt" => {
            let note = json!([key, of("EncryptionContext"), of("Plaintext")]);
            let blob = base64::encode(note.to_string());
            (200, json!({ "CiphertextBlob": blob, "KeyId": key }))
        }
        "TrentService.Decrypt" => {
            let blob = body["CiphertextBlob"].as_str().unwrap_or_default();
            let blob = base64::decode(blob).unwrap_or_default();
            let note: Value = serde_json::from_slice(&blob).unwrap_or_default();
            if note[1] != of("EncryptionContext") {
                return (400, error("InvalidCiphertextException"));
            }
            if note[0] != key {
                return (400, error("IncorrectKeyException"));
            }
            (200, json!({ "Plaintext": note[2], "KeyId": note[0] }))
        }
        _ => (400, error("UnknownOperationException")),
    }
}
