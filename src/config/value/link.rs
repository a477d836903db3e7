//! Limits on the link to the bucket: rates, by hours of the day.

use forebay_object::{Hours, LinkLimit};

use super::{Size, Value, Written};

/// Rates separated by commas: one for all times, and others with hours in front, during which they apply.
impl Value for LinkLimit {
    const KIND: &'static str = "rates";
    const EXAMPLE: &'static str =
        "none, or a rate such as 50MiB/s, or rates by hours such as 100MiB/s,08:00-18:00 10MiB/s";
    const IS_LIST: bool = true;

    fn read(text: &str) -> Result<Self, String> {
        let mut limit = LinkLimit::default();
        let mut otherwise = None;
        for entry in text.split(',').map(str::trim) {
            let Some((hours, rate)) = entry.split_once(char::is_whitespace) else {
                if otherwise.replace(read_rate(entry)?).is_some() {
                    return Err("there are two rates without hours".to_owned());
                }
                continue;
            };
            let (from, until) = read_hours(hours)?;
            let rate = read_rate(rate.trim())?;
            let hours = Hours { from, until, rate };
            if let Some(other) = limit.hours.iter().find(|other| hours.overlap(other)) {
                let (hours, other) = (write_hours(&hours), write_hours(other));
                return Err(format!("{other} and {hours} overlap"));
            }
            limit.hours.push(hours);
        }
        limit.otherwise = otherwise.flatten();
        limit.hours.sort_by_key(|hours| hours.from);
        Ok(limit)
    }

    fn write(&self) -> Written {
        let hours = self.hours.iter().map(|hours| {
            let rate = write_rate(hours.rate);
            format!("{} {rate}", write_hours(hours))
        });
        let otherwise = match self.otherwise {
            None if !self.hours.is_empty() => None,
            rate => Some(write_rate(rate)),
        };
        Written::List(otherwise.into_iter().chain(hours).collect())
    }
}

fn read_rate(text: &str) -> Result<Option<u64>, String> {
    if text == "none" {
        return Ok(None);
    }
    let Some(bytes) = text.strip_suffix("/s") else {
        return Err(match text {
            "" => "an empty entry means nothing".to_owned(),
            _ => format!("`{text}` is no rate: it is a size and `/s`, as in 10MiB/s"),
        });
    };
    let bytes = Size::read(bytes).map_err(|error| format!("`{text}`: {error}"))?;
    let lowest = Size::from_bytes(LinkLimit::LOWEST);
    if bytes < lowest {
        return Err(format!("`{text}` is too slow: {lowest}/s is the least"));
    }
    Ok(Some(bytes.bytes()))
}

fn write_rate(rate: Option<u64>) -> String {
    match rate {
        None => "none".to_owned(),
        Some(rate) => format!("{}/s", Size::from_bytes(rate)),
    }
}

/// `08:00-18:00`, as minutes of the day.
fn read_hours(text: &str) -> Result<(u16, u16), String> {
    let hours = text.split_once('-').and_then(|(from, until)| {
        let (from, until) = (read_time(from)?, read_time(until)?);
        // The day may end at 24:00, but not begin.
        (from < DAY).then_some((from, until))
    });
    match hours {
        None => Err(format!("`{text}` are no hours, as in 08:00-18:00")),
        Some((from, until)) if from == until => {
            Err(format!("{text} are no hours: they end where they begin"))
        }
        Some(hours) => Ok(hours),
    }
}

const DAY: u16 = 24 * 60;

fn read_time(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let is_number = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(hour) || !is_number(minute) {
        return None;
    }
    let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
    let time = hour * 60 + minute;
    (minute < 60 && time <= DAY).then_some(time)
}

fn write_hours(hours: &Hours) -> String {
    let time = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
    format!("{}-{}", time(hours.from), time(hours.until))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_rate_holds_always_or_in_its_hours() {
        let read = |text| LinkLimit::read(text).unwrap();
        assert!(read("none").is_none());
        assert_eq!(read("50MiB/s").otherwise, Some(50 * MIB));
        let by_hours = read(" 22:00-06:00 none , 100MiB/s, 08:00-18:00  10MB/s ");
        assert_eq!(by_hours.otherwise, Some(100 * MIB));
        let hours = |from, until, rate| Hours { from, until, rate };
        let sorted = [hours(480, 1080, Some(10_000_000)), hours(1320, 360, None)];
        assert_eq!(by_hours.hours, sorted);
        let evening = read("18:00-24:00 1MiB/s");
        assert_eq!(evening.otherwise, None);
        assert_eq!(evening.hours, [hours(1080, 1440, Some(MIB))]);
    }

    #[test]
    fn limits_are_written_so_that_they_read_back() {
        for text in [
            "none",
            "50MiB/s",
            "100MiB/s,08:00-18:00 10MB/s,22:00-06:00 none",
            "00:00-24:00 64KiB/s",
        ] {
            let limit = LinkLimit::read(text).unwrap();
            assert_eq!(limit.write().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_limit_is_refused_and_says_why() {
        for (text, why) in [
            ("", "empty"),
            ("50MiB/s,", "empty"),
            ("50MiB", "a size and `/s`"),
            ("50Mbit/s", "not a size"),
            ("0/s", "too slow: 64KiB/s"),
            ("1KiB/s", "too slow"),
            ("1MiB/s,2MiB/s", "two rates"),
            ("none,2MiB/s", "two rates"),
            ("8:00-18:00 1MiB/s", "no hours"),
            ("08:00 1MiB/s", "no hours"),
            ("08:00-24:01 1MiB/s", "no hours"),
            ("24:00-08:00 1MiB/s", "no hours"),
            ("08:60-09:00 1MiB/s", "no hours"),
            ("-1:00-09:00 1MiB/s", "no hours"),
            ("08:00-08:00 1MiB/s", "end where they begin"),
            (
                "08:00-18:00 1MiB/s,17:00-19:00 2MiB/s",
                "08:00-18:00 and 17:00-19:00 overlap",
            ),
            ("08:00-18:00 fast", "`fast` is no rate"),
        ] {
            let error = LinkLimit::read(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
