//! A real S3 server, started from the program that `FOREBAY_TEST_S3_SERVER` names: `versitygw` or
//! `minio`. Without the variable the tests that want one say so and pass.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use forebay_object::{Fault, OpenError, open};
use tempfile::TempDir;

use super::{Backend, s3_options};

const SECRET: &str = "testsecret";

/// A running server, killed when dropped.
struct Server {
    process: Child,
    _data: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A store in a bucket of a new server; none when no server is named.
pub(crate) async fn start() -> Option<Backend> {
    let Some(program) = std::env::var_os("FOREBAY_TEST_S3_SERVER") else {
        eprintln!("skipped: FOREBAY_TEST_S3_SERVER names no versitygw or minio");
        return None;
    };
    let data = TempDir::new().unwrap();
    // Both servers take a folder of their data for a bucket.
    std::fs::create_dir(data.path().join("bucket")).unwrap();
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .unwrap()
        .port();
    let address = format!("127.0.0.1:{port}");
    let mut command = Command::new(&program);
    if Path::new(&program)
        .file_name()
        .is_some_and(|name| name == "minio")
    {
        command
            .env("MINIO_ROOT_USER", "testkey")
            .env("MINIO_ROOT_PASSWORD", SECRET)
            .env("MINIO_BROWSER", "off")
            .env("MINIO_UPDATE", "off")
            .args(["server", "--quiet", "--address", &address])
            .arg(data.path());
    } else {
        command
            .env("ROOT_ACCESS_KEY", "testkey")
            .env("ROOT_SECRET_KEY", SECRET)
            .args(["--port", &address, "--quiet", "posix"])
            .arg(data.path());
    }
    let process = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("FOREBAY_TEST_S3_SERVER={program:?}: {error}"));
    let server = Server {
        process,
        _data: data,
    };
    for _ in 0..100 {
        match open("s3://bucket/a/volume", &s3_options(&address, SECRET)).await {
            Ok(store) => return Some(Backend::new(store, server)),
            Err(OpenError::Store {
                fault: Fault::Unreachable | Fault::Transient,
                ..
            }) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("{program:?} did not come up at {address}");
}
