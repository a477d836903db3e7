//! A server that answers each request as a test defines.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A request: its first line and its headers.
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) head: String,
}

/// A status, headers as they are on the wire (each with its line break), and a body.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn new(status: u16, headers: &str, body: &str) -> Answer {
        Answer {
            status,
            headers: headers.to_owned(),
            body: body.to_owned(),
        }
    }

    /// An error answer in the form of S3 servers.
    pub(crate) fn error(status: u16, code: &str, message: &str) -> Answer {
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>"
        );
        Answer::new(status, "Content-Type: application/xml\r\n", &body)
    }

    /// An empty listing.
    pub(crate) fn nothing() -> Answer {
        let body = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>";
        Answer::new(200, "Content-Type: application/xml\r\n", body)
    }
}

pub(crate) struct Scripted {
    pub(crate) address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    task: JoinHandle<()>,
}

impl Scripted {
    pub(crate) async fn start(
        answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    ) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let seen = Arc::clone(&asked);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            let answer = Arc::new(answer);
            while let Ok((mut stream, _)) = listener.accept().await {
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                connections.spawn(async move {
                    let mut bytes = Vec::new();
                    while let Some(asked) = next(&mut stream, &mut bytes).await {
                        let Answer {
                            status,
                            headers,
                            body,
                        } = answer(&asked);
                        let has_body = asked.method != "HEAD" && status != 304;
                        seen.lock().unwrap().push(asked);
                        let body = if has_body { &*body } else { "" };
                        let len = body.len();
                        let text = format!(
                            "HTTP/1.1 {status} Said\r\n{headers}Content-Length: {len}\r\n\r\n{body}"
                        );
                        if stream.write_all(text.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Scripted {
            address,
            asked,
            task,
        }
    }

    /// Number of requests so far whose first line begins with `line`.
    pub(crate) fn count(&self, line: &str) -> usize {
        let asked = self.asked.lock().unwrap();
        let begins = |asked: &&Asked| format!("{} {}", asked.method, asked.path).starts_with(line);
        asked.iter().filter(begins).count()
    }
}

/// The next request of a connection, with its body read; `None` at its end.
async fn next(stream: &mut tokio::net::TcpStream, bytes: &mut Vec<u8>) -> Option<Asked> {
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let of_header = |name: &str| {
        let mut lines = head.lines();
        lines.find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name)
                .then(|| value.trim().to_owned())
        })
    };
    let len: usize = of_header("content-length").map_or(0, |len| len.parse().unwrap());
    while bytes.len() < end + len {
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
    bytes.drain(..end + len);
    let mut words = head.split(' ').map(str::to_owned);
    Some(Asked {
        method: words.next()?,
        path: words.next()?,
        head,
    })
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.task.abort();
    }
}
