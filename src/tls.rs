//! Reads the files of TLS that the configuration names.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use forebay_nfs::{Tls, TlsError};
use tokio_rustls::rustls::ServerConfig;

use crate::config::Config;
use crate::secret_file::{open_private, unreadable};

/// Maximum size of a file of certificates or keys.
const MAX_BYTES: u64 = 16 << 20;

/// The settings that name the files of one server.
struct Names {
    certificate: &'static str,
    key: &'static str,
    authority: &'static str,
}

/// The name of HTTP in ALPN.
const HTTP: &[u8] = b"http/1.1";

/// Reads the certificates and the key for clients that use TLS; `None` if TLS is not configured.
///
/// # Errors
/// Which file cannot be used, and the remedy, as a message to the user.
pub fn load(config: &Config) -> Result<Option<Tls>, String> {
    let names = Names {
        certificate: "tls_certificate",
        key: "tls_key",
        authority: "tls_client_ca",
    };
    let files = config.tls_certificate.path().zip(config.tls_key.path());
    let load = |files| load_files(&names, files, config.tls_client_ca.path());
    files.map(load).transpose()
}

/// Reads the certificate and the key of the admin HTTP server; `None` if TLS is not configured for it.
///
/// # Errors
/// Which file cannot be used, and the remedy, as a message to the user.
pub fn load_admin(config: &Config) -> Result<Option<Arc<ServerConfig>>, String> {
    let names = Names {
        certificate: "admin_tls_certificate",
        key: "admin_tls_key",
        authority: "",
    };
    let (certificate, key) = (&config.admin_tls_certificate, &config.admin_tls_key);
    let Some(files) = certificate.path().zip(key.path()) else {
        return Ok(None);
    };
    Ok(Some(load_files(&names, files, None)?.for_protocol(HTTP)))
}

fn load_files(
    names: &Names,
    (certificate, key): (&Path, &Path),
    authority: Option<&Path>,
) -> Result<Tls, String> {
    let certificate_text = read(names.certificate, certificate)?;
    let key_text = read_key(names.key, key)?;
    let authority_text = authority
        .map(|path| read(names.authority, path))
        .transpose()?;
    let tls = Tls::from_pem(&certificate_text, &key_text, authority_text.as_deref());
    tls.map_err(|error| {
        let (setting, path) = match &error {
            TlsError::Certificate(_) => (names.certificate, certificate),
            TlsError::Key(_) => (names.key, key),
            TlsError::ClientAuthority(_) => (names.authority, authority.unwrap_or(certificate)),
        };
        format!("{setting} = {}: {error}", path.display())
    })
}

fn read(setting: &str, path: &Path) -> Result<Vec<u8>, String> {
    let open = || -> io::Result<Vec<u8>> { read_from(File::open(path)?) };
    open().map_err(|error| unreadable(setting, path, &error))
}

fn read_key(setting: &str, path: &Path) -> Result<Vec<u8>, String> {
    let file = open_private(setting, path, "could pretend to be this server")?;
    read_from(file).map_err(|error| unreadable(setting, path, &error))
}

fn read_from(file: File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut text)?;
    Ok(text)
}
