//! Private readers and writers of this crate, exposed for the fuzz targets.

use object_store::path::Path;

pub use object_store::GetRange;

pub use crate::slate::sealed_objects::{Fetched, open_object, seal_object, stored_range};
pub use crate::slate::trailers::{with_trailer, without_trailer};

use crate::VolumeDescriptor;
use crate::volume::VolumeError;

/// Decodes a descriptor.
pub fn read_descriptor(bytes: &[u8]) -> Result<VolumeDescriptor, VolumeError> {
    VolumeDescriptor::decode(&Path::from("volume"), bytes)
}

/// Encodes a descriptor.
pub fn write_descriptor(descriptor: &VolumeDescriptor) -> Vec<u8> {
    descriptor.encode()
}
