//! Stores for the tests, each on a backend of its own.
#![allow(dead_code, reason = "each test binary uses its part of it")]

pub(crate) mod authority;
pub(crate) mod memory_s3;
pub(crate) mod proxy;
pub(crate) mod real_s3;
pub(crate) mod scripted;
pub(crate) mod server;

use forebay_object::{Credentials, Store, StoreOptions, open};
use tempfile::TempDir;

/// A store, and its resources, which must live as long as the store.
pub(crate) struct Backend {
    pub(crate) store: Store,
    _keep: Box<dyn std::any::Any + Send>,
}

impl Backend {
    pub(crate) fn new(store: Store, keep: impl std::any::Any + Send) -> Backend {
        Backend {
            store,
            _keep: Box::new(keep),
        }
    }
}

pub(crate) async fn memory() -> Backend {
    let store = open("memory://", &StoreOptions::default()).await.unwrap();
    Backend::new(store, ())
}

pub(crate) async fn file() -> Backend {
    let folder = TempDir::new().unwrap();
    let url = format!("file://{}/volume", folder.path().display());
    let options = StoreOptions {
        create: true,
        ..StoreOptions::default()
    };
    Backend::new(open(&url, &options).await.unwrap(), folder)
}

pub(crate) async fn s3() -> Backend {
    let server = memory_s3::Server::start(memory_s3::Behaviour::default()).await;
    let store = open("s3://bucket/a/volume", &server.options())
        .await
        .unwrap();
    Backend::new(store, server)
}

/// Options for an S3 server at `address`, without values from the environment.
pub(crate) fn s3_options(address: &str, secret: &str) -> StoreOptions {
    StoreOptions {
        endpoint_url: Some(format!("http://{address}")),
        region: Some("us-east-1".to_owned()),
        credentials: Some(Credentials {
            access_key_id: "testkey".to_owned(),
            secret_access_key: secret.to_owned(),
        }),
        ..StoreOptions::default()
    }
}
