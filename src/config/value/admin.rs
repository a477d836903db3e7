//! The address of the admin HTTP server, and the names under which it is reached.

use std::net::{IpAddr, SocketAddr};

use super::{Value, Written};

/// The word for no address and for no names.
const NONE: &str = "none";

/// The address of a server; `None` if it is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaybeAddress(pub Option<SocketAddr>);

impl Value for MaybeAddress {
    const KIND: &'static str = "address:port";
    const EXAMPLE: &'static str =
        "none, or an IP address and a port such as 127.0.0.1:9049 or [::1]:9049";

    fn read(text: &str) -> Result<Self, String> {
        match text.trim() {
            NONE => Ok(MaybeAddress(None)),
            address => SocketAddr::read(address).map(|address| MaybeAddress(Some(address))),
        }
    }

    fn write(&self) -> Written {
        match self.0 {
            None => Written::Text(NONE.to_owned()),
            Some(address) => address.write(),
        }
    }
}

/// Names and addresses of this server in URLs, without ports; names are in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNames(pub Vec<String>);

impl Value for HostNames {
    const KIND: &'static str = "names";
    const EXAMPLE: &'static str = "none, or names and addresses such as nas.example.com,192.0.2.7";
    const IS_LIST: bool = true;

    fn read(text: &str) -> Result<Self, String> {
        if text.trim() == NONE {
            return Ok(HostNames::default());
        }
        text.split(',')
            .map(read_name)
            .collect::<Result<_, _>>()
            .map(HostNames)
    }

    fn write(&self) -> Written {
        match self.0.is_empty() {
            true => Written::List(vec![NONE.to_owned()]),
            false => Written::List(self.0.clone()),
        }
    }
}

fn read_name(text: &str) -> Result<String, String> {
    let text = text.trim();
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    match text {
        "" => Err("an empty entry names nothing".to_owned()),
        "*" => Err("each name has to be listed: a server that accepts all names can be read by every page in a browser".to_owned()),
        name if name.contains("://") => Err(format!("`{name}` is a URL; write the name alone")),
        name if name.contains(':') => Err(format!("`{name}`: write the name without a port")),
        name if name.len() > 253 || name.ends_with('.') || !name.bytes().all(fits) => {
            Err(format!("`{name}` cannot be the name of a machine"))
        }
        name => Ok(name.to_ascii_lowercase()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_be_none() {
        for text in ["none", "127.0.0.1:9049", "[::1]:0", "0.0.0.0:9049"] {
            assert_eq!(MaybeAddress::read(text).unwrap().write().to_string(), text);
        }
        for text in ["", "9049", "localhost:9049", "off"] {
            assert!(MaybeAddress::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_listed_in_lower_case_without_ports() {
        let names = HostNames::read("NAS.example.com, 192.0.2.7,2001:DB8::7").unwrap();
        assert_eq!(
            names.write().to_string(),
            "nas.example.com,192.0.2.7,2001:db8::7"
        );
        assert_eq!(HostNames::read("none").unwrap().write().to_string(), "none");
        assert_eq!(HostNames::read("none").unwrap(), HostNames::default());
        for text in [
            "",
            "a,",
            "*",
            "http://nas",
            "nas:9049",
            "nas.",
            "a b",
            "nas/x",
            "a@b",
        ] {
            assert!(HostNames::read(text).is_err(), "{text}");
        }
    }
}
