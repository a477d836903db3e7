//! Trailers without a store, for the fuzz targets.

use bytes::Bytes;
use object_store::path::Path;

/// An object of this name, which is no table, as it lies in the bucket.
pub fn with_trailer(name: &str, bytes: &Bytes) -> Vec<u8> {
    let stored = super::with_trailer(&Path::from(name), &bytes.clone().into());
    stored.iter().flatten().copied().collect()
}

/// The bytes before the trailer.
///
/// # Errors
/// Why it is not what was written under this name.
pub fn without_trailer(name: &str, stored: &Bytes) -> Result<Bytes, String> {
    super::opened(&Path::from(name), stored).map_err(|flaw| flaw.to_string())
}
