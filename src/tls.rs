//! The files of TLS, as the configuration names them.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use forebay_nfs::{Tls, TlsError};

use crate::config::Config;

/// Rights of others on the key's file that must not be.
const OTHERS: u32 = 0o077;

/// No file of certificates or keys is longer.
const MAX_BYTES: u64 = 16 << 20;

/// Reads what the gateway shows to clients that ask for TLS; `None` where there is to be no TLS.
///
/// # Errors
/// Which file cannot be used, and what to do, for the user to read.
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

/// The key is looked at through the file that is read, so that it cannot be another one by then.
fn read_key(path: &Path) -> Result<Vec<u8>, String> {
    let failed = |error: io::Error| unreadable("tls_key", path, &error);
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode();
    if mode & OTHERS != 0 {
        return Err(format!(
            "tls_key = {path}: others than its owner may use it (mode {mode:04o}), and could pretend to be this \
             server: run `chmod 600 {path}` as its owner, and make a new key if others had access to it",
            path = path.display(),
            mode = mode & 0o7777,
        ));
    }
    read_from(file).map_err(failed)
}

fn read_from(file: File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

fn unreadable(setting: &str, path: &Path, error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::NotFound => "put the file there, or correct the path",
        io::ErrorKind::PermissionDenied => "let the user that runs the gateway read it",
        _ if fs::metadata(path).is_ok_and(|found| found.is_dir()) => "name a file in that folder",
        _ => "make it readable, or correct the path",
    };
    format!(
        "{setting} = {}: cannot read it: {error}; {advice}",
        path.display()
    )
}
