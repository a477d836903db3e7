//! Which requests are answered.
//!
//! A page of another site, in a browser on this machine or in its network, can send requests here, and can name this
//! server as it likes (DNS rebinding). Two headers show that, and no page can change them: `Host` has the name from the page's
//! address, so only names of this server are accepted, and `Origin` has the page's own site, so only this server's own pages are
//! accepted. Programs other than browsers send no `Origin`.

use std::net::IpAddr;

use axum::http::header::{AUTHORIZATION, HOST, HeaderMap, ORIGIN};
use axum::http::{StatusCode, Uri};

use super::Ends;
use super::reply::Refusal;

/// Checks the name under which the client has reached this server; returns `Host`. `names` are further names of the
/// server.
///
/// # Errors
/// A refusal for a foreign name, and for a request without a name or with several.
pub(super) fn check_host<'a>(
    headers: &'a HeaderMap,
    uri: &Uri,
    ends: Ends,
    names: &[String],
) -> Result<&'a str, Refusal> {
    let mut all = headers.get_all(HOST).iter();
    let (Some(one), None) = (all.next(), all.next()) else {
        return Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            "a request has one Host header",
        ));
    };
    let text = one.to_str().unwrap_or_default();
    let named = uri.authority().map(|authority| authority.as_str());
    for text in std::iter::once(text).chain(named) {
        let Some(host) = host(text) else {
            return Err(Refusal::new(
                StatusCode::BAD_REQUEST,
                "this is no Host: NAME:PORT or NAME",
            ));
        };
        if !is_own(&host, ends.server, names) {
            return Err(Refusal::new(
                StatusCode::MISDIRECTED_REQUEST,
                format!(
                    "this server is not called `{host}`: use its address or localhost, or add the name to admin_hosts"
                ),
            ));
        }
    }
    Ok(text)
}

/// The name or address in a `Host` header, in lower case and without port and brackets.
fn host(text: &str) -> Option<String> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest.split_once(']')?;
            address.parse::<std::net::Ipv6Addr>().ok()?;
            match rest {
                "" => (address, None),
                rest => (address, Some(rest.strip_prefix(':')?)),
            }
        }
        None => match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        },
    };
    if let Some(port) = port
        && (!port.bytes().all(|byte| byte.is_ascii_digit()) || port.parse::<u16>().is_err())
    {
        return None;
    }
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte);
    let fits = !name.is_empty() && name.len() <= 255 && name.bytes().all(fits);
    fits.then(|| name.to_ascii_lowercase())
}

fn is_own(host: &str, server: IpAddr, names: &[String]) -> bool {
    match host.parse::<IpAddr>() {
        // The address in a URL is the one that the browser connects to: no page can make it a foreign one.
        Ok(address) => {
            let address = address.to_canonical();
            address.is_loopback()
                || address == server.to_canonical()
                || names.iter().any(|name| name.parse() == Ok(address))
        }
        Err(_) => {
            let name = host.strip_suffix('.').unwrap_or(host);
            name == "localhost" || names.iter().any(|own| own == name)
        }
    }
}

/// Checks the site of the page that has sent the request, if it was a page. `host` is the request's `Host`.
///
/// # Errors
/// A refusal for pages of other sites.
pub(super) fn check_origin(headers: &HeaderMap, host: &str, tls: bool) -> Result<(), Refusal> {
    let is_own = |origin: &str| {
        let site = match origin.split_once("://") {
            Some(("https", site)) => site,
            // Without TLS, a proxy in front of this server may have it.
            Some(("http", site)) if !tls => site,
            _ => return false,
        };
        site.eq_ignore_ascii_case(host)
    };
    let mut origins = headers.get_all(ORIGIN).iter();
    match origins.all(|origin| origin.to_str().is_ok_and(is_own)) {
        true => Ok(()),
        false => Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "pages of other sites get no answer (Origin)",
        )),
    }
}

/// The token for changes: its hash, whose comparison takes a constant time.
#[derive(Clone)]
pub(super) struct Token(blake3::Hash);

impl Token {
    pub(super) fn new(text: &[u8]) -> Token {
        Token(blake3::hash(text))
    }

    /// Whether the request has it: `Authorization: Bearer TOKEN`.
    pub(super) fn is_in(&self, headers: &HeaderMap) -> bool {
        let mut all = headers.get_all(AUTHORIZATION).iter();
        let (Some(one), None) = (all.next(), all.next()) else {
            return false;
        };
        let Some((scheme, token)) = one.to_str().ok().and_then(|text| text.split_once(' ')) else {
            return false;
        };
        scheme.eq_ignore_ascii_case("bearer") && self.0 == blake3::hash(token.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    /// The status with which a request for this `Host` is refused, on a connection to `server`; 200 if it is not.
    fn status_for(host: &str, server: &str, names: &[&str]) -> u16 {
        let ends = Ends {
            client: "192.0.2.9:1000".parse().unwrap(),
            server: server.parse().unwrap(),
            tls: false,
        };
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let headers = headers(&[("host", host)]);
        let checked = check_host(&headers, &Uri::from_static("/"), ends, &names);
        checked.map_or_else(|refusal| refusal.status().as_u16(), |_| 200)
    }

    #[test]
    fn a_server_has_its_address_loopback_names_and_those_that_are_configured() {
        for host in [
            "localhost",
            "LOCALHOST:9049",
            "localhost.",
            "127.0.0.1",
            "127.8.8.8:1",
            "[::1]",
            "[::1]:9049",
            "192.0.2.1:9049",
            "192.0.2.1",
            "nas.example:443",
            "NAS.Example",
            "198.51.100.4",
            "[2001:db8::7]:1",
            "[::ffff:127.0.0.1]:80",
        ] {
            let names = ["nas.example", "198.51.100.4", "2001:db8::7"];
            assert_eq!(status_for(host, "192.0.2.1", &names), 200, "{host}");
        }
        assert_eq!(status_for("192.0.2.1", "::ffff:192.0.2.1", &[]), 200);
    }

    #[test]
    fn names_that_an_attacker_gives_this_machine_are_refused() {
        for host in [
            "evil.example",
            "evil.example:9049",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "notlocalhost",
            "nas.example.evil",
            "xnas.example",
            "192.0.2.2",
            "0.0.0.0",
            "[::]",
            "[2001:db8::1]",
            "127.1",
            "2130706433",
            "0x7f000001",
            "nas.example..",
        ] {
            assert_eq!(
                status_for(host, "192.0.2.1", &["nas.example"]),
                421,
                "{host}"
            );
        }
    }

    #[test]
    fn malformed_hosts_are_refused() {
        for host in [
            "",
            ":9049",
            "localhost:",
            "localhost:x",
            "localhost:+1",
            "localhost:99999",
            "localhost:1:2",
            "a@localhost",
            "localhost/x",
            "localhost, evil.example",
            "[::1",
            "::1]",
            "[::1]9049",
            "[localhost]",
            "[127.0.0.1]",
            "local host",
            "\u{fc}.example",
            "localhost\t",
        ] {
            // Colons within a name cannot be told from a port.
            assert_eq!(status_for(host, "127.0.0.1", &[]), 400, "{host}");
        }
        assert_eq!(status_for("::1", "127.0.0.1", &[]), 400);
        assert_eq!(status_for(&"a".repeat(256), "127.0.0.1", &[]), 400);
    }

    #[test]
    fn a_request_has_one_host_and_the_one_in_its_target_counts_as_well() {
        let ends = Ends {
            client: "127.0.0.1:1000".parse().unwrap(),
            server: "127.0.0.1".parse().unwrap(),
            tls: false,
        };
        let check = |headers: &HeaderMap, uri| {
            let checked = check_host(headers, &Uri::from_static(uri), ends, &[]);
            checked.map_or_else(|refusal| refusal.status().as_u16(), |_| 200)
        };
        assert_eq!(check(&headers(&[]), "/"), 400);
        let two = headers(&[("host", "localhost"), ("host", "localhost")]);
        assert_eq!(check(&two, "/"), 400);
        let one = headers(&[("host", "localhost")]);
        assert_eq!(check(&one, "http://localhost/health/live"), 200);
        assert_eq!(check(&one, "http://evil.example/health/live"), 421);
    }

    #[test]
    fn only_pages_of_this_server_get_an_answer() {
        let check = |origins: &[&str], host: &str, tls| {
            let origins: Vec<_> = origins.iter().map(|origin| ("origin", *origin)).collect();
            check_origin(&headers(&origins), host, tls).is_ok()
        };
        assert!(check(&[], "localhost:9049", false));
        assert!(check(&["http://localhost:9049"], "localhost:9049", false));
        assert!(check(&["http://LOCALHOST:9049"], "localhost:9049", false));
        assert!(check(&["https://nas.example"], "nas.example", true));
        // A proxy with TLS on this machine.
        assert!(check(&["https://nas.example"], "nas.example", false));
        assert!(!check(&["http://nas.example"], "nas.example", true));
        for origin in [
            "null",
            "",
            "*",
            "http://evil.example",
            "http://localhost",
            "http://localhost:80",
            "http://localhost:9049/",
            "http://localhost:9049.evil.example",
            "http://evil@localhost:9049",
            "localhost:9049",
            "//localhost:9049",
            "ftp://localhost:9049",
            "http://127.0.0.1:9049",
            "http://\u{fc}",
        ] {
            assert!(!check(&[origin], "localhost:9049", false), "{origin}");
        }
        assert!(!check(
            &["http://localhost:9049", "http://evil.example"],
            "localhost:9049",
            false
        ));
    }

    #[test]
    fn a_token_is_accepted_as_a_bearers_and_not_otherwise() {
        let token = Token::new(b"0123456789abcdef0123");
        let is_in = |values: &[&str]| {
            let values: Vec<_> = values
                .iter()
                .map(|value| ("authorization", *value))
                .collect();
            token.is_in(&headers(&values))
        };
        assert!(is_in(&["Bearer 0123456789abcdef0123"]));
        assert!(is_in(&["bearer 0123456789abcdef0123"]));
        for value in [
            "",
            "Bearer",
            "Bearer ",
            "0123456789abcdef0123",
            "Basic 0123456789abcdef0123",
            "Bearer 0123456789abcdef012",
            "Bearer 0123456789abcdef01234",
            "Bearer  0123456789abcdef0123",
            "Bearer 0123456789ABCDEF0123",
        ] {
            assert!(!is_in(&[value]), "{value}");
        }
        assert!(!is_in(&[]));
        let twice = ["Bearer 0123456789abcdef0123"; 2];
        assert!(!is_in(&twice));
    }
}
