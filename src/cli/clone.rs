//! The command `clone`.

use clap::{Arg, ArgMatches, Command};

use super::{configured, switch};

/// A request about clones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloneRequest {
    /// Make a clone.
    Make {
        /// The snapshot: name or number.
        snapshot: String,
        /// The place of the clone.
        to: String,
    },
    /// Print the clones of the volume, and its source.
    List {
        /// As JSON.
        json: bool,
    },
    /// Make the clone a volume of its own.
    Detach {
        /// Print no progress.
        quiet: bool,
    },
    /// Stop holding snapshots for a clone that is gone.
    Forget {
        /// The place of the clone.
        place: String,
    },
}

/// `clone`.
pub(super) fn clone(json: &Arg) -> Command {
    let snapshot = Arg::new("snapshot")
        .value_name("snapshot")
        .required(true)
        .help("Name or number of the snapshot");
    let to = Arg::new("to")
        .long("to")
        .value_name("url")
        .required(true)
        .help("Place of the clone: another prefix of the same bucket, s3://bucket/prefix, or another folder, file:///folder");
    let place = Arg::new("place")
        .value_name("place")
        .required(true)
        .help("Place of the clone, as `forebay clone list` prints it");
    configured("clone", "Make a new volume from a snapshot, without a copy")
        .after_help(
            "The clone reads what the snapshot has from its source, whose gateway may run, and cannot delete the snapshot then.\n\
             A sealed clone is opened with the same passphrase or key. Serve it with a data_dir of its own.",
        )
        .args_conflicts_with_subcommands(true)
        .subcommand_negates_reqs(true)
        .arg(snapshot)
        .arg(to)
        .subcommand(configured("list", "Print the clones of this volume and its source").arg(json.clone()))
        .subcommand(
            configured("detach", "Copy what lies at the source of this clone, so that it needs the source no more")
                .after_help("A gateway may serve the clone. After an interruption the same command goes on.")
                .arg(switch("quiet", "Print no progress")),
        )
        .subcommand(
            configured("forget", "Stop keeping snapshots for a clone whose objects were deleted").arg(place),
        )
}

/// The request of `clone`.
pub(super) fn request(matches: &ArgMatches) -> CloneRequest {
    let text = |matches: &ArgMatches, name| matches.get_one::<String>(name).cloned();
    match matches.subcommand() {
        Some(("list", matches)) => CloneRequest::List {
            json: matches.get_flag("json"),
        },
        Some(("detach", matches)) => CloneRequest::Detach {
            quiet: matches.get_flag("quiet"),
        },
        Some((_, matches)) => CloneRequest::Forget {
            place: text(matches, "place").unwrap_or_default(),
        },
        None => CloneRequest::Make {
            snapshot: text(matches, "snapshot").unwrap_or_default(),
            to: text(matches, "to").unwrap_or_default(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<CloneRequest> {
        let command = clone(&switch("json", "Print JSON"));
        let matches = command.try_get_matches_from(line.split(' ')).ok()?;
        Some(request(&matches))
    }

    #[test]
    fn a_snapshot_is_cloned_and_clones_are_listed_detached_and_forgotten() {
        let made = CloneRequest::Make {
            snapshot: "monday".into(),
            to: "s3://b/p".into(),
        };
        assert_eq!(read("clone monday --to s3://b/p --data-dir /d"), Some(made));
        assert_eq!(
            read("clone list --json"),
            Some(CloneRequest::List { json: true })
        );
        let detach = CloneRequest::Detach { quiet: false };
        assert_eq!(read("clone detach --store file:///s"), Some(detach));
        let forget = CloneRequest::Forget {
            place: "p/q".into(),
        };
        assert_eq!(read("clone forget p/q"), Some(forget));
        for line in [
            "clone",
            "clone monday",
            "clone --to s3://b/p",
            "clone forget",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
