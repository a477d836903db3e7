//! Limits in bytes per second for one direction, by the time of day.

/// Minutes of a day.
const DAY: u16 = 24 * 60;

/// Some hours of the day, every day, and the rate that applies in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours {
    /// Minute of the day at which they begin, 0 to 1439.
    pub from: u16,
    /// Minute of the day at which they end, 0 to 1440; before `from` for hours that span midnight.
    pub until: u16,
    /// Bytes per second; `None` for no limit.
    pub rate: Option<u64>,
}

impl Hours {
    fn contain(&self, minute: u16) -> bool {
        if self.from < self.until {
            (self.from..self.until).contains(&minute)
        } else {
            minute >= self.from || minute < self.until
        }
    }

    /// Whether some minute is in both.
    pub fn overlap(&self, other: &Hours) -> bool {
        (0..DAY).any(|minute| self.contain(minute) && other.contain(minute))
    }
}

/// The limit of one direction of the link. The default is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkLimit {
    /// Bytes per second at all times outside `hours`; `None` for no limit.
    pub otherwise: Option<u64>,
    /// Times of the day with a rate of their own; of several that contain a minute the first applies.
    pub hours: Vec<Hours>,
}

impl LinkLimit {
    /// The lowest useful rate: one piece of a body per second.
    pub const LOWEST: u64 = 64 << 10;

    /// Whether there is never a limit.
    pub fn is_none(&self) -> bool {
        self.otherwise.is_none() && self.hours.iter().all(|hours| hours.rate.is_none())
    }

    /// Bytes per second in this minute of the day, [`LinkLimit::LOWEST`] or more; `None` for no limit.
    pub(super) fn rate_at(&self, minute: u16) -> Option<u64> {
        let hours = self.hours.iter().find(|hours| hours.contain(minute));
        let rate = hours.map_or(self.otherwise, |hours| hours.rate);
        rate.map(|rate| rate.max(LinkLimit::LOWEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn hours(from: u16, until: u16, rate: Option<u64>) -> Hours {
        Hours { from, until, rate }
    }

    #[test]
    fn hours_have_their_rate_and_may_go_over_midnight() {
        let limit = LinkLimit {
            otherwise: Some(100 * MIB),
            hours: vec![
                hours(8 * 60, 18 * 60, Some(10 * MIB)),
                hours(22 * 60, 6 * 60, None),
            ],
        };
        for (minute, rate) in [
            (8 * 60 - 1, Some(100 * MIB)),
            (8 * 60, Some(10 * MIB)),
            (18 * 60 - 1, Some(10 * MIB)),
            (18 * 60, Some(100 * MIB)),
            (22 * 60, None),
            (0, None),
            (6 * 60, Some(100 * MIB)),
        ] {
            assert_eq!(limit.rate_at(minute), rate, "{minute}");
        }
        assert!(!limit.is_none());
        assert!(LinkLimit::default().is_none());
    }

    #[test]
    fn a_rate_that_would_stop_everything_is_the_lowest_one() {
        let limit = LinkLimit {
            otherwise: Some(0),
            hours: Vec::new(),
        };
        assert_eq!(limit.rate_at(0), Some(LinkLimit::LOWEST));
    }

    #[test]
    fn hours_that_share_a_minute_overlap() {
        let day = hours(8 * 60, 18 * 60, None);
        let night = hours(22 * 60, 8 * 60, None);
        assert!(!day.overlap(&night) && !night.overlap(&day));
        assert!(night.overlap(&hours(7 * 60, 9 * 60, None)));
        assert!(day.overlap(&hours(0, DAY, None)));
    }
}
