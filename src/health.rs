//! The health of a gateway in one word: healthy, degraded or failing.
//!
//! ```text
//! failing    it takes no changes: the volume has stopped, or the log refuses writes
//! degraded   it serves, but an operator has to act: the bucket is unreachable, the log is nearly full or has
//!            no disk, clients wait, bytes are lost
//! healthy    everything else
//! ```
//!
//! [`Health::of`] decides this from the state of the volume and the waits of clients, and does nothing else.
//! `docs/operations.md` has the remedy for each problem.

use std::fmt;
use std::time::Duration;

use bytesize::ByteSize;
use forebay_fs::{Status, Stopped};
use serde::{Deserialize, Serialize};

/// Percentage of `log_limit` from which on the log is nearly full.
const LOG_NEARLY_FULL_PERCENT: u64 = 90;

/// The health of a gateway, or of a part of it. Later ones are worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// All is well.
    Healthy,
    /// It serves, but less well than it should, now or soon.
    Degraded,
    /// It serves nothing, or takes no changes.
    Failing,
}

impl State {
    /// Exit code of `forebay status --check`.
    pub fn code(self) -> u8 {
        match self {
            State::Healthy => 0,
            State::Degraded => 1,
            State::Failing => 2,
        }
    }

    /// As it is printed.
    pub fn word(self) -> &'static str {
        match self {
            State::Healthy => "healthy",
            State::Degraded => "degraded",
            State::Failing => "failing",
        }
    }
}

/// A reason for not being healthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Its severity.
    pub state: State,
    /// Its name for programs; a heading of `docs/operations.md`.
    pub name: String,
    /// The problem, on one line.
    pub message: String,
}

impl Problem {
    /// A problem with this name.
    pub fn new(state: State, name: &str, message: String) -> Problem {
        Problem {
            state,
            name: name.to_owned(),
            message,
        }
    }
}

/// The health of a gateway, with the reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// The worst state of all problems.
    pub state: State,
    /// The problems, the worst first.
    pub problems: Vec<Problem>,
}

impl Health {
    /// Judges a gateway by the state of its volume and by `waits`, the reported waits of its clients.
    pub fn of(volume: &Status, waits: Vec<Problem>) -> Health {
        let mut problems = of_volume(volume);
        problems.extend(waits);
        Health::with(problems)
    }

    /// The health of a gateway with these problems.
    pub fn with(mut problems: Vec<Problem>) -> Health {
        // Stable sort: problems of the same state keep their order.
        problems.sort_by_key(|problem| std::cmp::Reverse(problem.state));
        let state = problems
            .first()
            .map_or(State::Healthy, |problem| problem.state);
        Health { state, problems }
    }
}

/// One line: the state and the problems.
impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let messages: Vec<_> = self.problems.iter().map(|one| &one.message[..]).collect();
        match messages.is_empty() {
            true => f.write_str(self.state.word()),
            false => write!(f, "{}: {}", self.state.word(), messages.join("; ")),
        }
    }
}

/// Intervals that a checkpoint may take longer than the two that it needs.
const LATE_INTERVALS: u32 = 12;

/// The age of the oldest unpublished change above which the bucket is behind. A checkpoint collects changes for one
/// interval and is published during the next one. Large ones take longer: 12 intervals, of which at least 5 s, and at
/// most a minute, are tolerated.
fn behind(volume: &Status) -> Duration {
    let interval = volume.checkpoint_interval;
    let late = interval.saturating_mul(LATE_INTERVALS);
    interval * 2 + late.clamp(Duration::from_secs(5), Duration::from_secs(60))
}

fn size(bytes: u64) -> String {
    ByteSize::b(bytes).display().iec().to_string()
}

/// The problems that the state of the volume shows.
pub fn of_volume(volume: &Status) -> Vec<Problem> {
    let (degraded, failing) = (State::Degraded, State::Failing);
    let mut problems = Vec::new();
    let mut problem = |state, name, message| problems.push(Problem::new(state, name, message));
    match &volume.stopped {
        Some(Stopped::Fenced) => problem(failing, "fenced", Stopped::Fenced.to_string()),
        Some(stopped) => problem(failing, "stopped", stopped.to_string()),
        None => {}
    }
    match &volume.log_trouble {
        Some((why, Some(_))) => {
            let message = format!("the log has failed and writes are refused: {why}");
            problem(failing, "log_failed", message);
        }
        Some((why, None)) => {
            let message = format!("the log cannot create a further segment on its disk: {why}");
            problem(degraded, "log_disk_full", message);
        }
        None => {}
    }
    if let Some((what, _)) = &volume.gone {
        let message = format!("{what}; publishing stops until it is back");
        problem(failing, "objects_gone", message);
    } else if let Some((why, _)) = &volume.store_trouble {
        let message = format!("the bucket does not answer: {why}");
        problem(degraded, "bucket_away", message);
    } else if let Some(age) = volume
        .oldest_unpublished
        .filter(|age| *age > behind(volume))
    {
        let age = humantime::format_duration(Duration::from_secs(age.as_secs()));
        let interval = humantime::format_duration(volume.checkpoint_interval);
        let left = match volume.time_to_publish() {
            Some(left) => format!(
                "it takes {} of the log a second, and needs {} for the {} that it lacks",
                size(volume.publication_rate.unwrap_or(0)),
                humantime::format_duration(left),
                size(volume.unpublished_bytes()),
            ),
            None => "it has taken nothing lately".to_owned(),
        };
        let message = format!(
            "the bucket is {age} behind, with a checkpoint_interval of {interval}: it is slower than the writers; {left}"
        );
        problem(degraded, "bucket_behind", message);
    }
    if let Some((used, limit)) = volume.log
        && used.saturating_mul(100) >= limit.saturating_mul(LOG_NEARLY_FULL_PERCENT)
    {
        let (used, limit) = (size(used), size(limit));
        let message = format!(
            "the log is nearly full: {used} of {limit}; writers are slowed, or wait until the bucket has taken more"
        );
        problem(degraded, "log_nearly_full", message);
    }
    if volume.damaged_frames > 0 {
        let message = format!(
            "{} frames in the bucket have lost bytes",
            volume.damaged_frames
        );
        problem(degraded, "bytes_lost", message);
    }
    if volume.disk_cache.as_ref().is_some_and(|cache| cache.failed) {
        let message = "the disk cache has failed and is not used".to_owned();
        problem(degraded, "disk_cache_failed", message);
    }
    problems
}

#[cfg(test)]
pub(crate) mod tests;
