//! A real S3 server, started from the program in `FOREBAY_TEST_S3_SERVER`: `versitygw` or `minio`.
//! Tests that need one are ignored, and are run by `.ci/run` or with `-- --ignored`.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use forebay_object::{Fault, OpenError, Store, StoreOptions, open};
use tempfile::TempDir;

use super::authority::Identity;
use super::{Backend, s3_options};

const SECRET: &str = "testsecret";

/// Base64 of 32 bytes: with a key in its environment MinIO encrypts.
const MINIO_KEY: &str = "forebay:Zm9yZWJheS10ZXN0LWtleS1vZi0zMi1ieXRlcy0hISE=";

/// A running server, killed when dropped.
pub(crate) struct Server {
    process: Child,
    data: TempDir,
    pub(crate) is_minio: bool,
    address: String,
    scheme: &'static str,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    /// Starts the configured server, with TLS if it gets a certificate.
    pub(crate) fn start(identity: Option<&Identity>) -> Server {
        let program = std::env::var_os("FOREBAY_TEST_S3_SERVER")
            .expect("FOREBAY_TEST_S3_SERVER names the program of versitygw or MinIO");
        let folder = TempDir::new().unwrap();
        let (data, certificates) = (folder.path().join("data"), folder.path().join("tls"));
        // Both servers use a folder of their data as a bucket.
        std::fs::create_dir_all(data.join("bucket")).unwrap();
        std::fs::create_dir(&certificates).unwrap();
        let certificate = certificates.join("public.crt");
        let key = certificates.join("private.key");
        if let Some(identity) = identity {
            std::fs::write(&certificate, &identity.certificate).unwrap();
            std::fs::write(&key, &identity.key).unwrap();
        }
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .unwrap()
            .port();
        let address = format!("127.0.0.1:{port}");
        let mut command = Command::new(&program);
        let is_minio = Path::new(&program)
            .file_name()
            .is_some_and(|name| name == "minio");
        if is_minio {
            command
                .env("MINIO_ROOT_USER", "testkey")
                .env("MINIO_ROOT_PASSWORD", SECRET)
                .env("MINIO_KMS_SECRET_KEY", MINIO_KEY)
                .env("MINIO_BROWSER", "off")
                .env("MINIO_UPDATE", "off")
                .args(["server", "--quiet", "--address", &address])
                .arg("--certs-dir")
                .arg(&certificates)
                .arg(&data);
        } else {
            command
                .env("ROOT_ACCESS_KEY", "testkey")
                .env("ROOT_SECRET_KEY", SECRET)
                .args(["--port", &address, "--quiet"]);
            if identity.is_some() {
                command.arg("--cert").arg(&certificate);
                command.arg("--key").arg(&key);
            }
            command.arg("posix").arg(&data);
        }
        let process = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("FOREBAY_TEST_S3_SERVER={program:?}: {error}"));
        Server {
            process,
            data: folder,
            is_minio,
            address,
            scheme: if identity.is_some() { "https" } else { "http" },
        }
    }

    /// Options for this server.
    pub(crate) fn options(&self) -> StoreOptions {
        StoreOptions {
            endpoint_url: Some(format!("{}://{}", self.scheme, self.address)),
            ..s3_options(&self.address, SECRET)
        }
    }

    /// A folder for files of a test.
    pub(crate) fn folder(&self) -> &Path {
        self.data.path()
    }

    /// Opens a store in its bucket, once the server is up.
    pub(crate) async fn open(&self, options: &StoreOptions) -> Store {
        for _ in 0..100 {
            match open("s3://bucket/a/volume", options).await {
                Ok(store) => return store,
                Err(OpenError::Store {
                    fault: Fault::Unreachable | Fault::Transient,
                    ..
                }) => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
        panic!("the server did not come up at {}", self.address);
    }
}

/// A store in a bucket of a new server.
pub(crate) async fn start() -> Backend {
    let server = Server::start(None);
    let store = server.open(&server.options()).await;
    Backend::new(store, server)
}
