//! Secret keys.

use std::fmt;

use zeroize::Zeroize;

use crate::Entropy;

/// Length of every key here, in bytes.
pub const SECRET_LEN: usize = 32;

/// A key of 32 bytes. It lies on the heap, so that moving it leaves no copies behind, is wiped when
/// it is dropped, and is neither cloned nor shown.
pub struct Secret(Box<[u8; SECRET_LEN]>);

impl Secret {
    /// A new random key.
    pub fn draw(entropy: &dyn Entropy) -> Secret {
        Secret::filled(|bytes| entropy.fill(bytes))
    }

    /// Takes the key out of `bytes`, which are wiped.
    pub fn take(bytes: &mut [u8; SECRET_LEN]) -> Secret {
        let secret = Secret::filled(|own| own.copy_from_slice(bytes));
        bytes.zeroize();
        secret
    }

    /// A key that `fill` writes directly to its final place.
    pub(crate) fn filled(fill: impl FnOnce(&mut [u8; SECRET_LEN])) -> Secret {
        let mut secret = Secret(Box::new([0; SECRET_LEN]));
        fill(&mut secret.0);
        secret
    }

    /// The same for a `fill` that may fail; the bytes written until then are wiped.
    pub(crate) fn try_filled<E>(
        fill: impl FnOnce(&mut [u8; SECRET_LEN]) -> Result<(), E>,
    ) -> Result<Secret, E> {
        let mut secret = Secret(Box::new([0; SECRET_LEN]));
        fill(&mut secret.0)?;
        Ok(secret)
    }

    /// A key derived from this one: BLAKE3's key derivation, with a context that has only this use. `parts` must have
    /// fixed lengths, or else two lists of them could be the same bytes.
    pub(crate) fn derive(&self, context: &str, parts: &[&[u8]]) -> Secret {
        let mut derivation = blake3::Hasher::new_derive_key(context);
        derivation.update(&self.0[..]);
        for part in parts {
            derivation.update(part);
        }
        let mut output = derivation.finalize_xof();
        let derived = Secret::filled(|bytes| output.fill(bytes));
        output.zeroize();
        derivation.zeroize();
        derived
    }

    /// The same key once more, for the ring of a clone.
    pub(crate) fn twin(&self) -> Secret {
        Secret::filled(|bytes| bytes.copy_from_slice(self.expose()))
    }

    /// The key itself, for passing it to a key service.
    pub fn expose(&self) -> &[u8; SECRET_LEN] {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    /// Shows nothing of the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_does_not_show_the_key() {
        let secret = Secret::take(&mut [0x5a; SECRET_LEN]);
        assert_eq!(format!("{secret:?} {secret:#?}"), "Secret(..) Secret(..)");
    }

    #[test]
    fn what_a_key_was_taken_from_is_wiped() {
        let mut bytes = [7; SECRET_LEN];
        let secret = Secret::take(&mut bytes);
        assert_eq!(bytes, [0; SECRET_LEN]);
        assert_eq!(secret.expose(), &[7; SECRET_LEN]);
    }

    #[test]
    fn derived_keys_differ_by_key_context_and_parts() {
        let derive = |key: u8, context: &str, part: &[u8]| {
            *Secret::take(&mut [key; SECRET_LEN])
                .derive(context, &[part])
                .expose()
        };
        let one = derive(1, "forebay test one", b"part");
        assert_eq!(one, derive(1, "forebay test one", b"part"));
        assert_ne!(one, derive(2, "forebay test one", b"part"));
        assert_ne!(one, derive(1, "forebay test two", b"part"));
        assert_ne!(one, derive(1, "forebay test one", b"trap"));
    }
}
