//! A proxy that forwards every name to one server, and records its requests.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

pub(crate) struct Proxy {
    pub(crate) url: String,
    heads: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// A proxy to the server at `address`.
    pub(crate) async fn start(address: String) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&heads);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(pass_on(stream, address.clone(), Arc::clone(&kept)));
            }
        });
        Proxy { url, heads, task }
    }

    /// The first line of each connection.
    pub(crate) fn asked(&self) -> Vec<String> {
        let heads = self.heads.lock().unwrap();
        let first = |head: &String| head.lines().next().unwrap().to_owned();
        heads.iter().map(first).collect()
    }

    /// The first line of each connection, with the headers.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass_on(mut client: TcpStream, address: String, heads: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match client.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let text = String::from_utf8(head.clone()).unwrap();
    let is_tunnel = text.starts_with("CONNECT ");
    heads.lock().unwrap().push(text);
    let mut server = TcpStream::connect(&address).await.unwrap();
    if is_tunnel {
        let established = b"HTTP/1.1 200 Connection established\r\n\r\n";
        client.write_all(established).await.unwrap();
    } else {
        server.write_all(&head).await.unwrap();
    }
    let _ = copy_bidirectional(&mut client, &mut server).await;
}
