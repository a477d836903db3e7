//! The connection to the server: the authorities that it trusts, and the proxy.

use std::fs;
use std::path::Path;

use aws_sdk_s3::config::{RuntimeComponents, SharedHttpClient};
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore, rustls_provider::CryptoMode};
use aws_smithy_http_client::{Builder, Connector};
use aws_smithy_runtime_api::client::http::HttpConnectorSettings;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::{OpenError, Proxy};

/// Addresses where machines get their own credentials, which no proxy can reach.
const LINK_LOCAL: &str = "169.254.0.0/16,fd00:ec2::254,fd00:ec2::23";
const LOOPBACK: &str = "localhost,127.0.0.0/8,::1";

/// An HTTP client of the AWS SDK, for a server that is reached with or without TLS. It trusts the system's authorities
/// and those of the PEM file `ca`, and uses the proxy that `proxy` determines for that server. A client without TLS
/// uses no proxy that is meant for TLS.
///
/// # Errors
/// [`OpenError::Authorities`] and [`OpenError::Proxy`], when the file or the proxy cannot be used.
pub fn http_client(
    ca: Option<&Path>,
    proxy: &Proxy,
    is_tls: bool,
) -> Result<SharedHttpClient, OpenError> {
    let tls = match ca {
        Some(path) => trusting(path)?,
        None => TlsContext::default(),
    };
    let provider = Provider::Rustls(CryptoMode::Ring);
    let variable = |name: &str| std::env::var(name).ok();
    let Some(route) = route(proxy, is_tls, variable)? else {
        let builder = Builder::new().tls_provider(provider).tls_context(tls);
        return Ok(builder.build_https());
    };
    let proxy = route.config(is_tls)?;
    // As in `build_https`, which does not support a proxy.
    let connector = move |settings: Option<&HttpConnectorSettings>,
                          components: Option<&RuntimeComponents>| {
        let mut builder = Connector::builder();
        builder.set_connector_settings(settings.cloned());
        if let Some(components) = components {
            builder.set_sleep_impl(components.sleep_impl());
        }
        builder
            .tls_provider(provider.clone())
            .tls_context(tls.clone())
            .proxy_config(proxy.clone())
            .build()
    };
    Ok(Builder::new().build_with_connector_fn(connector))
}

/// Trusts the system's authorities and those of a file. The file is checked here, since the client would panic.
fn trusting(path: &Path) -> Result<TlsContext, OpenError> {
    let failed = |why: String| OpenError::Authorities {
        path: path.to_owned(),
        why,
    };
    let text = fs::read(path).map_err(|error| failed(format!("it cannot be read: {error}")))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| failed(format!("it is not a PEM file: {error}")))?;
    if found.is_empty() {
        return Err(failed("there is no certificate in it".to_owned()));
    }
    let mut known = RootCertStore::empty();
    for (number, certificate) in found.into_iter().enumerate() {
        let number = number + 1;
        known
            .add(certificate)
            .map_err(|error| failed(format!("certificate {number} in it is not valid: {error}")))?;
    }
    let trusted = TrustStore::default().with_pem_certificate(text);
    let context = TlsContext::builder().with_trust_store(trusted).build();
    context.map_err(|error| failed(error.to_string()))
}

/// The proxy for a server.
#[derive(PartialEq, Eq)]
struct Route {
    /// The setting or environment variable that names it.
    named_by: String,
    /// Its URL, which may contain a password.
    url: String,
    /// Hosts that are reached without it, separated by commas.
    direct: String,
}

impl Route {
    fn failed(&self, why: &str) -> OpenError {
        OpenError::Proxy {
            named_by: self.named_by.clone(),
            why: why.to_owned(),
        }
    }

    fn config(&self, is_tls: bool) -> Result<ProxyConfig, OpenError> {
        let config = if is_tls {
            ProxyConfig::https(self.url.as_str())
        } else {
            ProxyConfig::http(self.url.as_str())
        };
        // The client's own message contains the URL.
        let config = config.map_err(|_| self.failed("it is not the URL of a proxy"))?;
        Ok(config.no_proxy(&self.direct))
    }
}

/// The proxy for requests with TLS, or for those without it; `None` if they go directly.
fn route(
    proxy: &Proxy,
    is_tls: bool,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Route>, OpenError> {
    let first = |names: &[&str]| {
        names.iter().find_map(|name| {
            let value = variable(name)?.trim().to_owned();
            (!value.is_empty()).then(|| ((*name).to_owned(), value))
        })
    };
    let mut route = match proxy {
        Proxy::Direct => return Ok(None),
        Proxy::Url(url) => Route {
            named_by: "s3_proxy".to_owned(),
            url: url.clone(),
            direct: LINK_LOCAL.to_owned(),
        },
        Proxy::Environment => {
            let names = if is_tls {
                ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]
            } else {
                ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]
            };
            let Some((named_by, url)) = first(&names) else {
                return Ok(None);
            };
            let more = first(&["NO_PROXY", "no_proxy"]);
            let more = more.map(|(_, more)| format!(",{more}")).unwrap_or_default();
            let direct = format!("{LOOPBACK},{LINK_LOCAL}{more}");
            Route {
                named_by,
                url,
                direct,
            }
        }
    };
    match route.url.split_once("://") {
        Some(("http" | "https", _)) => {}
        Some(_) => return Err(route.failed("only http:// and https:// are supported")),
        None => route.url = format!("http://{}", route.url),
    }
    Ok(Some(route))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_environment(is_tls: bool, set: &[(&str, &str)]) -> Option<(String, String)> {
        let variable = |name: &str| {
            let (_, value) = set.iter().find(|(key, _)| *key == name)?;
            Some((*value).to_owned())
        };
        let route = route(&Proxy::Environment, is_tls, variable).unwrap()?;
        route.config(is_tls).unwrap();
        Some((route.url, route.direct))
    }

    #[test]
    fn the_environment_names_a_proxy_for_each_kind_of_address() {
        let set = [
            ("HTTPS_PROXY", "http://secure:3128"),
            ("http_proxy", "plain:3128"),
            ("NO_PROXY", "s3.internal, 10.0.0.0/8"),
        ];
        let (url, direct) = from_environment(true, &set).unwrap();
        assert_eq!(url, "http://secure:3128");
        assert!(direct.ends_with(",s3.internal, 10.0.0.0/8"), "{direct}");
        assert_eq!(
            from_environment(false, &set).unwrap().0,
            "http://plain:3128"
        );
        let all = [("ALL_PROXY", "http://all:1"), ("HTTPS_PROXY", " ")];
        for is_tls in [true, false] {
            assert_eq!(from_environment(is_tls, &all).unwrap().0, "http://all:1");
        }
        assert_eq!(from_environment(true, &[]), None);
    }

    #[test]
    fn this_machine_and_its_credentials_need_no_proxy() {
        let (_, direct) = from_environment(false, &[("HTTP_PROXY", "http://p:1")]).unwrap();
        assert!(direct.contains("127.0.0.0/8") && direct.contains("169.254.0.0/16"));
        let named = Proxy::Url("http://p:1".to_owned());
        let route = route(&named, false, |_| None).unwrap().unwrap();
        assert!(
            !route.direct.contains("127.0.0.0/8"),
            "a proxy that is named is used"
        );
        assert!(route.direct.contains("169.254.0.0/16"));
        assert!(
            super::route(&Proxy::Direct, true, |_| Some("http://p:1".to_owned()))
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn a_proxy_of_another_kind_is_refused_and_no_password_is_told() {
        for url in ["socks5://me:secret@p:1080", "http://me:secret@p:1080:1"] {
            let environment = |name: &str| (name == "ALL_PROXY").then(|| url.to_owned());
            let refused = route(&Proxy::Environment, true, environment)
                .and_then(|route| route.unwrap().config(true).map(drop));
            let error = refused.unwrap_err().to_string();
            assert!(
                error.contains("ALL_PROXY") && error.contains("s3_proxy"),
                "{error}"
            );
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
