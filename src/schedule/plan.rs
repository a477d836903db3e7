//! What to make and to delete at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use super::{MINUTE, Schedule};
use crate::admin::utc;

/// The maker of a scheduled snapshot, in the list of snapshots.
pub(super) const MADE_BY: &str = "schedule";

/// The maker of a snapshot for which this user asks: never the schedule, whose snapshots expire.
pub(crate) fn made_by_user(user: String) -> String {
    match user.as_str() {
        MADE_BY => format!("user {user}"),
        _ => user,
    }
}

/// Begins the name of a scheduled snapshot; its time in UTC follows.
const PREFIX: &str = "auto-";

/// A snapshot of the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) name: String,
    pub(super) made_by: String,
    /// Whether the bucket has it. Others cannot be deleted.
    pub(super) is_published: bool,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The name of the snapshot to make.
    pub(super) make: Option<String>,
    /// The names of those that no schedule keeps, the oldest first.
    pub(super) delete: Vec<String>,
    /// When the next one is due, in seconds since 1970; `None` without schedules.
    pub(super) next: Option<i64>,
}

/// The time in the name of a scheduled snapshot; `None` if it has another name.
fn time_of(name: &str) -> Option<i64> {
    let time = humantime::parse_rfc3339(name.strip_prefix(PREFIX)?).ok()?;
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let seconds = i64::try_from(since.as_secs()).ok()?;
    (since == Duration::from_secs(since.as_secs()) && name_at(seconds) == name).then_some(seconds)
}

fn name_at(seconds: i64) -> String {
    format!("{PREFIX}{}", utc(seconds))
}

/// The work that is due at `now`, in seconds since 1970, in a volume with these snapshots.
///
/// * A period of a schedule has its snapshot as soon as a scheduled one has a time in it: so one serves all schedules, a
///   period that passed without one is not made up for, and a clock that is set back makes none twice.
/// * Of each period the first one counts, and each schedule keeps those of its newest periods that have one. Only
///   snapshots in the bucket take the place of others, and only they are deleted.
/// * One whose time is still to come, because the clock was set back, takes no place and is kept until then.
/// * Those that a person has made count for nothing, and nothing is deleted without any schedule.
pub(super) fn plan(now: i64, schedules: &[Schedule], known: &[Known]) -> Plan {
    let scheduled = known.iter().filter(|one| one.made_by == MADE_BY);
    let scheduled = scheduled.filter_map(|one| Some((time_of(&one.name)?, one)));
    let scheduled: Vec<(i64, &Known)> = scheduled.collect();

    let is_due = |schedule: &&Schedule| {
        let begin = schedule.begin(now);
        let has_one = |(time, _): &(i64, &Known)| schedule.begin(*time) == begin;
        !scheduled.iter().any(has_one)
    };
    let due = schedules.iter().filter(is_due);
    let begin = due.map(|schedule| schedule.begin(now)).max();
    // On time, the name is exact. After a pause, it says when the snapshot was made.
    let time = begin.map(|begin| if now - begin < MINUTE { begin } else { now });
    let name = time.map(name_at);
    // A person may have taken the name.
    let make = name.filter(|name| !known.iter().any(|one| one.name == *name));

    let candidates = scheduled
        .iter()
        .filter(|(time, one)| one.is_published && *time <= now);
    let candidates: BTreeMap<i64, &str> = candidates
        .map(|(time, one)| (*time, one.name.as_str()))
        .collect();
    let mut kept = BTreeSet::new();
    for schedule in schedules {
        let mut first = BTreeMap::new();
        for time in candidates.keys() {
            first.entry(schedule.begin(*time)).or_insert(*time);
        }
        kept.extend(first.into_values().rev().take(schedule.keep()));
    }
    let expired = candidates.iter().filter(|(time, _)| !kept.contains(*time));
    let delete = match schedules {
        [] => Vec::new(),
        _ => expired.map(|(_, name)| (*name).to_owned()).collect(),
    };
    Plan {
        make,
        delete,
        next: schedules.iter().map(|schedule| schedule.next(now)).min(),
    }
}

#[cfg(test)]
mod tests;
