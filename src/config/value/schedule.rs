//! Schedules of snapshots.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Value, Written};
use crate::schedule::Schedule;

/// The word for no schedule.
const NONE: &str = "none";

/// Schedules with different periods; none is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedules(pub Vec<Schedule>);

impl Value for Schedules {
    const KIND: &'static str = "schedules";
    const EXAMPLE: &'static str =
        "none, or intervals with the number of snapshots to keep such as 15m x 8,1h x 24,1d x 30";
    const IS_LIST: bool = true;

    fn read(text: &str) -> Result<Self, String> {
        if text.trim() == NONE {
            return Ok(Schedules::default());
        }
        let all = text.split(',').map(read_one);
        let all: Vec<Schedule> = all.collect::<Result<_, _>>()?;
        let mut periods = BTreeSet::new();
        if let Some(twice) = all.iter().find(|one| !periods.insert(one.every())) {
            return Err(format!("`{twice}` has the interval of another one"));
        }
        let (most, kept) = (Schedule::KEEP_ALL, all.iter().map(|one| one.keep()).sum());
        match most.checked_sub(kept) {
            Some(_) => Ok(Schedules(all)),
            None => Err(format!(
                "they keep {kept} snapshots, and may keep {most} in all: a volume has 1024 at most"
            )),
        }
    }

    fn write(&self) -> Written {
        match self.0.is_empty() {
            true => Written::List(vec![NONE.to_owned()]),
            false => Written::List(self.0.iter().map(Schedule::to_string).collect()),
        }
    }
}

fn read_one(text: &str) -> Result<Schedule, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("an empty entry says nothing; `none` is no schedule".to_owned());
    }
    let Some((every, keep)) = text.rsplit_once('x') else {
        return Err(format!(
            "`{text}` does not say how many to keep; write it as `1h x 24`"
        ));
    };
    let period =
        Duration::read(every).map_err(|error| format!("`{text}`: the interval is {error}"))?;
    let (least, most) = Schedule::KEEP;
    let keep = keep.trim().parse().ok();
    let Some(keep) = keep.filter(|keep| (least..=most).contains(keep)) else {
        return Err(format!(
            "`{text}`: the number to keep has to be {least} to {most}"
        ));
    };
    let is_whole = period.subsec_nanos() == 0;
    let seconds = i64::try_from(period.as_secs()).ok().filter(|_| is_whole);
    seconds.and_then(|seconds| Schedule::new(seconds, keep)).ok_or_else(|| {
        format!("`{text}`: the interval has to be of whole minutes, 1m to 366d; write a month as 30d")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_intervals_and_counts() {
        let read = Schedules::read("15m x 8, 60m x24,1dx30,1w x 4").unwrap();
        assert_eq!(read.write().to_string(), "15m x 8,1h x 24,1d x 30,7d x 4");
        assert_eq!(Schedules::read(&read.write().to_string()), Ok(read));
        let all = Schedules::read("1m x 999,366d x 1").unwrap();
        assert_eq!(all.write().to_string(), "1m x 999,366d x 1");
        assert_eq!(Schedules::read(" none ").unwrap(), Schedules::default());
        assert_eq!(Schedules::default().write().to_string(), "none");
    }

    #[test]
    fn each_error_says_what_is_wrong() {
        for (text, why) in [
            ("", "an empty entry"),
            ("1h x 24,", "an empty entry"),
            ("1h", "does not say how many"),
            ("x 8", "`x 8`: the interval is not a duration"),
            ("15 x 8", "`15 x 8`: the interval is no unit"),
            ("15q x 8", "`q` is no unit of time"),
            ("1h x", "has to be 1 to 1024"),
            ("1h x 0", "has to be 1 to 1024"),
            ("1h x 1025", "has to be 1 to 1024"),
            ("1h x -1", "has to be 1 to 1024"),
            ("30s x 8", "whole minutes, 1m to 366d"),
            ("90s x 8", "whole minutes, 1m to 366d"),
            ("1month x 8", "write a month as 30d"),
            ("367d x 8", "whole minutes, 1m to 366d"),
            ("1m30ms x 8", "whole minutes, 1m to 366d"),
            ("1h x 8,60m x 9", "`1h x 9` has the interval of another one"),
            ("1h x 24,1d x 977", "they keep 1001 snapshots"),
        ] {
            let error = Schedules::read(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
