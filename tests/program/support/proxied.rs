//! A gateway whose bucket is a real S3 server behind a proxy.

use super::s3_proxy::Proxy;
use super::s3_server::S3Server;
use super::{Gateway, Place};

/// The gateway, and what it needs.
pub(crate) struct Proxied {
    pub(crate) gateway: Gateway,
    pub(crate) proxy: Proxy,
    _server: S3Server,
    _place: Place,
}

impl Proxied {
    /// Starts them all, with these flags besides those of the store, the folder and the address.
    pub(crate) fn start(more: &[&str]) -> Proxied {
        let server = S3Server::start();
        let proxy = Proxy::start(server.endpoint(), 1);
        let place = Place::new();
        let data_dir = format!("--data-dir={}", place.data_dir().display());
        let flags = [
            "--store=s3://bucket/proxied",
            &data_dir,
            "--listen=127.0.0.1:0",
        ];
        let flags = [&flags, more].concat();
        let flags: Vec<_> = flags.into_iter().map(str::to_owned).collect();
        let endpoint = proxy.endpoint();
        let mut variables = server.variables();
        for (name, value) in &mut variables {
            if *name == "AWS_ENDPOINT_URL" {
                *value = &endpoint;
            }
        }
        Proxied {
            gateway: Gateway::start(&flags, &variables),
            proxy,
            _server: server,
            _place: place,
        }
    }
}
