//! Formats of figures in tables.

use crate::Median;

/// A share: "12.3 %".
pub fn percent(ratio: Median) -> String {
    format!("{:.1} %", ratio.value * 100.0)
}

/// How many times as much, with quartiles: "1.20 (1.15 to 1.30)".
pub fn times(ratio: Median) -> String {
    spread(ratio, |value| format!("{value:.2}"))
}

/// Whole numbers with quartiles: "380 (355 to 406)".
pub fn whole(value: Median) -> String {
    spread(value, |value| format!("{value:.0}"))
}

/// Three digits, or all before the point if there are more, with quartiles: "3.19 (3.15 to 3.30)".
pub fn digits(value: Median) -> String {
    spread(value, three)
}

fn spread(median: Median, shown: impl Fn(f64) -> String) -> String {
    format!(
        "{} ({} to {})",
        shown(median.value),
        shown(median.low),
        shown(median.high)
    )
}

/// Three digits of a number, or all before the point if there are more.
pub fn three(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A line of a Markdown table.
pub fn line<C: AsRef<str>>(cells: impl IntoIterator<Item = C>) -> String {
    let mut line = String::from("|");
    for cell in cells {
        match cell.as_ref() {
            "" => line.push_str(" |"),
            cell => {
                line.push(' ');
                line.push_str(cell);
                line.push_str(" |");
            }
        }
    }
    line.push('\n');
    line
}

/// The head of a Markdown table, and the line below it.
pub fn head(cells: &[&str]) -> String {
    format!("{}|{}\n", line(cells), "---|".repeat(cells.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_their_spread() {
        let median = Median::of([0.149, 0.5, 0.75]);
        assert_eq!(percent(median), "50.0 %");
        assert_eq!(times(median), "0.50 (0.15 to 0.75)");
        assert_eq!(whole(median.map(|value| value * 1e3)), "500 (149 to 750)");
        assert_eq!(
            digits(median.map(|value| value * 50.0)),
            "25.0 (7.45 to 37.5)"
        );
    }

    #[test]
    fn three_digits_are_shown_and_none_before_the_point_is_lost() {
        for (value, shown) in [
            (0.5, "0.50"),
            (9.994, "9.99"),
            (9.996, "10.0"),
            (99.94, "99.9"),
            (99.96, "100"),
            (12_345.6, "12346"),
        ] {
            assert_eq!(three(value), shown);
        }
    }

    #[test]
    fn tables_are_markdown() {
        let table = head(&["", "ns"]) + &line(["write", ""]);
        assert_eq!(table, "| | ns |\n|---|---|\n| write | |\n");
    }
}
