//! Numbers in fewer bits.

const _: () = assert!(
    usize::BITS == 64,
    "Forebay needs a 64-bit target: lengths of 64 bits are lengths in memory"
);

/// The number as a length or place in memory. Every number fits: a `usize` has 64 bits.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a usize has 64 bits, asserted above"
)]
#[inline]
pub const fn to_usize(number: u64) -> usize {
    number as usize
}

/// The length or place in 32 bits. For numbers that the caller has bounded, never for those that a peer or a file names.
///
/// # Panics
///
/// In debug builds, if the number does not fit. Otherwise its upper bits are lost.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the caller has bounded the number"
)]
#[inline]
pub const fn bounded_u32(number: usize) -> u32 {
    debug_assert!(number <= u32::MAX as usize);
    number as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_numbers_fit() {
        assert_eq!(to_usize(u64::MAX), usize::MAX);
        assert_eq!(bounded_u32(0xffff_ffff), u32::MAX);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "number <= u32::MAX")]
    fn a_number_beyond_its_bound_stops_a_debug_build() {
        bounded_u32(1 << 32);
    }
}
