//! Reads the files of TLS that the configuration names.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use forebay_nfs::{Tls, TlsError};

use crate::config::Config;
use crate::secret_file::{open_private, unreadable};

/// Maximum size of a file of certificates or keys.
const MAX_BYTES: u64 = 16 << 20;

/// Reads the certificates and the key for clients that use TLS; `None` if TLS is not configured.
///
/// # Errors
/// Which file cannot be used, and the remedy, as a message to the user.
pub fn load(config: &Config) -> Result<Option<Tls>, String> {
    let files = config.tls_certificate.path().zip(config.tls_key.path());
    let Some((certificate, key)) = files else {
        return Ok(None);
    };
    let authority = config.tls_client_ca.path();
    let certificate_text = read("tls_certificate", certificate)?;
    let key_text = read_key(key)?;
    let authority_text = authority
        .map(|path| read("tls_client_ca", path))
        .transpose()?;
    let tls = Tls::from_pem(&certificate_text, &key_text, authority_text.as_deref());
    tls.map(Some).map_err(|error| {
        let (setting, path) = match &error {
            TlsError::Certificate(_) => ("tls_certificate", certificate),
            TlsError::Key(_) => ("tls_key", key),
            TlsError::ClientAuthority(_) => ("tls_client_ca", authority.unwrap_or(certificate)),
        };
        format!("{setting} = {}: {error}", path.display())
    })
}

fn read(setting: &str, path: &Path) -> Result<Vec<u8>, String> {
    let open = || -> io::Result<Vec<u8>> { read_from(File::open(path)?) };
    open().map_err(|error| unreadable(setting, path, &error))
}

fn read_key(path: &Path) -> Result<Vec<u8>, String> {
    let file = open_private("tls_key", path, "could pretend to be this server")?;
    read_from(file).map_err(|error| unreadable("tls_key", path, &error))
}

fn read_from(file: File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut text)?;
    Ok(text)
}
