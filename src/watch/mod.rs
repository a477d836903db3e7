//! What an operator hears while clients wait or something is wrong: that it begins, every few minutes that it goes on, and
//! that it is over, with how long it lasted.
//!
//! [`look`] gathers what there is to see: the problems of the volume's [`crate::health`], and the counts of those
//! who [wait or were refused](forebay_vfs::Troubles). [`Watch`] decides what to say of it. A task looks once a second and
//! sends that to the log; `forebay status` shows what goes on.

mod opening;
mod period;
mod subjects;
mod task;

use std::sync::Arc;
use std::time::Duration;

use forebay_fs::Status;
use forebay_vfs::{Counts, Trouble, Troubles};
use serde::{Deserialize, Serialize};

use crate::health::{self, Problem, State};

pub use opening::OpeningWatch;
pub use period::{Level, Notice, Watch};
pub use subjects::{Counting, Manner, SUBJECTS, Subject};
pub use task::{Watcher, watch_opening};

/// How often there is a look.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// One thing that is looked at: whether it is there, and how many it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its name for programs.
    pub name: String,
    /// How bad it is.
    pub state: State,
    /// The sentence about it, without an end.
    pub what: String,
    /// What to do, as a sentence without an end; may be empty.
    pub advice: &'static str,
    /// When it is said.
    pub manner: Manner,
    /// It is so now, whatever the counts say.
    pub stands: bool,
    /// Those who wait, or were refused.
    pub counts: Counts,
}

/// Something that goes on, as `forebay status` shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// Its name for programs.
    pub name: String,
    /// What is said about it.
    pub message: String,
    /// Since when.
    pub for_seconds: f64,
    /// Calls that wait now.
    pub waiting: u64,
    /// Calls that had to wait, or were refused, since it began.
    pub total: u64,
}

/// What there is to see of a gateway.
pub fn look(volume: &Status, troubles: &[Arc<Troubles>]) -> Vec<Seen> {
    let counts = |kind: Trouble| {
        let counts = troubles.iter().map(|one| one.counts(kind));
        counts.fold(Counts::default(), Counts::and)
    };
    let standing = health::of_volume(volume).into_iter().map(|problem| Seen {
        manner: subjects::manner(&problem.name),
        counts: match &problem.name[..] {
            "bucket_away" => counts(Trouble::Bucket),
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
        counts: counts(subject.kind),
    });
    standing.chain(counted).collect()
}

/// What clients wait for, as problems of the gateway's health.
pub fn problems(waits: &[Wait]) -> Vec<Problem> {
    let degrading = |wait: &Wait| {
        let subject = SUBJECTS.iter().find(|subject| subject.name == wait.name)?;
        (subject.state > State::Healthy)
            .then(|| Problem::new(subject.state, subject.name, wait.message.clone()))
    };
    waits.iter().filter_map(degrading).collect()
}
