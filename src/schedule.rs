//! Snapshots by a schedule: made at fixed times of the day in UTC, and deleted when newer ones have taken their place.
//!
//! ```text
//!   plan    what to make and to delete now, and when the next one is due; knows no clock and no volume
//!   keeper  does it, once a minute at least, and says what fails
//! ```

mod keeper;
mod plan;

use std::fmt;

pub(crate) use keeper::Keeper;
pub(crate) use plan::made_by_user;
use plan::{Known, MADE_BY};

// In seconds.
const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const WEEK: i64 = 7 * DAY;

/// Monday, 1970-01-05, 00:00 UTC: weeks are counted from there.
const MONDAY: i64 = 4 * DAY;

/// One snapshot in each period of `every` seconds, of which the newest `keep` are kept.
///
/// Periods begin at multiples of `every` since 1970 in UTC, so that those of a day begin at midnight; those of whole
/// weeks begin on a Monday.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    every: i64,
    keep: usize,
}

impl Schedule {
    /// The shortest and the longest period, in seconds.
    pub(crate) const EVERY: (i64, i64) = (MINUTE, 366 * DAY);
    /// The least and the most snapshots of one schedule.
    pub(crate) const KEEP: (usize, usize) = (1, 1024);
    /// The most snapshots of all schedules. A volume may have 1,024: the rest is for those that are made by hand.
    pub(crate) const KEEP_ALL: usize = 1000;

    /// One snapshot in each period of this many seconds, and how many of them are kept. `None` if the period is not of
    /// whole minutes, or a number is out of bounds.
    pub(crate) fn new(every: i64, keep: usize) -> Option<Schedule> {
        let (shortest, longest) = Schedule::EVERY;
        let (least, most) = Schedule::KEEP;
        let is_one = (shortest..=longest).contains(&every)
            && every % MINUTE == 0
            && (least..=most).contains(&keep);
        is_one.then_some(Schedule { every, keep })
    }

    /// Seconds of one period.
    pub(crate) fn every(self) -> i64 {
        self.every
    }

    /// How many snapshots are kept.
    pub(crate) fn keep(self) -> usize {
        self.keep
    }

    /// The beginning of the period in which `time` lies, both in seconds since 1970.
    fn begin(self, time: i64) -> i64 {
        let origin = if self.every % WEEK == 0 { MONDAY } else { 0 };
        time - (time - origin).rem_euclid(self.every)
    }

    /// The beginning of the next period.
    fn next(self, time: i64) -> i64 {
        self.begin(time) + self.every
    }
}

/// In the form of the configuration: `15m x 8`.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(DAY, "d"), (HOUR, "h"), (MINUTE, "m")];
        let whole = units.iter().find(|(unit, _)| self.every % unit == 0);
        let (unit, letter) = whole.unwrap_or(&(1, "s"));
        write!(f, "{}{letter} x {}", self.every / unit, self.keep)
    }
}
