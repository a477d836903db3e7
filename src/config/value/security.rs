//! Accepted flavors of credentials.

use super::{Value, Written};

/// Flavors of credentials; at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Security {
    /// AUTH_SYS: user and groups as claimed by the client.
    pub sys: bool,
    /// No credentials, or others than the listed ones: the caller is the anonymous user.
    pub none: bool,
}

impl Value for Security {
    const KIND: &'static str = "flavors";
    const EXAMPLE: &'static str = "sys, none or both";
    const IS_LIST: bool = true;

    fn read(text: &str) -> Result<Self, String> {
        let mut read = Security {
            sys: false,
            none: false,
        };
        // exports(5) has colons between them.
        for flavor in text.split([',', ':']) {
            match flavor.trim() {
                "sys" => read.sys = true,
                "none" => read.none = true,
                "krb5" | "krb5i" | "krb5p" => {
                    return Err(
                        "Kerberos is not supported: the gateway identifies clients by their \
                         addresses, and with sys trusts the user ids that they send"
                            .to_owned(),
                    );
                }
                "" => return Err("an empty entry means nothing".to_owned()),
                other => return Err(format!("there is no flavor `{other}`")),
            }
        }
        Ok(read)
    }

    fn write(&self) -> Written {
        let flavors = [(self.sys, "sys"), (self.none, "none")];
        let listed = flavors.iter().filter(|(listed, _)| *listed);
        Written::List(listed.map(|(_, word)| (*word).to_owned()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flavors_are_read_as_exports_5_and_as_a_list_has_them() {
        for text in ["sys:none", "none,sys", " sys , none "] {
            let both = Security::read(text).unwrap();
            assert_eq!(both.write().to_string(), "sys,none");
        }
        assert_eq!(Security::read("none").unwrap().write().to_string(), "none");
    }

    #[test]
    fn what_is_not_supported_is_refused_and_says_so() {
        for text in ["krb5", "sys:krb5p"] {
            let error = Security::read(text).unwrap_err();
            assert!(error.contains("Kerberos is not supported"), "{error}");
        }
        assert!(Security::read("").is_err());
        assert!(Security::read("sys,").is_err());
        assert!(Security::read("tls").unwrap_err().contains("`tls`"));
    }
}
