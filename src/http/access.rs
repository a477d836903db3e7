//! The part of the configuration that decides who gets which answers; SIGHUP replaces it.

use std::fmt;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::ServerConfig;
use zeroize::Zeroizing;

use super::rules::Token;
use crate::config::Config;
use crate::secret_file::{open_private, unreadable};
use crate::tls;

/// The setting of the token.
const TOKEN: &str = "admin_token";

/// Lengths of tokens, in bytes. The shortest has the entropy of a strong password if it is random.
const TOKEN_BYTES: std::ops::RangeInclusive<usize> = 20..=1024;

/// The access to the server.
pub(super) struct Access {
    /// Names and addresses under which the server is reached.
    pub(super) hosts: Vec<String>,
    /// The token for changes; without it there are none.
    pub(super) token: Option<Token>,
    /// Certificate and key; without them there is no TLS.
    pub(super) tls: Option<Arc<ServerConfig>>,
    /// The configuration in force, as it is shown.
    pub(super) shown: serde_json::Value,
}

impl Access {
    /// Reads the files of `config`, of a gateway that was started with `started` and listens on `listen`.
    ///
    /// # Errors
    /// A file cannot be used, or TLS would be missing, as a message to the user.
    pub(super) fn load(
        started: &Config,
        config: &Config,
        listen: IpAddr,
    ) -> Result<Access, String> {
        let tls = tls::load_admin(config)?;
        // The new configuration may have another address, which takes effect at the next start.
        if tls.is_none() && !listen.to_canonical().is_loopback() {
            return Err(format!(
                "admin HTTP listens on {listen} until the next start, and needs TLS there: set admin_tls_certificate \
                 and admin_tls_key"
            ));
        }
        Ok(Access {
            hosts: config.admin_hosts.0.clone(),
            token: config.admin_token.path().map(read_token).transpose()?,
            tls,
            shown: started.in_force(config),
        })
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("hosts", &self.hosts)
            .field("tls", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}

/// A new configuration of a server, see [`super::Server::reload`].
#[derive(Debug)]
pub struct Reloaded(pub(super) Access);

fn read_token(path: &Path) -> Result<Token, String> {
    let file = open_private(TOKEN, path, "could give orders to this gateway")?;
    let mut text = Zeroizing::new(Vec::new());
    file.take(*TOKEN_BYTES.end() as u64 + 3)
        .read_to_end(&mut text)
        .map_err(|error| unreadable(TOKEN, path, &error))?;
    let token = text.trim_ascii_end();
    if !TOKEN_BYTES.contains(&token.len()) || !token.iter().all(u8::is_ascii_graphic) {
        return Err(format!(
            "{TOKEN} = {0}: a token is one line of {1} to {2} letters, digits and signs: make one with `openssl rand \
             -hex 32 > {0}`",
            path.display(),
            TOKEN_BYTES.start(),
            TOKEN_BYTES.end(),
        ));
    }
    Ok(Token::new(token))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::Inputs;

    #[test]
    fn a_token_is_one_line_that_only_its_owner_can_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let read = |content: &str, mode: u32| {
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            read_token(&path).map(|_| ())
        };
        let good = "0123456789abcdef0123";
        assert_eq!(read(good, 0o600), Ok(()));
        assert_eq!(read(&format!("{good}\n"), 0o400), Ok(()));
        assert_eq!(read(&"x".repeat(1024), 0o600), Ok(()));
        assert!(read(good, 0o640).unwrap_err().contains("chmod 600"));
        for wrong in [
            "",
            "short\n",
            "0123456789 abcdef0123",
            "0123456789abcdef0123\nmore",
        ] {
            let error = read(wrong, 0o600).unwrap_err();
            assert!(error.contains("openssl rand -hex 32"), "{error}");
            assert!(wrong.is_empty() || !error.contains(wrong.trim()), "{error}");
        }
        assert!(read(&"x".repeat(2000), 0o600).is_err());
        fs::remove_file(&path).unwrap();
        let missing = read_token(&path).err().unwrap();
        assert!(missing.contains("put the file there"), "{missing}");
    }

    #[test]
    fn a_change_does_not_take_tls_from_an_address_that_others_reach() {
        let dir = tempfile::tempdir().unwrap();
        let inputs = Inputs {
            flags: vec![("data_dir", dir.path().display().to_string())],
            file: None,
            variables: Vec::new(),
            system_file: "/nonexistent".into(),
            is_root: false,
        };
        // Its own admin_listen is on the loopback.
        let config = Config::load(&inputs).unwrap();
        let load = |listen: &str| Access::load(&config, &config, listen.parse().unwrap());
        for loopback in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert!(load(loopback).is_ok(), "{loopback}");
        }
        for listen in ["192.0.2.1", "0.0.0.0", "::", "2001:db8::1"] {
            let error = load(listen).unwrap_err();
            assert!(error.contains("needs TLS"), "{error}");
        }
    }
}
