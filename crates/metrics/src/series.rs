//! The series 1, 2, 5, 10, 20, 50, ..., which bounds the buckets of all histograms.

/// Number of bounds: from 1 to 5 * 10^17.
const BOUNDS: usize = 54;

/// The series, ascending.
const SERIES: [u64; BOUNDS] = series();

/// For each power of two, the index of the first bound that is not below it. Between two powers of two lies at most one
/// bound, because each bound is at least twice the one before.
const FIRST: [u8; 64] = first();

const fn series() -> [u64; BOUNDS] {
    let mut series = [0; BOUNDS];
    let (mut power, mut index) = (1, 0);
    while index < BOUNDS {
        series[index] = match index % 3 {
            0 => power,
            1 => 2 * power,
            _ => 5 * power,
        };
        if index % 3 == 2 {
            power *= 10;
        }
        index += 1;
    }
    series
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "there are fewer than 256 bounds"
)]
const fn first() -> [u8; 64] {
    let mut first = [0; 64];
    let (mut exponent, mut index) = (0, 0);
    while exponent < 64 {
        while index < BOUNDS - 1 && SERIES[index] < 1 << exponent {
            index += 1;
        }
        first[exponent] = index as u8;
        exponent += 1;
    }
    first
}

/// The bound with this index.
pub(crate) const fn bound(index: usize) -> u64 {
    SERIES[if index < BOUNDS { index } else { BOUNDS - 1 }]
}

/// The index of the smallest bound that is not below `value`; that of the last bound, or one more, if there is none.
#[inline]
pub(crate) fn index_of(value: u64) -> usize {
    // The highest bit that is set, 0 for 0.
    let exponent = (value | 1).ilog2() as usize;
    let first = usize::from(FIRST[exponent & 63]);
    first + usize::from(value > SERIES[first.min(BOUNDS - 1)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bounds_and_their_neighbours() {
        assert_eq!(SERIES[..7], [1, 2, 5, 10, 20, 50, 100]);
        for (index, bound) in SERIES.into_iter().enumerate() {
            assert_eq!(index_of(bound), index, "{bound}");
            assert_eq!(index_of(bound + 1), index + 1, "{bound} + 1");
        }
        assert_eq!(index_of(0), 0);
        assert_eq!(index_of(u64::MAX), BOUNDS);
    }

    proptest! {
        #[test]
        fn the_index_is_that_of_the_smallest_bound_not_below(value: u64, shift in 0_u32..64) {
            let value = value >> shift;
            let expected = SERIES.iter().take_while(|bound| **bound < value).count();
            prop_assert_eq!(index_of(value), expected);
        }
    }
}
