//! Fixed-width fields at fixed offsets, for reading and writing all layouts of this crate.

/// The `N` bytes from `at` on; `None` if `bytes` ends before them.
pub(crate) fn take<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// The little-endian number at `at`.
pub(crate) fn take_u16(bytes: &[u8], at: usize) -> Option<u16> {
    take(bytes, at).map(u16::from_le_bytes)
}

/// The little-endian number at `at`.
pub(crate) fn take_u32(bytes: &[u8], at: usize) -> Option<u32> {
    take(bytes, at).map(u32::from_le_bytes)
}

/// The little-endian number at `at`.
pub(crate) fn take_u64(bytes: &[u8], at: usize) -> Option<u64> {
    take(bytes, at).map(u64::from_le_bytes)
}

/// Writes a field into a layout whose size is known at compile time.
pub(crate) fn put<const N: usize>(layout: &mut [u8], at: usize, field: [u8; N]) {
    layout[at..at + N].copy_from_slice(&field);
}
