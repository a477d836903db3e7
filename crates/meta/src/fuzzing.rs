//! What only this crate reads and writes, for the fuzz targets.

use object_store::path::Path;

use crate::VolumeDescriptor;
use crate::volume::VolumeError;

/// The descriptor that these bytes are.
pub fn read_descriptor(bytes: &[u8]) -> Result<VolumeDescriptor, VolumeError> {
    VolumeDescriptor::decode(&Path::from("volume"), bytes)
}

/// The bytes of a descriptor.
pub fn write_descriptor(descriptor: &VolumeDescriptor) -> Vec<u8> {
    descriptor.encode()
}
