//! Decides which messages to log about observations. Time comes in as an argument; nothing here reads a clock.
//!
//! ```text
//!            seen                  in as many looks as its manner requires
//!   (nothing) --> a period, unsaid ------------> said: "..."  --- every 5 min ---> "for 5m: ..."
//!       ^             | absent for 3 s               | absent for as long as its manner requires
//!       +-------------+------------------------------+  "ended after 6m: ..."
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use super::subjects::Counting;
use super::{Seen, Wait};
use crate::health::State;

/// The interval of messages about a period that goes on.
const AGAIN: Duration = Duration::from_secs(300);

/// How long a period that was not logged yet may be absent and still go on.
const UNSAID_GAP: Duration = Duration::from_secs(3);

/// The severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// It is over.
    Info,
    /// An operator should look.
    Warn,
    /// The gateway serves nothing, or takes no changes.
    Error,
}

/// A message that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Its severity.
    pub level: Level,
    /// The message, on one line.
    pub text: String,
}

/// The current periods, and the messages about them.
#[derive(Debug, Default)]
pub struct Watch {
    periods: BTreeMap<String, Period>,
    /// The total of each count at the last look.
    totals: BTreeMap<String, u64>,
}

#[derive(Debug)]
struct Period {
    /// As it was seen last.
    seen: Seen,
    since: Duration,
    /// When it was present last.
    last: Duration,
    /// In how many looks it was present.
    looks: u32,
    /// The total of its counts before it began.
    before: u64,
    /// When it was logged last.
    said: Option<Duration>,
}

impl Watch {
    /// Evaluates all observations, `now` after some beginning; returns the messages that are due.
    pub fn look(&mut self, now: Duration, all: Vec<Seen>) -> Vec<Notice> {
        let mut notices = Vec::new();
        for seen in all {
            let total = seen.counts.total;
            let before = self.totals.insert(seen.name.clone(), total);
            // Counts from before the first look are new as well.
            let before = before.unwrap_or(0);
            let is_there = match seen.manner.counting {
                _ if seen.stands => true,
                Counting::Waits => seen.counts.waiting > 0,
                Counting::Refusals => total > before,
                Counting::Others => false,
            };
            if !is_there {
                if let Some(period) = self.periods.get_mut(&seen.name) {
                    period.seen.counts = seen.counts;
                }
                continue;
            }
            let period = self.periods.entry(seen.name.clone()).or_insert(Period {
                seen: seen.clone(),
                since: now,
                last: now,
                looks: 0,
                before: before.min(total.saturating_sub(seen.counts.waiting)),
                said: None,
            });
            period.seen = seen;
            period.last = now;
            period.looks = period.looks.saturating_add(1);
            notices.extend(period.say(now));
        }
        self.periods.retain(|_, period| {
            let away = now.saturating_sub(period.last);
            let limit = match period.said {
                Some(_) => period.seen.manner.over,
                None => UNSAID_GAP,
            };
            let stays = away < limit || away.is_zero();
            if !stays {
                notices.extend(period.end());
            }
            stays
        });
        notices
    }

    /// The current waits and refusals that were reported, or are due to be.
    pub fn waits(&self, now: Duration) -> Vec<Wait> {
        let said = self.periods.values().filter(|period| period.said.is_some());
        let counted = said.filter(|period| period.seen.manner.counting != Counting::Others);
        counted
            .map(|period| Wait {
                name: period.seen.name.clone(),
                message: format!("{}; {}", period.seen.what, period.counted()),
                for_seconds: now.saturating_sub(period.since).as_secs_f64(),
                waiting: period.seen.counts.waiting,
                total: period.total(),
            })
            .collect()
    }
}

impl Period {
    fn say(&mut self, now: Duration) -> Option<Notice> {
        let text = match self.said {
            None if self.looks < self.seen.manner.looks => return None,
            None => self.sentence(),
            Some(said) if now.saturating_sub(said) < AGAIN => return None,
            Some(_) => format!(
                "for {}: {}",
                age(now.saturating_sub(self.since)),
                self.sentence()
            ),
        };
        let is_first = self.said.replace(now).is_none();
        if is_first && self.seen.manner.said_elsewhere {
            return None;
        }
        let level = match self.seen.state {
            State::Failing => Level::Error,
            State::Degraded | State::Healthy => Level::Warn,
        };
        Some(Notice { level, text })
    }

    fn end(&self) -> Option<Notice> {
        self.said.filter(|_| !self.seen.manner.said_elsewhere)?;
        let lasted = age(self.last.saturating_sub(self.since));
        let total = match (self.total(), self.seen.manner.counting) {
            (0, _) => String::new(),
            (total, Counting::Refusals) => format!("; {total} in all"),
            (total, _) => format!("; {total} calls had to wait"),
        };
        Some(Notice {
            level: Level::Info,
            text: format!("ended after {lasted}: {}{total}", self.seen.what),
        })
    }

    fn sentence(&self) -> String {
        let mut text = self.seen.what.clone();
        if self.seen.manner.counting != Counting::Others || self.total() > 0 {
            text += &format!("; {}", self.counted());
        }
        if !self.seen.advice.is_empty() {
            text += &format!(". {}", self.seen.advice);
        }
        text
    }

    fn counted(&self) -> String {
        let total = self.total();
        match self.seen.manner.counting {
            Counting::Refusals => {
                format!("{total} since it began{}", Last(self.seen.counts.client))
            }
            Counting::Waits | Counting::Others => format!(
                "{} wait now, {total} have waited since it began",
                self.seen.counts.waiting
            ),
        }
    }

    /// Counted since it began.
    fn total(&self) -> u64 {
        self.seen.counts.total.saturating_sub(self.before)
    }
}

struct Last(Option<IpAddr>);

impl fmt::Display for Last {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(client) => write!(f, ", the last from {client}"),
            None => Ok(()),
        }
    }
}

/// A time in whole seconds.
pub(super) fn age(time: Duration) -> String {
    humantime::format_duration(Duration::from_secs(time.as_secs())).to_string()
}

#[cfg(test)]
mod tests;
