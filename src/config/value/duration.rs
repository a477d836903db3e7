//! Durations.

use std::time::Duration;

use humantime::DurationError;

use super::{Value, Written};

impl Value for Duration {
    const KIND: &'static str = "duration";
    const EXAMPLE: &'static str = "a duration such as 5s, 250ms or 1h30m";

    fn read(text: &str) -> Result<Self, String> {
        humantime::parse_duration(text.trim()).map_err(|error| match error {
            DurationError::UnknownUnit { unit, .. } if unit.is_empty() => "no unit".to_owned(),
            DurationError::UnknownUnit { unit, .. } => format!("`{unit}` is no unit of time"),
            DurationError::NumberOverflow => "too large or too fine".to_owned(),
            _ => "not a duration".to_owned(),
        })
    }

    fn write(&self) -> Written {
        Written::Text(
            humantime::format_duration(*self)
                .to_string()
                .replace(' ', ""),
        )
    }
}

/// The word for no duration.
const NONE: &str = "none";

/// A duration above 0; `None` if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaybeDuration(pub Option<Duration>);

impl Value for MaybeDuration {
    const KIND: &'static str = "duration";
    const EXAMPLE: &'static str = "none, or a duration such as 1s or 250ms";

    fn read(text: &str) -> Result<Self, String> {
        match text.trim() {
            NONE => Ok(MaybeDuration(None)),
            text => match Duration::read(text)? {
                Duration::ZERO => Err("it has to be above 0".to_owned()),
                duration => Ok(MaybeDuration(Some(duration))),
            },
        }
    }

    fn write(&self) -> Written {
        match self.0 {
            None => Written::Text(NONE.to_owned()),
            Some(duration) => duration.write(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_may_be_none_and_not_0() {
        assert_eq!(MaybeDuration::read("none"), Ok(MaybeDuration(None)));
        let second = MaybeDuration(Some(Duration::from_secs(1)));
        assert_eq!(MaybeDuration::read(" 1s"), Ok(second));
        assert!(MaybeDuration::read("0s").is_err());
        for value in [MaybeDuration(None), second] {
            assert_eq!(MaybeDuration::read(&value.write().to_string()), Ok(value));
        }
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, millis) in [
            ("5s", 5_000),
            ("250ms", 250),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("2min", 120_000),
            ("0s", 0),
            ("1s500ms", 1_500),
        ] {
            assert_eq!(
                Duration::read(text),
                Ok(Duration::from_millis(millis)),
                "{text}"
            );
        }
        assert_eq!(Duration::read("5"), Err("no unit".to_owned()));
        for text in ["", "s", "-5s", "5 parsecs", "5s!", "99999999999999999999s"] {
            assert!(Duration::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_written_so_that_they_read_back() {
        for (millis, text) in [
            (5_000, "5s"),
            (5_400_000, "1h30m"),
            (1_500, "1s500ms"),
            (0, "0s"),
        ] {
            let duration = Duration::from_millis(millis);
            assert_eq!(duration.write().to_string(), text);
            assert_eq!(Duration::read(text), Ok(duration));
        }
    }
}
