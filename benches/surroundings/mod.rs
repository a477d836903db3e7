//! What measurements work on: a folder in memory, and data.

use std::path::Path;

/// The folder for what needs no disk.
pub(crate) fn memory_folder() -> &'static Path {
    Path::new("/dev/shm")
}

/// Bytes that do not compress and that differ from seed to seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
