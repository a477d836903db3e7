//! Accepted protections of connections.

use super::{Value, Written};

/// Kinds of protected connections that are accepted; at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xprtsec {
    /// Unprotected.
    pub none: bool,
    /// TLS.
    pub tls: bool,
    /// TLS with a certificate of the client.
    pub mtls: bool,
}

impl Value for Xprtsec {
    const KIND: &'static str = "list";
    const EXAMPLE: &'static str = "none, tls, mtls or several of them";
    const IS_LIST: bool = true;

    fn read(text: &str) -> Result<Self, String> {
        let mut read = Xprtsec {
            none: false,
            tls: false,
            mtls: false,
        };
        // exports(5) has colons between them.
        for way in text.split([',', ':']) {
            match way.trim() {
                "none" => read.none = true,
                "tls" => read.tls = true,
                "mtls" => read.mtls = true,
                "" => return Err("an empty entry means nothing".to_owned()),
                other => return Err(format!("there is no `{other}`")),
            }
        }
        Ok(read)
    }

    fn write(&self) -> Written {
        let ways = [(self.none, "none"), (self.tls, "tls"), (self.mtls, "mtls")];
        let listed = ways.iter().filter(|(listed, _)| *listed);
        Written::List(listed.map(|(_, word)| (*word).to_owned()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_read_as_exports_5_and_as_a_list_has_them() {
        for text in ["tls:mtls", "mtls,tls", " tls , mtls "] {
            let both = Xprtsec::read(text).unwrap();
            assert_eq!(both.write().to_string(), "tls,mtls");
        }
        let wrong = |text| Xprtsec::read(text).unwrap_err();
        assert!(wrong("ssl").contains("`ssl`"));
        assert!(wrong("tls,").contains("empty"));
        assert!(wrong("").contains("empty"));
    }
}
