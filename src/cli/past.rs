//! The commands about earlier states of the volume, which read the bucket alone.

use clap::{Arg, ArgMatches, Command};

use super::{configured, path, path_argument, switch};
use crate::admin::VolumePath;

/// A question about earlier states of the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastRequest {
    /// The question.
    pub question: PastQuestion,
    /// As JSON.
    pub json: bool,
}

/// The questions. Snapshots are given by name or number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PastQuestion {
    /// The snapshots that the bucket has.
    Snapshots {
        /// All if it is not given.
        name: Option<String>,
    },
    /// What differs between two moments.
    Changes {
        /// The old one.
        since: String,
        /// The new one; the newest published state if it is not given.
        until: Option<String>,
    },
    /// The versions of a path.
    Versions {
        /// The path, from the root of the volume.
        path: VolumePath,
    },
}

/// `changes`.
pub(super) fn changes(json: &Arg) -> Command {
    let snapshot =
        |name, help: &'static str| Arg::new(name).long(name).value_name("snapshot").help(help);
    configured(
        "changes",
        "Print what was made, changed, renamed and removed since a snapshot",
    )
    .after_help(
        "Reads the bucket alone, and writes nothing; a gateway may run. Changes not published yet are not seen: run \
         forebay flush\nfirst. Paths of removed objects, and old paths, are those of the older state, all others those of \
         the newer one. A\nrenamed directory is one line. docs/snapshots.md explains the kinds of changes.",
    )
    .arg(snapshot("since", "The older state: name or number of a snapshot").required(true))
    .arg(snapshot(
        "until",
        "The newer state: name or number of a snapshot [default: the newest published state]",
    ))
    .arg(json.clone().help("Print JSON, one line for each change"))
}

/// `versions`.
pub(super) fn versions(json: &Arg) -> Command {
    configured(
        "versions",
        "Print the versions of a file in all snapshots and in the newest published state",
    )
    .after_help(
        "Reads the bucket alone, and writes nothing; a gateway may run. Consecutive snapshots with the same version are one \
         line.\nThe path is looked up in each snapshot: a file that was renamed meanwhile has its versions under both \
         names.",
    )
    .arg(path_argument("The file, from the root of the volume: /home/ann/notes").required(true))
    .arg(json.clone())
}

/// `snapshot diff`.
pub(super) fn diff(json: &Arg) -> Command {
    let snapshot =
        |name, help: &'static str| Arg::new(name).value_name(name).required(true).help(help);
    configured(
        "diff",
        "Print what differs between two snapshots, from the bucket alone",
    )
    .arg(snapshot("old", "Name or number of the older snapshot"))
    .arg(snapshot("new", "Name or number of the newer snapshot"))
    .arg(json.clone().help("Print JSON, one line for each change"))
}

/// The flag that asks the bucket instead of the gateway.
pub(super) fn bucket() -> Arg {
    switch(
        "bucket",
        "Read the bucket instead of asking the gateway, which need not run; sees published snapshots alone",
    )
}

/// The request of a command named `name`; `None` if it is one for a running gateway.
pub(super) fn request(name: &str, matches: &ArgMatches) -> Option<PastRequest> {
    let text = |name| matches.get_one::<String>(name).cloned();
    // Required where it is used.
    let required = |name| text(name).unwrap_or_default();
    let asks_bucket = || matches.get_flag("bucket");
    let question = match name {
        "changes" => PastQuestion::Changes {
            since: required("since"),
            until: text("until"),
        },
        "diff" => PastQuestion::Changes {
            since: required("old"),
            until: text("new"),
        },
        "versions" => PastQuestion::Versions {
            path: path(matches).unwrap_or(VolumePath(Vec::new())),
        },
        "list" if asks_bucket() => PastQuestion::Snapshots { name: None },
        "show" if asks_bucket() => PastQuestion::Snapshots { name: text("name") },
        _ => return None,
    };
    Some(PastRequest {
        question,
        json: matches.get_flag("json"),
    })
}
