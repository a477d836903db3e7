//! Serves the S3 server in memory, and records its requests.

use std::sync::{Arc, Mutex};

use forebay_object::StoreOptions;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::host::SingleDomain;
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use super::authority::Identity;
use super::memory_s3::{Behaviour, MemoryS3};
use super::s3_options;

const SECRET: &str = "testsecret";
/// A second name of the server, which a proxy resolves.
pub(crate) const DOMAIN: &str = "s3.test";

/// A recorded request.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) query: String,
    /// Names in lower case.
    headers: Vec<(String, String)>,
}

impl Seen {
    pub(crate) fn header(&self, wanted: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(name, _)| name == wanted)?;
        Some(value)
    }
}

pub(crate) struct Server {
    pub(crate) address: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(behaviour: Behaviour) -> Server {
        Server::start_as(behaviour, None).await
    }

    /// With TLS, if the server has a certificate.
    pub(crate) async fn start_as(behaviour: Behaviour, identity: Option<&Identity>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let service = {
            let mut builder = S3ServiceBuilder::new(MemoryS3::new(behaviour));
            builder.set_auth(SimpleAuth::from_single("testkey", SECRET));
            builder.set_host(SingleDomain::new(DOMAIN).unwrap());
            Recording {
                inner: builder.build(),
                seen: Arc::clone(&seen),
            }
        };
        let acceptor = identity.map(Identity::acceptor);
        let task = tokio::spawn(async move {
            // Connections end with the server.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let (service, acceptor) = (service.clone(), acceptor.clone());
                connections.spawn(async move {
                    let http = hyper::server::conn::http1::Builder::new();
                    let Some(acceptor) = acceptor else {
                        let _ = http.serve_connection(TokioIo::new(stream), service).await;
                        return;
                    };
                    if let Ok(stream) = acceptor.accept(stream).await {
                        let _ = http.serve_connection(TokioIo::new(stream), service).await;
                    }
                });
            }
        });
        Server {
            address,
            seen,
            task,
        }
    }

    pub(crate) fn options(&self) -> StoreOptions {
        s3_options(&self.address, SECRET)
    }

    /// The requests so far with this method, and with this text in the path or the query.
    pub(crate) fn seen(&self, method: &str, text: &str) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap();
        let wanted = |seen: &&Seen| {
            seen.method == method && (seen.path.contains(text) || seen.query.contains(text))
        };
        seen.iter().filter(wanted).cloned().collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
struct Recording {
    inner: S3Service,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Service<Request<Incoming>> for Recording {
    type Response = <S3Service as Service<Request<Incoming>>>::Response;
    type Error = <S3Service as Service<Request<Incoming>>>::Error;
    type Future = <S3Service as Service<Request<Incoming>>>::Future;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let header = |value: &hyper::header::HeaderValue| value.to_str().unwrap().to_owned();
        let headers: Vec<_> = request
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str().to_owned(), header(value)))
            .collect();
        self.seen.lock().unwrap().push(Seen {
            method: request.method().to_string(),
            host: request
                .headers()
                .get("host")
                .map(header)
                .unwrap_or_default(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            headers,
        });
        Service::call(&self.inner, request)
    }
}
