//! How many bytes a second may go one way, by the time of day.

/// Minutes of a day.
const DAY: u16 = 24 * 60;

/// Some hours of the day, every day, and the rate that holds in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours {
    /// Minute of the day in which they begin, 0 to 1439.
    pub from: u16,
    /// Minute of the day in which they are over, 0 to 1440; before `from` for hours that go over midnight.
    pub until: u16,
    /// Bytes per second; none for as many as there are.
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

    /// Whether there is a minute in both.
    pub fn overlap(&self, other: &Hours) -> bool {
        (0..DAY).any(|minute| self.contain(minute) && other.contain(minute))
    }
}

/// The limit of one way of the link. The default is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkLimit {
    /// Bytes per second at all times that `hours` do not name; none for as many as there are.
    pub otherwise: Option<u64>,
    /// Times of the day with a rate of their own; of several that contain a minute the first counts.
    pub hours: Vec<Hours>,
}

impl LinkLimit {
    /// The lowest rate that is of use: a piece of a body a second.
    pub const LOWEST: u64 = 64 << 10;

    /// Whether there is never a limit.
    pub fn is_none(&self) -> bool {
        self.otherwise.is_none() && self.hours.iter().all(|hours| hours.rate.is_none())
    }

    /// Bytes per second in this minute of the day, [`LinkLimit::LOWEST`] or more; none for as many as there are.
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
