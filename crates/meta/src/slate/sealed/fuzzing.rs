//! Sealed objects without a store, for the fuzz targets.

use std::ops::Range;

use bytes::Bytes;
use object_store::GetRange;

use super::Sealing;
use super::chunks::{Arrived, ObjectSealer};
use super::layout;

/// The part of an object that a store returned.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// Bytes of the whole object.
    pub stored: u64,
    /// Offset of the bytes in it.
    pub start: u64,
    /// Some of them.
    pub bytes: Bytes,
}

/// Seals an object of this name below `meta/`, as the bucket stores it.
pub fn seal_object(sealing: &Sealing, name: &str, plain: &[u8]) -> Vec<u8> {
    let mut sealer = ObjectSealer::new(sealing, name);
    sealer.add(&Bytes::copy_from_slice(plain).into());
    sealer.finish()
}

/// The range to request from a store for a range of plain bytes; `None` if no object has it.
pub fn stored_range(range: &GetRange) -> Option<GetRange> {
    layout::stored_range(range)
}

/// The plain bytes of a range, or of the whole object, and the range that they cover.
///
/// # Errors
/// The difference from the object that was sealed under this name.
pub fn open_object(
    sealing: &Sealing,
    name: &str,
    fetched: Fetched,
    range: Option<&GetRange>,
) -> Result<(Range<u64>, Bytes), String> {
    let arrived = Arrived {
        stored: fetched.stored,
        start: fetched.start,
        bytes: fetched.bytes,
    };
    let opened = arrived.open(sealing, name, range);
    let (range, _, bytes) = opened.map_err(|flaw| flaw.to_string())?;
    Ok((range, bytes))
}
