//! Ensures that the volume key never crosses a network in the clear.
//!
//! The key is part of requests and answers, and KMS is reached through TLS. A configured endpoint may have no TLS, such
//! as one of `AWS_ENDPOINT_URL` that is meant for S3. So each request is checked before it is sent, whatever the source
//! of its endpoint: without TLS it may only go to this machine.

use std::net::IpAddr;

use aws_sdk_kms::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_kms::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_kms::error::BoxError;

/// Refuses requests that others on a network could read.
#[derive(Debug)]
pub(crate) struct NotInTheClear;

impl Intercept for NotInTheClear {
    fn name(&self) -> &'static str {
        "NotInTheClear"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        match is_private(context.request().uri()) {
            true => Ok(()),
            false => Err(Box::new(InTheClear)),
        }
    }
}

/// The error of a request that would have crossed a network without TLS.
#[derive(Debug)]
pub(crate) struct InTheClear;

impl std::fmt::Display for InTheClear {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("its endpoint is on another machine and has no TLS")
    }
}

impl std::error::Error for InTheClear {}

/// Whether a request to this URL is unreadable for others on a network.
fn is_private(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else {
        return false;
    };
    if scheme.eq_ignore_ascii_case("https") {
        return true;
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = match host.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let address: Option<IpAddr> = host.parse().ok();
    host.eq_ignore_ascii_case("localhost") || address.is_some_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_spoken_to_without_tls() {
        for url in [
            "https://kms.eu-central-1.amazonaws.com/",
            "HTTPS://kms.test:8443",
            "http://127.0.0.1:4566/",
            "http://127.8.8.8",
            "http://[::1]:4566/path",
            "http://localhost:4566",
        ] {
            assert!(is_private(url), "{url}");
        }
        for url in [
            "http://10.0.0.5:9000/",
            "http://kms.test",
            "http://127.0.0.1.test/",
            "http://127.0.0.1@kms.test/",
            "http://kms.test/@127.0.0.1",
            "http://kms.test?@127.0.0.1",
            "http://[fd00::1]:80/",
            "http://0.0.0.0:80/",
            "http://",
            "kms.test",
            "",
        ] {
            assert!(!is_private(url), "{url}");
        }
    }
}
