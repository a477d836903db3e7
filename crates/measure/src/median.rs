//! The median of several values, and their spread.

/// A median and the quartiles around it. All three are measured values, never means of two. They are NaN if there are
/// no values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Median {
    /// The middle value; of an even number of values the lower one of the two in the middle.
    pub value: f64,
    /// The lower quartile: a quarter of the values is at most this.
    pub low: f64,
    /// The upper quartile: a quarter of the values is at least this.
    pub high: f64,
}

impl Median {
    /// The median of these values, in any order.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Median {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let last = values.len().saturating_sub(1);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        Median {
            value: at(last / 2),
            low: at(last / 4),
            high: at((last * 3).div_ceil(4)),
        }
    }

    /// The median after applying a falling function, such as a rate as a function of a time.
    pub fn reversed(self, of: impl Fn(f64) -> f64) -> Median {
        Median {
            value: of(self.value),
            low: of(self.high),
            high: of(self.low),
        }
    }

    /// The median after applying a rising function.
    pub fn map(self, of: impl Fn(f64) -> f64) -> Median {
        Median {
            value: of(self.value),
            low: of(self.low),
            high: of(self.high),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(values: &[f64]) -> (f64, f64, f64) {
        let median = Median::of(values.iter().copied());
        (median.low, median.value, median.high)
    }

    #[test]
    fn the_middle_and_the_quartiles_do_not_depend_on_the_order() {
        assert_eq!(
            parts(&[9.0, 1.0, 5.0, 3.0, 7.0, 2.0, 8.0, 4.0, 6.0]),
            (3.0, 5.0, 7.0)
        );
        assert_eq!(parts(&[5.0, 1.0, 4.0, 2.0, 3.0]), (2.0, 3.0, 4.0));
    }

    #[test]
    fn few_values_have_quartiles_among_themselves() {
        assert_eq!(parts(&[4.0]), (4.0, 4.0, 4.0));
        assert_eq!(parts(&[2.0, 1.0]), (1.0, 1.0, 2.0));
        assert_eq!(parts(&[3.0, 1.0, 2.0]), (1.0, 2.0, 3.0));
    }

    #[test]
    fn one_value_out_of_line_moves_neither_median_nor_quartile() {
        assert_eq!(parts(&[1.0, 2.0, 3.0, 4.0, 1e9]), (2.0, 3.0, 4.0));
    }

    #[test]
    fn nothing_measured_is_not_a_number() {
        let none = Median::of([]);
        assert!(none.value.is_nan() && none.low.is_nan() && none.high.is_nan());
    }

    #[test]
    fn a_rate_has_the_quartiles_of_its_time_the_other_way_round() {
        let time = Median::of([1.0, 2.0, 4.0]);
        let rate = time.reversed(|time| 8.0 / time);
        assert_eq!((rate.low, rate.value, rate.high), (2.0, 4.0, 8.0));
        let double = time.map(|time| 2.0 * time);
        assert_eq!((double.low, double.value, double.high), (2.0, 4.0, 8.0));
    }
}
