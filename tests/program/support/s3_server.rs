//! A real S3 server, started from the program in `FOREBAY_TEST_S3_SERVER`: `versitygw` or `minio`. Tests that need one
//! are ignored by default, and run by `.ci/run` or with `-- --ignored`.

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

const KEY: &str = "testkey";
const SECRET: &str = "testsecret";

/// A running server with one empty bucket named `bucket`; killed when dropped.
pub(crate) struct S3Server {
    process: Child,
    endpoint: String,
    data: TempDir,
    is_minio: bool,
}

impl S3Server {
    pub(crate) fn start() -> S3Server {
        let program = std::env::var_os("FOREBAY_TEST_S3_SERVER")
            .expect("FOREBAY_TEST_S3_SERVER names the program of versitygw or MinIO");
        let data = TempDir::new().unwrap();
        // Both servers take a folder of their data for a bucket.
        std::fs::create_dir(data.path().join("bucket")).unwrap();
        let address = free_address();
        let mut command = Command::new(&program);
        let is_minio = Path::new(&program)
            .file_name()
            .is_some_and(|name| name == "minio");
        if is_minio {
            command
                .env("MINIO_ROOT_USER", KEY)
                .env("MINIO_ROOT_PASSWORD", SECRET)
                .env("MINIO_BROWSER", "off")
                .env("MINIO_UPDATE", "off")
                .args(["server", "--quiet", "--address", &address])
                .arg(data.path());
        } else {
            command
                .env("ROOT_ACCESS_KEY", KEY)
                .env("ROOT_SECRET_KEY", SECRET)
                .args(["--port", &address, "--quiet", "posix"])
                .arg(data.path());
        }
        let process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("FOREBAY_TEST_S3_SERVER={program:?}: {error}"));
        let server = S3Server {
            process,
            endpoint: format!("http://{address}"),
            data,
            is_minio,
        };
        for _ in 0..200 {
            if TcpStream::connect(&address).is_ok() {
                return server;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("{program:?} did not come up at {address}");
    }

    /// Whether it is MinIO.
    pub(crate) fn is_minio(&self) -> bool {
        self.is_minio
    }

    /// By object name, whether MinIO's copy of the object, including its attributes, contains a text; `None` for other
    /// servers.
    pub(crate) fn keeps(&self, text: &str) -> Option<BTreeMap<String, bool>> {
        let mut kept = BTreeMap::new();
        let root = self.data.path().join("bucket");
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.ends_with("xl.meta") {
                    let bytes = std::fs::read(&path).unwrap();
                    let has = bytes
                        .windows(text.len())
                        .any(|part| part == text.as_bytes());
                    let name = folder.strip_prefix(&root).unwrap();
                    kept.insert(name.display().to_string(), has);
                }
            }
        }
        self.is_minio.then_some(kept)
    }

    /// Its URL.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The environment variables that the program needs.
    pub(crate) fn variables(&self) -> [(&'static str, &str); 4] {
        [
            ("AWS_ENDPOINT_URL", &self.endpoint),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
        ]
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An address on which nothing listens.
pub(crate) fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}
