//! The command `restore`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::{Arg, ArgMatches, Command, value_parser};

use super::{configured, path, path_argument, switch};
use crate::admin::{RestoreOrder, VolumePath};

/// `restore`.
pub(super) fn command(json: &Arg) -> Command {
    configured(
        "restore",
        "Put a file or directory of a snapshot back, without copying its bytes",
    )
    .after_help(
        "Paths begin at the root of the volume. The running gateway makes a new object with the content, attributes and \
         times\nthat the snapshot has; it gets its name when the bucket has all of it. Its bytes count in quotas, and stay \
         when the\nsnapshot is deleted. docs/snapshots.md has examples.",
    )
    .arg(path_argument("The file or directory: /home/ann/notes").required(true))
    .arg(
        Arg::new("from")
            .long("from")
            .value_name("snapshot")
            .required(true)
            .help("Name of the snapshot"),
    )
    .arg(
        Arg::new("to")
            .long("to")
            .value_name("path")
            .value_parser(value_parser!(OsString))
            .help("The path that it gets; its directory must exist [default: the path that it had]"),
    )
    .arg(switch(
        "replace",
        "If there is an object with that path, rename it first: NAME becomes NAME.before-restore",
    ))
    .arg(json.clone())
}

/// The order.
pub(super) fn order(matches: &ArgMatches) -> Option<RestoreOrder> {
    let to: Option<&OsString> = matches.get_one("to");
    Some(RestoreOrder {
        path: path(matches)?,
        from: matches.get_one::<String>("from")?.clone(),
        to: to.map(|to| VolumePath(to.as_bytes().to_vec())),
        replace: matches.get_flag("replace"),
    })
}
