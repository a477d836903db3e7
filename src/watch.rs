//! Messages to the operator while clients wait or a problem lasts: at the beginning, every few minutes meanwhile, and
//! at the end, with the duration.
//!
//! [`look`] gathers the observations: the problems of the volume's [`crate::health`], and the counts of calls that
//! [wait or were refused](forebay_vfs::Troubles). [`Watch`] decides which messages to log. A task does this once a
//! second; `forebay status` shows the current waits. [`Returning`] ends the trouble of an idle gateway.

mod opening;
mod period;
mod returning;
mod subjects;
mod task;

use std::sync::Arc;
use std::time::Duration;

use forebay_fs::Status;
use forebay_object::{Ended, Requests};
use forebay_vfs::{Counts, Trouble, Troubles};
use serde::{Deserialize, Serialize};

use crate::health::{self, Problem, State};

pub use opening::OpeningWatch;
pub use period::{Level, Notice, Watch};
pub use returning::Returning;
pub use subjects::{Counted, Counting, Manner, SUBJECTS, Subject};
pub use task::{Watcher, watch_opening};

/// The interval of observations.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// One observation: whether a problem is present, and how many calls it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its name for programs.
    pub name: String,
    /// How bad it is.
    pub state: State,
    /// The sentence about it, without its full stop.
    pub what: String,
    /// The remedy, as a sentence without its full stop; may be empty.
    pub advice: &'static str,
    /// When it is logged.
    pub manner: Manner,
    /// It is present now, independent of the counts.
    pub stands: bool,
    /// The calls that wait, or the clients that were refused.
    pub counts: Counts,
}

/// A condition that lasts, as `forebay status` shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// Its name for programs.
    pub name: String,
    /// The message about it.
    pub message: String,
    /// Its duration so far.
    pub for_seconds: f64,
    /// Calls that wait now.
    pub waiting: u64,
    /// Calls that had to wait, or were refused, since it began.
    pub total: u64,
}

/// The counters of a gateway that are watched.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Calls that wait or were refused.
    pub troubles: Vec<Arc<Troubles>>,
    /// Requests to the bucket.
    pub requests: Arc<Requests>,
}

impl Counters {
    fn counts(&self, kind: Counted) -> Counts {
        match kind {
            Counted::Calls(kind) => {
                let counts = self.troubles.iter().map(|one| one.counts(kind));
                counts.fold(Counts::default(), Counts::and)
            }
            Counted::Throttled => Counts {
                total: self.requests.ended_total(Ended::Throttled),
                ..Counts::default()
            },
        }
    }
}

/// The observations of a gateway.
pub fn look(volume: &Status, counters: &Counters) -> Vec<Seen> {
    let standing = health::of_volume(volume).into_iter().map(|problem| Seen {
        manner: subjects::manner(&problem.name),
        counts: match &problem.name[..] {
            "bucket_away" => counters.counts(Counted::Calls(Trouble::Bucket)),
            _ => Counts::default(),
        },
        name: problem.name,
        state: problem.state,
        what: problem.message,
        advice: "",
        stands: true,
    });
    let counted = SUBJECTS.iter().map(|subject| Seen {
        name: subject.name.to_owned(),
        state: subject.state,
        what: subject.what.to_owned(),
        advice: subject.advice,
        manner: subject.manner,
        stands: false,
        counts: counters.counts(subject.kind),
    });
    standing.chain(counted).collect()
}

/// The waits of clients, as problems of the gateway's health.
pub fn problems(waits: &[Wait]) -> Vec<Problem> {
    let degrading = |wait: &Wait| {
        let subject = SUBJECTS.iter().find(|subject| subject.name == wait.name)?;
        (subject.state > State::Healthy)
            .then(|| Problem::new(subject.state, subject.name, wait.message.clone()))
    };
    waits.iter().filter_map(degrading).collect()
}
