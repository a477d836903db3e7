//! Credentials of people for opening a volume.

use std::fmt;

use zeroize::{Zeroize, Zeroizing};

use crate::Secret;

/// A passphrase: its bytes as given, without any normalization; wiped when dropped.
pub struct Passphrase(Zeroizing<String>);

impl Passphrase {
    /// Maximum length of a passphrase, in bytes.
    pub const MAX_LEN: usize = 4096;

    /// A passphrase of 1 to [`Passphrase::MAX_LEN`] bytes.
    pub fn new(text: String) -> Result<Passphrase, InvalidCredential> {
        let text = Zeroizing::new(text);
        match text.len() {
            0 => Err(InvalidCredential::Empty),
            1..=Self::MAX_LEN => Ok(Passphrase(text)),
            _ => Err(InvalidCredential::TooLong),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Passphrase {
    /// Shows not even its length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passphrase(..)")
    }
}

/// Derives the key of a key file.
const KEY_FILE_CONTEXT: &str = "forebay 2026-11 key file v1";

/// The contents of a key file, as a key. All of its bytes count, including a line break at its end.
#[derive(Debug)]
pub struct KeyFile(Secret);

impl KeyFile {
    /// Minimum length of a key file, in bytes. They have to be random: nothing here makes guessing them slow.
    pub const MIN_LEN: usize = 32;
    /// Maximum length of a key file, in bytes.
    pub const MAX_LEN: usize = 64 << 10;

    /// The key of a file with this content.
    pub fn new(content: Zeroizing<Vec<u8>>) -> Result<KeyFile, InvalidCredential> {
        match content.len() {
            0..Self::MIN_LEN => Err(InvalidCredential::TooShort),
            Self::MIN_LEN..=Self::MAX_LEN => {
                let mut derivation = blake3::Hasher::new_derive_key(KEY_FILE_CONTEXT);
                derivation.update(&content);
                let mut output = derivation.finalize_xof();
                let key = Secret::filled(|key| output.fill(key));
                output.zeroize();
                derivation.zeroize();
                Ok(KeyFile(key))
            }
            _ => Err(InvalidCredential::TooLong),
        }
    }

    pub(crate) fn key(&self) -> &Secret {
        &self.0
    }
}

/// Why a text or file cannot be a passphrase or key file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCredential {
    /// An empty passphrase.
    #[error("the passphrase is empty")]
    Empty,
    /// A key file that is short enough to be guessed.
    #[error(
        "the key file has fewer than {len} bytes; create one of that many random bytes",
        len = KeyFile::MIN_LEN
    )]
    TooShort,
    /// More bytes than a passphrase or key file can plausibly have.
    #[error("the passphrase or key file is too long; is it the right file?")]
    TooLong,
}

/// A passphrase or key file for opening a key ring.
#[derive(Clone, Copy, Debug)]
pub enum Credential<'a> {
    /// A passphrase.
    Passphrase(&'a Passphrase),
    /// A key file.
    KeyFile(&'a KeyFile),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_file(len: usize) -> Result<KeyFile, InvalidCredential> {
        KeyFile::new(Zeroizing::new(vec![7; len]))
    }

    #[test]
    fn what_cannot_protect_anything_is_refused() {
        let passphrase = |len| Passphrase::new("x".repeat(len)).map(|_| ());
        assert_eq!(passphrase(0), Err(InvalidCredential::Empty));
        assert_eq!(passphrase(1), Ok(()));
        assert_eq!(passphrase(4097), Err(InvalidCredential::TooLong));
        assert_eq!(key_file(31).unwrap_err(), InvalidCredential::TooShort);
        assert_eq!(key_file(65_537).unwrap_err(), InvalidCredential::TooLong);
        assert_ne!(
            key_file(32).unwrap().key().expose(),
            key_file(33).unwrap().key().expose()
        );
    }

    #[test]
    fn debug_output_shows_neither() {
        let passphrase = Passphrase::new("open sesame".into()).unwrap();
        let key_file = key_file(32).unwrap();
        let shown = format!(
            "{:?} {:?} {passphrase:?}",
            Credential::Passphrase(&passphrase),
            Credential::KeyFile(&key_file),
        );
        assert_eq!(
            shown,
            "Passphrase(Passphrase(..)) KeyFile(KeyFile(Secret(..))) Passphrase(..)"
        );
    }
}
