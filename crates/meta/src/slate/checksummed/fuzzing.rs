//! Trailers without a store, for the fuzz targets.

use bytes::Bytes;
use object_store::path::Path;

/// Encodes an object of this name that is not a table, as the bucket stores it.
pub fn with_trailer(name: &str, bytes: &Bytes) -> Vec<u8> {
    let stored = super::with_trailer(&Path::from(name), &bytes.clone().into());
    stored.iter().flatten().copied().collect()
}

/// Checks the trailer and returns the bytes before it.
///
/// # Errors
/// The difference from the object that was written under this name.
pub fn without_trailer(name: &str, stored: &Bytes) -> Result<Bytes, String> {
    super::opened(&Path::from(name), stored).map_err(|flaw| flaw.to_string())
}
