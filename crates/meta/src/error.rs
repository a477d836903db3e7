//! Errors of the metadata, sorted by what the caller can do about them.

use std::fmt;

/// Bytes that should be a key or a value of this schema and are not. No part of them is used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the metadata entry {key} is damaged: it {why}; use an undamaged copy of the bucket, or salvage"
)]
pub struct Corrupt {
    /// The key, as [`DisplayKey`] shows it.
    pub key: DisplayKey,
    /// The defect, as a text that follows "it".
    pub why: &'static str,
}

impl Corrupt {
    pub(crate) fn new(key: &[u8], why: &'static str) -> Corrupt {
        Corrupt {
            key: DisplayKey(key.to_vec()),
            why,
        }
    }
}

/// Shows an encoded key for people: its letter, and the rest in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisplayKey(pub Vec<u8>);

impl fmt::Display for DisplayKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((tag, rest)) = self.0.split_first() else {
            return f.write_str("(empty)");
        };
        if tag.is_ascii_graphic() {
            write!(f, "{}:", char::from(*tag))?;
        } else {
            write!(f, "{tag:02x}:")?;
        }
        rest.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Why the metadata store did not carry out a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another gateway has opened the volume for writing. Stop writing at once: no later call on
    /// this store can succeed, and nothing of the failed batch has been written.
    #[error(
        "another gateway has taken over this volume; stop this one, or take the volume back by starting it again"
    )]
    Fenced,
    /// The bucket did not answer, or answered with an error. Try the same call again, with an
    /// unchanged batch: whether or not an earlier attempt has stored it, it is stored once when a
    /// later attempt succeeds.
    #[error("the bucket is not available for metadata, the call can be repeated: {0}")]
    Transient(String),
    /// The bucket holds other bytes than were written there. Fail the operation that needed them;
    /// repeating it does not help.
    #[error("{0}")]
    Corrupt(String),
    /// Objects that the store consists of are missing from the bucket: they were deleted from outside. Do not rely on
    /// the bucket for any data before the call succeeds, which it does once the objects are put back.
    #[error("{0}")]
    Gone(String),
    /// Neither a repetition nor waiting helps: stop the volume and show this to the operator.
    #[error("the metadata store failed: {0}")]
    Fatal(String),
}

impl From<Corrupt> for StoreError {
    fn from(corrupt: Corrupt) -> Self {
        StoreError::Corrupt(corrupt.to_string())
    }
}
