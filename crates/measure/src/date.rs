//! The date of a measurement.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY_SECONDS: u64 = 24 * 60 * 60;
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Today, in UTC, such as "3 November 2026".
pub(crate) fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    written(since.map_or(0, |since| since.as_secs()) / DAY_SECONDS)
}

/// The day `days` days after 1 January 1970, in the Gregorian calendar.
fn written(days: u64) -> String {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let (mut year, mut left) = (1970, days);
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if left < length {
            break;
        }
        left -= length;
        year += 1;
    }
    for (index, month) in MONTHS.iter().enumerate() {
        let length = match index {
            1 if is_leap(year) => 29,
            1 => 28,
            3 | 5 | 8 | 10 => 30,
            _ => 31,
        };
        if left < length {
            return format!("{} {month} {year}", left + 1);
        }
        left -= length;
    }
    unreachable!("a year has no more days than its months")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates_of_the_calendar() {
        // As `date -u -d @SECONDS` prints them.
        for (seconds, date) in [
            (0, "1 January 1970"),
            (951_782_400, "29 February 2000"),
            (951_868_800, "1 March 2000"),
            (1_798_675_200, "31 December 2026"),
            (1_798_761_600, "1 January 2027"),
            (4_107_542_400, "1 March 2100"),
        ] {
            assert_eq!(written(seconds / DAY_SECONDS), date);
        }
    }
}
